"""``deid-agent audit report``."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.trails import SIGNER, entry, trail, written

from deid_agent.audit import first_public_key
from deid_agent.cli import main
from deid_agent.cli.audit_report import _describe_file
from deid_agent.cli.unexamined_file import render_ledger


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["audit", "report", *map(str, words)])


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEID_KEY", "DEID_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asyncio.run(written(tmp_path / "audit", [[entry(0), entry(1)], [entry(2)]]))
    return tmp_path / "audit"


def test_a_sound_trail_gives_a_page_and_json(folder: Path, tmp_path: Path) -> None:
    page, data, ledger = tmp_path / "r.html", tmp_path / "r.json", tmp_path / "ledger.csv"
    ledger.write_text(render_ledger({("hl7v2", "OBX-5", "code"): 5, ("hl7v2", "OBX-3", "code"): 2}))
    done = call(folder, "--out", page, "--json", data, "--unexamined", ledger, "--public-key", first_public_key(folder))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"3 messages, 0 values replaced, 0 refused: {page}\n"
    found = json.loads(data.read_text())
    assert (found["records"], found["unexamined"], found["patients"]) == (3, {"code": 7}, None)
    assert found["trail"]["sound"] and "under the first key" in found["trail"]["words"]
    assert "The audit trail is intact" in page.read_text()
    done = call(folder, "--out", page, "--unauthenticated")
    assert done.exit_code == 2 and "exists" in done.stderr


def test_the_trails_of_two_agents_are_in_one_report(folder: Path, tmp_path: Path) -> None:
    asyncio.run(written(tmp_path / "two", [[entry(7)]]))
    keys = [word for each in (folder, tmp_path / "two") for word in ("--public-key", first_public_key(each))]
    done = call(folder, tmp_path / "two", "--out", tmp_path / "r.html", *keys)
    assert (done.exit_code, done.stdout) == (0, f"4 messages, 0 values replaced, 0 refused: {tmp_path / 'r.html'}\n")
    assert "under the first key" in (tmp_path / "r.html").read_text()
    damaged = tmp_path / "two" / "00000001.jsonl"
    damaged.write_bytes(damaged.read_bytes().replace(b'"offset":7', b'"offset":8'))
    assert call(folder, tmp_path / "two", "--out", tmp_path / "b.html", *keys).exit_code == 1
    assert "trail 2, 00000001.jsonl" in (tmp_path / "b.html").read_text()
    for words in ((folder, folder), (folder, tmp_path / "two", "--head", folder / "head.json")):
        assert call(*words, "--out", tmp_path / "c.html", *keys).exit_code == 2


def test_who_wrote_the_trail_is_claimed_only_with_a_key(folder: Path, tmp_path: Path) -> None:
    for number, (options, words) in enumerate(
        ((("--unauthenticated",), "No key was given"), (("--public-key", SIGNER.public), "holder of the secret key"))
    ):
        assert call(folder, "--out", tmp_path / f"{number}.html", *options).exit_code == 0
        assert words in (tmp_path / f"{number}.html").read_text()
    done = call(folder, "--out", tmp_path / "none.html")
    assert done.exit_code == 2 and "no key" in done.stderr and not (tmp_path / "none.html").exists()


def test_the_head_beside_the_trail_shows_no_lost_end(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_bytes((folder / "head.json").read_bytes())
    for name, head, words in (
        ("a", folder / "head.json", "not compared with a head"),
        ("b", tmp_path / "kept.json", "up to the head that was kept elsewhere"),
    ):
        page = tmp_path / f"{name}.html"
        assert call(folder, "--out", page, "--public-key", first_public_key(folder), "--head", head).exit_code == 0
        assert words in page.read_text()


def test_a_broken_trail_gives_a_report_that_begins_with_it_and_exit_code_1(folder: Path, tmp_path: Path) -> None:
    path = folder / "00000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"offset":1', b'"offset":7'))
    done = call(folder, "--out", tmp_path / "r.html", "--json", tmp_path / "r.json", "--unauthenticated")
    assert done.exit_code == 1
    assert "NOT intact" in done.stderr and "NOT intact" in (tmp_path / "r.html").read_text()
    found = json.loads((tmp_path / "r.json").read_text())["trail"]
    assert not found["sound"] and found["faults"][0] == {
        "where": "00000001.jsonl:4",
        "code": "CHAIN",
        "detail": found["faults"][0]["detail"],
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--from", "2024-01-02", "--to", "2024-01-01"), "is after"),
        (("--from", "2024-01-02"), "no entry of the project default is in the period"),
        (("--project", "cohort"), "no entry of a project cohort"),
        (("--json", "r.html"), "one file"),
        (("--json", "."), "name a new file"),
        (("--json", "nowhere/r.json"), "its folder does not exist"),
        (("--from", "tomorrow"), "does not match the format"),
        (("--unexamined", "nowhere.csv"), "--unexamined nowhere.csv"),
        (("--policy", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_a_wrong_call_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(folder, "--out", tmp_path / "r.html", "--unauthenticated", *options)
    assert done.exit_code == 2 and words in done.stderr and not (tmp_path / "r.html").exists()


def test_folders_without_a_trail_of_messages(tmp_path: Path) -> None:
    for name, words in (("nowhere", "no such folder"), ("empty", "no segment of a trail")):
        if name == "empty":
            (tmp_path / name).mkdir()
        done = call(tmp_path / name, "--out", tmp_path / "r.html", "--unauthenticated")
        assert done.exit_code == 2 and words in done.stderr


def test_the_words_of_a_policy_are_those_of_the_file_with_its_digest(tmp_path: Path) -> None:
    named, words = _describe_file("safe-harbor")
    own = tmp_path / "ours.toml"
    own.write_text('name = "ours"\nwhy = "For the registry <1>."\ndefault = "mask"\n[types]\nAGE = "keep"\n')

    async def write() -> None:
        others = ("safe-harbor:0123456789abcdef", "../ours:0", _describe_file(str(own))[0])
        for number, policy in enumerate((named, *others)):
            log = trail(tmp_path / "audit", build={"version": "0.1.0", "policy": policy, "key": "0badc0de"})
            await log.append([entry(number)])
            await log.close()

    asyncio.run(write())
    options = ("--policy", own, "--json", tmp_path / "r.json", "--unauthenticated")
    assert call(tmp_path / "audit", "--out", tmp_path / "r.html", *options).exit_code == 0
    assert {each["words"] for each in json.loads((tmp_path / "r.json").read_text())["policies"]} == {
        words,
        "",
        "For the registry <1>. Values are masked by the name of their type; kept: AGE.",
    }
    page = (tmp_path / "r.html").read_text()
    assert "4 policies applied" in page and "registry &lt;1&gt;" in page and "not at hand" in page
