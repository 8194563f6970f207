"""Reads a note with a tagger and with each of its components, to find the spans about which they disagree.

The components are the recognizers together (``rules``), each model, and each model of an average alone. A component
supports a span if it has at least half of its tokens.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from deid_agent.model import Document, Source, SourceKind, SourceTraits, Span
from deid_agent.nlp import (
    LOW_CONFIDENCE,
    LOW_CONFIDENCE_NAME,
    OUTSIDE,
    Floats,
    ProbabilitySource,
    TokenCrf,
    TokenFeatures,
)
from deid_agent.recognize import Model, Recognizer, Tagger
from deid_agent.review.records import Proposal

_SURE = frozenset({SourceKind.KNOWN, SourceKind.SITE})
"""Kinds of values that a message or a list of the site states: no component has to agree."""
_ENOUGH = 2


@dataclass(frozen=True, slots=True)
class NoteReading:
    """The proposals in a note. ``missed`` is the number of places that a component proposes and the tagger does not."""

    proposals: tuple[Proposal, ...] = field(repr=False)
    missed: int = 0

    @property
    def uncertain(self) -> int:
        """The number of uncertain proposals."""
        return sum(each.uncertain for each in self.proposals)


class _Kept:
    """A recognizer that keeps its findings for the last document, which is read twice."""

    def __init__(self, inner: Recognizer) -> None:
        self.name = inner.name
        self._inner = inner
        self._last: tuple[Document, tuple[Span, ...]] | None = None

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        return self._inner.sources

    def recognize(self, doc: Document) -> Iterable[Span]:
        if self._last is None or self._last[0] is not doc:
            self._last = (doc, tuple(self._inner.recognize(doc)))
        return self._last[1]


class _Overheard:
    """A model of an average that keeps which tokens of the last documents it takes for PHI."""

    def __init__(self, inner: ProbabilitySource) -> None:
        self.name, self.labels = inner.name, inner.labels
        self.tokens: list[bool] = []
        self._inner = inner

    def marginals(self, documents: Sequence[TokenFeatures]) -> Floats:
        found = self._inner.marginals(documents)
        likely: list[bool] = (np.argmax(found, axis=1) != self.labels.index(OUTSIDE)).tolist()
        self.tokens += likely
        return found


class TaggerReader:
    """Reads notes one by one."""

    def __init__(self, tagger: Tagger) -> None:
        self._members: list[_Overheard] = []
        self._alone: dict[str, TokenCrf] = {}
        models = list[Model]()
        for model in tagger.models:
            if isinstance(model, TokenCrf) and model.ensemble:
                members = tuple(map(_Overheard, model.ensemble))
                self._members += members
                self._alone[model.name] = replace(model, ensemble=(), lean=1.0)
                models.append(replace(model, ensemble=members))
            else:
                models.append(model)
        self._tagger = replace(tagger, recognizers=tuple(map(_Kept, tagger.recognizers)), models=tuple(models))
        self._low = tagger.resolver.rules.low | tagger.resolver.low | {LOW_CONFIDENCE, LOW_CONFIDENCE_NAME}

    def read(self, doc: Document) -> NoteReading:
        """The proposals of the tagger in a note, and where its components differ."""
        for member in self._members:
            member.tokens.clear()
        found = self._tagger.find(doc)
        if not doc.tokens:
            return NoteReading(tuple(Proposal(span) for span in found))
        components = self._read_components(doc)
        starts = [start for start, _ in doc.tokens]
        proposals = tuple(Proposal(span, self._is_uncertain(span, starts, components)) for span in found)
        covered = _tokens_of(found, starts)
        missed = set[int]().union(*components) - covered
        return NoteReading(proposals, sum(at - 1 not in missed for at in missed))

    def _read_components(self, doc: Document) -> list[set[int]]:
        """The tokens that each component takes for PHI."""
        starts, tagger = [start for start, _ in doc.tokens], self._tagger
        rules = [span for each in tagger.recognizers for span in each.recognize(doc)]
        components = [_tokens_of(tagger.resolver.resolve(rules, doc), starts)] if tagger.recognizers else []
        asked = [(doc, tagger.first_pass(doc))]
        for model in tagger.models:
            (spans,) = self._alone.get(model.name, model).propose_all(asked)
            components.append(_tokens_of(spans, starts))
        for member in self._members:
            if len(member.tokens) == len(starts):  # no text was divided
                components.append({at for at, likely in enumerate(member.tokens) if likely})
        return components

    def _is_uncertain(self, span: Span, starts: Sequence[int], components: Sequence[set[int]]) -> bool:
        if span.source in self._low:
            return True
        if span.source.kind in _SURE or len(components) < _ENOUGH:
            return False
        tokens = _tokens_of([span], starts)
        return sum(2 * len(tokens & each) >= len(tokens) for each in components) < _ENOUGH


def _tokens_of(spans: Iterable[Span], starts: Sequence[int]) -> set[int]:
    """The numbers of the tokens that begin in a span."""
    return {at for span in spans for at in range(bisect_left(starts, span.start), bisect_left(starts, span.end))}
