"""Embedded documents: the datatype ED, and documents that a sender cut into pieces or wrote into a text field.

HL7 v2.8.2 chapter 2A.2.24 (ED), tables 0191, 0291, 0299, 0834.

HL7 v2.8.2 chapter 7.4.2.5 lets OBX-5 be long. Senders with a limit on the length of fields cut base64 into many OBX of
one OBX-3, or break its lines in the middle of a segment. A single piece cannot be decoded and must not pass unread.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from deid_agent.codec.hl7v2.charset import Hl7View, unescape_text
from deid_agent.codec.hl7v2.structure import NULL, Range, Separators, split_range
from deid_agent.model import (
    PLAIN_LAYOUT,
    Attachment,
    EncodingLayout,
    MessageError,
    Reason,
    TooLongError,
    decode_base64,
    decode_hex,
)

UNKNOWN = "application/octet-stream"
_MAIN_TYPES = MappingProxyType(
    {
        "ap": "application", "au": "audio", "ft": "text", "im": "image", "ns": "application", "sd": "application",
        "si": "image", "tx": "text", "tex": "text",
    }
)  # fmt: skip
_SUBTYPES = MappingProxyType(
    {
        "pdf": "application/pdf", "rtf": "application/rtf", "richtext": "application/rtf", "html": "text/html",
        "htm": "text/html", "xhtml": "application/xhtml+xml", "xml": "text/xml", "cda": "text/xml",
        "txt": "text/plain", "plain": "text/plain", "jpeg": "image/jpeg", "jpg": "image/jpeg", "tiff": "image/tiff",
        "png": "image/png", "gif": "image/gif", "dicom": "application/dicom",
    }
)  # fmt: skip
_MAGIC = ((b"%pdf", "application/pdf"), (b"{\\rtf", "application/rtf"), (b"<?xml", "text/xml"), (b"<html", "text/html"))
_BEGINNINGS = (
    *(magic for magic, _ in _MAGIC), b"<clinicaldocument", b"<!doctype", b"pk\x03\x04", b"\x89png", b"\xff\xd8\xff",
    b"gif8", b"ii*\x00", b"mm\x00*", b"\x1f\x8b", b"msh|",
)  # fmt: skip
LONG = 256
"""No word of prose, and no component of an ED but the data, has this many characters."""
_WORD = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_TAIL = re.compile(r"[A-Za-z0-9+/_-]{0,19}={0,2}")
_HEX = re.compile(r"[0-9A-Fa-f]{40,}")
_LINE = re.compile(r"[^\r\n]+")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class EdValue:
    """The content of one ED: its data, media type, encoding, and the key that pieces of one document share."""

    data: str = field(repr=False)
    media_type: str
    encoding: str
    key: tuple[str, ...] = field(repr=False)


def parse_ed(view: Hl7View, components: list[Range], marks: Separators, observation: tuple[str, str]) -> EdValue | None:
    """The ED with these components; None if ED.5 is empty. ``observation`` becomes part of the key."""
    value = unescape_text(view, *components[4], marks)
    if value in {"", NULL}:
        return None
    main, sub, encoding = (unescape_text(view, *each, marks).strip().lower() for each in components[1:4])
    first = split_range(sub, 0, len(sub), "&")[0]
    return EdValue(value, media_type_of(main, sub[slice(*first)]), encoding, (*observation, main, sub, encoding))


def media_type_of(main: str, sub: str) -> str:
    """The media type that ED.2 and ED.3 (in lower case) declare; empty if they declare none."""
    if "/" in main:
        return main
    if "/" in sub:
        return sub
    if sub in _SUBTYPES or main in _SUBTYPES:
        return _SUBTYPES.get(sub) or _SUBTYPES[main]
    main = _MAIN_TYPES.get(main, main)
    return f"{main}/{sub or ('plain' if main == 'text' else 'octet-stream')}" if main else ""


def detect_media_type(data: bytes, encoding: str) -> str:
    """The media type that the first bytes of a document show.

    If they show none: empty for decoded data and short text, ``UNKNOWN`` for data that is not decoded.
    """
    rest = UNKNOWN if encoding == "text" and len(data) >= LONG else ""
    return next((name for magic, name in _MAGIC if data.lstrip().lower().startswith(magic)), rest)


def decode_document(value: str, encoding: str) -> tuple[bytes, str, EncodingLayout, str | None]:
    """The bytes of ``value``, their encoding (base64, hex or text), its layout, and ``UNKNOWN`` if decoding failed.

    A value that does not decode as declared is returned undecoded, as ``application/octet-stream`` and never as text.
    It keeps the declared encoding, so that a receiver can decode the value that replaces it.
    Raises ``MessageError(RESOURCE)`` if the value is too long.
    """
    try:
        if encoding == "base64" or (encoding not in {"a", "hex"} and _looks_like_base64(value)):
            data, layout = decode_base64(value)
            return data, "base64", layout, None
        if encoding == "hex":
            data, layout = decode_hex(value)
            return data, "hex", layout, None
    except TooLongError:
        raise MessageError(Reason.RESOURCE, "OBX-5", "attachment too long") from None
    except ValueError:
        kept = encoding if encoding in {"base64", "hex"} else "text"
        return value.encode("utf-8", "replace"), kept, PLAIN_LAYOUT, UNKNOWN
    return value.encode("utf-8", "replace"), "text", PLAIN_LAYOUT, None


def undescribed_document(view: Hl7View, spans: Sequence[Range], lines: Sequence[str], path: str) -> Attachment:
    """The attachment of a document without media type and encoding, over one range or several."""
    value = lines[0] if len(lines) == 1 else "".join(_SPACE.sub("", line) for line in lines)
    data, encoding, layout, failed = decode_document(
        value, "hex" if _HEX.fullmatch(_SPACE.sub("", value)) else "base64"
    )
    parts = tuple(view.span(*span) for span in spans[1:])
    media = detect_media_type(data, "text" if failed else encoding)
    return Attachment(path, *view.span(*spans[0]), media, encoding, data, parts=parts, layout=layout)


def find_document_lines(lines: Sequence[str]) -> Iterator[Range]:
    """Ranges of ``lines`` that are not text but one document in base64 or hexadecimal digits."""
    at = 0
    while at < len(lines):
        end = at
        while end < len(lines) and _is_encoded_line(lines[end]) and not (end > at and _is_padded(lines[end - 1])):
            end += 1
        if end > at:
            if end < len(lines) and not _is_padded(lines[end - 1]) and _is_encoded_line(lines[end], tail=True):
                whole = len(_SPACE.sub("", "".join(lines[at:end]))) % 4 == 0
                end += 0 if whole and not _is_padded(lines[end]) else 1
            dense = _SPACE.sub("", "".join(lines[at:end]))
            if len(dense) >= LONG and (_is_mixed(dense) or _HEX.fullmatch(dense)):
                yield at, end
        at = max(end, at + 1)


@dataclass(frozen=True, slots=True)
class DocumentPiece:
    """One ED value, or a broken line that continues it (``continues``). ``key``: observation, type and encoding."""

    path: str
    span: Range
    value: str = field(repr=False)
    key: tuple[str, ...] = field(default=(), repr=False)
    label: Range | None = None
    declared: str = ""
    encoding: str = ""
    continues: bool = False

    @property
    def dense(self) -> str:
        """The value without white space."""
        return _SPACE.sub("", self.value)


class DocumentCollector:
    """Collects the pieces of consecutive ED values until another value ends them."""

    def __init__(self, view: Hl7View) -> None:
        self._view = view
        self._pieces: list[DocumentPiece] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, piece: DocumentPiece) -> None:
        """Add a piece. Line breaks of the message inside the data are kept: each line becomes a piece."""
        lines = [found.span() for found in _LINE.finditer(self._view.text, *piece.span)]
        if len(lines) < 2 or not all(_is_encoded_line(self._view.text[a:b], tail=True) for a, b in lines):
            self._pieces.append(piece)
            return
        self._pieces.append(replace(piece, span=lines[0], value=self._view.text[slice(*lines[0])]))
        for span in lines[1:]:
            value = self._view.text[slice(*span)]
            self._pieces.append(DocumentPiece(piece.path, span, value, encoding=piece.encoding, continues=True))

    def continue_with(self, path: str, span: Range, text: str) -> bool:
        """Add a broken line that continues the data of the last piece; False if it does not continue them."""
        last = self._pieces[-1] if self._pieces else None
        if last is None or last.dense.endswith("=") or not _is_encoded_line(text, tail=True):
            return False
        if last.encoding not in {"base64", "hex"} and (last.encoding or not _is_encoded_line(last.value)):
            return False
        self._pieces.append(DocumentPiece(path, span, text, encoding=last.encoding, continues=True))
        return True

    def take(self, plain: bytes) -> Iterator[Attachment]:
        """The documents of the collected pieces; the collector is then empty. ``plain`` labels plain text."""
        pieces, self._pieces = self._pieces, []
        for group in _group_pieces(pieces):
            yield self._attachment(group, plain)

    def _attachment(self, group: list[DocumentPiece], plain: bytes) -> Attachment:
        head = group[0]
        value = head.value if len(group) == 1 else "".join(piece.dense for piece in group)
        data, encoding, layout, failed = decode_document(value, head.encoding)
        labels = tuple(self._view.span(*piece.label) for piece in group if piece.label)
        return Attachment(
            head.path,
            *self._view.span(*head.span),
            head.declared if failed is None else failed,
            encoding,
            data,
            media=labels[0] if labels else None,
            plain=plain,
            parts=tuple(self._view.span(*piece.span) for piece in group[1:]),
            labels=labels[1:],
            layout=layout,
        )


def _group_pieces(pieces: Sequence[DocumentPiece]) -> Iterator[list[DocumentPiece]]:
    """Groups of pieces that are one document.

    Values with the same key are one document under two conditions. First, only the last may be padded or shorter, and
    no later one begins like a document. Second, there is evidence: at least three values, a first one that is not
    complete base64, or a first one that begins like a document. Two notes of the same length remain two.
    """
    group: list[DocumentPiece] = []
    for piece in pieces:
        if group and not (piece.continues or _may_follow(group, piece)):
            yield from _split_without_evidence(group)
            group = []
        group.append(piece)
    if group:
        yield from _split_without_evidence(group)


def _may_follow(group: list[DocumentPiece], piece: DocumentPiece) -> bool:
    first, last, dense = group[0], group[-1], piece.dense
    size = len(first.dense)
    alike = piece.key == first.key and piece.encoding in {"", "base64", "hex"}
    complete = last.dense.endswith("=") or len(last.dense) != size or len(dense) > size
    return alike and not complete and _is_encoded_line(dense, tail=True) and not _begins_document(dense)


def _split_without_evidence(group: list[DocumentPiece]) -> Iterator[list[DocumentPiece]]:
    heads = [index for index, piece in enumerate(group) if not piece.continues]
    first = group[0].dense
    if len(heads) == 1 or len(heads) >= 3 or len(first) % 4 or _begins_document(first):
        yield group
        return
    for start, end in zip(heads, [*heads[1:], len(group)], strict=True):
        yield group[start:end]


def _begins_document(dense: str) -> bool:
    """True if base64 or hexadecimal digits begin like a document of a known type."""
    for decode in (decode_base64, decode_hex):
        try:
            data, _ = decode(dense[:24])
        except ValueError:
            continue
        if data.lstrip().lower().startswith(_BEGINNINGS):
            return True
    return False


def _is_encoded_line(line: str, *, tail: bool = False) -> bool:
    """True for a line of base64 words alone: words of prose are shorter and have punctuation between them."""
    words = line.split()
    if not words:
        return False
    last = _TAIL.fullmatch(words[-1]) if tail or len(words) > 1 else None
    return all(_WORD.fullmatch(word) for word in words[:-1]) and (last or _WORD.fullmatch(words[-1])) is not None


def _is_padded(line: str) -> bool:
    return line.rstrip().endswith("=")


def _looks_like_base64(value: str) -> bool:
    dense = _SPACE.sub("", value)
    if len(dense) < 16 or re.fullmatch(r"[A-Za-z0-9+/_-]+={0,2}", dense) is None:
        return False
    return len(dense) % 4 == 0 or (len(dense) >= LONG and _is_mixed(dense))


def _is_mixed(dense: str) -> bool:
    """True for lower-case letters, capitals and digits together, as in base64; a line of dashes or a gene has fewer."""
    return any("a" <= c <= "z" for c in dense) and any("A" <= c <= "Z" for c in dense) and any(map(str.isdigit, dense))
