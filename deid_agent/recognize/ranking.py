"""Several models in a fixed order: of overlapping spans the one of the earlier model is selected.

Source: Liu 2015 section 3.4. A span that overlaps no other is selected; of spans that overlap, those of the rules rank
before those of the first model, and these before those of the next.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.model import Document, Span, in_order
from deid_agent.nlp import FirstPass
from deid_agent.recognize.tagger import Model


@dataclass(frozen=True, slots=True)
class RankedModels:
    """``models`` as one model, the first one first. No span overlaps another, nor a span of the first pass.

    With ``keep_rests`` the parts of a lower span beside the higher ones are kept, so that no found text is uncovered.
    """

    models: tuple[Model, ...]
    keep_rests: bool = False
    _names: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", "+".join(model.name for model in self.models))

    @property
    def name(self) -> str:
        """The names of all models."""
        return self._names

    def propose_all(self, asked: Sequence[FirstPass]) -> list[list[Span]]:
        """The selected spans of each document, in order."""
        proposed = [model.propose_all(asked) for model in self.models]
        return [
            self._select([spans[at] for spans in proposed], doc, first_pass)
            for at, (doc, first_pass) in enumerate(asked)
        ]

    def _select(self, ranked: Sequence[Sequence[Span]], doc: Document, first_pass: Sequence[Span]) -> list[Span]:
        taken = in_order(first_pass)
        selected: list[Span] = []
        for spans in ranked:
            new = [part for span in spans for part in self._free_parts(span, taken, doc.text)]
            selected += new
            taken = in_order([*taken, *new])
        return in_order(selected)

    def _free_parts(self, span: Span, taken: Sequence[Span], text: str) -> Iterator[Span]:
        """``span`` if nothing of it is taken; else nothing, or with ``keep_rests`` the parts with a letter or digit."""
        first = bisect_right(taken, span.start, key=lambda other: other.end)
        last = bisect_left(taken, span.end, key=lambda other: other.start)
        if first >= last:
            yield span
        elif self.keep_rests:
            ends = [span.start, *(other.end for other in taken[first:last])]
            starts = [*(other.start for other in taken[first:last]), span.end]
            for start, end in zip(ends, starts, strict=True):
                if any(char.isalnum() for char in text[start:end]):
                    yield Span(start, end, span.type, span.source)
