"""Unique strings planted as PHI are found in no output, log, audit, state or dead-letter description.

Only the payload of an unsealed dead letter may contain them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deid_agent.agent.dead_letter_keys import generate_keys, load_private_key
from deid_agent.audit.reading import read_entries

FAMILY, GIVEN, MRN, PHONE, MAIL = "Zyblorqvist", "Quennifer", "QX7719302", "740-555-0177", "quenn@zyblorq.example.org"
CANARIES = [FAMILY, GIVEN, MRN, PHONE, MAIL]

HL7 = (
    rf"MSH|^~\&|A|B|C|D|20240318143012||ORU^R01^ORU_R01|{MRN}-1|P|2.5.1" + "\r"
    f"PID|1||{MRN}^^^B^MR||{FAMILY}^{GIVEN}||19570422|F|||2 Quay Street^^Ord^OH^45601||{PHONE}\r"
    f"OBX|1|TX|1^Note^L||Mrs. {FAMILY}, {GIVEN} ({MRN}) came in; {PHONE} or {MAIL}.||||||F\r"
    f"ZPD|{FAMILY}^{GIVEN}|call {PHONE}\r"
)
FHIR = (
    f'{{"resourceType": "Patient", "id": "{MRN}", "name": [{{"family": "{FAMILY}", "given": ["{GIVEN}"]}}], '
    f'"telecom": [{{"system": "phone", "value": "{PHONE}"}}, {{"system": "email", "value": "{MAIL}"}}]}}'
)
REFUSED = {
    "cut-off.json": FHIR[:-3].encode(),
    "no-kind.json": f'{{"name": "{FAMILY} {GIVEN}"}}'.encode(),
    "prose.txt": f"{GIVEN} {FAMILY}, {MRN}".encode(),
    "broken.hl7": f"PID|1||{MRN}||{FAMILY}^{GIVEN}".encode(),
    "bytes.json": b'{"resourceType": "' + FAMILY.encode() + b'\xff"}',
}

CONFIG = """
transport = "directory"
log_level = "debug"
[http]
port = 0
[agent]
workers = 1
[directory]
input = "in"
output = "out"
dead_letters = "dead"
state = "state"
[dead_letters]
{dead_letters}
[audit]
path = "audit"
"""


KEPT = {"plain": "plain = true", "sealed": 'public_key = "dead-letters.key.pub"'}


@pytest.fixture(scope="module", params=list(KEPT))
def ran(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A finished run over messages full of canaries, at the most verbose log level."""
    root = tmp_path_factory.mktemp("leak")
    generate_keys(root / "dead-letters.key")
    (root / "in").mkdir()
    (root / "in" / "good.hl7").write_text(HL7, newline="")
    (root / "in" / "good.json").write_text(FHIR)
    (root / "in" / f"{FAMILY}_{GIVEN}_{MRN}.hl7").write_text(HL7, newline="")
    for name, payload in REFUSED.items():
        (root / "in" / name).write_bytes(payload)
    (root / "agent.toml").write_text(CONFIG.format(dead_letters=KEPT[request.param]))
    environ = {key: value for key, value in os.environ.items() if not key.startswith("DEID_")}
    done = subprocess.run(
        [sys.executable, "-m", "deid_agent", "run", "--config", "agent.toml", "--demo-key"],
        cwd=root,
        env=environ,
        capture_output=True,
        timeout=120,
        check=False,
    )
    (root / "stdout").write_bytes(done.stdout)
    (root / "stderr").write_bytes(done.stderr)
    assert done.returncode == 1, done.stderr.decode()  # some were refused
    return root


def test_no_canary_leaves(ran: Path) -> None:
    found = [
        f"{path.relative_to(ran)}: {canary}"
        for path in ran.rglob("*")
        if path.is_file() and path.parent != ran / "in" and path.suffix != ".payload"
        for canary in CANARIES
        if canary.casefold().encode() in path.read_bytes().lower() or canary.casefold() in path.name.casefold()
    ]
    assert found == []


def test_the_search_would_find_one(ran: Path) -> None:
    assert FAMILY.encode() in (ran / "in" / "good.hl7").read_bytes()
    private = load_private_key(ran / "dead-letters.key")
    payloads = b"".join(path.read_bytes() for path in (ran / "dead").glob("*.payload"))
    payloads += b"".join(private.open(path.read_bytes(), 1 << 20) for path in (ran / "dead").glob("*.sealed"))
    assert all(canary.encode() in payloads for canary in (FAMILY, GIVEN, MRN))


def test_every_input_is_published_or_dead_lettered(ran: Path) -> None:
    assert len(list((ran / "out").rglob("*.*"))) == 3
    dead_letters = [path.suffix for path in (ran / "dead").iterdir() if path.suffix != ".json"]
    assert dead_letters in (len(REFUSED) * [".payload"], len(REFUSED) * [".sealed"])
    assert len(list(read_entries(ran / "audit"))) == 3 + len(REFUSED)
