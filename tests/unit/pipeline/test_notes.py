"""Notes without a message: several at a time, refusals, the leak guard."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import count, islice

import pytest
from support.corpus import RULES

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model import Document, Reason, Span
from deid_agent.pipeline import Deidentifier, RefusedText, TextRequest, facts_from_context, group_requests, load_policy
from deid_agent.pipeline.notes import MAX_GROUP
from deid_agent.pipeline.planning import MAX_TEXT
from deid_agent.pipeline.recognition import MAX_BATCH_CHARACTERS
from deid_agent.recognize import Tagger

FACTS = facts_from_context({"name": {"family": "Quixwell", "given": "Zoriana"}, "mrn": "00417-88"})
NOTES = [
    TextRequest("Seen by Dr. Okafor on 3/4/2021.", "a", "p1"),
    TextRequest("Ms. Quixwell (MRN 00417-88) slept.", "b", facts=FACTS),
    TextRequest("Potassium 4.1", "c"),
    TextRequest("", "d"),
    TextRequest("x" * (MAX_TEXT + 1), "e"),
    TextRequest("Called Dr. Okafor 3/5/2021.", "f", "p1"),
]


def load(system: str = "rules", policy: str = "pseudonymised") -> Deidentifier:
    factory = WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy(policy, RULES), system=system)
    return factory.deidentifier(notes_only=True)


@pytest.fixture(scope="module")
def deidentifier() -> Deidentifier:
    return load()


def test_each_note_has_the_result_that_it_has_alone(deidentifier: Deidentifier) -> None:
    together = list(deidentifier.texts(NOTES))
    assert together == [result for note in NOTES for result in deidentifier.texts([note])]
    assert [isinstance(result, RefusedText) for result in together] == [False] * 4 + [True, False]
    assert "Okafor" not in str(together)


def test_a_note_that_is_too_long_is_refused_with_its_reason(deidentifier: Deidentifier) -> None:
    (refused,) = deidentifier.texts(NOTES[4:5])
    assert isinstance(refused, RefusedText)
    assert (refused.reason, refused.where) == (Reason.RESOURCE, "text")
    assert str(refused) == "RESOURCE: text: a text of more than 1000000 characters"


@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_utf_16_that_was_decoded_as_bytes_is_refused(deidentifier: Deidentifier, charset: str) -> None:
    text = "Seen by Dr. Okafor"
    (refused,) = deidentifier.texts([text.encode(charset).decode("utf-8")])
    assert isinstance(refused, RefusedText)
    assert (refused.reason, "NUL" in refused.detail) == (Reason.UNSUPPORTED, True)
    (padded,) = deidentifier.texts([text + "\0" * 40])
    assert padded.text.endswith("\0" * 40)


def test_a_nul_inside_a_known_name_does_not_hide_it(deidentifier: Deidentifier) -> None:
    (found,) = deidentifier.texts([TextRequest("Quix\0well slept.", facts=FACTS)])
    assert "well" not in found.text


@pytest.mark.parametrize("written", ["4,471,902", "4471902.0", "4471902.00", "#4,471,902.0,"])
def test_a_known_number_as_a_table_writes_it(deidentifier: Deidentifier, written: str) -> None:
    facts = facts_from_context({"mrn": "4471902"})
    (found,) = deidentifier.texts([TextRequest(f"Row {written} ready", facts=facts)])
    assert "471" not in found.text


@pytest.mark.parametrize("written", ["4471902.5", "4,471,9", "44,71,902", "4,471,9020", "4471902.001", "14,471,902"])
def test_another_number_with_the_same_digits_stays(deidentifier: Deidentifier, written: str) -> None:
    facts = facts_from_context({"mrn": "4471902"})
    (found,) = deidentifier.texts([TextRequest(f"Count {written} ready", facts=facts)])
    assert written in found.text


def test_a_policy_of_paths_and_one_of_languages_refuse_notes() -> None:
    (refused,) = load(policy="minimum").texts(NOTES[:1])
    assert isinstance(refused, RefusedText)
    assert refused.reason is Reason.UNSUPPORTED


def test_a_fault_in_one_note_refuses_it_alone(deidentifier: Deidentifier, monkeypatch: pytest.MonkeyPatch) -> None:
    find_all = Tagger.find_all

    def fail(tagger: Tagger, docs: Sequence[Document]) -> list[list[Span]]:
        if any("Potassium" in doc.text for doc in docs):
            raise RuntimeError("Potassium 4.1")
        return find_all(tagger, docs)

    monkeypatch.setattr(Tagger, "find_all", fail)
    good = list(deidentifier.texts(NOTES[:2]))
    results = list(deidentifier.texts(NOTES[:4]))
    assert results[:2] == good
    assert results[2] == RefusedText(Reason.INTERNAL, "text", "RuntimeError")


def test_a_fact_that_no_recognizer_finds_is_removed_by_the_guard() -> None:
    (found,) = load("none").texts([NOTES[1]])
    assert not isinstance(found, RefusedText)
    assert found.spans == ()
    assert "Quixwell" not in found.text
    assert "00417-88" not in found.text
    assert {remark.source for remark in found.remarks} == {"guard"}
    assert found.text.startswith("Ms. ")


def test_notes_that_share_names_are_searched_in_their_order() -> None:
    from deid_agent.recognize import NameMemory  # noqa: PLC0415

    names = NameMemory(b"k" * 32, 4).of_patient("p")
    first = TextRequest("Patient: Zoriana Quixwell. Mr. Quixwell slept.", "1", "p", names=names)
    requests = [first, TextRequest("Long day; zzz QUIXWELL sat up.", "2", "p", names=names)]
    _, second = load().texts(requests)
    assert not isinstance(second, RefusedText)
    assert "QUIXWELL" not in second.text


def test_requests_are_taken_one_group_ahead(deidentifier: Deidentifier) -> None:
    taken: list[int] = []

    def endless() -> Iterator[TextRequest]:
        for n in count():
            taken.append(n)
            yield replace(NOTES[2], document=str(n))

    assert len(list(islice(deidentifier.texts(endless()), MAX_GROUP + 1))) == MAX_GROUP + 1
    assert len(taken) <= 2 * MAX_GROUP + 1


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([1] * 33, [16, 16, 1]),
        ([MAX_BATCH_CHARACTERS, 1], [1, 1]),
        ([MAX_BATCH_CHARACTERS * 2, MAX_BATCH_CHARACTERS - 1, 1, 1], [1, 2, 1]),
    ],
)
def test_groups_are_bounded(sizes: list[int], groups: list[int]) -> None:
    found = list(group_requests(TextRequest("x" * size) for size in sizes))
    assert [len(group) for group in found] == groups


def test_a_day_without_a_year_is_read_near_the_reference(deidentifier: Deidentifier) -> None:
    requests = [
        TextRequest("Next visit 3/1.", "g", "p1", reference=date(year, 2, 27)) for year in (2019, 2020)
    ]  # 2020 is a leap year
    first, second = (result.text for result in deidentifier.texts(requests))
    assert first != second
