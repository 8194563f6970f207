"""Documents that a sender cut into pieces: over several OBX, or over the lines of a text.

HL7 v2.8.2 chapter 7.4.2.5 lets OBX-5 be long; senders with a limit on fields cut base64 into many OBX of one
OBX-3, or break its lines in the middle of a segment. Alone each piece is noise, which must not pass unread.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from deid_agent.codec.hl7v2 import attachment
from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.wire import Range
from deid_agent.sites import Attachment

_WORD = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_TAIL = re.compile(r"[A-Za-z0-9+/_-]{0,19}={0,2}")
_HEX = re.compile(r"[0-9A-Fa-f]{40,}")
_LINE = re.compile(r"[^\r\n]+")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """One ED value, or a broken line that goes on with it (``more``). ``key``: observation, type and encoding."""

    path: str
    span: Range
    value: str = field(repr=False)
    key: tuple[str, ...] = field(default=(), repr=False)
    label: Range | None = None
    declared: str = ""
    encoding: str = ""
    more: bool = False

    @property
    def dense(self) -> str:
        return _SPACE.sub("", self.value)


class Documents:
    """Gathers the pieces of consecutive ED values until something else comes."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._pieces: list[Piece] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, piece: Piece) -> None:
        """Line breaks of the message inside of the data stay where they are: each line is a piece."""
        lines = [found.span() for found in _LINE.finditer(self._view.text, *piece.span)]
        if len(lines) < 2 or not all(_is_line(self._view.text[a:b], tail=True) for a, b in lines):
            self._pieces.append(piece)
            return
        self._pieces.append(replace(piece, span=lines[0], value=self._view.text[slice(*lines[0])]))
        for span in lines[1:]:
            value = self._view.text[slice(*span)]
            self._pieces.append(Piece(piece.path, span, value, encoding=piece.encoding, more=True))

    def more(self, path: str, span: Range, text: str) -> bool:
        """Take a broken line that is more of the data before it; False, and nothing done, where it is not."""
        last = self._pieces[-1] if self._pieces else None
        if last is None or last.dense.endswith("=") or not _is_line(text, tail=True):
            return False
        if last.encoding not in {"base64", "hex"} and (last.encoding or not _is_line(last.value)):
            return False
        self._pieces.append(Piece(path, span, text, encoding=last.encoding, more=True))
        return True

    def take(self, plain: bytes) -> Iterator[Attachment]:
        """The documents of what was gathered, which is forgotten. ``plain`` is the label of plain text."""
        pieces, self._pieces = self._pieces, []
        for group in _groups(pieces):
            yield self._document(group, plain)

    def _document(self, group: list[Piece], plain: bytes) -> Attachment:
        head = group[0]
        value = head.value if len(group) == 1 else "".join(piece.dense for piece in group)
        data, encoding, layout, kind = attachment.decoded(value, head.encoding)
        labels = tuple(self._view.span(*piece.label) for piece in group if piece.label)
        return Attachment(
            head.path,
            *self._view.span(*head.span),
            head.declared if kind is None else kind,
            encoding,
            data,
            media=labels[0] if labels else None,
            plain=plain,
            parts=tuple(self._view.span(*piece.span) for piece in group[1:]),
            labels=labels[1:],
            armor=layout,
        )


def _groups(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Pieces that are one document.

    Values of one key belong together where none but the last is padded or shorter, no later one begins like a
    document, and there is a reason to believe it: three of them, a first one that cannot stand alone, or one that
    begins like a document whose end is elsewhere. Two notes that happen to be alike stay two.
    """
    group: list[Piece] = []
    for piece in pieces:
        if group and not (piece.more or _follows(group, piece)):
            yield from _believed(group)
            group = []
        group.append(piece)
    if group:
        yield from _believed(group)


def _follows(group: list[Piece], piece: Piece) -> bool:
    first, last, dense = group[0], group[-1], piece.dense
    size = len(first.dense)
    alike = piece.key == first.key and piece.encoding in {"", "base64", "hex"}
    whole = last.dense.endswith("=") or len(last.dense) != size or len(dense) > size
    return alike and not whole and _is_line(dense, tail=True) and not attachment.begins(dense)


def _believed(group: list[Piece]) -> Iterator[list[Piece]]:
    heads = [index for index, piece in enumerate(group) if not piece.more]
    first = group[0].dense
    if len(heads) == 1 or len(heads) >= 3 or len(first) % 4 or attachment.begins(first):
        yield group
        return
    for start, end in zip(heads, [*heads[1:], len(group)], strict=True):
        yield group[start:end]


def runs(lines: Sequence[str]) -> Iterator[Range]:
    """Which lines of a text are no text but one document in base64 or hexadecimal digits."""
    at = 0
    while at < len(lines):
        end = at
        while end < len(lines) and _is_line(lines[end]) and not (end > at and _padded(lines[end - 1])):
            end += 1
        if end > at:
            if end < len(lines) and not _padded(lines[end - 1]) and _is_line(lines[end], tail=True) and lines[end]:
                whole = len(_SPACE.sub("", "".join(lines[at:end]))) % 4 == 0
                end += 0 if whole and not _padded(lines[end]) else 1
            dense = _SPACE.sub("", "".join(lines[at:end]))
            if len(dense) >= attachment.LONG and (attachment.is_mixed(dense) or _HEX.fullmatch(dense)):
                yield at, end
        at = max(end, at + 1)


def bare(view: View, spans: Sequence[Range], lines: Sequence[str], path: str) -> Attachment:
    """A document without its description, over one place or several."""
    value = lines[0] if len(lines) == 1 else "".join(_SPACE.sub("", line) for line in lines)
    data, encoding, layout, failed = attachment.decoded(
        value, "hex" if _HEX.fullmatch(_SPACE.sub("", value)) else "base64"
    )
    parts = tuple(view.span(*span) for span in spans[1:])
    kind = attachment.kind(data, "text" if failed else encoding)
    return Attachment(path, *view.span(*spans[0]), kind, encoding, data, parts=parts, armor=layout)


def _padded(line: str) -> bool:
    return line.rstrip().endswith("=")


def _is_line(line: str, *, tail: bool = False) -> bool:
    """True for words of base64 and nothing else: prose has shorter ones, and signs between them."""
    words = line.split()
    if not words:
        return False
    last = _TAIL.fullmatch(words[-1]) if tail or len(words) > 1 else None
    return all(_WORD.fullmatch(word) for word in words[:-1]) and (last or _WORD.fullmatch(words[-1])) is not None
