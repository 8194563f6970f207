"""Several that ask at once: each gets its own answers, its own exception, its own time."""

from collections.abc import Sequence

import pytest

from deid_agent import key
from deid_agent.agent.job import Job, Processed, Refused
from deid_agent.deidentify import Deidentified, Deidentifier
from deid_agent.errors import MessageError, Reason
from deid_agent.laps import Laps
from deid_agent.phi import PhiType
from deid_agent.spans import Span
from deid_agent.text import Document
from deid_agent.together import Asking, Read, alone, asked, together
from deid_agent.wiring import Bench, Digests


class Reader:
    """Finds each text whole, in seconds by a clock of its own; fails where a text says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seen: list[list[str]] = []

    def find_all(self, documents: Sequence[Document]) -> list[list[Span]]:
        texts = [document.text for document in documents]
        self.seen.append(texts)
        self.now += 10.0
        if "bad" in texts:
            raise MessageError(Reason.RESOURCE, "text")
        return [[Span(0, len(text), PhiType.PATIENT, text)] for text in texts]

    def clock(self) -> float:
        return self.now


def asking(reader: Reader, *questions: Sequence[str], work: float = 1.0) -> Asking[list[str]]:
    """The names of what was found, question by question."""
    told: list[str] = []
    for texts in questions:
        reader.now += work
        read = yield [Document(text) for text in texts]
        told += [span.source for spans in read.found for span in spans]
    return told


def test_all_are_read_together_round_by_round() -> None:
    reader = Reader()
    ends = together(
        [asking(reader, ["a", "b"], ["c"]), asking(reader), asking(reader, ["d"]), asking(reader, ["e"], ["f"], ["g"])],
        reader.find_all,
    )
    assert [end.result() for end in ends] == [["a", "b", "c"], [], ["d"], ["e", "f", "g"]]
    assert reader.seen == [["a", "b", "d", "e"], ["c", "f"], ["g"]]


def test_an_exception_is_that_of_one() -> None:
    reader = Reader()

    def fails() -> Asking[list[str]]:
        yield [Document("x")]
        raise KeyError("x")

    def refuses() -> Asking[list[str]]:
        raise MessageError(Reason.MALFORMED, "PID-3")
        yield ()

    ends = together([fails(), asking(reader, ["a"], ["b"]), refuses()], reader.find_all)
    assert isinstance(ends[0].error, KeyError)
    assert ends[1].result() == ["a", "b"]
    with pytest.raises(MessageError, match="PID-3"):
        ends[2].result()


def test_where_the_common_reading_fails_it_fails_for_the_guilty_one() -> None:
    reader = Reader()

    def minds(text: str) -> Asking[str]:
        try:
            read = yield [Document(text)]
        except MessageError as problem:
            return f"minded {problem.where}"
        return read.found[0][0].source

    ends = together([minds("a"), asking(reader, ["bad"]), minds("bad"), minds("b")], reader.find_all)
    assert [end.value for end in ends] == ["a", None, "minded text", "b"]
    assert isinstance(ends[1].error, MessageError)
    assert reader.seen == [["a", "bad", "bad", "b"], ["a"], ["bad"], ["bad"], ["b"]]


def test_large_texts_are_read_apart() -> None:
    """So that a group takes no more memory than its largest member."""
    reader, large = Reader(), "x" * 40_000
    texts = ["a", large, large, "b", 2 * large, "c"]
    ends = together([asking(reader, [text]) for text in texts], reader.find_all)
    assert [end.result() for end in ends] == [[text] for text in texts]
    assert reader.seen == [["a", large], [large, "b"], [2 * large], ["c"]]


def test_one_alone_is_read_once_and_raises() -> None:
    reader = Reader()
    with pytest.raises(MessageError, match="RESOURCE"):
        alone(asking(reader, ["bad"]), reader.find_all)
    assert reader.seen == [["bad"]]


def test_seconds_are_ones_own_and_a_share_by_size() -> None:
    reader = Reader()
    ends = together(
        [asking(reader, ["aaaa"], work=1.0), asking(reader, ["bbbb"] * 4, work=2.0), asking(reader)],
        reader.find_all,
        reader.clock,
    )
    assert [end.seconds for end in ends] == [1.0 + 2.0, 2.0 + 8.0, 0.0]


def test_what_is_not_asked_is_not_read() -> None:
    """Nor is one held up that has no text to read."""

    def none() -> Asking[int]:
        found = yield from asked((), Laps())
        return len(found)

    assert alone(none(), lambda _: pytest.fail("was read")) == 0


def test_the_share_is_told_as_a_stage() -> None:
    reader = Reader()
    laps = Laps(reader.clock)

    def staged() -> Asking[int]:
        with laps.of("edit"):
            reader.now += 3.0
            found = yield from asked([Document("aaaa")], laps)
            reader.now += 4.0
        return len(found)

    ends = together([staged(), asking(reader, ["bbbb"] * 4, work=7.0)], reader.find_all, reader.clock)
    assert dict(laps.timings) == {"edit": 7.0, "recognize": 2.0}
    assert ends[0].seconds == 9.0


class Faulty(Deidentifier):
    """A de-identifier with a fault."""

    def __init__(self) -> None:  # nothing to hold
        pass

    def asking(self, payload: bytes, **_: object) -> Asking[Deidentified]:
        if payload == b"bad":
            raise KeyError("Okonkwo")
        return Deidentified(payload, ())
        yield ()


def test_a_fault_nobody_expected_is_that_of_one_job_and_tells_no_text() -> None:
    bench = Bench(Faulty(), Digests(key.DEMO), 100)
    (good, _), (bad, _), (large, _) = bench.together([Job(b"a"), Job(b"bad"), Job(b"x" * 101)])
    assert isinstance(good, Processed)
    assert good.payload == b"a"
    assert bad == Refused(Reason.INTERNAL, fault="KeyError")
    assert isinstance(large, Refused)
    assert large.reason is Reason.RESOURCE


def test_no_text_stands_in_a_repr() -> None:
    assert "Okafor" not in repr(Read([[Span(0, 1, PhiType.PATIENT, "Okafor")]]))
    assert "Okafor" not in repr(together([asking(Reader(), ["Okafor"])], Reader().find_all))
