"""What the filter of names sees of a candidate: named features, there or not.

Ferrandez 2012 section 3.2.4: the normalised words of the candidate, three words to either side, its length, its place,
orthographic features, lists of names and of common words, and the strategies that proposed it. Columns of the token
model stand for parts of speech: they say what a token is in its line, section and document.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from deid_agent.crf.columns import COLUMNS, Column, View
from deid_agent.dictionary import Tags, base
from deid_agent.recognize.candidates import PERSONS, Candidate
from deid_agent.text import folded

SCALES: Mapping[str, float] = MappingProxyType({"word": 0.7, "near": 0.7, "far": 0.5, "end": 0.6})
"""How much a family counts; 1 where it is not named."""

_COLUMNS = ("shape", "gap", "label", "section", "place", "case", "zone", "elsewhere", "writing")
_EDGE = "#"
_WIDEST = 6  # words


@dataclass(frozen=True, slots=True)
class Sight:
    """A view with the columns that candidates need."""

    view: View
    columns: Mapping[str, Column] = field(repr=False)
    lists: Sequence[tuple[str, ...]] = field(repr=False)

    @classmethod
    def of(cls, view: View) -> "Sight":
        """Columns are made once for all candidates of a document."""
        known: dict[Tags, tuple[str, ...]] = {}
        lists = []
        for tags in view.tags:
            names = known.get(tags)
            if names is None:
                names = known[tags] = tuple(sorted({base(tag) for tag in tags}))
            lists.append(names)
        return cls(view, {name: COLUMNS[name](view) for name in _COLUMNS}, lists)

    def features(self, candidate: Candidate) -> Iterator[str]:
        """The features of one candidate; some may come twice."""
        first, last = candidate.first, candidate.last
        words = [at for at in range(first, last) if self.view.words[at][0].isalnum()] or [first]
        yield from (f"made={name}" for name in candidate.strategies)
        yield from self._words(words)
        yield from self._forms(words, first, last)
        yield from self._around(first, last)
        yield from self._place(words[0], last)
        yield from self._rules(first, last)

    def _words(self, words: Sequence[int]) -> Iterator[str]:
        lower = self.view.lower
        for name, at in (("first", words[0]), ("last", words[-1])):
            word = folded(lower[at])
            yield f"word={name}:{word}"
            yield f"end={name}:{word[-3:]}"
            yield f"end={name}:{word[-2:]}"
            yield f"end={name}:{word[:2]}-"
            yield from (f"list={name}:{each}" for each in self.lists[at])
            if not self.lists[at]:
                yield f"list={name}:none"
        plain = sum(not {"common-word", "rare-word"}.isdisjoint(self.lists[at]) for at in words)
        named = sum(any(each in _NAMES for each in self.lists[at]) for at in words)
        yield f"plain={'all' if plain == len(words) else 'some' if plain else 'none'}"
        yield f"named={'all' if named == len(words) else 'some' if named else 'none'}"

    def _forms(self, words: Sequence[int], first: int, last: int) -> Iterator[str]:
        view, shape = self.view, self.columns["shape"]
        text = [view.words[at] for at in words]
        yield f"words={min(len(words), _WIDEST)}"
        yield f"shapes={' '.join(shape[first : min(last, first + 6)])}"
        yield f"form={shape[words[0]]}/{shape[words[-1]]}"
        yield f"longest={min(max(map(len, text)), 10)}"
        yield f"shortest={min(*map(len, text), 10)}"
        signs = {view.words[at] for at in range(first, last)} - set(text)
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

    def _around(self, first: int, last: int) -> Iterator[str]:
        lower, shape, size = self.view.lower, self.columns["shape"], len(self.view.lower)
        for step in (1, 2, 3):
            for name, at in ((f"-{step}", first - step), (f"+{step}", last - 1 + step)):
                inside = 0 <= at < size
                word = lower[at] if inside else _EDGE
                yield f"{'near' if step == 1 else 'far'}={name}:{'0' if word[0].isdigit() else word}"
                if inside and step < 3:
                    yield f"beside={name}:{shape[at]}"
                    yield from (f"by={name}:{each}" for each in self.lists[at])

    def _place(self, at: int, last: int) -> Iterator[str]:
        gaps = self.columns["gap"]
        yield f"gap=-:{gaps[at]}"
        yield f"gap=+:{gaps[last] if last < len(gaps) else _EDGE}"
        for name in ("label", "section", "place", "case", "zone", "elsewhere", "writing"):
            if value := self.columns[name][at]:
                yield f"{name}={value}"
        yield f"deep={10 * at // max(1, len(gaps))}"

    def _rules(self, first: int, last: int) -> Iterator[str]:
        """What the first pass says inside, at the edges and beside."""
        labels = self.view.labels
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


_NAMES = frozenset({"given-female", "given-male", "nickname", "family", "family-rare"})
_VOWELS = frozenset("aeiouyáéíóúäöü")
