"""The requests to a schema registry. Source: Confluent Platform, "Schema Registry API Reference"."""

import base64
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from urllib.parse import quote, urlsplit

import orjson

from deid_agent.model import ConfigurationError, TransientError

_MOST_BYTES = 8 * 1024 * 1024
_MOST_REFERENCES = 500
_NOT_FOUND = frozenset({40401, 40402, 40403})
"""The registry's codes for an unknown subject, version and schema."""
_REJECTED = frozenset({409, 422})
"""The statuses for a schema that is incompatible or invalid under a subject."""
_MEDIA = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The addresses and the credentials of a registry. ``cache`` is the number of schemas that are kept."""

    urls: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    timeout_s: float = 5.0
    cache: int = 1000


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry. ``descriptor`` is its binary form, for Protobuf only.

    ``imports`` are the names and texts of the schemas that it uses, each after those that it uses itself; binary forms
    in base64 for Protobuf. ``references`` is the list that the registry returned.
    """

    type: str
    text: str = field(repr=False)
    descriptor: str = field(default="", repr=False)
    imports: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    references: tuple[Mapping[str, object], ...] = ()


class SchemaNotFoundError(Exception):
    """The registry answers that it has no such schema, subject or version."""


class SchemaRejectedError(Exception):
    """The registry does not accept a schema under a subject."""


class RegistrySession:
    """Sends requests, each within the timeout. Raises ``ConfigurationError`` if a TLS file cannot be used."""

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._tls: ssl.SSLContext | None = None
        if any(url.startswith("https:") for url in options.urls):
            try:
                self._tls = ssl.create_default_context(cafile=options.ca_file)
                if options.cert_file is not None:
                    self._tls.load_cert_chain(options.cert_file, options.key_file, password=lambda: b"")
            except (OSError, ValueError) as problem:
                detail = f"the TLS files cannot be used ({type(problem).__name__})"
                raise ConfigurationError(f"registry: {detail}: check ca_file, cert_file and key_file") from None

    def schema(self, id_: int) -> RegisteredSchema:
        """The schema with an id. Raises ``SchemaNotFoundError``, ``TransientError``."""
        path = f"/schemas/ids/{id_}"
        return self._complete(_object(self._request("GET", path)), path)

    def latest(self, subject: str) -> tuple[int, RegisteredSchema]:
        """The id and the newest schema of a subject. Raises as ``schema``."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        found = _object(self._request("GET", path))
        return _number(found, "id"), self._complete(found, path)

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """The id of a schema under a subject. Raises as ``schema``, and ``SchemaRejectedError``."""
        body: dict[str, object] = {"schema": schema.text, "references": list(schema.references)}
        if schema.type != "AVRO":
            body["schemaType"] = schema.type
        found = self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", orjson.dumps(body))
        return _number(_object(found), "id")

    def types(self) -> str:
        """The types of schemas that the registry supports. Raises ``TransientError``."""
        try:
            found = self._request("GET", "/schemas/types")
        except SchemaNotFoundError:
            found = None
        return ", ".join(sorted(map(str, found))) if isinstance(found, list) else "types unknown"

    def _complete(self, found: Mapping[str, object], path: str) -> RegisteredSchema:
        type_, text = found.get("schemaType") or "AVRO", found.get("schema")
        if not isinstance(text, str) or not isinstance(type_, str):
            raise TransientError("the schema registry answers without a schema")
        references, imports, descriptor = _references(found), dict[str, str](), ""
        if type_ == "PROTOBUF":
            descriptor = str(_object(self._request("GET", f"{path}?format=serialized")).get("schema"))
        if type_ != "JSON":
            self._add_imports(references, imports, "?format=serialized" if type_ == "PROTOBUF" else "")
        return RegisteredSchema(type_, text, descriptor, tuple(imports.items()), references)

    def _add_imports(self, references: Sequence[Mapping[str, object]], imports: dict[str, str], form: str) -> None:
        for each in references:
            name, subject, version = each.get("name"), each.get("subject"), each.get("version")
            if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(version, int):
                raise TransientError("the schema registry answers with a reference that names no schema")
            if name in imports:
                continue
            if len(imports) >= _MOST_REFERENCES:
                raise SchemaNotFoundError
            imports[name] = ""  # a cycle ends here
            found = _object(self._request("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}{form}"))
            self._add_imports(_references(found), imports, form)
            del imports[name]
            imports[name] = str(found.get("schema"))

    def _request(self, method: str, path: str, body: bytes | None = None) -> object:
        """The JSON answer of the first address that gives one."""
        problem = TransientError("registry: no address")
        for url in self._options.urls:
            try:
                return self._ask(url, method, path, body)
            except TransientError as error:
                problem = error
        raise problem

    def _ask(self, url: str, method: str, path: str, body: bytes | None) -> object:
        until = monotonic() + self._options.timeout_s
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=self._options.timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._options.timeout_s)
        # The timeout of a socket begins again with each byte; the watch ends the request as a whole.
        watch = threading.Timer(self._options.timeout_s, _cut, (connection,))
        watch.daemon = True
        try:
            connection.connect()
            watch.start()
            connection.request(method, parts.path.rstrip("/") + path, body, self._headers(body))
            answer = connection.getresponse()
            data = answer.read(_MOST_BYTES + 1)
            if answer.length and len(data) <= _MOST_BYTES:
                raise TransientError("the schema registry closed the connection inside an answer")
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = monotonic() >= until or isinstance(error, TimeoutError)
            fault = "did not answer in time" if late else f"cannot be reached ({type(error).__name__})"
            raise TransientError(f"the schema registry {fault}") from None
        finally:
            watch.cancel()
            connection.close()
        return _read_answer(answer.status, data, posted=body is not None)

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": f"{_MEDIA}, application/json"}
        if body is not None:
            headers["Content-Type"] = _MEDIA
        if self._options.username is not None:
            pair = f"{self._options.username}:{self._options.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"
        return headers


def _cut(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)


def _read_answer(status: int, data: bytes, *, posted: bool) -> object:
    """The JSON of an answer.

    Raises ``SchemaNotFoundError`` and ``SchemaRejectedError`` only if the registry itself gives that answer. A proxy, a
    wrong address, refused credentials and an overload are ``TransientError``: none of them is the fault of a record.
    """
    if len(data) > _MOST_BYTES:
        raise TransientError("the schema registry answers with more than 8 MiB")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        found = None
    if status == 200:
        if found is None:
            raise TransientError("the schema registry answers without JSON: check registry.url")
        return found
    code = found.get("error_code") if isinstance(found, dict) else None
    if status == 404 and code in _NOT_FOUND:
        raise SchemaNotFoundError
    if posted and status in _REJECTED and isinstance(code, int):
        raise SchemaRejectedError
    hint = ""
    if status in {401, 403}:
        hint = ": check registry.username and its password"
    elif 300 <= status < 500 and status not in {408, 429}:
        hint = ": check registry.url"
    raise TransientError(f"the schema registry answers {status}{hint}")


def _object(found: object) -> Mapping[str, object]:
    if not isinstance(found, dict):
        raise TransientError("the schema registry answers with something else than asked for: check registry.url")
    return found


def _number(found: Mapping[str, object], name: str) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
        raise TransientError("the schema registry answers without an id")
    return value


def _references(found: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
    listed = found.get("references") or []
    return tuple(map(_object, listed)) if isinstance(listed, list) else ()
