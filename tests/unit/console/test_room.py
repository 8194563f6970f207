"""The playground: a text tried in a process of its own, bounded, and forgotten."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.consoles import CANARY, World, world

from deid_agent import config, key, policy, resources
from deid_agent.agent.job import Job, Process, Processed, Result
from deid_agent.cli import wire
from deid_agent.console.room import BusyError, Room
from deid_agent.console.trying import _PREFIXES as KINDS
from deid_agent.console.trying import MOST, NOTE, Trial
from deid_agent.resolve import _SOURCE_ORDER as SOURCES
from deid_agent.telemetry.metrics import RESTARTS
from deid_agent.wiring import Workshop

SAMPLES = Path(__file__).resolve().parents[3] / "deid_agent" / "samples"


def parts(system: str = "default") -> Workshop:
    rules = resources.folder("rules")
    chosen = policy.load("pseudonymised", rules)
    return Workshop(rules=rules, key=key.DEMO, policy=chosen, max_bytes=MOST, system=system)


@pytest.fixture(scope="module")
def process() -> Process:
    return Trial(parts())()


def tried(process: Process, text: str, kind: bytes = b"auto") -> Any:
    result = process(Job(text.encode(), kind))
    assert isinstance(result, Processed)
    return orjson.loads(result.payload)


def whole(page: Any, side: str) -> str:
    return "".join(piece for piece, _ in page[side])


def test_a_note_comes_back_before_and_after_with_causes(process: Process) -> None:
    note = f"Seen by Dr. Ines Castellano on 03/04/2019, MRN: 4471902. {CANARY} Chidi called."
    said = tried(process, note)
    assert said["kind"] == "note"
    (page,) = said["pages"]
    assert whole(page, "before") == note
    after = whole(page, "after")
    assert CANARY in after and not any(old in after for old in ("Castellano", "03/04/2019", "4471902"))
    marks = {text: page["marks"][n] for text, n in page["before"] if n >= 0}
    doctor, date = marks["Ines Castellano"], marks["03/04/2019"]
    assert (doctor["type"], doctor["kind"], doctor["source"]) == ("DOCTOR", "rule", "doctor-title")
    assert doctor["confidence"] in {"certain", "high", "low"}
    assert date["category"] == "DATE" and date["probability"] > 0.9


@pytest.mark.parametrize("name", ["01-adt-a01.hl7", "02-oru-discharge.hl7", "04-document-reference.json"])
def test_a_message_comes_back_whole(process: Process, name: str) -> None:
    """As a text field gives it: each line end a line feed."""
    raw = (SAMPLES / name).read_bytes().decode()
    said = tried(process, raw.replace("\r", "\n"))
    assert said["kind"] == "message"
    page = said["pages"][0]
    assert whole(page, "before") == raw
    assert "Okafor" not in whole(page, "after") and "OKAFOR" not in whole(page, "after")
    kinds = {mark["kind"] for mark in page["marks"]}
    assert "field" in kinds and "derived" not in kinds


def test_what_another_model_finds_is_said_to_be_found_by_a_model() -> None:
    said = tried(Trial(parts(system="network"))(), "Seen by Ines Castellano in Chillicothe.")

    marks = [mark for page in said["pages"] for mark in page["marks"] if mark["source"] == "neural:token"]
    assert {(mark["kind"], mark["confidence"]) for mark in marks} == {("model", "likely")}


def test_every_source_of_findings_has_a_kind() -> None:
    """``resolve`` lists them all."""
    assert {source.rstrip(":") for source in SOURCES if source} == set(KINDS)


def test_what_is_said_to_be_a_note_is_one(process: Process) -> None:
    assert tried(process, "MSH|^~\\&|x", NOTE)["kind"] == "note"


def hangs() -> Process:
    def process(job: Job) -> Result:
        if job.payload == b"hang":
            threading.Event().wait()
        if job.payload == b"die":
            os._exit(1)
        return Processed(b'{"kind": "note", "pages": []}')

    return process


def never() -> Process:
    threading.Event().wait()
    return hangs()


def cannot() -> Process:
    raise RuntimeError("Okonkwo")


@asynccontextmanager
async def ready(plain: Path, room: Room) -> AsyncIterator[World]:
    async with world(plain, room=room) as console:
        while (await console.get("api/playground"))[1]["state"] == "starting":
            pass
        yield console


async def test_a_text_that_never_ends_is_ended_and_the_next_one_is_tried(
    plain: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ready(plain, Room(hangs, deadline_s=0.3)) as console:
        for text, fault in (("hang", "DeadlineExceeded"), ("die", "WorkerDied")):
            status, said = await console.post("api/playground", {"text": text})
            assert (status, said["refused"], said["fault"]) == (200, "POISON", fault)
            while (await console.get("api/playground"))[1]["state"] == "starting":
                pass
        assert (await console.post("api/playground", {"text": "fine"}))[1]["kind"] == "note"
        assert console.telemetry.registry.value(RESTARTS) == 0, "not one of the feed's"
    assert "Okonkwo" not in caplog.text


async def test_the_loop_turns_while_a_text_is_at_work_and_a_second_one_is_told_to_wait(plain: Path) -> None:
    async with ready(plain, Room(hangs, deadline_s=1.0)) as console:
        first = asyncio.create_task(console.post("api/playground", {"text": "hang"}))
        while console.sources.room is not None and not console.sources.room.at_work:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        status, said = await console.post("api/playground", {"text": "fine"})
        assert (status, said["error"]) == (503, "busy")
        async with console.client.get(f"{console.base}/healthz") as answer:
            assert answer.status == 200
        assert (await first)[1]["refused"] == "POISON"


async def test_before_its_process_is_there_it_says_so(plain: Path) -> None:
    async with world(plain, room=Room(never)) as console:
        assert (await console.get("api/playground"))[1]["state"] == "starting"
        assert (await console.post("api/playground", {"text": "x"}))[0] == 503


async def test_a_process_that_cannot_be_built_is_told_without_its_text(plain: Path) -> None:
    async with ready(plain, Room(cannot)) as console:
        _, said = await console.get("api/playground")
        assert said["state"] in {"failed", "starting"}
        assert "Okonkwo" not in str(said)


async def test_what_is_too_long_is_refused(plain: Path) -> None:
    async with ready(plain, Room(hangs)) as console:
        status, said = await console.post("api/playground", {"text": "x" * (MOST + 1)})
        assert (status, said["error"]) == (413, "size")
        assert (await console.post("api/playground", {"text": '"\n' * (MOST // 2)}))[0] == 200, "escapes fit too"


async def test_nothing_that_was_tried_is_logged_or_kept(plain: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {path: path.stat().st_mtime_ns for path in plain.parent.rglob("*")}
    with caplog.at_level(logging.DEBUG):
        async with ready(plain, Room(Trial(parts()))) as console:
            status, said = await console.post("api/playground", {"text": "Mrs. Adaeze Okonkwo, MRN: 99120877."})
            assert status == 200 and "Okonkwo" in str(said["pages"][0]["before"])
            refused = await console.post("api/playground", {"text": "MSH|Okonkwo", "kind": "message"})
            assert refused[1]["refused"] == "MALFORMED" and "Okonkwo" not in str(refused)
            async with console.client.get(f"{console.base}/metrics") as answer:
                assert "Okonkwo" not in await answer.text()
    assert "Okonkwo" not in caplog.text and "99120877" not in caplog.text
    assert {path: path.stat().st_mtime_ns for path in plain.parent.rglob("*")} == files


async def test_the_playground_is_no_oracle_of_the_feed(plain: Path) -> None:
    """With the agent's key whoever types a name in would read its surrogate, and could confirm a guess."""
    async with world(plain) as console:
        settings = config.load(plain)
        rooms = [
            wire.sources_of(settings.http, console.sources.running, console.telemetry, None).room for _ in range(2)
        ]
    secrets = {room.factory.parts.key.secret for room in rooms if room and isinstance(room.factory, Trial)}
    assert len(secrets) == 2 and key.DEMO.secret not in secrets


async def test_a_room_that_nobody_visits_is_left(plain: Path) -> None:
    room = Room(hangs, idle_s=0.01)
    room.enter()
    while room.open:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    with pytest.raises(BusyError):
        await room.try_(b"x", b"auto")
    await room.close()
