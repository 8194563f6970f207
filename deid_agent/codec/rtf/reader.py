"""One pass over an RTF document: its texts, and the parts to remove."""

from collections import Counter
from dataclasses import dataclass, replace

from deid_agent.codec.rtf.tokens import (
    BREAKS,
    CHARACTERS,
    FAMILIES,
    KEPT,
    MULTIBYTE,
    OPAQUE,
    REMOVED,
    SEPARATE,
    SYMBOLS,
    TRANSPARENT,
    Piece,
    RtfFlow,
    RtfToken,
    charset_of_font,
    charset_of_page,
    iter_tokens,
    joins_control_word,
)
from deid_agent.model import MessageError, PhiType, Reason, Site, ValueKind

MAX_DEPTH = 1000
_MAX_CHARACTER_BYTES = 4
_VALUE_BYTES = 64


@dataclass(slots=True)
class _Group:
    """The state inside one pair of braces."""

    start: int
    flow: RtfFlow | None  # None: outside the document, or removed
    fresh: bool = True
    starred: bool = False
    removed: bool = False
    fonts: bool = False
    skip: int = 1  # \ucN
    font: int | None = None


class RtfReader:
    """Reads one document; used once. With ``everything`` it also collects the text of removed parts."""

    def __init__(self, raw: bytes, *, everything: bool = False) -> None:
        self._raw = raw
        self._everything = everything
        self.sites: list[Site] = []
        self.texts: list[RtfFlow] = []
        self.kept: list[RtfFlow] = []
        self._seen: Counter[str] = Counter()
        self._groups: list[_Group] = []
        self._body = self._new_flow("body", self.texts)
        self._charset = "cp1252"
        self._fonts: dict[int, str] = {}
        self._default: int | None = None
        self._entry: int | None = None  # the current entry of the font table
        self._to_skip = 0  # characters to skip after \uN
        self._unicode_flow: RtfFlow | None = None
        self._high: tuple[RtfFlow, int] | None = None
        self._pending: list[tuple[int, int, int]] = []
        self._removal: tuple[int, int, str, bool] | None = None  # from, depth, name, the whole group

    def read(self) -> "RtfReader":
        """Read the document; returns self. Raises ``MessageError`` (MALFORMED, RESOURCE)."""
        closed = False
        for piece in iter_tokens(self._raw):
            kind, start, _, _, _ = piece
            if closed:
                rest = self._raw[start:].lstrip(b"\x00 \t\r\n")
                if rest:
                    self._remove("trailer", len(self._raw) - len(rest), len(self._raw))
                break
            match kind:
                case RtfToken.OPEN:
                    self._open(start)
                case RtfToken.CLOSE:
                    self._close(piece)
                    closed = not self._groups
                case _ if self._groups:
                    self._read_token(piece)
                case _:
                    continue
        self._flush_pending()
        if self._removal is not None:
            begin, _, name, _ = self._removal
            self._remove(name, begin, len(self._raw))
        return self

    def _open(self, start: int) -> None:
        self._end_runs()
        if len(self._groups) >= MAX_DEPTH:
            raise MessageError(Reason.RESOURCE, f"byte {start}", f"groups nested deeper than {MAX_DEPTH}")
        if not self._groups:
            self._groups.append(_Group(start, self._body))
            return
        outer = self._groups[-1]
        outer.fresh = False
        self._groups.append(replace(outer, start=start, fresh=True, starred=False))

    def _close(self, piece: Piece) -> None:
        self._end_runs()
        if not self._groups:
            raise MessageError(Reason.MALFORMED, f"byte {piece[1]}", "a group is closed that was never opened")
        self._groups.pop()
        if self._removal is not None and self._removal[1] > len(self._groups):
            begin, _, name, whole = self._removal
            self._remove(name, begin, piece[2] if whole else piece[1])
            self._removal = None

    def _end_runs(self) -> None:
        """Clear the state that a brace ends: pending bytes, characters to skip, half of a surrogate pair."""
        self._flush_pending()
        self._to_skip, self._unicode_flow, self._high = 0, None, None

    def _remove(self, name: str, start: int, end: int) -> None:
        blank = " " if joins_control_word(self._raw, start) else ""
        value = self._raw[start : min(end, start + _VALUE_BYTES)].decode("latin-1")
        type_ = PhiType.BIOID if name in {"pict", "shppict", "nonshppict", "object"} else PhiType.IDNUM
        path = self._next_path(name)
        self.sites.append(Site(path, start, end, type_, ValueKind.REDACT, group=path, value=value, blank=blank))

    def _next_path(self, name: str) -> str:
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}({self._seen[name]})"

    def _new_flow(self, name: str, to: list[RtfFlow]) -> RtfFlow:
        flow = RtfFlow(self._next_path(name))
        to.append(flow)
        return flow

    def _read_token(self, piece: Piece) -> None:
        kind, start, end, word, _ = piece
        group = self._groups[-1]
        if kind in {RtfToken.BREAK, RtfToken.DATA}:
            flow = self._unicode_flow
            if kind is RtfToken.DATA and flow is not None and flow.end == start:  # \bin is the fallback of \uN
                flow.extend_last(end)
            return
        if kind is RtfToken.SYMBOL and word == b"*" and group.fresh:
            group.starred = True
            return
        fresh, group.fresh = group.fresh, False
        if kind is RtfToken.WORD:
            self._destination(word, start, group, fresh=fresh)
        if group.flow is not None:
            self._content(group.flow, group, piece)

    def _content(self, flow: RtfFlow, group: _Group, piece: Piece) -> None:
        kind, start, end, word, number = piece
        if kind is RtfToken.TEXT:
            self._add_text(flow, group, start, end)
        elif self._to_skip:
            self._skip_fallback(end, 1)
        elif kind is RtfToken.BYTE:
            self._add_byte(flow, group, int(word, 16), start, end)
        else:
            self._flush_pending()
            if word != b"u":
                self._high = None
            if kind is RtfToken.WORD:
                self._word(flow, group, word, number, start, end)
            elif char := SYMBOLS.get(word):
                flow.add_character(char, start, end)
            elif word[:1] in {b"\r", b"\n"}:
                flow.add_break("\n", start, end)
            elif word == b"\t":
                flow.add_break("\t", start, end)

    def _destination(self, word: bytes, start: int, group: _Group, *, fresh: bool) -> None:
        if group.removed:
            group.flow = None if word in OPAQUE else group.flow
            return
        name = word.decode("ascii")
        if word in REMOVED or (fresh and group.starred and not self._is_known(word)):
            self._flush_pending()
            group.removed = True
            opaque = word in OPAQUE or not self._everything
            group.flow = None if opaque else self._new_flow(name[:32], self.kept)
            self._removal = (group.start if fresh else start, len(self._groups), name[:32], fresh)
        elif word in SEPARATE and (fresh or word != b"pn"):
            group.flow = self._new_flow(name, self.texts)
        elif fresh and word in KEPT:
            group.flow, group.fonts = self._new_flow(name, self.kept), word == b"fonttbl"

    def _is_known(self, word: bytes) -> bool:
        return word in SEPARATE or word in KEPT or word in TRANSPARENT

    def _word(self, flow: RtfFlow, group: _Group, word: bytes, number: int | None, start: int, end: int) -> None:
        if (char := BREAKS.get(word)) is not None:
            flow.add_break(char, start, end)
        elif char := CHARACTERS.get(word):
            flow.add_character(char, start, end)
        else:
            self._setting(flow, group, word, number, start, end)

    def _setting(self, flow: RtfFlow, group: _Group, word: bytes, number: int | None, start: int, end: int) -> None:
        match word:
            case b"u":
                self._add_unicode(flow, group, number or 0, start, end)
            case b"uc":
                group.skip = min(max(number or 0, 0), 255)
            case b"f":
                if group.fonts:
                    self._entry = number
                else:
                    group.font = number
            case b"plain":
                group.font = None
            case b"deff":
                self._default = number
            case b"ansicpg":
                self._charset = charset_of_page(number)
            case b"mac" | b"pc" | b"pca" | b"ansi":
                self._charset = FAMILIES[word]
            case b"fcharset" | b"cpg" if group.fonts and self._entry is not None:
                found = charset_of_font(number) if word == b"fcharset" else charset_of_page(number)
                if found is not None:
                    self._fonts[self._entry] = found

    def _charset_of(self, group: _Group) -> str:
        font = self._default if group.font is None else group.font
        return self._charset if font is None else self._fonts.get(font, self._charset)

    def _add_text(self, flow: RtfFlow, group: _Group, start: int, end: int) -> None:
        if self._to_skip:
            start += self._skip_fallback(min(end, start + self._to_skip), min(self._to_skip, end - start))
        while self._pending and start < end:
            self._add_byte(flow, group, self._raw[start], start, start + 1)
            start += 1
        if start == end:
            return
        data = self._raw[start:end]
        if data.isascii() and data.decode("ascii").isprintable():
            self._high = None
            flow.add(data.decode("ascii"), range(start, end), range(start + 1, end + 1))
            return
        for at in range(start, end):
            self._add_byte(flow, group, self._raw[at], at, at + 1)

    def _add_byte(self, flow: RtfFlow, group: _Group, byte: int, start: int, end: int) -> None:
        self._high = None
        charset = self._charset_of(group)
        if self._pending or (byte >= 0x80 and charset in MULTIBYTE):
            self._pending.append((byte, start, end))
            data = bytes(b for b, _, _ in self._pending)
            try:
                text = data.decode(charset)
            except UnicodeDecodeError:
                if len(data) >= _MAX_CHARACTER_BYTES:
                    self._flush_pending(flow)
                return
            first = self._pending[0][1]
            self._pending = []
            flow.add(text, [first] * len(text), [end] * len(text))
        elif byte == 0x09:
            flow.add_break("\t", start, end)
        elif byte >= 0x20:
            flow.add_character(bytes([byte]).decode(charset, "replace"), start, end)

    def _flush_pending(self, flow: RtfFlow | None = None) -> None:
        """Add the pending bytes of an invalid multi-byte character, one character each."""
        if not self._pending:
            return
        target = flow or (self._groups[-1].flow if self._groups else None)
        pending, self._pending = self._pending, []
        for byte, start, end in pending if target else ():
            if target is not None and byte >= 0x20:
                target.add_character(bytes([byte]).decode("cp1252", "replace"), start, end)

    def _add_unicode(self, flow: RtfFlow, group: _Group, number: int, start: int, end: int) -> None:
        code = number & 0xFFFF
        self._to_skip, self._unicode_flow = group.skip, flow
        if self._high is not None and self._high[0] is flow and 0xDC00 <= code < 0xE000:
            high, self._high = self._high[1], None
            flow.extend_last(end, chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00)))
            return
        self._high = (flow, code) if 0xD800 <= code < 0xDC00 else None
        flow.add_character("\ufffd" if 0xD800 <= code < 0xE000 or code < 0x20 else chr(code), start, end)

    def _skip_fallback(self, end: int, count: int) -> int:
        """Skip the fallback of a Unicode character: its bytes become part of the character."""
        self._to_skip -= count
        if self._unicode_flow is not None:
            self._unicode_flow.extend_last(end)
        return count
