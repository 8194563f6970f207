"""Opens the files of a job: from a server below a listed address, or from the inbox of the project.

The name of a server is resolved once for a connection, each of its addresses is checked, and the connection is made to
a checked address. A name that has another address a moment later (DNS rebinding) so gains nothing.
"""

import asyncio
import errno
import os
import socket
import ssl
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    StreamReader,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from deid_agent.http.service_errors import ServiceError
from deid_agent.http.service_job_inputs import INBOX, InputRules, JobInput

T = TypeVar("T")
Chunks = AsyncGenerator[bytes, None]
Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, as text."""
_CHUNK: Final = 1 << 16
_SLOW_S: Final = 60.0
_SLOWEST: Final = 1024
"""A server may let us wait for a minute, and for a second more with each of so many bytes."""
_HEADERS: Final = {
    "Accept": "application/fhir+ndjson",
    "Accept-Encoding": "identity",
    "User-Agent": "deid-agent",
}


async def look_up(host: str, port: int) -> Sequence[str]:
    """The addresses that the system has for a host."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class CheckedResolver(AbstractResolver):
    """Resolves hosts for one project. Raises ``ServiceError(ADDRESS)`` if any address of a host is not permitted."""

    def __init__(self, rules: InputRules, lookup: Lookup) -> None:
        self._rules = rules
        self._lookup = lookup

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - the connector asks for any
    ) -> list[ResolveResult]:
        """The checked addresses, as numbers, so that nothing resolves the name again."""
        hosts = list(dict.fromkeys(await self._lookup(host, port)))
        if not hosts or not all(map(self._rules.permits_host, hosts)):
            raise ServiceError("ADDRESS")
        return [
            ResolveResult(
                hostname=host,
                host=each,
                port=port,
                family=socket.AF_INET6 if ":" in each else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for each in hosts
        ]

    async def close(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True, slots=True)
class InputOpener:
    """Opens inputs. ``idle_s`` is the longest time without a byte."""

    context: ssl.SSLContext = field(repr=False)
    idle_s: float
    lookup: Lookup = look_up

    @asynccontextmanager
    async def open(self, item: JobInput, rules: InputRules, most: int) -> AsyncGenerator[Chunks, None]:
        """The bytes of a file, at most ``most``. All faults are ``ServiceError``, here and in the chunks."""
        if item.address.startswith(INBOX) and rules.inbox is not None:
            opened = list[int]()
            try:
                await finish_in_thread(_open_file, rules.inbox, item.address.removeprefix(INBOX), opened)
                async with aclosing(_limited(_read_file(opened[0]), most)) as chunks:
                    yield chunks
            finally:
                for file in opened:
                    os.close(file)
            return
        connector = TCPConnector(
            resolver=CheckedResolver(rules, self.lookup),
            use_dns_cache=False,
            ssl=self.context,
            force_close=True,
            limit=1,
        )
        async with ClientSession(
            connector=connector,
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers=_HEADERS,
            read_bufsize=_CHUNK,
            timeout=ClientTimeout(total=None, sock_connect=self.idle_s),
        ) as session:
            response = await self._ask(session, item.address)
            try:
                _check_head(response, most)
                async with aclosing(_limited(self._receive(response.content), most)) as chunks:
                    yield chunks
            finally:
                response.close()

    async def _ask(self, session: ClientSession, address: str) -> ClientResponse:
        try:
            async with asyncio.timeout(self.idle_s):
                return await session.get(URL(address, encoded=True), allow_redirects=False)
        except TimeoutError:
            raise ServiceError("FILE_SLOW") from None
        except (ClientError, OSError, ValueError):
            raise ServiceError("FILE_CUT") from None

    async def _receive(self, content: StreamReader) -> Chunks:
        """Only the time that we wait counts: a job that processes its lines slowly makes no server slow."""
        loop, waited, received = asyncio.get_running_loop(), 0.0, 0
        while True:
            begin = loop.time()
            try:
                async with asyncio.timeout(self.idle_s):
                    chunk = await content.readany()
            except TimeoutError:
                raise ServiceError("FILE_SLOW") from None
            except (ClientError, OSError, ValueError):
                raise ServiceError("FILE_CUT") from None
            if not chunk:
                return
            waited += loop.time() - begin
            received += len(chunk)
            if waited > _SLOW_S + received / _SLOWEST:
                raise ServiceError("FILE_SLOW")
            yield chunk


def _check_head(response: ClientResponse, most: int) -> None:
    """Raise ``ServiceError`` unless the response is the whole file, as it is, with an end that can be recognised."""
    headers = response.headers
    if response.status != 200:
        raise ServiceError("FILE_STATUS")
    if headers.get("Content-Encoding", "identity").strip().lower() not in {"identity", ""}:
        raise ServiceError("FILE_ENCODING")
    coded = ",".join(headers.getall("Transfer-Encoding", [])).strip().lower()
    if coded not in {"", "chunked"}:
        raise ServiceError("FILE_ENCODING")
    # Without a length the end of the connection would be the end of the file, also if the server died.
    if not coded and response.content_length is None:
        raise ServiceError("FILE_CUT")
    if (response.content_length or 0) > most:
        raise ServiceError("JOB_SIZE")


async def _limited(chunks: Chunks, most: int) -> Chunks:
    async with aclosing(chunks):
        async for chunk in chunks:
            most -= len(chunk)
            if most < 0:
                raise ServiceError("JOB_SIZE")
            yield chunk


async def finish_in_thread(function: Callable[..., T], *args: object) -> T:
    """Run a function that blocks. A cancelled task waits for it too: its file must not be closed before."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def _open_file(folder: Path, name: str, opened: list[int]) -> None:
    """Open a plain file of the inbox. The name has no separator, and a link is not followed: it could lead out."""
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # A pipe without a writer would block an open for ever.
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
        finally:
            os.close(root)
    except FileNotFoundError:
        raise ServiceError("FILE_STATUS") from None
    except OSError as error:
        raise ServiceError("ADDRESS" if error.errno in {errno.ELOOP, errno.ENXIO} else "FILE_CUT") from None
    opened.append(file)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise ServiceError("ADDRESS")


async def _read_file(file: int) -> Chunks:
    """The bytes of a file, which must not change meanwhile: its last line could be half a line."""
    before = os.fstat(file)
    try:
        while chunk := await finish_in_thread(os.read, file, _CHUNK):
            yield chunk
    except OSError:
        raise ServiceError("FILE_CUT") from None
    after = os.fstat(file)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ServiceError("FILE_CUT")
