"""Text in a given charset: encoding, decoding with byte ranges, and the compact byte map of a long text."""

import codecs
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

_LOOKALIKES = str.maketrans(
    {
        "ß": "ss", "æ": "ae", "Æ": "AE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d",
        "Ð": "D", "þ": "th", "Þ": "Th", "œ": "oe", "Œ": "OE", "ı": "i", "‘": "'", "’": "'", "“": '"', "”": '"',
        "–": "-", "—": "-", "‑": "-", "…": "...", "\u00a0": " ",
    }
)  # fmt: skip
_FEW_FOREIGN = 3
_SHORT = 64
"""Up to this many characters, ``Offsets`` looks single values up in ``through`` instead of copying it to a list."""


def encode_text(text: str, charset: str) -> bytes:
    """``text`` in ``charset``; a character that the charset lacks becomes an ASCII look-alike, at worst ``?``."""
    try:
        return text.encode(charset)
    except UnicodeEncodeError:
        return "".join(c if _fits(c, charset) else _lookalike(c) for c in text).encode(charset)


def is_western(text: str) -> bool:
    """False for a text in a one-byte charset that was decoded as a Western one: EBCDIC, or another alphabet.

    No recognizer finds a name in it, and a reader who has the right charset does. Few or no letters of a Western text
    are outside of ASCII.
    """
    foreign = len(text) - len(text.encode("ascii", "ignore"))
    return foreign <= _FEW_FOREIGN or foreign * 2 <= sum(map(len, text.split()))


def _fits(char: str, charset: str) -> bool:
    try:
        char.encode(charset)
    except UnicodeEncodeError:
        return False
    return True


def _lookalike(char: str) -> str:
    flat = unicodedata.normalize("NFKD", char).translate(_LOOKALIKES)
    return flat.encode("ascii", "ignore").decode("ascii") or ("" if unicodedata.combining(char) else "?")


def decode_multibyte(raw: bytes, charset: str) -> "tuple[str, array[int], array[int]]":
    """The characters of ``raw`` with the first byte and the end of each, for a multi-byte charset without shifts.

    An invalid byte is read as latin-1. The decoder is fed byte by byte because a trail byte may equal an ASCII
    character and several codes may encode one character.
    """
    decoder = codecs.getincrementaldecoder(charset)()
    out: list[str] = []
    starts, ends = array("Q"), array("Q")
    at = since = 0
    while at < len(raw):
        try:
            text = decoder.decode(raw[at : at + 1], at + 1 == len(raw))
            at += 1
        except UnicodeDecodeError:
            decoder.reset()
            text, at = raw[since : since + 1].decode("latin-1"), since + 1
        if text:
            out.append(text)
            starts.extend([since] * len(text))
            ends.extend([at] * len(text))
            since = at
    return "".join(out), starts, ends


@dataclass(frozen=True, slots=True)
class Offsets(Sequence[int]):
    """One offset per character, stored as runs, so that the cost of a long text is the number of its tags and escapes.

    Run ``k`` begins at character ``first[k]`` with offset ``offset[k]``. Within a run the offset grows by ``steps[k]``
    per character (characters of several bytes), or by 1 if ``steps`` is None.
    If ``through`` is set, an offset is an index of that sequence (text of markup to markup to bytes).
    """

    first: Sequence[int]
    offset: Sequence[int]
    size: int
    through: Sequence[int] | None = None
    steps: Sequence[int] | None = None

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        copy = self.through is not None and self.size > _SHORT
        below = list(self.through or ()) if copy else self.through
        for run, start in enumerate(self.first):
            end = self.first[run + 1] if run + 1 < len(self.first) else self.size
            step = 1 if self.steps is None else self.steps[run]
            at = self.offset[run]
            for index in range(at, at + (end - start) * step, step):
                yield index if below is None else below[index]

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        if index < 0:
            index += self.size
        if not 0 <= index < self.size:
            raise IndexError(f"character {index} of {self.size}")
        run = bisect_right(self.first, index) - 1
        step = 1 if self.steps is None else self.steps[run]
        found = self.offset[run] + (index - self.first[run]) * step
        return found if self.through is None else self.through[found]


def slice_offsets(offsets: Sequence[int], start: int, end: int) -> Sequence[int]:
    """``offsets[start:end]`` without a copy."""
    if isinstance(offsets, range):
        return offsets[start:end]
    return Offsets((0,), (start,), end - start, offsets)
