"""From a document to the spans to replace.

The stages are the recognizers, the models, the resolver and the document-level consistency pass. Recognizers read the
text and the facts of the message. Models also see the spans of the recognizers. The consistency pass searches the
document for further mentions of the values found. Each stage is optional, so every published system is a combination
of these stages.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from deid_agent.model import (
    CATEGORY,
    BesideModels,
    Document,
    Fact,
    PhiCategory,
    PhiType,
    Range,
    Source,
    SourceTraits,
    Span,
    in_order,
)
from deid_agent.nlp import is_short_value
from deid_agent.recognize.consistency import ConsistencyPass, TaggedDocument
from deid_agent.recognize.listed_names import is_clinical_term
from deid_agent.recognize.name_memory import PatientNames
from deid_agent.recognize.remembered_names import NameMemoryRules
from deid_agent.recognize.resolve import Profile, Resolver


class Recognizer(Protocol):
    """Proposes spans of one document. Pure: the same document gives the same spans in the same order."""

    @property
    def name(self) -> str:
        """The name in configuration and reports."""

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """Every source of the recognizer's spans, with its confidence and whether its spans remain beside models.

        An undeclared source has the default traits: its spans remain under every profile.
        """

    def recognize(self, doc: Document) -> Iterable[Span]:
        """Spans inside the text, which may overlap. Keeps and logs no text."""


class Model(Protocol):
    """Proposes spans of documents, given the recognizers' spans. Pure, as a ``Recognizer`` is."""

    @property
    def name(self) -> str:
        """The name in configuration and reports."""

    def propose_all(self, asked: Sequence[tuple[Document, Sequence[Span]]]) -> Sequence[Sequence[Span]]:
        """For each document with its resolved recognizer spans: spans inside its text, which may overlap."""


@runtime_checkable
class NameModel(Protocol):
    """A model that also reports the tokens that it is sure are parts of names of persons."""

    def propose_with_names(
        self, asked: Sequence[tuple[Document, Sequence[Span]]]
    ) -> Sequence[tuple[Sequence[Span], Sequence[Range]]]:
        """For each document the spans of ``propose_all``, and those tokens."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The resolved spans of a document, and its tokens that models are sure are parts of names of persons."""

    spans: list[Span]
    named: list[Range]


@dataclass(frozen=True, slots=True)
class Tagger:
    """Finds the spans to replace: disjoint and in order. Keeps and logs no text.

    ``models_decide`` is for models that were trained on the recognizers' spans: they overrule the spans of every source
    whose traits permit it. Under the recall profile they do not overrule spans in a short value, which they read badly.
    """

    recognizers: tuple[Recognizer, ...]
    resolver: Resolver
    models: tuple[Model, ...] = ()
    consistency: ConsistencyPass | None = field(default=None, repr=False)
    models_decide: bool = False
    _shown: frozenset[Source] = field(init=False, repr=False)
    _overruled: frozenset[Source] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        recall = self.resolver.profile is Profile.RECALL
        traits = {source: traits for each in self.recognizers for source, traits in each.sources.items()}
        shown = frozenset(s for s, each in traits.items() if each.beside_models is not BesideModels.ALWAYS)
        kept = {BesideModels.RECALL} if recall else set()
        object.__setattr__(self, "_shown", shown)
        object.__setattr__(self, "_overruled", frozenset(s for s in shown if traits[s].beside_models not in kept))

    def find(self, doc: Document, others: Iterable[TaggedDocument] = ()) -> list[Span]:
        """The PHI in ``doc``; ``others`` are documents of the same patient with their resolved spans."""
        return self._with_further_mentions(doc, self._find_once([doc])[0].spans, others)

    def find_all(self, docs: Sequence[Document]) -> list[list[Span]]:
        """The result of ``find`` for each document; models read them in batches."""
        return [each.spans for each in self.read_all(docs)]

    def read_all(self, docs: Sequence[Document]) -> list[Findings]:
        """As ``find_all``, with the tokens that models are sure are parts of names."""
        found = self._find_once(docs)
        return [
            Findings(self._with_further_mentions(doc, each.spans, ()), each.named)
            for doc, each in zip(docs, found, strict=True)
        ]

    def learn_names(self, names: PatientNames, doc: Document, findings: Findings) -> None:
        """Let ``names`` remember the sure names among the findings in a document of the patient."""
        if (rules := self._memory_rules) is not None:
            names.learn(rules.select_words(doc, findings.spans, findings.named), doc.text)

    def learn_facts(self, names: PatientNames, facts: Iterable[Fact]) -> None:
        """Let ``names`` remember the names in the fields of a message of the patient."""
        if (rules := self._memory_rules) is not None:
            names.learn(rules.select_fact_words(facts), "")

    def find_remembered(self, names: PatientNames, doc: Document, spans: Sequence[Span]) -> Sequence[Span]:
        """``spans`` of a document of the patient, unchanged, and the remembered names beside them, in order."""
        rules = self._memory_rules
        more = () if rules is None else rules.find(doc, spans, names)
        return in_order([*spans, *more]) if more else spans

    def find_across(self, texts: Sequence[str], found: Sequence[Sequence[Span]]) -> list[Sequence[Span]]:
        """The spans ``found`` in each text of one message, and the names that its other texts introduce."""
        if self.consistency is None or len(texts) < 2:
            return list(found)
        further = self.consistency.find_names_across(texts, found)
        return [
            self.resolver.resolve([*spans, *more], Document(text)) if more else spans
            for text, spans, more in zip(texts, found, further, strict=True)
        ]

    def first_pass(self, doc: Document) -> list[Span]:
        """The resolved recognizer spans that models see."""
        return self._visible_to_models(doc, self._recognize(doc))

    def without_models(self) -> "Tagger":
        """The same tagger without models, for text that is not prose, such as a record key."""
        return replace(self, models=())

    def _recognize(self, doc: Document) -> list[Span]:
        return [span for each in self.recognizers for span in each.recognize(doc)]

    @property
    def _memory_rules(self) -> NameMemoryRules | None:
        """The rules of remembered names; None for a system without lists."""
        return (
            None
            if self.consistency is None
            else NameMemoryRules(self.consistency.dictionaries, self.resolver, self.consistency.contexts)
        )

    def _find_once(self, docs: Sequence[Document]) -> list[Findings]:
        proposed = [self._recognize(doc) for doc in docs]
        named: list[list[Range]] = [[] for _ in docs]
        if self.models:
            asked = [(doc, self._visible_to_models(doc, spans)) for doc, spans in zip(docs, proposed, strict=True)]
            proposed = [self._beside_models(doc, spans) for doc, spans in zip(docs, proposed, strict=True)]
            for model in self.models:
                results = zip(proposed, named, _propose(model, asked), asked, strict=True)
                for spans, sure, (found, names), (doc, first) in results:
                    spans.extend(divide_model_spans(found, first, doc))
                    sure.extend(names)
        resolved = (self.resolver.resolve(spans, doc) for doc, spans in zip(docs, proposed, strict=True))
        return [Findings(spans, sure) for spans, sure in zip(resolved, named, strict=True)]

    def _visible_to_models(self, doc: Document, spans: Iterable[Span]) -> list[Span]:
        visible = (span for span in spans if span.source in self._shown)
        return self.resolver.resolve(visible, doc, for_models=True)

    def _beside_models(self, doc: Document, spans: list[Span]) -> list[Span]:
        """The recognizers' spans without those that models overrule.

        In a short value models overrule only what the grammar reads as a measurement, and names of clinical terms.
        """
        if not self.models_decide:
            return spans
        kept = [span for span in spans if span.source not in self._overruled]
        if self.resolver.profile is Profile.RECALL and is_short_value(doc):
            marks = self.resolver.grammar.find(doc)
            others = (span for span in spans if span.source in self._overruled)
            kept += (
                s
                for s in others
                if not any(m.start <= s.start and s.end <= m.end for m in marks) and not self._is_clinical(s, doc)
            )
        return kept

    def _is_clinical(self, span: Span, doc: Document) -> bool:
        """True for a term with a comma ("PENICILLIN, ORAL"), which has the form of a name in a list of patients."""
        found = doc.text[span.start : span.end]
        return (
            span.type is PhiType.PATIENT
            and "," in found
            and self.consistency is not None
            and is_clinical_term(found, self.consistency.dictionaries)
        )

    def _with_further_mentions(self, doc: Document, found: list[Span], others: Iterable[TaggedDocument]) -> list[Span]:
        if self.consistency is not None and (more := self.consistency.find_mentions(doc, found, others)):
            return self.resolver.resolve([*found, *more], doc)
        return found


def _propose(
    model: Model, asked: Sequence[tuple[Document, Sequence[Span]]]
) -> Sequence[tuple[Sequence[Span], Sequence[Range]]]:
    if isinstance(model, NameModel):
        return model.propose_with_names(asked)
    return [(spans, ()) for spans in model.propose_all(asked)]


# Spans of a model, divided to the size of one value.
#
# A model that labels tokens only as inside or outside (Dehghan 2015 section 2.3) makes one span of two adjacent dates,
# and one span of a page of names. Two dates in one span would be replaced by one date.

LONGEST = 200
"""Characters of one span; a longer span is divided. The longest annotation of the corpus has 55."""
_NUMERIC = frozenset({PhiCategory.AGE, PhiCategory.DATE, PhiCategory.CONTACT, PhiCategory.ID})
_COMPLETE = re.compile(r"(?!\d{4}\Z)\D*\d[\s\S]*")  # not "October" or "2018": a line break may divide one date
_BETWEEN = re.compile(r"(?i)(?:[\W_]|\b(?:and|or|to|through|thru|until|then|vs)\b){0,12}")


def divide_model_spans(spans: Iterable[Span], first: Sequence[Span], doc: Document) -> list[Span]:
    """``spans`` of a model, divided if ``first`` (disjoint, in order) has two spans of the same type inside, or if too
    long.

    Only ages, dates, contacts and numbers are divided at the spans of ``first``: rules often find only part of a name
    or place. The parts cover every letter and digit except conjunctions such as "and" between two values. Time is
    linear in the text.
    """
    found: list[Span] = []
    starts = [span.start for span in first]
    for span in spans:
        inside = first[bisect_left(starts, span.start) : bisect_left(starts, span.end)]
        same = [other for other in inside if other.type is span.type and _is_complete(other, span, doc)]
        several = len(same) > 1 and CATEGORY[span.type] in _NUMERIC
        for start, end in _divide_at(span, same, doc.text) if several else ((span.start, span.end),):
            found += _split_long(Span(start, end, span.type, span.source), doc)
    return found


def _is_complete(other: Span, span: Span, doc: Document) -> bool:
    return other.end <= span.end and _COMPLETE.fullmatch(doc.text, other.start, other.end) is not None


def _divide_at(span: Span, same: Sequence[Span], text: str) -> Iterator[tuple[int, int]]:
    """The ranges of ``same``, each with the text before it unless that only joins two; the last takes the rest."""
    start = span.start
    for at, each in enumerate(same):
        if at and _BETWEEN.fullmatch(text, start, each.start):
            start = each.start
        elif at:
            yield start, each.start
            start = each.start
        end = span.end if at == len(same) - 1 else each.end
        yield start, end
        start = end


def _split_long(span: Span, doc: Document) -> Iterator[Span]:
    """``span``, or parts of at most ``LONGEST`` characters that end at token boundaries."""
    start = span.start
    if len(span) > LONGEST:
        at = bisect_left(doc.tokens, (span.start, 0))
        while at < len(doc.tokens) and doc.tokens[at][1] <= span.end:
            if doc.tokens[at][1] - start > LONGEST and doc.tokens[at][0] > start:
                yield Span(start, doc.tokens[at][0], span.type, span.source)
                start = doc.tokens[at][0]
            at += 1
    yield Span(start, span.end, span.type, span.source)
