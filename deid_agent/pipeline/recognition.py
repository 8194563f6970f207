"""Stage 2, recognize: find PHI in the planned texts of one or several messages.

Models read many short texts in one batch faster than one by one. The findings of a text do not depend on the other
texts of its batch, so a message gives the same output alone and in a batch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from deid_agent.model import Document, Fact, Range, Span
from deid_agent.recognize import Tagger

MAX_BATCH_CHARACTERS = 1 << 16
"""Characters that are read at once. Bounds the memory of a batch; a longer text is a batch of its own."""

FindAll = Callable[[Sequence[Document]], Sequence[Sequence[Span]]]
"""Returns the findings of each document. They are the same as for that document alone."""


@dataclass(frozen=True, slots=True)
class PlannedText:
    """A text to read, with the facts that its message states. ``index`` is its position among the message's texts.

    A ``label`` (the name of a test) is read without models.
    """

    index: int
    text: str = field(repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    label: bool = False


@dataclass(slots=True)
class Recognition:
    """The findings in each text of one message, or the error that reading one of them raised.

    ``seconds`` is the message's share of the reading time, by the length of its texts.
    """

    spans: list[Sequence[Span]] = field(repr=False)
    seconds: float = 0.0
    error: Exception | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class NamingReader:
    """Reads documents with a tagger, and keeps the tokens that its models are sure are parts of names, by text."""

    tagger: Tagger
    named: dict[str, list[Range]] = field(default_factory=dict, repr=False)

    def find_all(self, docs: Sequence[Document]) -> list[list[Span]]:
        """See ``Tagger.find_all``."""
        found = self.tagger.read_all(docs)
        self.named.update((doc.text, each.named) for doc, each in zip(docs, found, strict=True))
        return [each.spans for each in found]


_Share = tuple[Recognition, Sequence[PlannedText]]
"""The result of one message with those of its texts that are in a batch."""


def recognize_texts(
    messages: Sequence[Sequence[PlannedText]],
    find_all: FindAll,
    clock: Callable[[], float] = perf_counter,
    find_in_labels: FindAll | None = None,
) -> list[Recognition]:
    """Read the texts of several messages in shared batches; returns one ``Recognition`` for each message.

    Texts of white space are not read and have no findings. If a batch fails, each of its messages is read on its own,
    so only a message whose own text raises has the ``error``. The rest of that message's texts are then not read.
    ``find_in_labels`` reads the texts that are labels; the default is ``find_all``.
    """
    finders = (find_all, find_in_labels or find_all)
    results = [Recognition([()] * len(texts)) for texts in messages]
    for batch in _split_batches(messages):
        shares = [(results[number], texts) for number, texts in batch if results[number].error is None]
        try:
            _read(shares, finders, clock)
        except Exception as error:  # noqa: BLE001 - kept for the message at fault
            if len(shares) == 1:
                shares[0][0].error = error
            else:
                _read_one_by_one(shares, finders, clock)
    return results


def _split_batches(messages: Sequence[Sequence[PlannedText]]) -> Iterator[list[tuple[int, list[PlannedText]]]]:
    """Batches of at most ``MAX_BATCH_CHARACTERS``, each as message numbers with the texts of that message."""
    batch: dict[int, list[PlannedText]] = {}
    size = 0
    for number, texts in enumerate(messages):
        for text in texts:
            if not text.text.strip():
                continue
            if batch and size + len(text.text) > MAX_BATCH_CHARACTERS:
                yield list(batch.items())
                batch, size = {}, 0
            batch.setdefault(number, []).append(text)
            size += len(text.text)
    if batch:
        yield list(batch.items())


def _read(shares: Sequence[_Share], finders: tuple[FindAll, FindAll], clock: Callable[[], float]) -> None:
    """Read these texts in one call; store findings and seconds with their messages."""
    if not any(own for _, own in shares):
        return
    begin = clock()
    for label, find in enumerate(finders):
        texts = [(result, text) for result, own in shares for text in own if text.label == bool(label)]
        if not texts:
            continue
        # Many leaves of a message are equal (labels, answers, the titles of cells): one reading serves all of them.
        keys = [(text.text, id(text.facts)) for _, text in texts]
        unique = dict(zip(keys, (text for _, text in texts), strict=True))
        # A document caches its tokens, so it lives no longer than its batch.
        spans = find([Document(text.text, text.facts) for text in unique.values()])
        found = dict(zip(unique, spans, strict=True))
        for key, (result, text) in zip(keys, texts, strict=True):
            result.spans[text.index] = tuple(found[key])
    seconds = clock() - begin
    weights = [sum(1 + len(text.text) for text in own) for _, own in shares]
    for (result, _), weight in zip(shares, weights, strict=True):
        result.seconds += seconds * weight / sum(weights)


def _read_one_by_one(shares: Sequence[_Share], finders: tuple[FindAll, FindAll], clock: Callable[[], float]) -> None:
    for share in shares:
        try:
            _read([share], finders, clock)
        except Exception as error:  # noqa: BLE001 - kept for the message at fault
            share[0].error = error
