"""From a document to the spans to replace: first pass, models, resolver, second pass.

The first pass looks at the text and at the message's own facts; models see what it found; the second pass looks
again for what was found elsewhere. Every stage may be missing, so that each published system is built of these parts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from deid_agent.recognize.apart import apart
from deid_agent.recognize.base import Recognizer
from deid_agent.recognize.secondpass import SecondPass, Tagged
from deid_agent.recognize.value import is_value
from deid_agent.resolve import Resolver
from deid_agent.spans import KNOWN, Span
from deid_agent.text import Document


class Model(Protocol):
    """Proposes spans of a document whose first pass is known. Pure, as a ``Recognizer`` is."""

    @property
    def name(self) -> str:
        """What configuration and reports call it."""

    def propose_all(self, asked: Sequence[tuple[Document, Sequence[Span]]]) -> Sequence[Sequence[Span]]:
        """Of each document, with what its first pass found, spans inside its text; they may overlap."""


@dataclass(frozen=True, slots=True)
class Tagger:
    """``find`` gives disjoint spans in order. Holds and logs no text.

    ``beside`` names whose first-pass findings stand beside those of models, None: all. The models speak for the others,
    which they saw; but not in a short value, which they cannot read, unless ``beside`` is empty. What the message
    itself says always stands.
    """

    recognizers: tuple[Recognizer, ...]
    resolver: Resolver
    models: tuple[Model, ...] = ()
    again: SecondPass | None = field(default=None, repr=False)
    beside: frozenset[str] | None = None

    def find(self, doc: Document, others: Iterable[Tagged] = ()) -> list[Span]:
        """What is PHI in ``doc``; ``others`` are documents of the same patient with what was found in them."""
        return self._again(doc, self._once([doc])[0], others)

    def find_all(self, docs: Sequence[Document]) -> list[list[Span]]:
        """As ``find`` of each document: models read them together."""
        return [self._again(doc, found, ()) for doc, found in zip(docs, self._once(docs), strict=True)]

    def without_models(self) -> "Tagger":
        """The same for what is no prose, such as a record key: a model of notes has nothing to say of it."""
        return replace(self, models=())

    def _once(self, docs: Sequence[Document]) -> list[list[Span]]:
        proposed = [[span for each in self.recognizers for span in each.recognize(doc)] for doc in docs]
        if self.models:
            asked = [(doc, self._first(doc, spans)) for doc, spans in zip(docs, proposed, strict=True)]
            proposed = [self._standing(doc, spans) for doc, spans in zip(docs, proposed, strict=True)]
            for model in self.models:
                said = [
                    apart(more, first, doc) for more, (doc, first) in zip(model.propose_all(asked), asked, strict=True)
                ]
                proposed = [[*spans, *more] for spans, more in zip(proposed, said, strict=True)]
        return [self.resolver.resolve(spans, doc) for doc, spans in zip(docs, proposed, strict=True)]

    def _standing(self, doc: Document, spans: list[Span]) -> list[Span]:
        """What of the first pass stands beside models."""
        beside = self.beside
        if beside is None or (beside and is_value(doc)):
            return spans
        return [span for span in spans if span.source in beside or span.source.startswith(KNOWN)]

    def _first(self, doc: Document, proposed: Iterable[Span]) -> list[Span]:
        return self.resolver.resolve((s for s in proposed if not s.source.startswith(KNOWN)), doc)

    def _again(self, doc: Document, found: list[Span], others: Iterable[Tagged]) -> list[Span]:
        if self.again is not None and (more := self.again.second_pass(doc, found, others)):
            return self.resolver.resolve([*found, *more], doc)
        return found
