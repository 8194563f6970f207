"""From a document to the spans to replace: first pass, models, resolver, second pass.

The first pass looks at the text and at the message's own facts; models see what it found; the second pass looks
again for what was found elsewhere. Every stage may be missing, so that each published system is built of these parts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from deid_agent.recognize.base import Recognizer
from deid_agent.recognize.secondpass import SecondPass, Tagged
from deid_agent.resolve import KNOWN, Resolver
from deid_agent.spans import Span
from deid_agent.text import Document


class Model(Protocol):
    """Proposes spans of a document whose first pass is known. Pure, as a ``Recognizer`` is."""

    @property
    def name(self) -> str:
        """What configuration and reports call it."""

    def propose(self, doc: Document, first: Sequence[Span]) -> Iterable[Span]:
        """Spans inside the text; they may overlap."""


@dataclass(frozen=True, slots=True)
class Tagger:
    """``find`` gives disjoint spans in order. Holds and logs no text.

    ``union`` keeps what rules find and the models do not; without it the models speak for the rules that they saw.
    """

    recognizers: tuple[Recognizer, ...]
    resolver: Resolver
    models: tuple[Model, ...] = ()
    again: SecondPass | None = field(default=None, repr=False)
    union: bool = True

    def find(self, doc: Document, others: Iterable[Tagged] = ()) -> list[Span]:
        """What is PHI in ``doc``; ``others`` are documents of the same patient with what was found in them."""
        proposed = [span for recognizer in self.recognizers for span in recognizer.recognize(doc)]
        if self.models:
            first = self.resolver.resolve((s for s in proposed if not s.source.startswith(KNOWN)), doc)
            if not self.union:
                proposed = [span for span in proposed if span.source.startswith(KNOWN)]
            proposed += [span for model in self.models for span in model.propose(doc, first)]
        found = self.resolver.resolve(proposed, doc)
        if self.again is not None and (more := self.again.second_pass(doc, found, others)):
            found = self.resolver.resolve([*found, *more], doc)
        return found
