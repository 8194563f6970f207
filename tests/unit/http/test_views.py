"""The data of the console: dead letters and replays, the audit, the inventory, and no value from a message."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.consoles import ACT, CANARY, TOKEN, World, world

from deid_agent.audit.reading import EntryFilter
from deid_agent.http import audit_view
from deid_agent.http.access import AccessSettings
from deid_agent.http.audit_view import AuditCursor, search_entries
from deid_agent.telemetry import events

WRITER = AccessSettings(TOKEN, write=True)
MODELS = {("network", True, 64), ("token", True, 64), ("vectors", True, 64)}
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def console(plain: Path) -> AsyncIterator[World]:
    async with world(plain) as console:
        yield console


async def test_the_overview_shows_state_build_and_numbers(console: World) -> None:
    console.telemetry.emit(events.BatchCommitted("adt", 0, 20, 18, 0, 2, 0.2))
    status, answer = await console.get("api/overview?minutes=60")
    assert status == 200
    assert answer["ready"] == {"ok": True, "reasons": []}
    assert {"topic": "adt", "outcome": "published", "count": 18.0} in answer["totals"]["messages"]
    assert answer["build"]["policy"].startswith("pseudonymised:")
    assert (await console.get("api/overview?minutes=7"))[0] == 400


async def test_dead_letters_are_listed_by_position_and_reason_without_file_names(console: World) -> None:
    answer = await console.finished("api/dead-letters")
    found = answer["found"]
    assert found["counts"] == {"UNSUPPORTED": 2}
    assert [dead_letter["record"] for dead_letter in found["dead_letters"]] == ["files/0/3", "files/0/2"]
    assert answer["replay"] == {"allowed": False, "running": False}
    assert CANARY not in json.dumps(answer) and "Okonkwo" not in json.dumps(answer)


async def test_an_unreadable_dead_letter_is_named_and_the_others_are_listed(own: Path, tmp_path: Path) -> None:
    (tmp_path / "dead" / f"files-0-{CANARY.replace('/', '')}-1.json").write_text("none")
    async with world(own) as console:
        found = (await console.finished("api/dead-letters"))["found"]
    assert found["total"] == 2
    assert [item["why"] for item in found["damaged"]] == ["its description cannot be read"]


async def test_a_missing_folder_is_reported(own: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "dead")
    async with world(own) as console:
        answer = await console.finished("api/dead-letters")
    assert (answer["state"], answer["found"]) == ("failed", None)
    assert "does not exist" in answer["problem"]


async def test_a_sealed_dead_letter_is_replayed_with_its_key_which_is_not_stored(
    sealed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    private = (tmp_path / "dead-letters.key").read_text()
    async with world(sealed, WRITER) as console:
        body = {"records": ["files/0/2", "files/0/9"], "key": None}
        await console.post("api/replay", body, BEARER | ACT)
        answer = await replayed(console)
        assert answer["done"] == []
        assert [item["record"] for item in answer["failed"]] == ["files/0/2", "files/0/9"]
        assert "choose its private key file" in answer["failed"][0]["why"]
        status, wrong = await console.post("api/replay", body | {"key": "deid-letters-private-1:Okonkwo"}, BEARER | ACT)
        assert status == 400 and "Okonkwo" not in str(wrong)
        assert (await console.post("api/replay", body | {"key": private}, BEARER | ACT))[0] == 202
        answer = await replayed(console)
        assert answer["done"] == ["files/0/2"]
        back = list((tmp_path / "in" / "deid-replay").rglob("*.hl7"))
        assert [path.read_bytes() for path in back] == [b"nothing of Okonkwo"]
        await console.post("api/replay", body | {"key": private, "records": ["files/0/2"]}, BEARER | ACT)
        assert (await replayed(console))["failed"] == [{"record": "files/0/2", "why": "it was replayed before"}]
    secret = private.strip().partition(":")[2]
    assert secret not in caplog.text
    assert "ConsoleReplayed" in caplog.text
    assert [path.name for path in holding(tmp_path, secret.encode())] == ["dead-letters.key"]


def holding(folder: Path, data: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and data in path.read_bytes()]


async def replayed(console: World) -> Any:
    while (answer := (await console.get("api/replay", **BEARER))[1])["state"] == "running":
        pass
    return answer["found"]


@pytest.mark.parametrize("body", [{}, {"records": []}, {"records": ["x"]}, {"records": ["a/0/1"], "again": 1}, [], "x"])
async def test_an_ambiguous_replay_request_does_nothing(plain: Path, body: object) -> None:
    async with world(plain, WRITER) as console:
        assert (await console.post("api/replay", body, BEARER | ACT))[0] == 400


async def test_the_audit_is_searched_newest_first(console: World) -> None:
    _, answer = await console.get("api/audit")
    assert [entry["offset"] for entry in answer["entries"]] == [3, 2, 1, 0]
    assert answer["more"] is None
    _, answer = await console.get("api/audit?outcome=published&topic=files&partition=0&offset=1")
    (entry,) = answer["entries"]
    assert entry["replaced"] > 20 and entry["remarks"][0]["source"]
    assert entry["build"]["version"] and entry["segment"] == "00000001.jsonl"
    assert len(entry["deid_id"]) == 32 and len(entry["output_sha256"]) == 64
    for wrong in ("outcome=lost", "reason=x", "partition=-1", "offset=1e3", "before=x", "topic=a%20b"):
        assert (await console.get(f"api/audit?{wrong}"))[0] == 400, wrong


def trail(folder: Path, segments: int, lines: int) -> None:
    """A trail as a reader sees it; it would not verify."""
    offset = 0
    for number in range(1, segments + 1):
        out = [b'{"kind":"segment","build":{"id":"b"}}\n']
        for _ in range(lines):
            outcome = "published" if offset % 3 else "dead_lettered"
            fields = {"kind": "entry", "time": 1.0, "topic": "t", "partition": 0, "offset": offset, "outcome": outcome}
            out.append(orjson.dumps(fields | {"remarks": []}) + b"\n")
            offset += 1
        (folder / f"{number:08}.jsonl").write_bytes(b"".join(out))


@pytest.mark.parametrize("most", [1, 1 << 30])
def test_pages_of_a_search_skip_and_repeat_nothing(tmp_path: Path, most: int) -> None:
    trail(tmp_path, segments=3, lines=70)
    seen: list[object] = []
    more: AuditCursor | None = None
    pages = 0
    while pages == 0 or more is not None:
        found = search_entries(tmp_path, EntryFilter(outcome="published"), more, most)
        assert len(found.entries) <= audit_view.PAGE_ENTRIES
        seen += [entry["offset"] for entry in found.entries]
        more, pages = found.more, pages + 1
    assert seen == [n for n in range(209, -1, -1) if n % 3]


FORGED = (
    b'"remarks":["x",null,[]]',
    b'"remarks":"x"',
    b'"remarks":[{"type":"DATE","count":"many"},{"type":7,"count":-1}]',
    b'"remarks":[{"count":18446744073709551615},{"count":18446744073709551615},{"count":1.5}]',
    b'"remarks":[' + b"[" * 300 + b"]" * 300 + b"]",
    b'"remarks":[{"path":' + b"[" * 300 + b"]" * 300 + b"}]",
    b'"remarks":[{"count":true}]',
    b'"outcome":7,"where":' + b"[" * 300 + b"]" * 300,
    b'"time":"never","topic":{},"chain":null',
)
"""Members that no agent writes. They duplicate earlier members, and the parser uses the last one."""


async def test_a_forged_entry_hides_no_other(own: Path, tmp_path: Path) -> None:
    path = tmp_path / "audit" / "00000001.jsonl"
    whole = path.read_bytes()
    line = b'{"kind":"entry","time":1.5,"topic":"files","partition":0,"offset":9,"outcome":"published",%s}\n'
    async with world(own) as console:
        for members in FORGED:
            path.write_bytes(whole + line % members)
            status, answer = await console.get("api/audit")
            assert status == 200, members
            forged, *others = answer["entries"]
            assert [entry["offset"] for entry in others] == [3, 2, 1, 0] and others[2]["replaced"] > 20
            assert (forged["offset"], type(forged["outcome"]), forged["replaced"]) == (9, str, 0)
            assert all(isinstance(remark, dict) and remark["count"] == 0 for remark in forged["remarks"])
        assert not (await console.finished("api/audit/chain"))["found"]["whole"], "and the chain reports it"


async def test_the_chain_is_verified_and_a_change_is_detected(own: Path, tmp_path: Path) -> None:
    async with world(own) as console:
        found = (await console.finished("api/audit/chain"))["found"]
        assert found["whole"] and found["entries"] == 4
        assert [key["ours"] for key in found["keys"]] == [True]
    path = tmp_path / "audit" / "00000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"offset":2', b'"offset":7', 1))
    async with world(own) as console:
        found = (await console.finished("api/audit/chain"))["found"]
    assert not found["whole"]
    assert found["faults"][0]["code"] == "CHAIN" and found["faults"][0]["record"] == "files/0/7"


async def test_a_trail_that_is_too_large_names_the_command(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_view, "MAX_VERIFY_BYTES", 10)
    async with world(plain) as console:
        answer = await console.finished("api/audit/chain")
    assert answer["state"] == "failed" and "deid-agent audit verify" in answer["problem"]


async def test_the_running_configuration_is_shown_without_secrets(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_HTTP__CONSOLE_TOKEN", TOKEN)
    async with world(plain) as console:
        found = (await console.finished("api/inventory"))["found"]
    rules = {rule["id"]: rule for rule in found["rules"]}
    assert rules["mrn-labelled"]["types"] == ["MEDICALRECORD"] and len(rules["mrn-labelled"]["digest"]) == 16
    assert {rule["kind"] for rule in rules.values()} == {"pattern", "veto", "late veto"}
    assert {(model["id"], model["used"], len(model["digest"])) for model in found["models"] if model["used"]} == MODELS
    assert {model["id"] for model in found["models"]} > {model for model, _, _ in MODELS}
    assert found["policy"]["name"] == "pseudonymised"
    assert found["changed"] == []
    settings = {one["name"]: one["value"] for one in found["configuration"]}
    assert settings["http.console_token"] == "(set, not shown)"
    assert settings["transport"] == "directory"
    assert TOKEN not in json.dumps(found)


async def test_rules_changed_since_the_start_are_reported(other_rules: Path, tmp_path: Path) -> None:
    async with world(other_rules) as console:
        (tmp_path / "rules" / "README.md").write_text("another")
        assert (await console.finished("api/inventory"))["found"]["changed"] == ["rules"]


async def test_a_report_is_isolated_from_the_console(plain: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(f"<p>{CANARY}</p>")
    async with world(plain, report=page) as console:
        async with console.client.get(f"{console.base}/console/report") as answer:
            policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("sandbox allow-scripts; default-src 'none'; style-src 'sha256-")
        assert "allow-same-origin" not in policy and "unsafe" not in policy
        page.unlink()
        assert (await console.get("report"))[0] == 404
