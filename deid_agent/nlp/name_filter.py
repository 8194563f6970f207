"""The name filter: proposes candidates for names of persons and keeps those that a support vector machine accepts.

Source: Ferrandez 2012 section 3.2. The machine classifies whole candidates instead of tokens, so few examples are
enough. A second machine decides whether the person belongs to the care team.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from deid_agent.model import Document, PhiType, Source, SourceKind, SourceTraits, Span, fold_accents
from deid_agent.nlp.crf_taggers import FirstPass
from deid_agent.nlp.name_candidates import PERSONS, Candidate, find_candidates
from deid_agent.nlp.svm import Ints, SvmModel
from deid_agent.nlp.token_features import TOKEN_FEATURES, FeatureValues, TokenFeatures
from deid_agent.rules import Dictionaries, Tags, list_of_tag

NAME_SOURCE, LOW_CONFIDENCE_NAME = Source(SourceKind.NAME_FILTER, "name"), Source(SourceKind.NAME_FILTER, "name-weak")
NAME_CLASSIFIER, CARE_TEAM_CLASSIFIER = "name", "team"
"""The classifiers of the model: whether a candidate is a name, and whether the person belongs to the care team."""
FAMILY_SCALES: Mapping[str, float] = MappingProxyType({"word": 0.7, "near": 0.7, "far": 0.5, "end": 0.6})
"""The weight of a feature family; 1 for a family that is not listed."""

_CONTEXT_FEATURES = ("label", "section", "place", "case", "zone", "elsewhere", "writing")
_TOKEN_FEATURES = ("shape", "gap", *_CONTEXT_FEATURES)
_NAME_LISTS = frozenset({"given-female", "given-male", "nickname", "family", "family-rare"})
_VOWELS = frozenset("aeiouyáéíóúäöü")
_BEYOND = "#"
_MAX_WORDS = 6


@dataclass(frozen=True, slots=True)
class CandidateFeatures:
    """The binary features of the candidates of one document, as strings such as ``word=first:ann``.

    Ferrandez 2012 section 3.2.4: the normalised words of the candidate, three words on both sides, its length, its
    position, orthographic features, lists of names and of common words, and the strategies that proposed it. Features
    of the token model (line, section, document) replace the parts of speech of the paper.
    """

    tokens: TokenFeatures
    features: Mapping[str, FeatureValues] = field(repr=False)
    lists: Sequence[tuple[str, ...]] = field(repr=False)

    @classmethod
    def from_tokens(cls, tokens: TokenFeatures) -> "CandidateFeatures":
        """The token features and lists that all candidates of a document share, computed once."""
        known: dict[Tags, tuple[str, ...]] = {}
        lists = []
        for tags in tokens.tags:
            names = known.get(tags)
            if names is None:
                names = known[tags] = tuple(sorted({list_of_tag(tag) for tag in tags}))
            lists.append(names)
        return cls(tokens, {name: TOKEN_FEATURES[name](tokens) for name in _TOKEN_FEATURES}, lists)

    def extract(self, candidate: Candidate) -> Iterator[str]:
        """The features of one candidate; a feature may occur twice."""
        first, last = candidate.first, candidate.last
        words = [at for at in range(first, last) if self.tokens.words[at][0].isalnum()] or [first]
        yield from (f"made={name}" for name in candidate.strategies)
        yield from self._words(words)
        yield from self._orthography(words, first, last)
        yield from self._neighbours(first, last)
        yield from self._position(words[0], last)
        yield from self._first_pass(first, last)

    def _words(self, words: Sequence[int]) -> Iterator[str]:
        lower = self.tokens.lower
        for name, at in (("first", words[0]), ("last", words[-1])):
            word = fold_accents(lower[at])
            yield f"word={name}:{word}"
            yield f"end={name}:{word[-3:]}"
            yield f"end={name}:{word[-2:]}"
            yield f"end={name}:{word[:2]}-"
            yield from (f"list={name}:{each}" for each in self.lists[at])
            if not self.lists[at]:
                yield f"list={name}:none"
        plain = sum(not {"common-word", "rare-word"}.isdisjoint(self.lists[at]) for at in words)
        named = sum(any(each in _NAME_LISTS for each in self.lists[at]) for at in words)
        yield f"plain={'all' if plain == len(words) else 'some' if plain else 'none'}"
        yield f"named={'all' if named == len(words) else 'some' if named else 'none'}"

    def _orthography(self, words: Sequence[int], first: int, last: int) -> Iterator[str]:
        tokens, shape = self.tokens, self.features["shape"]
        text = [tokens.words[at] for at in words]
        yield f"words={min(len(words), _MAX_WORDS)}"
        yield f"shapes={' '.join(shape[first : min(last, first + 6)])}"
        yield f"form={shape[words[0]]}/{shape[words[-1]]}"
        yield f"longest={min(max(map(len, text)), 10)}"
        yield f"shortest={min(*map(len, text), 10)}"
        signs = {tokens.words[at] for at in range(first, last)} - set(text)
        yield from (f"sign={sign}" for sign in sorted(signs)[:4])
        checks = (
            ("capitals", all(w.isupper() for w in text)),
            ("small", all(w.islower() for w in text)),
            ("initial", all(w[0].isupper() for w in text)),
            ("mixed", any(w[1:] != w[1:].lower() and not w.isupper() for w in text)),
            ("digit", any(w[0].isdigit() for w in text)),
            ("wide", not all(w.isascii() for w in text)),
            ("letter-first", len(text[0]) == 1),
            ("letter-last", len(text[-1]) == 1),
            ("vowelless", any(len(w) > 1 and not _VOWELS & set(w.lower()) for w in text)),
        )
        yield from (f"ortho={name}" for name, yes in checks if yes)

    def _neighbours(self, first: int, last: int) -> Iterator[str]:
        lower, shape, size = self.tokens.lower, self.features["shape"], len(self.tokens.lower)
        for step in (1, 2, 3):
            for name, at in ((f"-{step}", first - step), (f"+{step}", last - 1 + step)):
                inside = 0 <= at < size
                word = lower[at] if inside else _BEYOND
                yield f"{'near' if step == 1 else 'far'}={name}:{'0' if word[0].isdigit() else word}"
                if inside and step < 3:
                    yield f"beside={name}:{shape[at]}"
                    yield from (f"by={name}:{each}" for each in self.lists[at])

    def _position(self, at: int, last: int) -> Iterator[str]:
        gaps = self.features["gap"]
        yield f"gap=-:{gaps[at]}"
        yield f"gap=+:{gaps[last] if last < len(gaps) else _BEYOND}"
        for name in _CONTEXT_FEATURES:
            if value := self.features[name][at]:
                yield f"{name}={value}"
        yield f"deep={10 * at // max(1, len(gaps))}"

    def _first_pass(self, first: int, last: int) -> Iterator[str]:
        """The first-pass spans inside the candidate, at its edges and beside it."""
        labels = self.tokens.labels
        inside = {label[2:] for label in labels[first:last] if label != "O"}
        yield from (f"rule={kind}" for kind in sorted(inside))
        whole = labels[first][:1] == "B" and all(label[:1] == "I" for label in labels[first + 1 : last])
        ends = last == len(labels) or labels[last][:1] != "I"
        if whole and ends and labels[first][2:] in PERSONS:
            yield f"rule=whole:{labels[first][2:]}"
        if labels[first][:1] == "I":
            yield "rule=cut:first"
        if not ends:
            yield "rule=cut:last"
        for name, at in (("-1", first - 1), ("-2", first - 2), ("+1", last), ("+2", last + 1)):
            if 0 <= at < len(labels) and labels[at] != "O":
                yield f"rule={name}:{labels[at][2:]}"


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate's range and its score: the higher, the likelier a name. ``row`` has its feature numbers."""

    start: int
    end: int
    score: float
    row: Ints = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Finds names of persons, including those of the first pass."""

    model: SvmModel
    dictionaries: Dictionaries = field(repr=False)
    name: str = "name-filter"

    def propose(self, doc: Document, first_pass: Sequence[Span]) -> list[Span]:
        """Disjoint names in order. Below the model's threshold ``sure`` they have low confidence."""
        sure, likely = self.model.thresholds["sure"], self.model.thresholds["likely"]
        kept = choose_best(self.score_candidates(doc, first_pass), likely)
        team = self.model.classifier(CARE_TEAM_CLASSIFIER)
        return [
            Span(
                each.start,
                each.end,
                PhiType.DOCTOR if score >= 0 else PhiType.PATIENT,
                NAME_SOURCE if each.score >= sure else LOW_CONFIDENCE_NAME,
            )
            for each, score in zip(kept, team.decide([each.row for each in kept]).tolist(), strict=True)
        ]

    def propose_all(self, asked: Sequence[FirstPass]) -> list[list[Span]]:
        """The result of ``propose`` for each document."""
        return [self.propose(doc, first_pass) for doc, first_pass in asked]

    def score_candidates(self, doc: Document, first_pass: Sequence[Span]) -> list[ScoredCandidate]:
        """Every candidate that passes the screen, with its score."""
        if not doc.tokens:
            return []
        tokens = TokenFeatures(doc, first_pass, self.dictionaries)
        candidates = find_candidates(tokens)
        features = CandidateFeatures.from_tokens(tokens)
        rows = self.model.encode(features.extract(candidate) for candidate in candidates)
        passed = self.model.screen.passes(rows).tolist()
        rows = [row for row, yes in zip(rows, passed, strict=True) if yes]
        candidates = [candidate for candidate, yes in zip(candidates, passed, strict=True) if yes]
        scores = self.model.classifier(NAME_CLASSIFIER).decide(rows).tolist()
        ranges = [candidate.range(doc.tokens) for candidate in candidates]
        return [ScoredCandidate(a, b, score, row) for (a, b), score, row in zip(ranges, scores, rows, strict=True)]


@dataclass(frozen=True, slots=True)
class FilteredNames:
    """The system of Ferrandez 2012 as a recognizer: names from ``first_pass`` and new candidates, both filtered.

    ``first_pass`` returns the disjoint spans of a document. Those of other types than persons are dropped: this system
    finds persons only.
    """

    first_pass: Callable[[Document], Sequence[Span]]
    filter: NameFilter
    name: str = "ferrandez2012"

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """The sources of the filter."""
        return dict.fromkeys((NAME_SOURCE, LOW_CONFIDENCE_NAME), SourceTraits())

    def recognize(self, doc: Document) -> Iterator[Span]:
        """The names of persons in ``doc``."""
        yield from self.filter.propose(doc, self.first_pass(doc))


def choose_best(candidates: Iterable[ScoredCandidate], threshold: float) -> list[ScoredCandidate]:
    """The candidates that score at least ``threshold``, without overlaps, in order of position.

    The best candidate is kept first, then the best that does not overlap it, and so on.
    """
    kept: list[ScoredCandidate] = []
    for each in sorted(candidates, key=lambda c: (-c.score, c.start, -c.end)):
        if each.score < threshold:
            break
        if all(each.end <= other.start or other.end <= each.start for other in kept):
            kept.append(each)
    return sorted(kept, key=lambda c: c.start)
