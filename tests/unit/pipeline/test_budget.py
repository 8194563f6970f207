"""The bounds of the texts of one message."""

from collections.abc import Sequence

import pytest

from deid_agent.model import Document, Fact, MessageError, PhiType, Reason, Span, Subject, ValueKind
from deid_agent.pipeline import budget
from deid_agent.pipeline.budget import TextBudget
from deid_agent.pipeline.recognition import PlannedText, recognize_texts

NAMES = tuple(Fact(PhiType.PATIENT, ValueKind.FAMILY, Subject.PATIENT, "0", f"Okafor{number}") for number in range(10))


def refused(counts: TextBudget, text: str, facts: Sequence[Fact] = ()) -> str:
    with pytest.raises(MessageError) as problem:
        counts.add("PATH", text, facts)
    assert problem.value.reason is Reason.RESOURCE
    assert "Okafor" not in str(problem.value)
    return problem.value.detail


def test_different_texts_are_counted_and_equal_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_TEXTS", 2)
    counts = TextBudget()
    for _ in range(100):
        counts.add("PATH", "one", ())
    counts.add("PATH", "two", ())
    assert "different texts" in refused(counts, "three")


def test_the_characters_of_all_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_CHARACTERS", 10)
    counts = TextBudget()
    counts.add("PATH", "x" * 6, ())
    assert "characters" in refused(counts, "y" * 6)


def test_names_times_text_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_SEARCHES", 200)
    counts = TextBudget()
    counts.add("PATH", "x" * 9, NAMES)
    counts.add("PATH", "x" * 500, ())
    assert "too many names" in refused(counts, "y" * 20, NAMES)


def test_a_large_document_is_far_from_the_bounds() -> None:
    """A C-CDA of 5 MB with half of it text, a result of 10,000 OBX each with its own remark, a hundred names."""
    counts = TextBudget()
    facts = NAMES * 10
    for number in range(10_000):
        counts.add("OBX-5", f"remark {number}, seen and discussed", facts)
    counts.add("text", "x" * 900_000, facts)
    counts.add("text", "y" * 900_000, facts)


def test_equal_texts_of_a_message_are_read_once() -> None:
    """A page with 120,000 equal attributes cost two minutes."""
    read: list[str] = []

    def find_all(docs: Sequence[Document]) -> list[list[Span]]:
        read.extend(doc.text for doc in docs)
        return [[] for _ in docs]

    texts = [PlannedText(number, "Ada" if number % 2 else "Okafor", NAMES) for number in range(1_000)]
    (result,) = recognize_texts([texts], find_all)
    assert sorted(read) == ["Ada", "Okafor"]
    assert len(result.spans) == 1_000
