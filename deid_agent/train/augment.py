"""Synthetic copies of annotated notes: other surrogates in the annotated places, and noise as in real records.

Annotations follow every change exactly. The same note, seed and copy number give the same copy.
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

from deid_agent.eval import Note, facts_from_profile
from deid_agent.model import Annotated, Replacement, Span, is_disjoint, lower_keeping_length, splice
from deid_agent.pipeline import Method, Replacer, find_days, load_policy
from deid_agent.surrogate import Scope, Surrogates, mask

_YEAR = 2020  # a fixed current year: the real one would change the copies from year to year
_WORD = re.compile(r"[^\W\d_]{4,}")
_BLANK = re.compile(r"(?<=\S) (?=\S)")
_BREAK = re.compile(r"(?<=[^\s:])\n(?=[^\W\d_])")
_CONFUSIONS: Mapping[str, str] = MappingProxyType(
    {"0": "O", "O": "0", "1": "l", "l": "1", "I": "l", "5": "S", "S": "5", "8": "B", "B": "8", "rn": "m", "m": "rn"}
    | {"cl": "d", "ii": "u", "vv": "w", "h": "b", "e": "c", ",": "."}
)
"""Characters that optical character recognition confuses, each with its replacement."""
_CONFUSED = re.compile("|".join(sorted(map(re.escape, _CONFUSIONS), key=len, reverse=True)))


@dataclass(frozen=True, slots=True)
class Noise:
    """Probabilities from 0 to 1. All zeros: no noise.

    ``upper`` and ``lower`` apply to a whole note, which is converted to capitals or to lower case. ``typing`` (typing
    errors) applies to each word, ``ocr`` (recognition errors) to each confusable character, ``line_breaks`` (a blank
    for a line break and the reverse) to each break and blank, ``missing_blanks`` to each blank.
    """

    upper: float = 0.0
    lower: float = 0.0
    typing: float = 0.0
    ocr: float = 0.0
    line_breaks: float = 0.0
    missing_blanks: float = 0.0


class Augmenter:
    """Makes synthetic copies of notes. Loads the word lists once; each copy number has its own surrogate secret."""

    def __init__(self, rules: Path, seed: int, noise: Noise) -> None:
        self._rules, self._seed, self._noise = rules, seed, noise
        self._policy = load_policy("pseudonymised", rules)
        self._replacer = lru_cache(maxsize=None)(self._make_replacer)

    def make_copy(self, note: Note, number: int) -> Note:
        """Copy ``number`` of ``note``. Returns ``note`` itself if its annotations overlap."""
        if not is_disjoint(note.annotated.spans):
            return note
        rng = random.Random(f"{self._seed}:{number}:{note.id}")  # noqa: S311 - noise, no secret
        return replace(note, annotated=add_noise(self._replace_values(note, number), self._noise, rng))

    def _replace_values(self, note: Note, number: int) -> Annotated:
        text, spans = note.annotated.text, note.annotated.spans
        scope = Scope(note.id, note.patient, known=find_days(facts_from_profile(note)))
        methods = [Method.SURROGATE] * len(spans)
        values = self._replacer(number).replace_findings(text, spans, methods, scope)
        return apply_edits(
            note.annotated,
            (
                Replacement(span.start, span.end, new)
                for span, new in zip(spans, values, strict=True)
                if mask(span.type) not in new  # a value that cannot be parsed is unchanged
            ),
        )

    def _make_replacer(self, number: int) -> Replacer:
        secret = sha256(f"augment:{self._seed}:{number}".encode()).digest()
        return Replacer(self._policy, Surrogates(secret, rules=self._rules), year=_YEAR)


def apply_edits(annotated: Annotated, edits: Iterable[Replacement]) -> Annotated:
    """The edited text with the spans at their new positions. A span that becomes empty is removed.

    Edits that are empty or lie partly in a span are ignored. Raises ``ValueError`` if edits overlap.
    """
    text, spans = annotated.text, annotated.spans
    edges = sorted({edge for span in spans for edge in (span.start, span.end)})
    kept, ends, shifts = [], [0], [0]
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        at = bisect_right(edges, edit.start)
        if edit.start < edit.end and (at == len(edges) or edges[at] >= edit.end):
            kept.append(edit)
            ends.append(edit.end)
            shifts.append(shifts[-1] + len(edit.text) - (edit.end - edit.start))

    def move(edge: int) -> int:
        return edge + shifts[bisect_right(ends, edge) - 1]

    moved = ((span, move(span.start), move(span.end)) for span in spans)
    found = tuple(Span(start, end, span.type, span.source) for span, start, end in moved if start < end)
    return Annotated(splice(text, kept), found)


def add_noise(annotated: Annotated, noise: Noise, rng: random.Random) -> Annotated:
    """The note with the errors of hasty typing, of a scanner or of another system."""
    for share, find_edits in (
        (noise.typing, _typing_errors),
        (noise.ocr, _recognition_errors),
        (noise.line_breaks, _moved_line_breaks),
        (noise.missing_blanks, _missing_blanks),
    ):
        if share:
            annotated = apply_edits(annotated, find_edits(annotated.text, share, rng))
    draw = rng.random()
    if draw < noise.upper:
        return Annotated("".join(_upper_keeping_length(c) for c in annotated.text), annotated.spans)
    if draw < noise.upper + noise.lower:
        return Annotated(lower_keeping_length(annotated.text), annotated.spans)
    return annotated


def _typing_errors(text: str, share: float, rng: random.Random) -> Iterator[Replacement]:
    """Two characters are swapped, or one is missing or doubled."""
    for word in _WORD.finditer(text):
        if rng.random() < share:
            at = rng.randrange(word.start() + 1, word.end() - 1)
            a, b = text[at], text[at + 1]
            yield Replacement(at, at + 2, rng.choice((b + a, b, a + a + b)))


def _recognition_errors(text: str, share: float, rng: random.Random) -> Iterator[Replacement]:
    for sign in _CONFUSED.finditer(text):
        if rng.random() < share:
            yield Replacement(sign.start(), sign.end(), _CONFUSIONS[sign.group()])


def _moved_line_breaks(text: str, share: float, rng: random.Random) -> Iterator[Replacement]:
    """A blank becomes a line break, a line break inside a paragraph becomes a blank."""
    for pattern, new in ((_BLANK, "\n"), (_BREAK, " ")):
        for match in pattern.finditer(text):
            if rng.random() < share:
                yield Replacement(match.start(), match.end(), new)


def _missing_blanks(text: str, share: float, rng: random.Random) -> Iterator[Replacement]:
    """A blank is removed if the tokenizer still finds two tokens: an annotation never covers part of a token."""
    for blank in _BLANK.finditer(text):
        a, b = text[blank.start() - 1], text[blank.end()]
        one = (a.isalpha() and b.isalpha()) or (a.isdigit() and b.isdigit())
        if not one and rng.random() < share:
            yield Replacement(blank.start(), blank.end(), "")


def _upper_keeping_length(char: str) -> str:
    """``char`` as a capital, unchanged if the capital is more than one character: offsets stay valid."""
    up = char.upper()
    return up if len(up) == 1 else char
