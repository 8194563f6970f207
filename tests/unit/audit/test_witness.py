"""Witnesses of signed heads: a file and a server; a failing one is reported and never waited for."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support.trails import SIGNER, entry, written

from deid_agent.audit.reading import verify_trail
from deid_agent.audit.trail import AuditTrail, TrailSettings
from deid_agent.audit.witness import Witness, WitnessFile, WitnessServer
from deid_agent.telemetry.emit import Telemetry


class Server(HTTPServer):
    """Keeps the heads that it receives and answers with ``status``."""

    status = 204
    received: list[bytes]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing to the terminal."""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.received = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Reports(list[tuple[str, str]]):
    """The reports of a witness; ``wait`` returns once one of them is ``report``."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def __call__(self, place: str, problem: str) -> None:
        with self._changed:
            self.append((place, problem))
            self._changed.notify_all()

    def wait(self, report: tuple[str, str]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: report in self, 20), self


def test_places_keep_the_newest_head_and_a_failure_is_reported_and_repeated(tmp_path: Path, server: Server) -> None:
    reports, path = Reports(), tmp_path / "far" / "heads.jsonl"
    places = (WitnessFile(path), WitnessServer(f"http://127.0.0.1:{server.server_port}/heads"))
    witness = Witness(places, 0.01, reports)
    witness.offer(b'{"head":1}')
    reports.wait(("file", "No such file or directory"))
    reports.wait(("http", ""))
    path.parent.mkdir()
    reports.wait(("file", ""))
    server.status = 302
    witness.offer(b'{"head":2}')
    reports.wait(("http", "HTTP status 302"))
    server.status = 200
    witness.offer(b'{"head":3}')
    witness.close()
    assert path.read_bytes().splitlines()[-1] == b'{"head":3}'
    assert server.received[-1] == b'{"head":3}\n'
    assert server.received[0] == b'{"head":1}\n'
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_witness_without_a_head_ends_at_once(tmp_path: Path) -> None:
    Witness([WitnessFile(tmp_path / "heads.jsonl")], 3600, Reports()).close()
    assert list(tmp_path.iterdir()) == []


async def test_the_heads_of_a_witness_reveal_a_trail_that_was_cut_off(tmp_path: Path) -> None:
    folder, path = tmp_path / "audit", tmp_path / "heads.jsonl"
    witness = Witness([WitnessFile(path)], 0.001, Reports())
    settings = TrailSettings(checkpoint_s=0, epoch_s=1e9)
    log = AuditTrail(folder, {}, SIGNER, Telemetry(), settings, on_head=witness.offer)
    before: dict[str, bytes] = {}
    for offset in range(3):
        await log.append([entry(offset)])
        before = before or {file.name: file.read_bytes() for file in folder.iterdir()}
    await log.close()
    witness.close()
    assert json.loads(path.read_bytes().splitlines()[-1])["size"] == 3
    assert verify_trail(folder, {SIGNER.public}, path).faults == []
    for name, content in before.items():
        (folder / name).write_bytes(content)
    assert verify_trail(folder, {SIGNER.public}).faults == [], "the folder alone does not reveal it"
    assert {fault.code for fault in verify_trail(folder, {SIGNER.public}, path).faults} == {"TRUNCATED"}


async def test_a_trail_hands_out_each_head_once(tmp_path: Path) -> None:
    await written(tmp_path / "audit", [[entry(0)]])
    log = AuditTrail(tmp_path / "audit", {}, SIGNER, Telemetry(), TrailSettings(checkpoint_s=0))
    assert log.take_head() == b""
    await log.append([entry(1)])
    assert json.loads(log.take_head())["size"] == 2
    assert log.take_head() == b""
    await log.close()
