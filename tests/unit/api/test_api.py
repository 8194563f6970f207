"""The Python interface."""

import asyncio
import doctest
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

import deid_agent
from deid_agent import api

NOTES = [f"Note {n}. Seen 03/04/2019 by Dr. Okafor, MRN 44719{n:02}." for n in range(40)]


@pytest.fixture(scope="module")
def deidentifier() -> deid_agent.Deidentifier:
    return deid_agent.load(demo_key=True, system="rules")


def test_the_examples_of_the_interface() -> None:
    assert doctest.testmod(api).failed == 0


def test_the_examples_of_the_page() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "python.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 8
    assert result.failed == 0


def test_every_public_name_is_there_and_documented() -> None:
    for name in api.__all__:
        assert getattr(deid_agent, name) is getattr(api, name)
        assert getattr(api, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = deid_agent.no_such_name


def test_a_message_and_a_note_of_one_patient_agree(deidentifier: deid_agent.Deidentifier) -> None:
    payload = b"MSH|^~\\&|A|B|C|D|20240101||ORU^R01|1|P|2.5\rPID|1||4471902^^^H^MR||Quixwell^Zoriana\r"
    message = deidentifier.message(payload).payload.decode()
    known = deid_agent.facts_from_context({"mrn": "4471902", "name": {"family": "Quixwell", "given": "Zoriana"}})
    note = deidentifier.text("Quixwell, Zoriana: MRN 4471902", facts=known).text
    number, name = message.split("PID|1||")[1].split("^")[0], message.rstrip().rsplit("|", 1)[1]
    assert note == f"{name.split('^')[0]}, {name.split('^')[1]}: MRN {number}"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["ok", float("nan")], "not float: leave out empty notes"),
        (["ok", None], "not NoneType"),
        ([b"Okafor"], "not bytes"),
        ([deid_agent.TextRequest(None)], "not NoneType"),  # type: ignore[arg-type]
        ("Okafor", "use text for one"),
    ],
)
def test_a_request_without_text_raises_with_its_type(
    deidentifier: deid_agent.Deidentifier, given: list[str], fault: str
) -> None:
    with pytest.raises(TypeError, match=fault) as caught:
        list(deidentifier.texts(given))
    assert "Okafor" not in str(caught.value)
    with pytest.raises(TypeError, match="a message is bytes, not str"):
        deidentifier.message("MSH|")  # type: ignore[arg-type]


def test_threads_share_a_deidentifier(deidentifier: deid_agent.Deidentifier) -> None:
    alone = [deidentifier.text(note).text for note in NOTES]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda note: deidentifier.text(note).text, NOTES)) == alone


def test_an_event_loop_runs_other_tasks_meanwhile(deidentifier: deid_agent.Deidentifier) -> None:
    async def run() -> tuple[list[str], str, bytes, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async with deid_agent.AsyncDeidentifier(deidentifier) as waiting:
            texts = [note.text async for note in waiting.texts(NOTES)]
            one = await waiting.text(NOTES[3])
            message = await waiting.message(b"MSH|^~\\&|A|B|C|D|20240101||ORU^R01|1|P|2.5\r")
        ticking.cancel()
        return texts, one.text, message.payload, ticks

    texts, one, payload, ticks = asyncio.run(run())
    assert texts == [deidentifier.text(note).text for note in NOTES]
    assert one == texts[3]
    assert payload.startswith(b"MSH|^~\\&|A|")
    assert ticks > len(NOTES)


def test_a_document_in_an_event_loop_is_that_of_the_blocking_call(deidentifier: deid_agent.Deidentifier) -> None:
    page, known = b"<!DOCTYPE html><p>Mr. Quixwell", deid_agent.facts_from_context({"name": {"family": "Quixwell"}})

    async def run() -> deid_agent.Deidentified:
        async with deid_agent.AsyncDeidentifier(deidentifier) as waiting:
            return await waiting.document(page, "text/html", facts=known, document="d1", patient="p1")

    done = asyncio.run(run())
    assert done == deidentifier.document(page, "text/html", facts=known, document="d1", patient="p1")
    assert (b"Quixwell" in done.payload, done.media) == (False, "text/html")


def test_the_key_is_not_pickled(deidentifier: deid_agent.Deidentifier) -> None:
    with pytest.raises(TypeError, match="holds a secret and is not pickled"):
        pickle.dumps(deidentifier)


def test_an_endless_iterable_is_read_as_needed(deidentifier: deid_agent.Deidentifier) -> None:
    async def run() -> int:
        def endless() -> Iterator[str]:
            for n in count():
                yield NOTES[n % len(NOTES)]

        async with deid_agent.AsyncDeidentifier(deidentifier) as waiting:
            seen = 0
            async for _ in waiting.texts(endless()):
                seen += 1
                if seen == 20:
                    return seen
        return 0

    assert asyncio.run(run()) == 20


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"demo_key": True, "key_file": "k"}, "demo_key and key_file exclude each other"),
        ({"demo_key": True, "scope_table": "nothing"}, "scope table nothing: cannot be read"),
        ({"demo_key": True, "policy": "nosuch"}, "nosuch"),
        ({"demo_key": True, "profile": "nosuch"}, "profile 'nosuch': not one of"),
        ({"demo_key": True, "system": "nosuch"}, "unknown recognizer system nosuch"),
        ({"demo_key": True, "rules": "/nosuch"}, "rules folder /nosuch: no such folder"),
        ({"demo_key": True, "models": "/nosuch"}, "models folder /nosuch: no such folder"),
        ({"key_file": "/nosuch"}, "key file /nosuch"),
        ({}, "no key: set key_file, DEID_KEY_FILE or DEID_KEY"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEID_KEY", raising=False)
    monkeypatch.delenv("DEID_KEY_FILE", raising=False)
    with pytest.raises(deid_agent.ConfigurationError) as raised:
        deid_agent.load(**arguments)  # type: ignore[arg-type]
    assert fault in str(raised.value)
