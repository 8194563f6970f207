"""An original and its output: the ranges that are unchanged, and those that were replaced.

An output is the original with some ranges replaced; all other text is the same. ``align_texts`` finds the ranges of a
pair without a record of its replacements: tokens that occur once in both texts are anchors, and the texts between two
anchors are aligned the same way until none is left. A gap without an anchor is compared token by token if it is small.
A large one is divided at its lines or blanks if both texts have as many, otherwise at the tokens that repeat in both.
The cost is about that of sorting the tokens, also for hostile texts.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from deid_agent.model import Range
from deid_agent.pipeline import DocumentTrace

_PIECE = re.compile(r"\d+|[^\W\d_]+|\s+|.", re.DOTALL)
_SMALL = 4_096
"""Comparisons of tokens in a gap without anchors; a larger gap is replaced as a whole."""
_JOINT = re.compile(r"[^\S\r\n]|[^\w\s,;|]|, |\. ")
"""Unchanged text between two parts of one value: the blank of a name, the slashes of a date."""


@dataclass(frozen=True, slots=True, order=True)
class ReplacedRange:
    """Characters ``[begin, end)`` of the output that replace ``[source_begin, source_end)`` of the original.

    Either range may be empty. ``type`` is the PHI type, or empty if it is not known.
    """

    begin: int
    end: int
    source_begin: int
    source_end: int
    type: str = ""


@dataclass(frozen=True, slots=True)
class TextPair:
    """A text of a feed before and after, with ids of note and patient. ``repr`` shows nothing.

    ``replaced`` is in order and disjoint; everything else is the same in both texts.
    """

    note: str = field(repr=False)
    patient: str = field(repr=False)
    original: str = field(repr=False)
    output: str = field(repr=False)
    replaced: tuple[ReplacedRange, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Raises ``ValueError`` if the texts differ outside ``replaced``."""
        at = source = 0
        new, old = len(self.output), len(self.original)
        for each in (*self.replaced, ReplacedRange(new, new, old, old)):
            if not (at <= each.begin <= each.end and source <= each.source_begin <= each.source_end):
                raise ValueError("replaced ranges are not in order")
            if self.output[at : each.begin] != self.original[source : each.source_begin]:
                raise ValueError("the texts differ outside the replaced ranges")
            at, source = each.end, each.source_end

    def surrogate(self, each: ReplacedRange) -> str:
        """The new text of a replaced range."""
        return self.output[each.begin : each.end]

    def replaced_text(self, each: ReplacedRange) -> str:
        """The original text of a replaced range."""
        return self.original[each.source_begin : each.source_end]

    def find_in_output(self, span: Range) -> Range | None:
        """The range of the output that has characters ``span`` of the original unchanged; None if any is replaced."""
        shift = 0
        for each in self.replaced:
            if each.source_begin >= span[1]:
                break
            if each.source_end > span[0]:
                return None
            shift = each.end - each.source_end
        return span[0] + shift, span[1] + shift


@dataclass(frozen=True, slots=True)
class Alignment:
    """The replaced ranges of a pair, and the share of the original's letters and digits that are unchanged."""

    replaced: tuple[ReplacedRange, ...]
    unchanged: float


def make_pair(
    note: str,
    patient: str,
    original: str,
    output: str,
    replaced: Iterable[ReplacedRange] | None = None,
) -> TextPair:
    """The pair of two texts, aligned if ``replaced`` is not known. Raises ``ValueError`` for ranges that do not fit."""
    found = align_texts(original, output).replaced if replaced is None else sorted(replaced)
    return TextPair(note, patient, original, output, join_ranges(found, output))


def pair_from_trace(note: str, patient: str, trace: DocumentTrace) -> TextPair:
    """The pair of a text whose changes were recorded, with the types of its replaced ranges.

    Raises ``ValueError`` if the document is not UTF-8.
    """
    old, new = _character_offsets(trace.before), _character_offsets(trace.after)
    ranges = [
        ReplacedRange(new(each.new_start), new(each.new_end), old(each.start), old(each.end), each.cause.type)
        for each in trace.changes
    ]
    return TextPair(note, patient, trace.before.decode(), trace.after.decode(), tuple(sorted(ranges)))


def _character_offsets(data: bytes) -> Callable[[int], int]:
    """The function from an offset in bytes to one in characters."""
    if data.isascii():
        return lambda at: at
    starts = [at for at, byte in enumerate(data) if byte & 0xC0 != 0x80]
    return lambda at: bisect_left(starts, at)


def align_texts(original: str, output: str) -> Alignment:
    """The ranges of ``output`` that replace others of ``original``; the texts are the same outside of them."""
    sources, pieces = _cut(original), _cut(output)
    replaced, same = [], 0
    old = new = 0
    for source, piece, count in (*_match(sources, pieces), (len(sources), len(pieces), 0)):
        if source > old or piece > new:
            replaced.append(
                ReplacedRange(
                    _offset(pieces, new, output),
                    _offset(pieces, piece, output),
                    _offset(sources, old, original),
                    _offset(sources, source, original),
                )
            )
        same += sum(len(each[0]) for each in sources[source : source + count] if each[0][0].isalnum())
        old, new = source + count, piece + count
    total = sum(len(text) for text, _ in sources if text[0].isalnum())
    return Alignment(tuple(replaced), same / total if total else float(original == output))


def count_unchanged(original: str, output: str) -> float:
    """The share of the original's letters and digits that is unchanged: near zero for the output of another text."""
    return align_texts(original, output).unchanged


def join_ranges(ranges: Iterable[ReplacedRange], output: str) -> tuple[ReplacedRange, ...]:
    """The ranges with parts of one value joined: of the same type, with a single blank or mark between them."""
    joined: list[ReplacedRange] = []
    for each in ranges:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.type == each.type
            and each.begin - last.end == each.source_begin - last.source_end  # the same text
            and (each.begin == last.end or _JOINT.fullmatch(output, last.end, each.begin))
        ):
            joined[-1] = ReplacedRange(last.begin, each.end, last.source_begin, each.source_end, each.type)
        else:
            joined.append(each)
    return tuple(joined)


_Pieces = Sequence[tuple[str, int]]
"""Tokens with their offsets; together they are the whole text."""
_Block = tuple[int, int, int]
"""The first token of a run in both texts, and the number of its tokens."""
_Place = tuple[int, int]
"""The position of one token in both texts."""


def _cut(text: str) -> _Pieces:
    return [(found[0], found.start()) for found in _PIECE.finditer(text)]


def _offset(pieces: _Pieces, at: int, text: str) -> int:
    return pieces[at][1] if at < len(pieces) else len(text)


def _match(sources: _Pieces, pieces: _Pieces) -> list[_Block]:
    """The runs of equal tokens, in order."""
    old, new = [text for text, _ in sources], [text for text, _ in pieces]
    pairs: list[tuple[int, int]] = []
    gaps = [(0, len(old), 0, len(new))]
    while gaps:
        first, last, begin, end = gaps.pop()
        while first < last and begin < end and old[first] == new[begin]:
            pairs.append((first, begin))
            first, begin = first + 1, begin + 1
        while first < last and begin < end and old[last - 1] == new[end - 1]:
            last, end = last - 1, end - 1
            pairs.append((last, end))
        if first == last or begin == end:
            continue
        small = (last - first) * (end - begin) <= _SMALL
        anchors = _anchors(old, new, first, last, begin, end)
        if not anchors and not small:
            anchors = _separators(old, new, first, last, begin, end) or _repeated(old, new, first, last, begin, end)
        if anchors:
            pairs += anchors
            bounds = [(first - 1, begin - 1), *anchors, (last, end)]
            gaps += [(a + 1, c, b + 1, d) for (a, b), (c, d) in pairwise(bounds)]
        elif small:
            pairs += _common(old[first:last], new[begin:end], first, begin)
    return list(_runs(sorted(pairs)))


def _anchors(old: list[str], new: list[str], first: int, last: int, begin: int, end: int) -> list[_Place]:
    """The longest run, in the order of both texts, of tokens that occur once in each."""
    once = Counter(new[begin:end])
    place = {new[at]: at for at in range(begin, end) if once[new[at]] == 1}
    counts = Counter(old[first:last])
    return _longest_run(
        [
            (at, place[old[at]])
            for at in range(first, last)
            if counts[old[at]] == 1 and old[at] in place and not old[at].isspace()
        ]
    )


def _repeated(old: list[str], new: list[str], first: int, last: int, begin: int, end: int) -> list[_Place]:
    """The longest run of tokens that repeat, the first of each with the first, the second with the second and so on.

    A flow sheet in one line has no other anchor. As one replaced range it would hide each name that is left in it.
    """
    places: dict[str, list[int]] = {}
    for at in range(end - 1, begin - 1, -1):
        places.setdefault(new[at], []).append(at)
    return _longest_run(
        [(at, places[old[at]].pop()) for at in range(first, last) if not old[at].isspace() and places.get(old[at])]
    )


def _longest_run(found: Sequence[_Place]) -> list[_Place]:
    """The longest choice of pairs that is in the order of both texts."""
    ends: list[int] = []  # for each length of a run, the least place where one ends
    where: list[int] = []
    before: list[int] = []
    for number, (_, at) in enumerate(found):
        length = bisect_left(ends, at)
        ends[length : length + 1] = [at]
        before.append(where[length - 1] if length else -1)
        where[length : length + 1] = [number]
    chosen, number = [], where[-1] if where else -1
    while number >= 0:
        chosen.append(found[number])
        number = before[number]
    return chosen[::-1]


def _separators(old: list[str], new: list[str], first: int, last: int, begin: int, end: int) -> list[_Place]:
    """The line ends of two gaps that have equally many, or else their blanks: surrogates keep the number of words.

    A gap of repeated lines has no token that occurs once.
    """
    for is_separator in (lambda text: "\n" in text or "\r" in text, str.isspace):
        one = [at for at in range(first, last) if is_separator(old[at])]
        other = [at for at in range(begin, end) if is_separator(new[at])]
        if one and [old[at] for at in one] == [new[at] for at in other]:
            return list(zip(one, other, strict=True))
    return []


def _common(old: list[str], new: list[str], first: int, begin: int) -> Iterator[tuple[int, int]]:
    """The longest common subsequence of two short lists, as pairs of positions."""
    best = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            best[i][j] = best[i + 1][j + 1] + 1 if old[i] == new[j] else max(best[i + 1][j], best[i][j + 1])
    i = j = 0
    while i < len(old) and j < len(new):
        if old[i] == new[j]:
            yield first + i, begin + j
            i, j = i + 1, j + 1
        elif best[i + 1][j] >= best[i][j + 1]:
            i += 1
        else:
            j += 1


def _runs(pairs: Iterable[tuple[int, int]]) -> Iterator[_Block]:
    source = piece = count = 0
    for old, new in pairs:
        if count and (old, new) == (source + count, piece + count):
            count += 1
            continue
        if count:
            yield source, piece, count
        source, piece, count = old, new, 1
    if count:
        yield source, piece, count
