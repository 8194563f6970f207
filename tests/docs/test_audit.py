"""The commands and the program of docs/audit.md work as described."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.trails import OTHER, entry, head_at, written

from deid_agent.audit.faults import FaultCode
from deid_agent.audit.keys import KEY_FILE
from deid_agent.audit.reading import first_public_key, verify_trail
from deid_agent.audit.storage import START, TAIL, Signer, chain_value, line_end
from deid_agent.audit.trail import TrailSettings

CHANGING = re.compile(r"\d+(?= lines| checkpoints)|(?<=trail )[0-9a-f]{32}|(?<=first key )[0-9a-f]{64}")
DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT, PROGRAM = (DOCS / "audit.md").read_text("utf-8"), DOCS / "verify_trail.py"


def test_the_commands_run_as_shown(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    blocks = "".join(re.findall(r"(?<!-->\n)```console\n(.*?)```", TEXT, re.DOTALL))
    for part in re.split(r"^\$ ", blocks, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        # The number of checkpoints depends on the clock, the trail on random keys and the host.
        printed, expected = (CHANGING.sub("N", text) for text in (done.stdout, shown))
        assert (done.returncode, printed) == (0, expected), (command, done.stderr)
    assert len((tmp_path / "events.ndjson").read_bytes().splitlines()) == 6


def test_every_code_is_explained() -> None:
    assert all(f"| `{code}` |" in TEXT for code in FaultCode)


def leave_unchanged(folder: Path) -> None:
    """No manipulation."""


def change_outcome(folder: Path) -> None:
    path = folder / "00000002.jsonl"
    path.write_bytes(path.read_bytes().replace(b"published", b"suppressed", 1))


def drop_a_segment(folder: Path) -> None:
    (folder / "00000002.jsonl").unlink()


def cut_off_end(folder: Path) -> None:
    max(folder.glob("*.jsonl")).unlink()


def swap_lines(folder: Path) -> None:
    path = folder / "00000002.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3], lines[4] = lines[4], lines[3]
    path.write_bytes(b"".join(lines))


def remove_an_entry(folder: Path) -> None:
    path = folder / "00000002.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))


def remove_the_last_epoch(folder: Path) -> None:
    """The state of a former day: a sound trail by itself."""
    for name, content in FORMER.items():
        (folder / name).write_bytes(content)
    for path in folder.glob("*.jsonl"):
        if path.name not in FORMER:
            path.unlink()


def put_in_the_segment_of_another(folder: Path) -> None:
    (folder / "00000002.jsonl").write_bytes((folder.parent / "other" / "00000002.jsonl").read_bytes())


def put_in_the_trail_of_another(folder: Path) -> None:
    for path in (folder.parent / "other").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())


def forge_with_the_present_key(folder: Path) -> None:
    """Another outcome in the first epoch; chain and signatures computed again with the key that the host has now."""
    stolen = Signer(bytes.fromhex((folder / KEY_FILE).read_text()))
    chain = START
    for path in sorted(folder.glob("*.jsonl")):
        forged = []
        for line in path.read_bytes().splitlines(keepends=True):
            body = line[:-TAIL].replace(b'"published"', b'"suppressed"')
            if body.startswith((b'{"kind":"checkpoint"', b'{"kind":"key"')):
                fields = json.loads(line)
                body = stolen.sign(body.partition(b',"signature":')[0].replace(fields["head"].encode(), chain))
            chain = chain_value(chain, body)
            forged.append(body + line_end(chain))
        path.write_bytes(b"".join(forged))


def forge_a_head_with_the_present_key(folder: Path) -> None:
    """The trail ends with the first epoch; the head for that end is signed by the key that the host has now."""
    stolen = Signer(bytes.fromhex((folder / KEY_FILE).read_text()))
    lines = (folder / "00000001.jsonl").read_bytes().splitlines(keepends=True)
    end = next(index for index, line in enumerate(lines) if line.startswith(b'{"kind":"checkpoint"'))
    true = head_at(folder, end + 1).partition(b',"signature":')[0]
    (folder / "00000001.jsonl").write_bytes(b"".join(lines[: end + 1]))
    for path in folder.glob("0000000[2-9].jsonl"):
        path.unlink()
    (folder / "head.json").write_bytes(stolen.sign(true) + b"}\n")


FORMER: dict[str, bytes] = {}


async def test_the_program_verifies_a_trail_by_itself(tmp_path: Path) -> None:
    program = PROGRAM.read_text("utf-8")
    assert len(program.splitlines()) < 80
    assert set(re.findall(r"^(?:from|import) (\w+)", program, re.MULTILINE)) == {
        "json",
        "sys",
        "hashlib",
        "pathlib",
        "cryptography",
    }
    settings = TrailSettings(checkpoint_s=3600, segment_bytes=4000)
    for name in ("one", "other"):
        await written(tmp_path / name, [[entry(n), entry(n + 1)] for n in range(0, 20, 2)], settings)
        FORMER.clear()
        FORMER.update({path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()})
    first = first_public_key(tmp_path / "one")
    await written(tmp_path / "one", [[entry(20)]], settings)
    witness = tmp_path / "witness.jsonl"
    witness.write_bytes(FORMER["head.json"] + (tmp_path / "one" / "head.json").read_bytes())
    for damage, key, message in CASES:
        folder = tmp_path / "copy"
        shutil.copytree(tmp_path / "one", folder)
        damage(folder)
        code, printed = run(PROGRAM, folder, key or first, witness)
        sound = damage is leave_unchanged and not key
        assert (code == 0, message in printed) == (sound, True), (damage.__name__, printed)
        # The agent's own program finds the same.
        assert (not verify_trail(folder, {key or first}, witness).faults) == sound, damage.__name__
        shutil.rmtree(folder)


CASES: tuple[tuple[Callable[[Path], None], str, str], ...] = (
    (leave_unchanged, "", "sound: trail "),
    (change_outcome, "", "00000002.jsonl:3: does not follow"),
    (remove_an_entry, "", "00000002.jsonl:4: does not follow"),
    (swap_lines, "", "00000002.jsonl:4: does not follow"),
    (drop_a_segment, "", "00000003.jsonl: a segment before it is missing"),
    (cut_off_end, "", "the trail is cut off"),
    (remove_the_last_epoch, "", "witness.jsonl:2: signs "),
    (put_in_the_segment_of_another, "", "00000002.jsonl:1: does not follow"),
    (put_in_the_trail_of_another, "", "belongs to another trail"),
    (forge_with_the_present_key, "", "is not signed by the key of its epoch"),
    (forge_a_head_with_the_present_key, "", "is not signed by the key of its epoch"),
    (leave_unchanged, OTHER.public, "belongs to another trail"),
)


def run(program: Path, folder: Path, public: str, witness: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", str(program), str(folder), public, str(witness)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("word", ["checkpoint_s", "segment_bytes", "epoch_s", "agent", "witness_url", "topic", "path"])
def test_the_page_names_the_settings(word: str) -> None:
    assert f"audit.{word}" in TEXT
