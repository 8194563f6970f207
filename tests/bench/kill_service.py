"""Kills an agent with the HTTP interface under load, and looks for each of its answers in the audit: one JSON object.

    PYTHONPATH=.:tests python tests/bench/kill_service.py [--requests 20000] [--clients 8] [--kills 30] [--messages 200]

The policy is ``safe-harbor`` with a crosswalk. Every answer with the status 200 must have an audit entry and a line of
the crosswalk; equal messages must have equal answers, and different messages no link code in common. The exit code is
1 if anything is missing or different.
"""

import argparse
import json
import re
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import requests
from support.http_process import PATIENCE_S, HttpProcess

from deid_agent.agent import KeyUse, generate_keys

_CODE = re.compile(rb"[A-Z0-9]{20}")


@dataclass
class Load:
    """Clients that send messages in turn until enough are answered. ``answers`` has message, record and body."""

    messages: list[bytes]
    wanted: int
    answers: list[tuple[int, str, bytes]] = field(default_factory=list)
    others: int = 0
    faults: int = 0
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, agent: HttpProcess) -> None:
        """Send until the agent is killed."""
        url = f"http://127.0.0.1:{agent.port}/fhir/default/$de-identify"
        with requests.Session() as session:
            while len(self.answers) < self.wanted:
                with self._lock:
                    number = self._next = (self._next + 1) % len(self.messages)
                try:
                    headers = {"Content-Type": "application/fhir+json"}
                    reply = session.post(url, self.messages[number], headers=headers, timeout=PATIENCE_S)
                except requests.RequestException:
                    return
                with self._lock:
                    if reply.status_code == 200:
                        self.answers.append((number, reply.headers["Deid-Record"], reply.content))
                    else:
                        self.others += 1
                        self.faults += reply.status_code not in {429, 503}


def write_messages(count: int) -> list[bytes]:
    """Different Bundles, each of a patient with an observation."""
    patient = {
        "resourceType": "Patient",
        "identifier": [{"system": "urn:mrn", "value": "0"}],
        "name": [{"family": "Quix"}],
    }
    found = []
    for number in range(count):
        patient |= {"id": f"p{number}", "identifier": [{"system": "urn:mrn", "value": f"77{number:06}"}]}
        observation = {
            "resourceType": "Observation",
            "status": "final",
            "code": {"text": "K"},
            "subject": {"reference": f"Patient/p{number}"},
        }
        entries = [{"resource": dict(patient)}, {"resource": observation}]
        found.append(json.dumps({"resourceType": "Bundle", "type": "collection", "entry": entries}).encode())
    return found


def run(folder: Path, load: Load, clients: int, kills: int) -> HttpProcess:
    """Answer all requests; the kills are spread over them."""
    public = [str(folder / f"{name}.pub") for name in ("first", "second")]
    for name in ("first", "second"):
        generate_keys(folder / name, KeyUse.CROSSWALK)
    section = f'[crosswalks.default]\npath = "{folder}/crosswalk"\nseal_to = {json.dumps(public)}\n'
    agent = HttpProcess(folder, policy="safe-harbor", sections=section)
    for number in range(kills + 1):
        agent.start()
        threads = [threading.Thread(target=load.send, args=(agent,)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        last = number == kills
        until, enough = time.monotonic() + 1800, load.wanted * (number + 1) // (kills + 1)
        while len(load.answers) < enough and time.monotonic() < until:
            time.sleep(0.01)
        if not last:
            agent.kill()
        for thread in threads:
            thread.join(PATIENCE_S)
    load.faults += agent.stop() != 0
    return agent


def main() -> int:
    parser = argparse.ArgumentParser()
    for name, least in (("--requests", 20_000), ("--clients", 8), ("--kills", 30), ("--messages", 200)):
        parser.add_argument(name, type=int, default=least)
    chosen = parser.parse_args()
    load = Load(write_messages(chosen.messages), chosen.requests)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deid-kills-") as name:
        agent = run(Path(name), load, chosen.clients, chosen.kills)
        audited = {entry["deid_id"] for entry in agent.entries() if entry["outcome"] == "published"}
        lines = [line for path in (Path(name) / "crosswalk").glob("*.jsonl") for line in path.read_bytes().split(b"\n")]
    records = {json.loads(line)["record"] for line in lines if line.startswith(b'{"kind":"crosswalk"')}
    bodies, codes = defaultdict(set), defaultdict(set)
    for number, _, body in load.answers:
        bodies[number].add(body)
        for code in _CODE.findall(body):
            codes[code].add(number)
    result = {
        "answers": len(load.answers),
        "answers missing": max(0, load.wanted - len(load.answers)),
        "kills": chosen.kills,
        "answers with other statuses": load.others,
        "faults": load.faults,
        "without audit entry": sum(record not in audited for _, record, _ in load.answers),
        "without crosswalk line": sum(record not in records for _, record, _ in load.answers),
        "records twice": len(load.answers) - len({record for _, record, _ in load.answers}),
        "messages with two answers": sum(len(each) > 1 for each in bodies.values()),
        "codes of two messages": sum(len(each) > 1 for each in codes.values()),
        "codes": len(codes),
        "seconds": round(time.monotonic() - began),
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    fine = {"answers", "kills", "answers with other statuses", "codes", "seconds"}
    return 1 if any(count for name, count in result.items() if name not in fine) else 0


if __name__ == "__main__":
    sys.exit(main())
