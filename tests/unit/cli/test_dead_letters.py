"""``dead-letters`` and ``replay`` over folders: output, refused calls, and the limit that stops the agent."""

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.keys import KEY as SECRET_KEY

from deid_agent.agent.dead_letter_keys import generate_keys, load_private_key, load_public_key
from deid_agent.audit.reading import read_entries as read_audit
from deid_agent.cli import main

SAMPLES = Path(__file__).resolve().parents[3] / "deid_agent" / "samples"
GOOD = (SAMPLES / "01-adt-a01.hl7").read_bytes()
SETTINGS = """
transport = "directory"
[http]
port = 0
[agent]
workers = 0
max_message_bytes = 1024
[directory]
input = "in"
output = "out"
dead_letters = "dead"
state = "state"
[audit]
path = "audit"
[dead_letters]
public_key = "dead-letters.key.pub"
"""
LARGE = GOOD + b"NTE|1||" + b"word " * 100 + b"\r"


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new folder."""
    monkeypatch.chdir(tmp_path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def run(**agent: int) -> Result:
    Path("agent.toml").write_text(
        SETTINGS.replace("max_message_bytes = 1024", f"max_message_bytes = {agent.get('most', 1024)}")
    )
    return call("run", "--demo-key", "--log-level", "info", "--config", "agent.toml")


@pytest.fixture
def refused() -> None:
    """Two dead letters: a message that is too large, and input that is not a message."""
    Path("in").mkdir()
    Path("in", "Okonkwo.hl7").write_bytes(LARGE)
    Path("in", "b.hl7").write_bytes(b'{"Okonkwo')
    assert call("dead-letters", "keygen", "--out", "dead-letters.key").exit_code == 0
    assert run().exit_code == 1


KEY = ("--private-key", "dead-letters.key")
CONFIG = ("--config", "agent.toml")


def test_keygen_names_the_key_and_overwrites_nothing(tmp_path: Path) -> None:
    done = call("dead-letters", "keygen", "--out", "k")
    assert done.exit_code == 0
    assert load_private_key(Path("k")).id in done.stdout
    assert "k.pub for the agent" in done.stdout
    before = Path("k").read_bytes()
    assert before.decode().strip().partition(":")[2] not in done.output
    again = call("dead-letters", "keygen", "--out", "k")
    assert again.exit_code == 2
    assert "never overwritten" in again.stderr
    assert Path("k").read_bytes() == before


@pytest.mark.usefixtures("refused")
def test_list_shows_coordinates_and_codes_without_a_key() -> None:
    done = call("dead-letters", "list", *CONFIG)
    assert done.exit_code == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["record", "code", "stage", "where", "tries", "version", "refused", "put", "back"]
    assert [line.split()[:4] for line in lines] == [
        ["files/0/0", "RESOURCE", "size", "payload"],
        ["files/0/1", "MALFORMED", "deidentify", "byte"],
    ]
    assert "Okonkwo" not in done.output
    (line,) = call("dead-letters", "list", *CONFIG, "--json", "--code", "RESOURCE").stdout.splitlines()
    listed = json.loads(line)
    assert listed["record"] == "files/0/0"
    assert listed["refused"].endswith("Z")
    assert listed["key"] == load_public_key(Path("dead-letters.key.pub")).id
    assert listed["build"]["key"] == "demo"
    assert (listed["replayed"], listed["replay_of"]) == (0, None)


@pytest.mark.parametrize("options", [(), ("--json",), ("--code", "LEAK")])
def test_before_the_first_run_list_explains_the_missing_folder(options: tuple[str, ...]) -> None:
    Path("agent.toml").write_text(SETTINGS)
    done = call("dead-letters", "list", *CONFIG, *options)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"deid-agent: directory.dead_letters: {Path('dead').absolute()} does not exist")
    assert "until then there are no dead letters" in done.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "deid-agent: no dead letters\n"),
        (("--code", "LEAK"), "deid-agent: no dead letters match the filter\n"),
        (("--json",), ""),
    ],
)
def test_an_empty_list_has_no_header(options: tuple[str, ...], expected: str) -> None:
    Path("agent.toml").write_text(SETTINGS)
    Path("dead").mkdir()
    done = call("dead-letters", "list", *CONFIG, *options)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", expected)


def test_a_file_instead_of_the_folder_is_named() -> None:
    Path("agent.toml").write_text(SETTINGS)
    Path("dead").touch()
    done = call("dead-letters", "list", *CONFIG)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "dead is not a folder" in done.stderr


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize(
    ("filters", "offsets"),
    [
        (["--topic", "files"], [0, 1]),
        (["--topic", "other"], []),
        (["--partition", "0"], [0, 1]),
        (["--partition", "1"], []),
        (["--offset", "1-"], [1]),
        (["--offset", "-0", "--offset", "1"], [0, 1]),
        (["--offset", "1-5", "--code", "RESOURCE"], []),
        (["--code", "RESOURCE", "--code", "LEAK"], [0]),
        (["--since", "2020-01-01"], [0, 1]),
        (["--until", "2020-01-01T00:00:00+01:00"], []),
    ],
)
def test_filters(filters: list[str], offsets: list[int]) -> None:
    done = call("dead-letters", "list", *CONFIG, "--json", *filters)
    assert done.exit_code == 0, done.stderr
    assert [json.loads(line)["record"] for line in done.stdout.splitlines()] == [f"files/0/{n}" for n in offsets]


@pytest.mark.parametrize(
    "wrong", [["--offset", "x"], ["--offset", "-"], ["--offset", "1-x"], ["--since", "yesterday"], ["--code", "BAD"]]
)
def test_an_invalid_filter_is_refused(wrong: list[str]) -> None:
    assert call("dead-letters", "list", *CONFIG, *wrong).exit_code == 2


@pytest.mark.usefixtures("refused")
def test_open_writes_one_original_for_the_owner_only() -> None:
    done = call("dead-letters", "open", *CONFIG, *KEY, "files/0/0", "--out", "looked-at", "--head")
    assert done.exit_code == 0, done.stderr
    assert Path("looked-at").read_bytes() == LARGE
    assert stat.S_IMODE(Path("looked-at").stat().st_mode) == 0o600
    assert "originals in the clear" in done.stderr
    assert json.loads(done.stdout)["key"] == "Okonkwo.hl7"
    again = call("dead-letters", "open", *CONFIG, *KEY, "files/0/1", "--out", "looked-at")
    assert again.exit_code == 3, "it overwrites nothing"
    assert Path("looked-at").read_bytes() == LARGE


@pytest.mark.usefixtures("refused")
def test_open_diagnoses_an_original_without_its_values() -> None:
    done = call("dead-letters", "open", *CONFIG, *KEY, "files/0/1", "--out", "b", "--diagnose")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "json: not JSON\n"
    valid = call("dead-letters", "open", *CONFIG, *KEY, "files/0/0", "--out", "a", "--diagnose")
    assert all(": " in line and "Okonkwo" not in line for line in valid.stdout.splitlines() if "valid by" not in line)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["files/0/0", "--out", "x"], 1, "files/0/0: it is sealed to key"),
        (["files/0/7", "--out", "x", *KEY], 2, "no such dead letter"),
        (["nonsense", "--out", "x", *KEY], 2, "topic/partition/offset"),
        (["files/0/0", "--out", "x", "--private-key", "dead-letters.key.pub"], 2, "this is the public key"),
    ],
)
def test_open_reports_errors(arguments: list[str], code: int, expected: str) -> None:
    done = call("dead-letters", "open", *CONFIG, *arguments)
    assert done.exit_code == code
    assert expected in done.stderr
    assert not Path("x").exists()


@pytest.mark.usefixtures("refused")
def test_a_refused_record_is_published_once_after_fix_and_replay() -> None:
    dry = call("replay", *CONFIG, *KEY, "--code", "RESOURCE", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "files/0/0\n")
    assert "1 would be put back" in dry.stderr
    assert not Path("in", "deid-replay").exists()

    done = call("replay", *CONFIG, *KEY, "--code", "RESOURCE")
    assert (done.exit_code, done.stdout) == (0, "files/0/0\n"), done.stderr
    assert "originals in the clear" in done.stderr
    assert "Okonkwo" not in done.output
    assert "yes" in call("dead-letters", "list", *CONFIG, "--offset", "0").stdout

    repaired = run(most=1 << 20)
    assert repaired.exit_code == 0, repaired.stderr
    (output,) = (path for path in Path("out").rglob("*") if path.is_file())
    assert b"Okafor" not in output.read_bytes()
    assert output.read_bytes().count(b"\r") == LARGE.count(b"\r")
    assert [entry["outcome"] for entry in read_audit(Path("audit"))] == ["dead_lettered", "dead_lettered", "published"]

    again = call("replay", *CONFIG, *KEY, "--code", "RESOURCE")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "0 put back, 1 were put back before, 0 failed" in again.stderr
    assert call("replay", *CONFIG, *KEY, "--code", "RESOURCE", "--again").stdout == "files/0/0\n"


@pytest.mark.usefixtures("refused")
def test_a_wrong_key_and_damage_are_named_and_the_other_dead_letters_open() -> None:
    generate_keys(Path("other.key"))
    done = call("replay", *CONFIG, "--private-key", "other.key", "--all")
    assert done.exit_code == 1
    ours, theirs = (load_private_key(Path(name)).id for name in ("dead-letters.key", "other.key"))
    expected = f"it is sealed to key {ours}, the key given is {theirs}"
    assert [f"files/0/{n}: {expected}" in done.stderr for n in (0, 1)] == [True, True]
    sealed = Path("dead", "files-0-0000000000.sealed")
    sealed.write_bytes(sealed.read_bytes()[1:])
    done = call("replay", *CONFIG, *KEY, "--all")
    assert (done.exit_code, done.stdout) == (1, "files/0/1\n")
    assert "files/0/0: it is damaged" in done.stderr


@pytest.mark.usefixtures("refused")
def test_replay_requires_a_selection() -> None:
    for wrong in ([], ["--all", "--offset", "0"]):
        done = call("replay", *CONFIG, *KEY, *wrong)
        assert done.exit_code == 2
        assert "--all" in done.stderr
    assert not Path("in", "deid-replay").exists()


@pytest.mark.parametrize(
    ("limit", "fine", "bad", "stops_at"),
    [
        ("run = 3", 2, 4, "files/0/5 (4 in a row)"),
        ("run = 4", 2, 4, None),
        ("run = 2000\nratio = 0.01", 989, 11, "files/0/999 (11 of the last 1000)"),
        ("run = 2000\nratio = 0.01", 990, 10, None),
    ],
)
def test_too_many_dead_letters_stop_the_agent_which_names_the_folder(
    limit: str, fine: int, bad: int, stops_at: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("in").mkdir()
    for number in range(fine + bad):
        Path("in", f"{number:04}.json").write_bytes(b'{"resourceType":"Basic"}' if number < fine else b"{")
    Path("agent.toml").write_text(SETTINGS.replace('public_key = "dead-letters.key.pub"', f"plain = true\n{limit}"))
    done = call("run", "--demo-key", "--log-level", "info", "--config", "agent.toml")
    if stops_at is None:
        assert done.exit_code == 1, done.stderr
        assert len(list(Path("dead").glob("*.json"))) == bad
        return
    assert done.exit_code == 3
    assert f"too many records refused at {stops_at}" in done.stderr
    assert "nothing was lost" in done.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "cannot be read"), ("private", "holds a private key"), ("nonsense", "not a dead-letter key")],
)
def test_run_and_check_report_an_invalid_key(
    content: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEID_KEY", SECRET_KEY.hex())
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    Path("in").mkdir()
    Path("agent.toml").write_text(SETTINGS)
    if content == "private":
        generate_keys(Path("k"))
        Path("dead-letters.key.pub").write_bytes(Path("k").read_bytes())
    elif content is not None:
        Path("dead-letters.key.pub").write_text(content)
    for arguments in (["run"], ["check"]):
        done = call(*arguments, *CONFIG)
        assert done.exit_code == 2
        assert expected in done.output
    assert not Path("audit").exists()


def test_check_reports_how_dead_letters_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_KEY", SECRET_KEY.hex())
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    Path("in").mkdir()
    public = generate_keys(Path("dead-letters.key"))
    Path("agent.toml").write_text(SETTINGS)
    assert f"sealed to {public.id}" in call("check", *CONFIG).stdout
    Path("agent.toml").write_text(SETTINGS.replace('public_key = "dead-letters.key.pub"', "plain = true"))
    assert "in the clear, with all PHI" in call("check", *CONFIG).stdout
