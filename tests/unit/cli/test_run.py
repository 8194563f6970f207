"""``run`` and ``check`` on folders: exit codes, the output of each, and agreement of ``check`` with ``run``."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.keys import KEY, OTHER_KEY

from deid_agent.audit.reading import read_entries
from deid_agent.cli import main
from deid_agent.config.secrets import DEMO_KEY, SecretKey

SAMPLES = Path(__file__).resolve().parents[3] / "deid_agent" / "samples"
GOOD = (SAMPLES / "01-adt-a01.hl7").read_bytes()


def settings(root: Path, keep: str = "plain = true", **changed: str) -> Path:
    """A settings file over folders below ``root``; ``changed`` are paths relative to it."""
    paths = {"input": "in", "output": "out", "dead_letters": "dead", "state": "state", "audit": "audit"} | changed
    at = {name: json.dumps(str(root / path)) for name, path in paths.items()}
    (root / "in").mkdir(exist_ok=True)
    file = root / "agent.toml"
    file.write_text(
        'transport = "directory"\n[http]\nport = 0\n[agent]\nworkers = 0\n'
        f"[directory]\ninput = {at['input']}\noutput = {at['output']}\n"
        f"dead_letters = {at['dead_letters']}\nstate = {at['state']}\n[audit]\npath = {at['audit']}\n"
        f"[dead_letters]\n{keep}\n"
    )
    return file


def run(file: Path) -> Result:
    return CliRunner().invoke(main, ["run", "--demo-key", "--log-level", "info", "--config", str(file)])


def test_a_run_without_refusals_exits_with_0(tmp_path: Path) -> None:
    file = settings(tmp_path)
    (tmp_path / "in" / "a.hl7").write_bytes(GOOD)
    done = run(file)
    assert done.exit_code == 0, done.stderr
    assert "demonstration key" in done.stderr
    assert (tmp_path / "out" / "a.hl7").exists()


def test_a_refused_file_is_named_only_in_its_dead_letter_and_exits_with_1(tmp_path: Path) -> None:
    file = settings(tmp_path)
    (tmp_path / "in" / "a.hl7").write_bytes(GOOD)
    (tmp_path / "in" / "Okonkwo.hl7").write_bytes(b"nothing")
    done = run(file)
    assert done.exit_code == 1
    assert "1 file refused, 0 unreadable, 0 skipped" in done.stderr
    (dead_letter,) = (tmp_path / "dead").glob("*.json")
    assert json.loads(dead_letter.read_text())["deid.file"] == "Okonkwo.hl7"
    audited = "".join(path.read_text() for path in (tmp_path / "audit").iterdir())
    assert "Okonkwo" not in done.stderr + audited + (tmp_path / "state").read_text()


def test_a_skipped_entry_exits_with_1(tmp_path: Path) -> None:
    file = settings(tmp_path)
    os.mkfifo(tmp_path / "in" / "pipe")
    done = run(file)
    assert done.exit_code == 1
    assert "FilesSkipped" in done.stderr
    assert "pipe" in (tmp_path / "dead" / "not-taken.jsonl").read_text()


@pytest.mark.parametrize(
    ("changed", "expected"),
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
def test_check_reports_the_errors_of_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], expected: str
) -> None:
    monkeypatch.setenv("DEID_KEY", KEY.hex())
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    file = settings(tmp_path, **changed)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    ran = run(file)
    assert ran.exit_code == 2
    assert expected in ran.stderr
    assert "AgentStarted" not in ran.stderr
    checked = CliRunner().invoke(main, ["check", "--config", str(file)])
    assert checked.exit_code == 2
    assert expected in checked.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_check_looks_at_kafka_offline_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_KEY", KEY.hex())
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
    assert not (tmp_path / "audit").exists(), "a failed start leaves no empty audit"
    file.write_text(file.read_text().replace("XX", "PLAIN"))
    assert CliRunner().invoke(main, ["check", "--offline", "--config", str(file)]).exit_code == 0


def test_check_warns_of_days_beside_an_output_without_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_KEY", KEY.hex())
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    monkeypatch.setattr("deid_agent.cli.check._recognizers", lambda _: "")  # loads all models
    policy, file = tmp_path / "ours.toml", settings(tmp_path)
    file.write_text(f"policy = {json.dumps(str(policy))}\n{file.read_text()}")
    for time, warns in (("day", True), ("keep", True), ("year", False), ("none", False)):
        policy.write_text(f'name = "ours"\ndefault = "mask"\n[record]\ntimestamp = "{time}"\n')
        done = CliRunner().invoke(main, ["check", "--config", str(file)])
        assert done.exit_code == 0, done.output
        assert ("warn times" in done.stdout) is warns
        assert ("ok   times" in done.stdout) is True
    policy.write_text('name = "ours"\ndefault = "mask"\n')
    lines = CliRunner().invoke(main, ["check", "--json", "--config", str(file)]).stdout.splitlines()
    (warning,) = (found for line in lines if (found := json.loads(line)).get("warning"))
    assert (warning["ok"], "record.timestamp" in warning["detail"]) == (True, True)


KAFKA = """transport = "kafka"
[kafka]
bootstrap_servers = "b:9092"
security_protocol = "SSL"
ssl_cafile = "nowhere.pem"
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
    """Once it is allowed, the next fault is named: a certificate that does not load."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    monkeypatch.delenv("DEID_KEY", raising=False)
    file = tmp_path / "kafka.toml"
    file.write_text(KAFKA)
    for allowed in ("", "true"):
        monkeypatch.setenv("DEID_ALLOW_DEMO_KEY", allowed or "false")
        done = CliRunner().invoke(main, ["run", "--demo-key", "--config", str(file)])
        assert done.exit_code == 2
        assert ("demonstration key is for demonstrations" in done.output) is not bool(allowed)
        assert ("kafka.ssl_cafile" in done.output) is bool(allowed)


@pytest.mark.parametrize("call", [["run"], ["check", "--offline"]])
def test_the_demonstration_key_is_refused_in_a_file_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: list[str]
) -> None:
    """Also if the setting allows it: only the flag uses it, so that nobody copies it into a deployment."""
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    monkeypatch.setenv("DEID_ALLOW_DEMO_KEY", "true")
    monkeypatch.setenv("DEID_KEY", DEMO_KEY.secret.hex())
    done = CliRunner().invoke(main, [*call, "--config", str(settings(tmp_path))])
    assert done.exit_code == 2
    assert "the demonstration key, which everyone knows" in done.output


def test_every_audit_entry_names_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a refused record; the same trail continues under the next key."""
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    file = settings(tmp_path)
    secrets = [KEY, OTHER_KEY]
    for secret in secrets:
        monkeypatch.setenv("DEID_KEY", secret.hex())
        (tmp_path / "in" / f"{secret[0]}.hl7").write_bytes(GOOD)
        (tmp_path / "in" / f"{secret[0]}.bad").write_bytes(b"nothing")
        CliRunner().invoke(main, ["run", "--config", str(file)])
    entries = [dict(item) for item in read_entries(tmp_path / "audit")]
    keys = [entry["build"]["key"] for entry in entries if isinstance(entry["build"], dict)]
    assert keys == [SecretKey(secret).id for secret in secrets for _ in range(2)]
    assert {entry["outcome"] for entry in entries} == {"published", "dead_lettered"}
    made = [(tmp_path / "out" / f"{secret[0]}.hl7").read_bytes() for secret in secrets]
    assert made[0] != made[1]


def test_check_reports_who_can_reach_the_console_and_a_faulty_token(tmp_path: Path) -> None:
    file = settings(tmp_path)
    file.write_text(file.read_text().replace("port = 0\n", 'port = 0\nconsole = true\nconsole_token_file = "no"\n', 1))
    done = CliRunner().invoke(main, ["check", "--offline", "--config", str(file)])
    assert "FAIL console       http.console_token_file no: cannot be read" in done.stdout
    file.write_text(file.read_text().replace('console_token_file = "no"\n', ""))
    done = CliRunner().invoke(main, ["check", "--offline", "--config", str(file)])
    assert "ok   console       127.0.0.1:0, open to this machine, read-only" in done.stdout


def test_the_ledger_counts_unexamined_values_of_published_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "unexamined.csv"
    monkeypatch.setenv("DEID_AUDIT__UNEXAMINED", str(ledger))
    file = settings(tmp_path)
    (tmp_path / "in" / "a.hl7").write_bytes(GOOD)
    (tmp_path / "in" / "cut.hl7").write_bytes(GOOD[: GOOD.index(b"|")])
    assert run(file).exit_code == 1
    text = ledger.read_text("utf-8")
    single = CliRunner().invoke(
        main, ["message", "--demo-key", "--unexamined", str(tmp_path / "one.csv"), str(tmp_path / "in" / "a.hl7")]
    )
    assert single.exit_code == 0
    assert text == (tmp_path / "one.csv").read_text("utf-8") != "format,path,reason,count\n"
    ledger.write_text("no ledger")
    assert run(file).exit_code == 2


def test_check_prints_the_paths_of_an_allow_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_POLICY", "minimum")
    key = tmp_path / "key"
    key.write_bytes(bytes(range(7, 250, 7)))
    key.chmod(0o600)
    monkeypatch.setenv("DEID_KEY_FILE", str(key))
    done = CliRunner().invoke(main, ["check", "--offline", "--config", str(settings(tmp_path))])
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ok   publish")]
    assert "only " in line and "OBX(NM)-5" in line and "Observation.valueQuantity" in line and "PID-5" not in line
