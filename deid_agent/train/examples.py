"""Annotated notes as what a trainer reads: document, first pass, view, labels."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.crf.columns import View
from deid_agent.crf.labels import Schema, encode
from deid_agent.dictionary import Dictionaries
from deid_agent.eval.markup import Note
from deid_agent.phi import PhiType
from deid_agent.recognize import registry
from deid_agent.recognize.base import Recognizer
from deid_agent.resolve import Profile, Resolver
from deid_agent.ruleset import Ruleset
from deid_agent.spans import KNOWN, Span
from deid_agent.text import Document
from deid_agent.train.augment import Augmenter


@dataclass(frozen=True, slots=True)
class Example:
    """One note as the model will see it. ``copy`` is 0 for a note of the corpus, else the number of the new note."""

    note: Note
    view: View = field(repr=False)
    copy: int = 0

    def gold(self, types: Iterable[PhiType] = ()) -> list[Span]:
        """The annotations; ``types`` are those that count, none: all."""
        wanted = frozenset(types) or frozenset(PhiType)
        return [span for span in self.note.annotated.spans if span.type in wanted]

    def labels(self, schema: Schema, types: Iterable[PhiType] = ()) -> list[str]:
        """The label of each token."""
        return encode(self.gold(types), self.view.doc.tokens, schema)


@dataclass(frozen=True, slots=True)
class Reader:
    """Makes examples: the recognizers whose findings the model sees, the resolver behind them, the dictionaries."""

    recognizers: tuple[Recognizer, ...]
    resolver: Resolver
    dictionaries: Dictionaries = field(repr=False)

    @staticmethod
    def load(rules: Path, recognizers: str) -> "Reader":
        """With that set of the registry, or none. Raises ``ConfigurationError`` for a bad rule or an unknown set."""
        loaded: Ruleset = registry.load_rules(rules)
        chosen = registry.assemble(loaded, recognizers) if recognizers else ()
        return Reader(chosen, Resolver(Profile.RECALL, loaded), Dictionaries.load(rules))

    def first(self, doc: Document) -> list[Span]:
        """The first pass, as ``Tagger`` makes it."""
        proposed = (span for recognizer in self.recognizers for span in recognizer.recognize(doc))
        return self.resolver.resolve((s for s in proposed if not s.source.startswith(KNOWN)), doc)

    def example(self, note: Note, copy: int = 0) -> Example:
        """``note`` as an example. No facts: a model learns from texts alone."""
        doc = Document(note.annotated.text)
        return Example(note, View(doc, self.first(doc), self.dictionaries), copy)

    def examples(self, notes: Iterable[Note], augmenter: Augmenter, times: int) -> Iterator[Example]:
        """Each note, and ``times`` new ones of it."""
        for note in notes:
            yield self.example(note)
            for number in range(1, times + 1):
                if (new := augmenter.again(note, number)) is not note:
                    yield self.example(new, number)
