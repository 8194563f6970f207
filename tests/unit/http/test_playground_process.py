"""The playground: a text is processed in its own process, within limits, and stored nowhere."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.consoles import CANARY, World, world

from deid_agent.agent.job import Job, Process, Processed, Result
from deid_agent.app import WorkerFactory
from deid_agent.cli import playground
from deid_agent.cli.playground import NOTE, PlaygroundFactory
from deid_agent.cli.service import console_sources
from deid_agent.config import load_settings
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.http.playground_process import PLAYGROUND_BYTES, BusyError, PlaygroundProcess
from deid_agent.model import SourceKind
from deid_agent.pipeline import ShapeName, ShapeOptions
from deid_agent.pipeline.policy import load_policy
from deid_agent.rules import data_folder
from deid_agent.telemetry.metrics import RESTARTS

SAMPLES = Path(__file__).resolve().parents[3] / "deid_agent" / "samples"


def parts(system: str = "default") -> WorkerFactory:
    rules = data_folder("rules")
    chosen = load_policy("pseudonymised", rules)
    return WorkerFactory(rules=rules, key=DEMO_KEY, policy=chosen, max_bytes=PLAYGROUND_BYTES, system=system)


@pytest.fixture(scope="module")
def process() -> Process:
    return PlaygroundFactory(parts())()


def tried(process: Process, text: str, kind: bytes = b"auto") -> Any:
    result = process(Job(text.encode(), kind))
    assert isinstance(result, Processed)
    return orjson.loads(result.payload)


def whole(page: Any, side: str) -> str:
    return "".join(piece for piece, _ in page[side])


def test_a_shape_of_outputs_does_not_move_the_changes_or_refuse_notes() -> None:
    shaped = replace(parts(system="none"), shape=ShapeOptions(ShapeName.DAPL))
    process = PlaygroundFactory(shaped)()
    assert tried(process, "Seen by Ines Castellano.")["kind"] == "note"
    message = '{"resourceType": "Patient", "name": [{"family": "Castellano"}], "active": true}'
    (page,) = tried(process, message)["pages"]
    assert whole(page, "before") == message
    assert '"name"' in whole(page, "after")


def test_a_note_is_returned_before_and_after_with_causes(process: Process) -> None:
    note = f"Plan {CANARY} unchanged. Seen by Dr. Ines Castellano on 03/04/2019, MRN: 4471902. Chidi called."
    reply = tried(process, note)
    assert reply["kind"] == "note"
    (page,) = reply["pages"]
    assert whole(page, "before") == note
    after = whole(page, "after")
    assert CANARY in after and not any(old in after for old in ("Castellano", "03/04/2019", "4471902"))
    marks = {text: page["marks"][n] for text, n in page["before"] if n >= 0}
    doctor, date = marks["Ines Castellano"], marks["03/04/2019"]
    assert (doctor["type"], doctor["kind"], doctor["source"]) == ("DOCTOR", "rule", "doctor-title")
    assert doctor["confidence"] in {"certain", "high", "low"}
    assert date["category"] == "DATE" and date["probability"] > 0.9


@pytest.mark.parametrize("name", ["01-adt-a01.hl7", "02-oru-discharge.hl7", "04-document-reference.json"])
def test_a_message_is_returned_complete(process: Process, name: str) -> None:
    """As a text field submits it: each line end is a line feed."""
    raw = (SAMPLES / name).read_bytes().decode()
    reply = tried(process, raw.replace("\r", "\n"))
    assert reply["kind"] == "message"
    page = reply["pages"][0]
    assert whole(page, "before") == raw
    assert "Okafor" not in whole(page, "after") and "OKAFOR" not in whole(page, "after")
    kinds = {mark["kind"] for mark in page["marks"]}
    assert "field" in kinds and "derived" not in kinds


def test_findings_of_another_model_are_labelled_as_model_findings() -> None:
    reply = tried(PlaygroundFactory(parts(system="network"))(), "Seen by Ines Castellano in Chillicothe.")

    marks = [mark for page in reply["pages"] for mark in page["marks"] if mark["source"] == "neural:token"]
    assert {(mark["kind"], mark["confidence"]) for mark in marks} == {("model", "likely")}


def test_every_source_of_findings_has_a_kind() -> None:
    """All sources except annotations by people and findings of other systems."""
    assert set(playground._KINDS) == set(SourceKind) - {SourceKind.ANNOTATION, SourceKind.FOREIGN}


def test_input_declared_as_a_note_is_read_as_a_note(process: Process) -> None:
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
async def ready(plain: Path, playground: PlaygroundProcess) -> AsyncIterator[World]:
    async with world(plain, playground=playground) as console:
        while (await console.get("api/playground"))[1]["state"] == "starting":
            pass
        yield console


async def test_a_text_that_hangs_is_ended_and_the_next_one_is_processed(
    plain: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ready(plain, PlaygroundProcess(hangs, deadline_s=0.3)) as console:
        for text, fault in (("hang", "DeadlineExceeded"), ("die", "WorkerDied")):
            status, reply = await console.post("api/playground", {"text": text})
            assert (status, reply["refused"], reply["fault"]) == (200, "POISON", fault)
            while (await console.get("api/playground"))[1]["state"] == "starting":
                pass
        assert (await console.post("api/playground", {"text": "fine"}))[1]["kind"] == "note"
        assert console.telemetry.registry.value(RESTARTS) == 0, "not one of the feed's"
    assert "Okonkwo" not in caplog.text


async def test_the_loop_stays_free_and_a_second_text_is_refused_as_busy(plain: Path) -> None:
    async with ready(plain, PlaygroundProcess(hangs, deadline_s=1.0)) as console:
        first = asyncio.create_task(console.post("api/playground", {"text": "hang"}))
        while console.sources.playground is not None and not console.sources.playground.busy:  # noqa: ASYNC110 - there is no notification
            await asyncio.sleep(0)
        status, reply = await console.post("api/playground", {"text": "fine"})
        assert (status, reply["error"]) == (503, "busy")
        async with console.client.get(f"{console.base}/healthz") as answer:
            assert answer.status == 200
        assert (await first)[1]["refused"] == "POISON"


async def test_a_playground_reports_that_its_process_is_not_ready(plain: Path) -> None:
    async with world(plain, playground=PlaygroundProcess(never)) as console:
        assert (await console.get("api/playground"))[1]["state"] == "starting"
        assert (await console.post("api/playground", {"text": "x"}))[0] == 503


async def test_a_process_that_fails_to_start_is_reported_without_its_text(plain: Path) -> None:
    async with ready(plain, PlaygroundProcess(cannot)) as console:
        _, reply = await console.get("api/playground")
        assert reply["state"] in {"failed", "starting"}
        assert "Okonkwo" not in str(reply)


async def test_an_overlong_text_is_refused(plain: Path) -> None:
    async with ready(plain, PlaygroundProcess(hangs)) as console:
        status, reply = await console.post("api/playground", {"text": "x" * (PLAYGROUND_BYTES + 1)})
        assert (status, reply["error"]) == (413, "size")
        assert (await console.post("api/playground", {"text": '"\n' * (PLAYGROUND_BYTES // 2)}))[0] == 200, (
            "escapes fit too"
        )


async def test_no_tried_text_is_logged_or_stored(plain: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {path: path.stat().st_mtime_ns for path in plain.parent.rglob("*")}
    with caplog.at_level(logging.DEBUG):
        async with ready(plain, PlaygroundProcess(PlaygroundFactory(parts()))) as console:
            status, reply = await console.post("api/playground", {"text": "Mrs. Adaeze Okonkwo, MRN: 99120877."})
            assert status == 200 and "Okonkwo" in str(reply["pages"][0]["before"])
            refused = await console.post("api/playground", {"text": "MSH|Okonkwo", "kind": "message"})
            assert refused[1]["refused"] == "MALFORMED" and "Okonkwo" not in str(refused)
            async with console.client.get(f"{console.base}/metrics") as answer:
                assert "Okonkwo" not in await answer.text()
    assert "Okonkwo" not in caplog.text and "99120877" not in caplog.text
    assert {path: path.stat().st_mtime_ns for path in plain.parent.rglob("*")} == files


async def test_the_playground_reveals_no_surrogate_of_the_feed(plain: Path) -> None:
    """With the agent's key a user could enter a name, read its surrogate and confirm a guess."""
    async with world(plain) as console:
        settings = load_settings(plain)
        made = [console_sources(settings.http, console.agent, console.telemetry, None).playground for _ in range(2)]
    secrets = {one.factory.parts.key.secret for one in made if one and isinstance(one.factory, PlaygroundFactory)}
    assert len(secrets) == 2 and DEMO_KEY.secret not in secrets


async def test_an_unused_process_ends(plain: Path) -> None:
    process = PlaygroundProcess(hangs, idle_s=0.01)
    process.start()
    while process.running:  # noqa: ASYNC110 - there is no notification
        await asyncio.sleep(0)
    with pytest.raises(BusyError):
        await process.process_text(b"x", b"auto")
    await process.close()
