"""Public keys of clients and issuers (JWKS, RFC 7517): from a file, or from an address that the settings list.

No address ever comes from a token. Whatever an address answers is bounded in size and time, and a redirect is an error.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import aiohttp
import orjson

from deid_agent.model import ConfigurationError

if TYPE_CHECKING:  # agents without SMART logins start without these libraries
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

MOST_BYTES: Final = 256 * 1024
_MOST_KEYS: Final = 64
_MOST_TEXT: Final = 1400
"""Characters of a number of a key: an RSA modulus of 8,192 bits has 1,366."""
_MOST_EXPONENT: Final = 12
_LEAST_RSA_BITS: Final = 2048
_FETCH_S: Final = 5.0
_KEEP_S: Final = 300.0
_AGAIN_S: Final = 5.0
"""Shortest time between two requests to one address, so that no flood of tokens becomes one of requests."""
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384"}
_MAX_AGE: Final = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key with its name, and the signatures that it may check."""

    kid: str
    algorithms: frozenset[str]
    key: "EllipticCurvePublicKey | RSAPublicKey" = field(repr=False)


class KeySet(Protocol):
    """The public keys of one client or issuer."""

    @property
    def url(self) -> str | None:
        """The address of the keys."""

    @property
    def available(self) -> bool:
        """False if an address has given no keys, or none for too long."""

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """The key of a name for an algorithm; None if there is none, or if the address gives no keys."""


def parse_jwks(data: bytes) -> Sequence[VerificationKey]:
    """The usable keys of a JWKS. Raises ``ValueError``, with a text that holds none of its values.

    Keys for other purposes and of other kinds are ignored. A private key is an error: it is not secret any more.
    """
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise ValueError("is not JSON") from None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or not all(isinstance(each, dict) for each in keys):
        raise ValueError('is no key set: it needs a list "keys"')
    if len(keys) > _MOST_KEYS:
        raise ValueError(f"has more than {_MOST_KEYS} keys")
    if any("d" in each for each in keys):
        raise ValueError("holds a private key, which only its owner may have")
    found = [key for each in keys if (key := _parse_key(each)) is not None]
    if not found:
        raise ValueError(
            "has no usable key: EC P-384 or P-256, or RSA of 2048 bits or more, with a kid, for signatures"
        )
    return found


def _parse_key(member: Mapping[str, object]) -> VerificationKey | None:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey  # noqa: PLC0415

    kid, operations = member.get("kid"), member.get("key_ops", ["verify"])
    if not isinstance(kid, str) or not 0 < len(kid) <= 256 or member.get("use", "sig") != "sig":
        return None
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    numbers = {name: member.get(name) for name in ("n", "e", "x", "y") if name in member}
    if not all(isinstance(each, str) and len(each) <= _MOST_TEXT for each in numbers.values()):
        return None
    if len(str(numbers.get("e", ""))) > _MOST_EXPONENT:
        return None
    key = _load_key({"kty": member.get("kty"), "crv": member.get("crv"), **numbers})
    if isinstance(key, EllipticCurvePublicKey):
        algorithms = {_CURVES[key.curve.name]} if key.curve.name in _CURVES else set()
    elif isinstance(key, RSAPublicKey) and key.key_size >= _LEAST_RSA_BITS:
        algorithms = {"RS256", "RS384"}
    else:
        return None
    if "alg" in member:
        algorithms &= {str(member["alg"])}
    return VerificationKey(kid, frozenset(algorithms), key) if algorithms else None


def _load_key(member: Mapping[str, object]) -> object:
    """The key of these members; None if they are none."""
    from jwt import PyJWTError  # noqa: PLC0415
    from jwt.algorithms import ECAlgorithm, RSAAlgorithm  # noqa: PLC0415

    try:
        match member["kty"]:
            case "EC":
                return ECAlgorithm.from_jwk({**member})
            case "RSA":
                return RSAAlgorithm.from_jwk({**member})
    except (PyJWTError, ValueError, TypeError, KeyError, ArithmeticError):
        return None
    return None


def select_key(keys: Sequence[VerificationKey], kid: str, algorithm: str) -> VerificationKey | None:
    """The first key of this name for this algorithm."""
    return next((key for key in keys if key.kid == kid and algorithm in key.algorithms), None)


@dataclass(frozen=True, slots=True)
class FileKeys:
    """The keys of a file, read at the start."""

    keys: Sequence[VerificationKey]
    url: str | None = None
    available: bool = True

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """The key of a name for an algorithm."""
        return select_key(self.keys, kid, algorithm)


def read_keys(path: Path, setting: str) -> FileKeys:
    """The keys of a file. Raises ``ConfigurationError``."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"has more than {MOST_BYTES} bytes")
        return FileKeys(parse_jwks(data))
    except OSError as problem:
        raise ConfigurationError(f"{setting} {path}: cannot be read ({type(problem).__name__})") from None
    except ValueError as problem:
        raise ConfigurationError(f"{setting} {path}: {problem}") from None


class _UnusableAnswerError(Exception):
    """An answer that is no key set; its text is a closed code."""


class FetchedKeys:
    """The keys of an address, kept for five minutes or as long as the answer permits. ``report`` gets codes of faults.

    If the address does not answer, its last keys are used for ``stale_s`` more seconds.
    """

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext,
        report: Callable[[str], None],
        stale_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url: str | None = url
        self._address = url
        self._context = context
        self._report = report
        self._stale_s = stale_s
        self._clock = clock
        self._keys: Sequence[VerificationKey] = ()
        self._fresh_until = self._asked_at = -1e9
        self._fetching = asyncio.Lock()

    @property
    def available(self) -> bool:
        """False if the address has given no keys, or none for too long."""
        return self._clock() < self._fresh_until + self._stale_s

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """The key of a name for an algorithm. A name that the kept keys lack is asked for, at most every 5 s."""
        found = select_key(self._keys, kid, algorithm)
        if found is not None and self.available and self._fetching.locked():
            return found  # one request waits for the address, not all of them
        if found is None or self._clock() >= self._fresh_until:
            async with self._fetching:
                found = select_key(self._keys, kid, algorithm)
                stale = found is None or self._clock() >= self._fresh_until
                if stale and self._clock() - self._asked_at >= _AGAIN_S:
                    await self._refresh()
                    found = select_key(self._keys, kid, algorithm)
        return found if self.available else None

    async def _refresh(self) -> None:
        try:
            data, keep_s = await self._fetch()
            self._keys = parse_jwks(data)
            self._fresh_until = self._clock() + max(_AGAIN_S, min(_KEEP_S, keep_s))
        except _UnusableAnswerError as problem:
            self._report(str(problem))
        except TimeoutError:
            self._report("TIMEOUT")
        except (aiohttp.ClientError, OSError):  # before ValueError: that of a certificate is one too
            self._report("CONNECTION")
        except ValueError:
            self._report("KEYS")
        finally:
            self._asked_at = self._clock()

    async def _fetch(self) -> tuple[bytes, float]:
        """The body and the seconds for which it may be kept."""
        limit = aiohttp.ClientTimeout(total=_FETCH_S)
        connector = aiohttp.TCPConnector(ssl=self._context, force_close=True)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "deid-agent"}
        async with (
            aiohttp.ClientSession(
                connector=connector, timeout=limit, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            ) as session,
            session.get(self._address, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise _UnusableAnswerError("REDIRECT" if 300 <= response.status < 400 else "STATUS")
            data = bytearray()
            async for chunk in response.content.iter_chunked(65_536):
                data += chunk
                if len(data) > MOST_BYTES:
                    response.close()
                    raise _UnusableAnswerError("SIZE")
            control = ",".join(response.headers.getall("Cache-Control", []))
        return bytes(data), _keep_seconds(control)


def _keep_seconds(control: str) -> float:
    if re.search(r"(?:^|[,\s])no-(?:store|cache)\b", control, re.IGNORECASE):
        return 0.0
    found = _MAX_AGE.search(control)
    return float(found[1]) if found else _KEEP_S
