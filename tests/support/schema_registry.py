"""A schema registry in this process: the part of Confluent's HTTP contract that clients of records use.

It is not the real one, which needs a JVM and a broker. ``faults`` are answers that it gives instead, in order.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Fault:
    """One answer of a registry in trouble: a status and a body, after a pause."""

    status: int = 503
    body: bytes = b""
    pause_s: float = 0.0


@dataclass
class FakeRegistry:
    """Subjects with their versions; ids are given out by content, as by the real one."""

    schemas: dict[int, dict[str, object]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    descriptors: dict[str, bytes] = field(default_factory=dict)
    """The binary form of each ``.proto`` text."""
    faults: list[Fault] = field(default_factory=list)
    rejected: set[str] = field(default_factory=set)
    user: str = ""
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def add(
        self, subject: str, schema: str, type_: str = "AVRO", references: list[dict[str, object]] | None = None
    ) -> int:
        """The id of a schema under a subject."""
        entry: dict[str, object] = {"schema": schema, "schemaType": type_, "references": references or []}
        id_ = next((n for n, each in self.schemas.items() if each == entry), len(self.schemas) + 1)
        self.schemas[id_] = entry
        versions = self.subjects.setdefault(subject, [])
        if id_ not in versions:
            versions.append(id_)
        return id_

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        parts = urlsplit(path)
        steps = [unquote(step) for step in parts.path.strip("/").split("/")]
        form = parse_qs(parts.query).get("format", [""])[0]
        match method, steps:
            case "GET", ["schemas", "types"]:
                return 200, ["JSON", "PROTOBUF", "AVRO"]
            case "GET", ["schemas", "ids", id_] if int(id_) in self.schemas:
                return 200, self._shown(int(id_), form)
            case "GET", ["schemas", "ids", unknown]:
                return 404, {"error_code": 40403, "message": f"Schema {unknown} not found"}
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version, form)
            case "POST", ["subjects", subject, *_]:
                return self._register(subject, json.loads(body))
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, given: dict[str, str]) -> tuple[int, object]:
        if subject in self.rejected:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        references: list[dict[str, object]] = list(given.get("references") or [])  # type: ignore[arg-type]
        id_ = self.add(subject, given["schema"], given.get("schemaType", "AVRO"), references)
        return 200, {"id": id_, "subject": subject, "version": 1, "schema": given["schema"]}

    def _version(self, subject: str, version: str, form: str) -> tuple[int, object]:
        versions = self.subjects.get(subject)
        if versions is None:
            return 404, {"error_code": 40401, "message": "Subject not found"}
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            return 404, {"error_code": 40402, "message": "Version not found"}
        shown = self._shown(versions[number - 1], form)
        return 200, {"subject": subject, "version": number, "id": versions[number - 1], **shown}

    def _shown(self, id_: int, form: str) -> dict[str, object]:
        entry = dict(self.schemas[id_])
        if form == "serialized":
            text = str(entry["schema"])  # clients in Python register the binary form itself
            entry["schema"] = base64.b64encode(self.descriptors[text]).decode() if text in self.descriptors else text
        if entry["schemaType"] == "AVRO":
            del entry["schemaType"]
        if not entry["references"]:
            del entry["references"]
        return entry


@contextmanager
def serve_registry(registry: FakeRegistry | None = None, tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """A registry on a port of this machine inside the ``with`` block."""
    served = registry or FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply()

        def do_POST(self) -> None:
            self._reply()

        def _reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            served.requests.append(f"{self.command} {self.path}")
            expected = "Basic " + base64.b64encode(served.user.encode()).decode()
            if served.faults:
                fault = served.faults.pop(0)
                time.sleep(fault.pause_s)
                status, data = fault.status, fault.body
            elif served.user and self.headers.get("Authorization") != expected:
                status, data = 401, b'{"error_code": 401, "message": "Unauthorized"}'
            else:
                status, found = served.answer(self.command, self.path, body)
                data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: tests show what they need."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that went away is a part of some tests."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    served.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
