"""``run`` and ``check`` on folders: exit codes, what is named where, and ``check`` against ``run``."""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deid_agent.audit.entries import read
from deid_agent.cli import main
from deid_agent.key import DEMO, Key

SAMPLES = Path(__file__).resolve().parents[3] / "deid_agent" / "samples"
GOOD = (SAMPLES / "01-adt-a01.hl7").read_bytes()


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """``run`` takes over the root logger; give it back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def settings(root: Path, letters: str = "plain = true", **changed: str) -> Path:
    """A settings file over folders below ``root``; ``changed`` are paths relative to it."""
    paths = {"input": "in", "output": "out", "dead_letters": "dead", "state": "state", "audit": "audit"} | changed
    at = {name: json.dumps(str(root / path)) for name, path in paths.items()}
    (root / "in").mkdir(exist_ok=True)
    file = root / "agent.toml"
    file.write_text(
        'transport = "directory"\n[http]\nport = 0\n[agent]\nworkers = 0\n'
        f"[directory]\ninput = {at['input']}\noutput = {at['output']}\n"
        f"dead_letters = {at['dead_letters']}\nstate = {at['state']}\n[audit]\npath = {at['audit']}\n"
        f"[dead_letters]\n{letters}\n"
    )
    return file


def run(file: Path) -> Result:
    return CliRunner().invoke(main, ["run", "--demo-key", "--log-level", "info", "--config", str(file)])


def test_a_folder_that_is_fine_ends_with_0(tmp_path: Path) -> None:
    file = settings(tmp_path)
    (tmp_path / "in" / "a.hl7").write_bytes(GOOD)
    done = run(file)
    assert done.exit_code == 0, done.stderr
    assert "demonstration key" in done.stderr
    assert (tmp_path / "out" / "a.hl7").exists()


def test_a_refused_file_is_named_beside_its_letter_alone_and_gives_1(tmp_path: Path) -> None:
    file = settings(tmp_path)
    (tmp_path / "in" / "a.hl7").write_bytes(GOOD)
    (tmp_path / "in" / "Okonkwo.hl7").write_bytes(b"nothing")
    done = run(file)
    assert done.exit_code == 1
    assert "1 files refused, 0 unreadable, 0 folders" in done.stderr
    (letter,) = (tmp_path / "dead").glob("*.json")
    assert json.loads(letter.read_text())["deid.file"] == "Okonkwo.hl7"
    audited = "".join(path.read_text() for path in (tmp_path / "audit").iterdir())
    assert "Okonkwo" not in done.stderr + audited + (tmp_path / "state").read_text()


def test_what_is_skipped_gives_1(tmp_path: Path) -> None:
    file = settings(tmp_path)
    os.mkfifo(tmp_path / "in" / "pipe")
    done = run(file)
    assert done.exit_code == 1
    assert "FilesSkipped" in done.stderr
    assert "pipe" in (tmp_path / "dead" / "not-taken.jsonl").read_text()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"output": "in/out"}, "directory.output"),
        ({"output": "file"}, "directory.output"),
        ({"output": "file/out"}, "directory.output"),
        ({"dead_letters": "out"}, "directory.dead_letters"),
        ({"dead_letters": "out/dead"}, "directory.dead_letters"),
        ({"dead_letters": "in/dead"}, "directory.dead_letters"),
        ({"state": "file/state"}, "directory.state"),
        ({"state": "folder"}, "directory.state"),
        ({"input": "nowhere"}, "directory.input"),
        ({"audit": "file"}, "audit.path"),
        ({"audit": "file/audit"}, "audit.path"),
        ({"audit": "nowhere/audit"}, "audit.path"),
        ({"audit": "in/audit"}, "audit.path"),
    ],
)
def test_check_says_what_run_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], told: str
) -> None:
    monkeypatch.setenv("DEID_KEY", "ab" * 32)
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    file = settings(tmp_path, **changed)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    ran = run(file)
    assert ran.exit_code == 2
    assert told in ran.stderr
    assert "AgentStarted" not in ran.stderr
    checked = CliRunner().invoke(main, ["check", "--config", str(file)])
    assert checked.exit_code == 2
    assert told in checked.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_check_looks_at_kafka_offline_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_KEY", "ab" * 32)
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    file = tmp_path / "kafka.toml"
    file.write_text(
        f'transport = "kafka"\n[kafka]\nbootstrap_servers = "b:9092"\nsasl_mechanism = "XX"\n[kafka.routes]\na = "b"\n'
        "[dead_letters]\nplain = true\n"
        f"[audit]\npath = {json.dumps(str(tmp_path / 'audit'))}\n"
    )
    done = CliRunner().invoke(main, ["check", "--offline", "--config", str(file)])
    assert done.exit_code == 2
    assert "kafka.sasl_mechanism" in done.stdout
    ran = run(file)
    assert ran.exit_code == 2
    assert not (tmp_path / "audit").exists(), "a start that failed leaves no empty audit"
    file.write_text(file.read_text().replace("XX", "PLAIN"))
    assert CliRunner().invoke(main, ["check", "--offline", "--config", str(file)]).exit_code == 0


KAFKA = """transport = "kafka"
[kafka]
bootstrap_servers = "b:9092"
sasl_mechanism = "XX"
[kafka.routes]
a = "b"
[dead_letters]
plain = true
[audit]
path = "audit"
[http]
port = 0
"""


def test_the_demonstration_key_is_refused_on_kafka_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By flag and from a file; allowed, the start goes on to the next fault, the SASL mechanism."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    monkeypatch.setenv("DEID_KEY", DEMO.secret.hex())
    file = tmp_path / "kafka.toml"
    file.write_text(KAFKA)
    calls = (["run", "--demo-key"], ["run"], ["check", "--offline"])
    for call in calls:
        done = CliRunner().invoke(main, [*call, "--config", str(file)])
        assert done.exit_code == 2
        assert "demonstration key is for demonstrations" in done.output
    monkeypatch.setenv("DEID_ALLOW_DEMO_KEY", "true")
    for call in calls:
        done = CliRunner().invoke(main, [*call, "--config", str(file)])
        assert "demonstration key is for demonstrations" not in done.output
        assert "kafka.sasl_mechanism" in done.output


def test_every_audit_entry_names_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a record that was refused; the same trail goes on under the next key."""
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    file = settings(tmp_path)
    secrets = [bytes([n]) * 32 for n in (1, 2)]
    for secret in secrets:
        monkeypatch.setenv("DEID_KEY", secret.hex())
        (tmp_path / "in" / f"{secret[0]}.hl7").write_bytes(GOOD)
        (tmp_path / "in" / f"{secret[0]}.bad").write_bytes(b"nothing")
        CliRunner().invoke(main, ["run", "--config", str(file)])
    entries = [dict(item) for item in read(tmp_path / "audit")]
    keys = [entry["build"]["key"] for entry in entries if isinstance(entry["build"], dict)]
    assert keys == [Key(secret).id for secret in secrets for _ in range(2)]
    assert {entry["outcome"] for entry in entries} == {"published", "dead_lettered"}
    made = [(tmp_path / "out" / f"{secret[0]}.hl7").read_bytes() for secret in secrets]
    assert made[0] != made[1]


def test_check_tells_who_may_see_the_console_and_what_is_wrong_with_its_token(tmp_path: Path) -> None:
    file = settings(tmp_path)
    file.write_text(file.read_text().replace("port = 0\n", 'port = 0\nconsole = true\nconsole_token_file = "no"\n', 1))
    done = CliRunner().invoke(main, ["check", "--offline", "--config", str(file)])
    assert "FAIL console       http.console_token_file no: cannot be read" in done.stdout
    file.write_text(file.read_text().replace('console_token_file = "no"\n', ""))
    done = CliRunner().invoke(main, ["check", "--offline", "--config", str(file)])
    assert "ok   console       127.0.0.1:0, open to this machine, read-only" in done.stdout
