import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.keys import KEY
from support.trails import OTHER, SIGNER, entry, trail, written

from deid_agent.audit.reading import first_public_key
from deid_agent.audit.storage import Signer
from deid_agent.cli import main
from deid_agent.config.secrets import DEMO_KEY, SecretKey

DEMO_PUBLIC = Signer(DEMO_KEY.audit_seed).public


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, words)])


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEID_KEY", "DEID_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asyncio.run(written(tmp_path / "audit", [[entry(0), entry(1)], [entry(2)]]))
    return tmp_path / "audit"


def trail_of(folder: Path) -> str:
    return str(json.loads((folder / "00000001.jsonl").read_bytes().splitlines()[0])["trail"])


def damaged(folder: Path) -> None:
    path = folder / "00000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"offset":1', b'"offset":7'))


def test_a_sound_trail_exits_with_0(folder: Path) -> None:
    done = call("verify", folder, "--public-key", SIGNER.public.upper())
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "adt/0: offsets 0 to 2, 3 entries, 0 offsets absent, 0 repeated",
        f"trail {trail_of(folder)} of an unnamed agent: 2 epochs, first key {first_public_key(folder)}",
        f"sound: 1 segment, 6 lines, 3 entries, 2 checkpoints, signed by {SIGNER.public}",
    ]
    assert "trusted by the secret key" in done.stderr
    done = call("verify", folder, "--public-key", first_public_key(folder))
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_fault_is_located_and_exits_with_1(folder: Path) -> None:
    damaged(folder)
    done = call("verify", folder, "--public-key", SIGNER.public)
    assert done.exit_code == 1
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("00000001.jsonl:4: adt/0/7: CHAIN: ")
    assert last.startswith("NOT SOUND: ")
    lines = [json.loads(line) for line in call("verify", folder, "--json", "--unauthenticated").stdout.splitlines()]
    assert (lines[0]["segment"], lines[0]["line"], lines[0]["code"], lines[0]["fault"]) == (
        "00000001.jsonl",
        4,
        "CHAIN",
        True,
    )
    assert (lines[-1]["sound"], lines[-1]["key_given"], lines[-1]["streams"]["adt/0"]["absent"]) == (False, False, 6)


def test_many_faults_are_summarized_by_number(folder: Path) -> None:
    path = folder / "00000001.jsonl"
    path.write_bytes(path.read_bytes() + b"{}\n" * 500)
    lines = call("verify", folder, "--unauthenticated").stdout.splitlines()
    assert len(lines) < 120
    assert "more faults; --json shows all" in "\n".join(lines)
    assert len(call("verify", folder, "--json", "--unauthenticated").stdout.splitlines()) > 500


def test_without_a_key_only_consistency_is_claimed(folder: Path) -> None:
    done = call("verify", folder)
    assert done.exit_code == 2
    assert "no key: give --public-key" in done.stderr
    done = call("verify", folder, "--unauthenticated")
    assert done.exit_code == 0
    assert "no key was given" in done.stderr


def test_the_configured_key_decides_which_signatures_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_KEY", KEY.hex())
    done = call("verify", folder)
    assert done.exit_code == 1
    assert "KEY: begun by " in done.stdout
    both = call("verify", folder, "--public-key", OTHER.public, "--public-key", SIGNER.public)
    assert both.exit_code == 0


def test_the_public_key_is_that_of_the_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEID_KEY", KEY.hex())
    public = Signer(SecretKey(KEY).audit_seed).public
    assert call("key").stdout == f"{public}\n"
    secret = tmp_path / "deid.key"
    secret.write_bytes(KEY)
    secret.chmod(0o600)
    monkeypatch.delenv("DEID_KEY")
    assert call("key", "--key-file", secret).stdout == f"{public}\n"
    assert call("key").exit_code == 2
    assert call("key", "--demo-key").stdout == f"{DEMO_PUBLIC}\n"


def test_unsigned_entries_are_a_warning_and_with_strict_a_fault(tmp_path: Path) -> None:
    async def left_open() -> None:
        log = trail(tmp_path / "audit")
        await log.append([entry(0)])
        await log.append([entry(1)])

    asyncio.run(left_open())
    done = call("verify", tmp_path / "audit", "--unauthenticated")
    assert done.exit_code == 0
    assert "UNSIGNED: 2 entries" in done.stderr
    done = call("verify", tmp_path / "audit", "--unauthenticated", "--strict")
    assert done.exit_code == 1
    assert "UNSIGNED: 2 entries" in done.stdout
    assert (
        json.loads(call("verify", tmp_path / "audit", "--unauthenticated", "--json").stdout.splitlines()[0])["fault"]
        is False
    )


def test_a_separately_stored_head_reveals_truncation(tmp_path: Path) -> None:
    folder, kept = tmp_path / "audit", tmp_path / "kept.json"
    asyncio.run(written(folder, [[entry(0)]]))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    asyncio.run(written(folder, [[entry(1)]]))
    kept.write_bytes((folder / "head.json").read_bytes())
    for name, data in before.items():
        (folder / name).write_bytes(data)
    assert call("verify", folder, "--unauthenticated").exit_code == 0, "the folder alone does not reveal it"
    done = call("verify", folder, "--unauthenticated", "--head", kept)
    assert done.exit_code == 1
    assert "TRUNCATED" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "nowhere"),
        ("show", "nowhere"),
        ("export", "nowhere"),
        ("verify", ".", "--public-key", "ab"),
        ("verify", ".", "--head", "nowhere", "--unauthenticated"),
        ("verify", "."),
        ("key", "nowhere"),
        ("prove", ".", "--since", "nowhere"),
        ("prove", "."),
        ("prove", ".", "--offset", "1"),
        ("check-proof", "nowhere", "--public-key", "ab" * 32),
        ("check-proof", "nowhere"),
    ],
)
def test_wrong_usage_exits_with_2(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_control_characters_of_a_trail_do_not_reach_the_terminal(folder: Path) -> None:
    path = folder / "00000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"topic":"adt"', b'"topic":"\\u001b[2J"'))
    done = call("verify", folder, "--unauthenticated")
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout + call("show", folder).stdout


def test_show_and_export_apply_filters(folder: Path, tmp_path: Path) -> None:
    assert call("show", folder, "--offset", 1).stdout == "2023-11-14T22:13:20Z adt/0/1 published 0\n"
    (line,) = call("export", folder, "--offset", 2).stdout.splitlines()
    assert json.loads(line)["build"]["key"] == "0badc0de"
    call("export", folder, "--form", "fhir", "--out", tmp_path / "events.ndjson")
    events = [json.loads(line) for line in (tmp_path / "events.ndjson").read_text().splitlines()]
    assert [event["resourceType"] for event in events] == ["AuditEvent"] * 3


def test_an_entry_is_found_by_the_id_of_its_output(tmp_path: Path) -> None:
    marked = [entry(0, id="aa" * 16), entry(1, id="bb" * 16), entry(2)]
    asyncio.run(written(tmp_path / "audit", [marked]))
    (line,) = call("show", tmp_path / "audit", "--id", "bb" * 16).stdout.splitlines()
    assert " adt/0/1 " in line
    assert call("show", tmp_path / "audit", "--id", "cc" * 16).stdout == ""
    (exported,) = call("export", tmp_path / "audit", "--id", "aa" * 16).stdout.splitlines()
    assert (json.loads(exported)["deid_id"], json.loads(exported)["offset"]) == ("aa" * 16, 0)
    assert json.loads(call("export", tmp_path / "audit", "--offset", 2).stdout).get("deid_id") is None


def test_an_export_overwrites_no_file(folder: Path, tmp_path: Path) -> None:
    earlier = tmp_path / "events.ndjson"
    earlier.write_text("of an earlier export")
    done = call("export", folder, "--out", earlier)
    assert (done.exit_code, earlier.read_text()) == (2, "of an earlier export")
    assert f"--out {earlier}: exists" in done.stderr


def test_a_proof_is_checked_without_the_trail(tmp_path: Path) -> None:
    output = tmp_path / "output.hl7"
    output.write_bytes(b"MSH|")
    known = [entry(n, id=f"{n:032x}", output_digest=hashlib.sha256(b"MSH|").hexdigest()) for n in range(5)]
    asyncio.run(written(tmp_path / "audit", [known]))
    first = call("key", tmp_path / "audit").stdout.strip()
    assert first == first_public_key(tmp_path / "audit")
    proof = tmp_path / "proof.json"
    assert call("prove", tmp_path / "audit", "--id", f"{3:032x}", "--out", proof).exit_code == 0
    done = call("check-proof", proof, "--public-key", first, "--output", output)
    assert (done.exit_code, done.stdout.splitlines()[1]) == (0, "proven: adt/0/3 published, one of 5 entries")
    output.write_bytes(b"MSH|changed")
    assert "another output" in call("check-proof", proof, "--public-key", first, "--output", output).stdout
    done = call("check-proof", proof, "--public-key", OTHER.public)
    assert (done.exit_code, "neither is trusted" in done.stdout) == (1, True)
    assert call("prove", tmp_path / "audit", "--id", f"{3:032x}", "--out", proof).exit_code == 2, "the file exists"


def test_the_growth_since_a_kept_head_is_proven(tmp_path: Path) -> None:
    folder, kept, proof = tmp_path / "audit", tmp_path / "kept.json", tmp_path / "proof.json"
    asyncio.run(written(folder, [[entry(0)]]))
    kept.write_bytes((folder / "head.json").read_bytes())
    asyncio.run(written(folder, [[entry(1)], [entry(2)]]))
    assert call("prove", folder, "--since", kept, "--out", proof).exit_code == 0
    done = call("check-proof", proof, "--public-key", call("key", folder).stdout.strip())
    assert (done.exit_code, done.stdout.splitlines()[1]) == (
        0,
        "proven: the trail of 3 entries begins with the older one",
    )
    proof.write_text(proof.read_text().replace("lines", "linez", 1))
    assert call("check-proof", proof, "--public-key", SIGNER.public).exit_code == 1
    assert call("prove", folder, "--since", kept, "--offset", 1).exit_code == 2
