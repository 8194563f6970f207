"""New notes from annotated ones: other surrogates in the annotated places, and noise as real records have it.

Annotations follow every change exactly. The same note, seed and number give the same new note.
"""

import random
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from deid_agent import policy
from deid_agent.context import days_of
from deid_agent.eval.markup import Note
from deid_agent.eval.tagging import profile_known
from deid_agent.markup import Annotated
from deid_agent.policy import Method
from deid_agent.replacer import Replacer
from deid_agent.spans import Replacement, Span, is_disjoint, splice
from deid_agent.surrogate import Scope, Surrogates
from deid_agent.surrogate.methods import mask
from deid_agent.text import lowered

_YEAR = 2020  # stands for "today", which would differ from day to day
_WORD = re.compile(r"[^\W\d_]{4,}")
_BLANK = re.compile(r"(?<=\S) (?=\S)")
_BREAK = re.compile(r"(?<=[^\s:])\n(?=[^\W\d_])")
_SEEN: Mapping[str, str] = MappingProxyType(
    {"0": "O", "O": "0", "1": "l", "l": "1", "I": "l", "5": "S", "S": "5", "8": "B", "B": "8", "rn": "m", "m": "rn"}
    | {"cl": "d", "ii": "u", "vv": "w", "h": "b", "e": "c", ",": "."}
)
"""What optical character recognition takes one sign for."""
_CONFUSED = re.compile("|".join(sorted(map(re.escape, _SEEN), key=len, reverse=True)))


@dataclass(frozen=True, slots=True)
class Noise:
    """Shares from 0 to 1: of notes all in capitals or small letters; of words, signs, blanks and line ends changed.

    ``typing`` and ``seen`` (recognition errors) and ``moved`` (line ends) and ``glued`` (missing blanks) hold for one
    place each. All zeros: no noise.
    """

    upper: float = 0.0
    lower: float = 0.0
    typing: float = 0.0
    seen: float = 0.0
    moved: float = 0.0
    glued: float = 0.0


class Augmenter:
    """Makes new notes. Loads the rules' word lists once; a secret made of the seed gives each round its surrogates."""

    def __init__(self, rules: Path, seed: int, noise: Noise) -> None:
        self._rules, self._seed, self._noise = rules, seed, noise
        self._policy = policy.load("pseudonymised", rules)
        self._replacer = lru_cache(maxsize=None)(self._make_replacer)

    def again(self, note: Note, number: int) -> Note:
        """The ``number``-th new note of ``note``. One whose annotations overlap comes back as it is."""
        if not is_disjoint(note.annotated.spans):
            return note
        rng = random.Random(f"{self._seed}:{number}:{note.id}")  # noqa: S311 - noise, no secret
        return replace(note, annotated=noisy(self._resampled(note, number), self._noise, rng))

    def _resampled(self, note: Note, number: int) -> Annotated:
        text, spans = note.annotated.text, note.annotated.spans
        scope = Scope(note.id, note.patient, known=days_of(profile_known(note)))
        methods = [Method.SURROGATE] * len(spans)
        values = self._replacer(number).findings(text, spans, methods, scope)
        return edited(
            note.annotated,
            (
                Replacement(span.start, span.end, new)
                for span, new in zip(spans, values, strict=True)
                if mask(span.type) not in new  # a value that nobody can read stays as it is
            ),
        )

    def _make_replacer(self, number: int) -> Replacer:
        secret = sha256(f"augment:{self._seed}:{number}".encode()).digest()
        return Replacer(self._policy, Surrogates(secret, rules=self._rules), year=_YEAR)


def edited(annotated: Annotated, edits: Iterable[Replacement]) -> Annotated:
    """The text with its edits made and the spans where their texts then lie; a span of which nothing stays is gone.

    An edit that lies partly in a span, and one that is empty, are left out. Raises ``ValueError`` where edits overlap.
    """
    text, spans = annotated.text, annotated.spans
    edges = sorted({edge for span in spans for edge in (span.start, span.end)})
    kept, ends, moved = [], [0], [0]
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        at = bisect_right(edges, edit.start)
        if edit.start < edit.end and (at == len(edges) or edges[at] >= edit.end):
            kept.append(edit)
            ends.append(edit.end)
            moved.append(moved[-1] + len(edit.text) - (edit.end - edit.start))

    def place(edge: int) -> int:
        return edge + moved[bisect_right(ends, edge) - 1]

    places = ((span, place(span.start), place(span.end)) for span in spans)
    found = tuple(Span(start, end, span.type, span.source) for span, start, end in places if start < end)
    return Annotated(splice(text, kept), found)


def noisy(annotated: Annotated, noise: Noise, rng: random.Random) -> Annotated:
    """The note as a hasty hand, a scanner or another system would have left it."""
    for share, edits in (
        (noise.typing, _typing),
        (noise.seen, _seen),
        (noise.moved, _moved),
        (noise.glued, _glued),
    ):
        if share:
            annotated = edited(annotated, edits(annotated.text, share, rng))
    draw = rng.random()
    if draw < noise.upper:
        return Annotated("".join(_upper(c) for c in annotated.text), annotated.spans)
    if draw < noise.upper + noise.lower:
        return Annotated(lowered(annotated.text), annotated.spans)
    return annotated


def _typing(text: str, share: float, rng: random.Random) -> Iterator[Replacement]:
    """Two letters change places, one is missing or stands twice."""
    for word in _WORD.finditer(text):
        if rng.random() < share:
            at = rng.randrange(word.start() + 1, word.end() - 1)
            a, b = text[at], text[at + 1]
            yield Replacement(at, at + 2, rng.choice((b + a, b, a + a + b)))


def _seen(text: str, share: float, rng: random.Random) -> Iterator[Replacement]:
    for sign in _CONFUSED.finditer(text):
        if rng.random() < share:
            yield Replacement(sign.start(), sign.end(), _SEEN[sign.group()])


def _moved(text: str, share: float, rng: random.Random) -> Iterator[Replacement]:
    """Lines end at other places: a blank becomes a line end, a line end inside of a paragraph a blank."""
    for pattern, new in ((_BLANK, "\n"), (_BREAK, " ")):
        for place in pattern.finditer(text):
            if rng.random() < share:
                yield Replacement(place.start(), place.end(), new)


def _glued(text: str, share: float, rng: random.Random) -> Iterator[Replacement]:
    """A blank is missing, where the tokenizer still sees two tokens: half a token is never annotated."""
    for blank in _BLANK.finditer(text):
        a, b = text[blank.start() - 1], text[blank.end()]
        one = (a.isalpha() and b.isalpha()) or (a.isdigit() and b.isdigit())
        if not one and rng.random() < share:
            yield Replacement(blank.start(), blank.end(), "")


def _upper(char: str) -> str:
    """In capitals where that is one character: offsets hold."""
    up = char.upper()
    return up if len(up) == 1 else char
