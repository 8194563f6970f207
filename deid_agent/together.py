"""Several messages on their way at once, so that models read the texts of all together.

What needs a text read is a generator: it yields documents and is sent what stands in them. All of them go side by side,
from one question to the next; how many there are changes nothing in what each makes of its own answers.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Generic, TypeVar

from deid_agent.laps import Laps
from deid_agent.spans import Span
from deid_agent.text import Document

T = TypeVar("T")
_MOST = 1 << 16  # characters that are read at once: bounds the memory
FindAll = Callable[[Sequence[Document]], Sequence[Sequence[Span]]]
"""The findings of each document, as of each alone."""


@dataclass(frozen=True, slots=True)
class Read:
    """What was found in each document that was asked for; ``seconds`` is their share of what the reading took."""

    found: Sequence[Sequence[Span]] = field(repr=False)
    seconds: float = 0.0


Asking = Generator[Sequence[Document], Read, T]
"""Yields documents, is sent what was ``Read``, and returns its result."""


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """What came of one: a value or the exception that it raised. ``seconds`` are its own with its shares."""

    value: T | None = field(default=None, repr=False)
    error: Exception | None = field(default=None, repr=False)
    seconds: float = 0.0

    def result(self) -> T:
        """The value; raises the exception."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None where T allows it


def asked(documents: Sequence[Document], laps: Laps) -> Asking[Sequence[Sequence[Span]]]:
    """What stands in each of the documents. Others' time passes meanwhile: the share counts as ``recognize``."""
    laps.leave()
    read = Read(())
    try:
        if documents:
            read = yield documents
    finally:
        laps.back("recognize", read.seconds)
    return read.found


def alone(asking: Asking[T], find_all: FindAll) -> T:
    """The result of one; raises what it raises."""
    return together([asking], find_all)[0].result()


def together(
    askings: Sequence[Asking[T]], find_all: FindAll, clock: Callable[[], float] = perf_counter
) -> list[Ended[T]]:
    """The result of each, as ``alone`` gives it: an exception of one is its own.

    Where the common reading fails, each is read by itself, so that it fails for those only whose texts are at fault.
    """
    turns = [_Turn(asking, clock) for asking in askings]
    for turn in turns:
        turn.go(None)
    while live := [turn for turn in turns if turn.ended is None]:
        for some in _parts(live):
            for turn, answer in zip(some, _answers([turn.asked for turn in some], find_all, clock), strict=True):
                turn.go(answer)
    return [turn.ended for turn in turns if turn.ended is not None]


class _Turn(Generic[T]):
    """One of them: what it asks now, or how it ended."""

    def __init__(self, asking: Asking[T], clock: Callable[[], float]) -> None:
        self._asking = asking
        self._clock = clock
        self._seconds = 0.0
        self.asked: Sequence[Document] = ()
        self.ended: Ended[T] | None = None

    def go(self, answer: "Read | Exception | None") -> None:
        """On to the next question, or to the end."""
        if isinstance(answer, Read):
            self._seconds += answer.seconds
        self.asked = ()  # what was read holds its tokens
        begin = self._clock()
        try:
            match answer:
                case None:
                    self.asked = next(self._asking)
                case Read():
                    self.asked = self._asking.send(answer)
                case _:
                    self.asked = self._asking.throw(answer)
        except StopIteration as end:
            self.ended = Ended(end.value, None, self._seconds + self._clock() - begin)
        except Exception as error:  # noqa: BLE001 - told to whoever asked for this one
            self.ended = Ended(None, error, self._seconds + self._clock() - begin)
        else:
            self._seconds += self._clock() - begin


def _parts(turns: Sequence[_Turn[T]]) -> Iterator[list[_Turn[T]]]:
    """Those that are read at once: few characters, or one."""
    some: list[_Turn[T]] = []
    size = 0
    for turn in turns:
        own = sum(len(document.text) for document in turn.asked)
        if some and size + own > _MOST:
            yield some
            some, size = [], 0
        some.append(turn)
        size += own
    if some:
        yield some


def _answers(
    questions: Sequence[Sequence[Document]], find_all: FindAll, clock: Callable[[], float]
) -> list[Read | Exception]:
    begin = clock()
    try:
        found = find_all([document for documents in questions for document in documents])
    except Exception as error:  # noqa: BLE001 - thrown into the one that asked
        if len(questions) == 1:
            return [error]
        return [_answers([documents], find_all, clock)[0] for documents in questions]
    seconds = clock() - begin
    weights = [sum(1 + len(document.text) for document in documents) for documents in questions]
    reads: list[Read | Exception] = []
    at = 0
    for documents, weight in zip(questions, weights, strict=True):
        own = found[at : (at := at + len(documents))]
        reads.append(Read(own, seconds * weight / max(1, sum(weights))))
    return reads
