"""One walk over an RTF document: its texts, and what has to go."""

from collections import Counter
from dataclasses import dataclass, replace

from deid_agent.codec.rtf import words
from deid_agent.codec.rtf.flow import Flow, is_open
from deid_agent.codec.rtf.tokens import Piece, Token, tokens
from deid_agent.errors import MessageError, Reason
from deid_agent.phi import PhiType
from deid_agent.sites import Kind, Site

MAX_DEPTH = 1000
_LONGEST = 4
_SHOWN = 64


@dataclass(slots=True)
class _Group:
    """What holds inside of one pair of braces."""

    start: int
    flow: Flow | None  # None: outside of the document, or removed
    fresh: bool = True
    starred: bool = False
    removed: bool = False
    fonts: bool = False
    skip: int = 1  # \ucN
    font: int | None = None


class Reader:
    """Reads one document once. ``everything`` gathers what is removed as well."""

    def __init__(self, raw: bytes, *, everything: bool = False) -> None:
        self._raw = raw
        self._everything = everything
        self.sites: list[Site] = []
        self.texts: list[Flow] = []
        self.kept: list[Flow] = []
        self._seen: Counter[str] = Counter()
        self._groups: list[_Group] = []
        self._body = self._flow("body", self.texts)
        self._charset = "cp1252"
        self._fonts: dict[int, str] = {}
        self._default: int | None = None
        self._entry: int | None = None  # the font that the font table is at
        self._left = 0  # characters to skip behind \uN
        self._tail: Flow | None = None
        self._high: tuple[Flow, int] | None = None
        self._pending: list[tuple[int, int, int]] = []
        self._removal: tuple[int, int, str, bool] | None = None  # from, depth, name, the whole group

    def read(self) -> "Reader":
        """Raises ``MessageError`` (MALFORMED, RESOURCE)."""
        closed = False
        for piece in tokens(self._raw):
            kind, start, _, _, _ = piece
            if closed:
                rest = self._raw[start:].lstrip(b"\x00 \t\r\n")
                if rest:
                    self._remove("trailer", len(self._raw) - len(rest), len(self._raw))
                break
            match kind:
                case Token.OPEN:
                    self._open(start)
                case Token.CLOSE:
                    self._close(piece)
                    closed = not self._groups
                case _ if self._groups:
                    self._inside(piece)
                case _:
                    continue
        self._flush()
        if self._removal is not None:
            begin, _, name, _ = self._removal
            self._remove(name, begin, len(self._raw))
        return self

    # Groups -----------------------------------------------------------------------

    def _open(self, start: int) -> None:
        self._break()
        if len(self._groups) >= MAX_DEPTH:
            raise MessageError(Reason.RESOURCE, f"byte {start}", f"groups nested deeper than {MAX_DEPTH}")
        if not self._groups:
            self._groups.append(_Group(start, self._body))
            return
        outer = self._groups[-1]
        outer.fresh = False
        self._groups.append(replace(outer, start=start, fresh=True, starred=False))

    def _close(self, piece: Piece) -> None:
        self._break()
        if not self._groups:
            raise MessageError(Reason.MALFORMED, f"byte {piece[1]}", "a group is closed that was never opened")
        self._groups.pop()
        if self._removal is not None and self._removal[1] > len(self._groups):
            begin, _, name, whole = self._removal
            self._remove(name, begin, piece[2] if whole else piece[1])
            self._removal = None

    def _break(self) -> None:
        """A brace ends what is to be skipped and what belongs together."""
        self._flush()
        self._left, self._tail, self._high = 0, None, None

    def _remove(self, name: str, start: int, end: int) -> None:
        blank = " " if is_open(self._raw, start) else ""
        value = self._raw[start : min(end, start + _SHOWN)].decode("latin-1")
        type_ = PhiType.BIOID if name in {"pict", "shppict", "nonshppict", "object"} else PhiType.IDNUM
        path = self._path(name)
        self.sites.append(Site(path, start, end, type_, Kind.REDACT, group=path, value=value, blank=blank))

    def _path(self, name: str) -> str:
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}({self._seen[name]})"

    def _flow(self, name: str, to: list[Flow]) -> Flow:
        flow = Flow(self._path(name))
        to.append(flow)
        return flow

    # Tokens inside of a group ---------------------------------------------------------

    def _inside(self, piece: Piece) -> None:
        kind, start, end, word, _ = piece
        group = self._groups[-1]
        if kind in {Token.BREAK, Token.DATA}:
            if kind is Token.DATA and self._tail is not None and self._tail.end == start:  # \bin stands in for \uN
                self._tail.amend(end)
            return
        if kind is Token.SYMBOL and word == b"*" and group.fresh:
            group.starred = True
            return
        fresh, group.fresh = group.fresh, False
        if kind is Token.WORD:
            self._destination(word, start, group, fresh=fresh)
        if group.flow is not None:
            self._content(group.flow, group, piece)

    def _content(self, flow: Flow, group: _Group, piece: Piece) -> None:
        kind, start, end, word, number = piece
        if kind is Token.TEXT:
            self._text(flow, group, start, end)
        elif self._left:
            self._skip(end, 1)
        elif kind is Token.BYTE:
            self._byte(flow, group, int(word, 16), start, end)
        else:
            self._flush()
            if word != b"u":
                self._high = None
            if kind is Token.WORD:
                self._word(flow, group, word, number, start, end)
            elif char := words.SYMBOLS.get(word):
                flow.character(char, start, end)
            elif word[:1] in {b"\r", b"\n"}:
                flow.joint("\n", start, end)
            elif word == b"\t":
                flow.joint("\t", start, end)

    def _destination(self, word: bytes, start: int, group: _Group, *, fresh: bool) -> None:
        if group.removed:
            group.flow = None if word in words.OPAQUE else group.flow
            return
        name = word.decode("ascii")
        if word in words.REMOVED or (fresh and group.starred and not self._is_known(word)):
            self._flush()
            group.removed = True
            opaque = word in words.OPAQUE or not self._everything
            group.flow = None if opaque else self._flow(name[:32], self.kept)
            self._removal = (group.start if fresh else start, len(self._groups), name[:32], fresh)
        elif word in words.APART and (fresh or word != b"pn"):
            group.flow = self._flow(name, self.texts)
        elif fresh and word in words.KEPT:
            group.flow, group.fonts = self._flow(name, self.kept), word == b"fonttbl"

    def _is_known(self, word: bytes) -> bool:
        return word in words.APART or word in words.KEPT or word in words.THROUGH

    def _word(self, flow: Flow, group: _Group, word: bytes, number: int | None, start: int, end: int) -> None:
        if (char := words.BREAKS.get(word)) is not None:
            flow.joint(char, start, end)
        elif char := words.CHARACTERS.get(word):
            flow.character(char, start, end)
        else:
            self._setting(flow, group, word, number, start, end)

    def _setting(self, flow: Flow, group: _Group, word: bytes, number: int | None, start: int, end: int) -> None:
        match word:
            case b"u":
                self._unicode(flow, group, number or 0, start, end)
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
                self._charset = words.page(number)
            case b"mac" | b"pc" | b"pca" | b"ansi":
                self._charset = words.FAMILIES[word]
            case b"fcharset" | b"cpg" if group.fonts and self._entry is not None:
                found = words.font(number) if word == b"fcharset" else words.page(number)
                if found is not None:
                    self._fonts[self._entry] = found

    # Characters -------------------------------------------------------------------------

    def _charset_of(self, group: _Group) -> str:
        font = self._default if group.font is None else group.font
        return self._charset if font is None else self._fonts.get(font, self._charset)

    def _text(self, flow: Flow, group: _Group, start: int, end: int) -> None:
        if self._left:
            start += self._skip(min(end, start + self._left), min(self._left, end - start))
        while self._pending and start < end:
            self._byte(flow, group, self._raw[start], start, start + 1)
            start += 1
        if start == end:
            return
        data = self._raw[start:end]
        if data.isascii() and data.decode("ascii").isprintable():
            self._high = None
            flow.add(data.decode("ascii"), range(start, end), range(start + 1, end + 1))
            return
        for at in range(start, end):
            self._byte(flow, group, self._raw[at], at, at + 1)

    def _byte(self, flow: Flow, group: _Group, byte: int, start: int, end: int) -> None:
        self._high = None
        charset = self._charset_of(group)
        if self._pending or (byte >= 0x80 and charset in words.SEVERAL):
            self._pending.append((byte, start, end))
            data = bytes(b for b, _, _ in self._pending)
            try:
                text = data.decode(charset)
            except UnicodeDecodeError:
                if len(data) >= _LONGEST:
                    self._flush(flow)
                return
            first = self._pending[0][1]
            self._pending = []
            flow.add(text, [first] * len(text), [end] * len(text))
        elif byte == 0x09:
            flow.joint("\t", start, end)
        elif byte >= 0x20:
            flow.character(bytes([byte]).decode(charset, "replace"), start, end)

    def _flush(self, flow: Flow | None = None) -> None:
        """Bytes that were no character of several: each one on its own."""
        if not self._pending:
            return
        target = flow or (self._groups[-1].flow if self._groups else None)
        pending, self._pending = self._pending, []
        for byte, start, end in pending if target else ():
            if target is not None and byte >= 0x20:
                target.character(bytes([byte]).decode("cp1252", "replace"), start, end)

    def _unicode(self, flow: Flow, group: _Group, number: int, start: int, end: int) -> None:
        code = number & 0xFFFF
        self._left, self._tail = group.skip, flow
        if self._high is not None and self._high[0] is flow and 0xDC00 <= code < 0xE000:
            high, self._high = self._high[1], None
            flow.amend(end, chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00)))
            return
        self._high = (flow, code) if 0xD800 <= code < 0xDC00 else None
        flow.character("\ufffd" if 0xD800 <= code < 0xE000 or code < 0x20 else chr(code), start, end)

    def _skip(self, end: int, count: int) -> int:
        """What stands in for a Unicode character belongs to it."""
        self._left -= count
        if self._tail is not None:
            self._tail.amend(end)
        return count
