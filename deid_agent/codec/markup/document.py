"""An HTML or XML document: its characters with their byte ranges, the parsed message, and XML as tokens.

The charset is that of the byte order mark, the XML declaration or ``meta``, else UTF-8, else latin-1 (never fails).

Nothing is fetched, and no declared entity is expanded. The expat parser of the standard library checks that XML is
well-formed; a document type with declarations of its own is refused before expat reads one. The tokenizer relies on
that check.
Source: XML 1.0 (fifth edition), 2.1, 4.3.3, 4.4 and appendix F; WHATWG Encoding, 4.2 (labels).
"""

import codecs
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from typing import NamedTuple
from xml.parsers import expat

from deid_agent.codec.charsets import Offsets, decode_multibyte, slice_offsets
from deid_agent.model import Attachment, MappedText, MessageError, Narrative, PatientIdentifier, Reason, Site

_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8", 3),
    (b"\xff\xfe\x00\x00", "", 0),
    (b"\x00\x00\xfe\xff", "", 0),
    (b"\xff\xfe", "utf-16-le", 2),
    (b"\xfe\xff", "utf-16-be", 2),
    (b"<\x00", "utf-16-le", 0),
    (b"\x00<", "utf-16-be", 0),
)
_DECLARED = re.compile(rb"""\s*<\?xml\s[^>]{0,200}?\bencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
_META = re.compile(rb"""<meta\s[^>]{0,400}?\bcharset\s*=\s*["']?\s*([A-Za-z0-9._:-]{1,40})""", re.IGNORECASE)
_HEAD = 4096
_SINGLE = re.compile(r"iso8859-\d{1,2}|cp125\d|cp437|cp850|koi8-[rut]|mac-roman|tis-620")
_MULTIBYTE = frozenset(
    {"shift_jis", "cp932", "gb2312", "gbk", "gb18030", "big5", "euc_jp", "euc_kr", "cp949", "big5hkscs"}
)
_SHIFTED = re.compile(r"utf[-_]?7|iso[-_]?2022|hz|csiso2022", re.IGNORECASE)
_WIDTHS = re.compile("[\x00-\x7f]+|[\x80-\u07ff]+|[\u0800-\uffff]+|[\U00010000-\U0010ffff]+")
_PAIRS = re.compile("[\x00-\uffff]+|[\U00010000-\U0010ffff]+")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_RETURN = re.compile("\r(?!\n)")
_CLOSING_BRACKET = re.compile(r"(?<!\])\]>")


@dataclass(frozen=True, slots=True)
class MarkupView:
    """A document as characters; ``text[i]`` is bytes ``[starts[i], ends[i])``."""

    text: str = field(repr=False)
    charset: str
    starts: Sequence[int] = field(repr=False)
    ends: Sequence[int] = field(repr=False)

    def span(self, a: int, b: int) -> tuple[int, int]:
        """The byte range of characters ``[a, b)``, which must not be empty."""
        return self.starts[a], self.ends[b - 1]

    def mapped(self, a: int, b: int) -> MappedText:
        """Characters ``[a, b)``, unchanged, with their byte ranges."""
        return MappedText(self.text[a:b], slice_offsets(self.starts, a, b), slice_offsets(self.ends, a, b))


def parse_markup_view(raw: bytes) -> MarkupView:
    """``raw`` as characters, without its byte order mark.

    Raises ``MessageError(UNSUPPORTED)`` for a charset with shifts (ISO-2022, UTF-7) and for UTF-32: an ASCII byte need
    not be an ASCII character in those. Raises MALFORMED for invalid UTF-16 after its byte order mark.
    """
    for mark, charset, width in _BYTE_ORDER_MARKS:
        if raw.startswith(mark):
            if not charset:
                raise _unsupported()
            found = _decode_unicode(raw, charset, width)
            if found is None and width and charset != "utf-8":
                raise MessageError(Reason.MALFORMED, "byte 0", "not valid UTF-16, which its byte order mark declares")
            return found or _decode_latin1(raw)
    declared = _DECLARED.match(raw[:_HEAD]) or _META.search(raw[:_HEAD])
    name = declared[1].decode("ascii") if declared else "utf-8"
    if _SHIFTED.match(name):
        raise _unsupported()
    charset = _supported_charset(name)
    if raw.isascii():
        return MarkupView(raw.decode("ascii"), charset or "ascii", range(len(raw)), range(1, len(raw) + 1))
    # A document in UTF-8 that declares another charset was converted on its way. Text in another charset is never valid
    # UTF-8 by chance.
    if found := _decode_unicode(raw, "utf-8", 0):
        return found
    if charset in _MULTIBYTE:
        text, starts, ends = decode_multibyte(raw, charset)
        return MarkupView(text, charset, starts, ends)
    return _decode_single_byte(raw, charset) or _decode_latin1(raw)


def decode_head(raw: bytes, size: int) -> str:
    """The first ``size`` bytes as text, good enough to detect the format; never raises."""
    for mark, charset, width in _BYTE_ORDER_MARKS:
        if charset and raw.startswith(mark):
            return raw[width:size].decode(charset, "replace")
    return raw[:size].decode("latin-1")


def encode_markup(text: str, charset: str) -> bytes:
    """``text`` in ``charset``; a character that the charset lacks becomes a character reference."""
    return text.encode(charset, "xmlcharrefreplace")


def is_supported_charset(name: str) -> bool:
    """True for the name of a charset that is not read as another one."""
    return bool(_supported_charset(name))


def _supported_charset(name: str) -> str:
    """Python's name of a supported charset; empty for any other."""
    try:
        found = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        return ""
    return found if found in _MULTIBYTE or found in {"utf-8", "ascii"} or _SINGLE.fullmatch(found) else ""


def _decode_unicode(raw: bytes, charset: str, offset: int) -> MarkupView | None:
    try:
        text = raw[offset:].decode(charset)
    except UnicodeDecodeError:
        return None
    wide = charset != "utf-8"
    first, offsets, steps = array("Q"), array("Q"), array("B")
    at = offset
    for run in (_PAIRS if wide else _WIDTHS).finditer(text):
        size = len(text[run.start()].encode(charset))
        first.append(run.start())
        offsets.append(at)
        steps.append(size)
        at += size * (run.end() - run.start())
    if len(first) == 1:
        step, end = steps[0], offset + steps[0] * len(text)
        return MarkupView(text, charset, range(offset, end, step), range(offset + step, end + 1, step))
    last = array("Q", (a + step for a, step in zip(offsets, steps, strict=True)))
    size = len(text)
    return MarkupView(
        text, charset, Offsets(first, offsets, size, None, steps), Offsets(first, last, size, None, steps)
    )


def _decode_single_byte(raw: bytes, charset: str) -> MarkupView | None:
    if not charset or charset in {"utf-8", "ascii"}:
        return None
    try:
        text = raw.decode(charset)
    except UnicodeDecodeError:
        return None
    return MarkupView(text, charset, range(len(raw)), range(1, len(raw) + 1))


def _decode_latin1(raw: bytes) -> MarkupView:
    return MarkupView(raw.decode("latin-1"), "latin-1", range(len(raw)), range(1, len(raw) + 1))


def _unsupported() -> MessageError:
    return MessageError(Reason.UNSUPPORTED, "byte 0", "charset not supported; send UTF-8")


@dataclass(frozen=True, slots=True)
class MarkupMessage:
    """A parsed HTML or XML document; implements ``Message``.

    ``brackets`` is true if a replacement that ends with ``]`` could form ``]]>`` with the text after it, ``lines`` if
    values are attributes, in which a line end is read as a space unless it is a reference.
    """

    raw: bytes = field(repr=False)
    identity: str = field(repr=False)
    patients: tuple[PatientIdentifier, ...] = field(repr=False)
    sites: tuple[Site, ...]
    narratives: tuple[Narrative, ...]
    attachments: tuple[Attachment, ...]
    charset: str
    brackets: bool = False
    lines: bool = False
    sexes: Mapping[str, str] = field(default_factory=dict)

    def encode(self, text: str) -> bytes:
        """``text`` as text or as the value of a quoted attribute, in the charset of the document.

        ``& < > " '`` and characters that the charset lacks become references; controls that XML forbids become spaces.
        """
        out = _RETURN.sub("&#13;", escape(_CONTROLS.sub(" ", text)))
        if self.lines:
            out = out.replace("\n", "&#10;").replace("\t", "&#9;")
        return encode_markup(out.replace("]", "&#93;") if self.brackets else out, self.charset)


_ROOT = re.compile(
    r"\A(?>\ufeff?)(?>\s+|<!--(?>[^-]+|-(?!->))*-->|<\?(?>[^?]+|\?(?!>))*\?>"
    r"|<![A-Z][^<>\[]*(?:\[[^\]]*\]\s*)?>)*<((?:[A-Za-z_][\w.-]*:)?)([A-Za-z_][\w.-]*)([^<>]*)"
)
_NAMESPACE = re.compile(r"""\sxmlns((?::[\w.-]+)?)\s*=\s*["']([^"']*)["']""")
_ROOT_HEAD = 65_536


FHIR_NAMESPACE = "http://hl7.org/fhir"


def read_root(raw: bytes) -> tuple[str, str | None] | None:
    """The local name and the namespace of the first element; None if ``raw`` begins with no element. Never raises."""
    found = _ROOT.match(decode_head(raw, _ROOT_HEAD).removeprefix("ï»¿"))
    if found is None:
        return None
    prefix, name, rest = found.groups()
    spaces = {mark.removeprefix(":"): space for mark, space in _NAMESPACE.findall(rest)}
    return name, spaces.get(prefix.rstrip(":"))


def has_closing_bracket(view: MarkupView) -> bool:
    """True if the document contains ``]>`` other than as the end of a CDATA section."""
    return _CLOSING_BRACKET.search(view.text) is not None


# XML as tokens with their positions.

MAX_TOKENS = 2_000_000
MAX_DEPTH = 200
LONGEST_NAME = 200
_TOKEN = re.compile(
    r"""<(?:(/?)([^\s<>/!?"'=]++)((?:[^<>"']|"[^"<]*+"|'[^'<]*+')*+)>"""
    r"|!--((?:[^-]|-(?!->))*+)-->"
    r"|!\[CDATA\[((?:[^\]]|\](?!\]>))*+)\]\]>"
    r"|\?[^\s?]++\s*+((?:[^?]|\?(?!>))*+)\?>"
    r"""|!([A-Za-z](?:[^<>"']|"[^"]*+"|'[^']*+')*+)>)"""
)
_LITERAL = re.compile(r"""["']([^"']*)["']\s*\Z""")
_UNKNOWN = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);|#)[^\s&;<>]{1,200};")


class XmlPart(StrEnum):
    """The kinds of tokens."""

    START = "start"
    EMPTY = "empty"
    END = "end"
    TEXT = "text"
    CDATA = "cdata"
    COMMENT = "comment"
    INSTRUCTION = "instruction"


_START, _EMPTY, _END = XmlPart.START, XmlPart.EMPTY, XmlPart.END  # a member lookup takes as long as a call


class XmlToken(NamedTuple):
    """Characters ``[start, end)``; ``[first, last)`` is the text of the token, or the part of a tag after ``name``.

    The text of a processing instruction follows its target. The text of a document type is its system identifier, which
    it may lack.
    """

    part: XmlPart
    start: int
    end: int
    first: int
    last: int
    name: str = ""


def iter_tokens(view: MarkupView) -> Iterator[XmlToken]:  # noqa: PLR0912 - one arm for each kind of token
    """The tokens, in order, of a document that ``check_well_formed`` has accepted.

    Raises ``MessageError(RESOURCE)`` for too many tokens, too deep nesting or too long a name.
    """
    text = view.text
    at = depth = 0
    for count, found in enumerate(_TOKEN.finditer(text), start=1):
        start, end = found.span()
        if at < start:
            yield XmlToken(XmlPart.TEXT, at, start, at, start)
        at = end
        if count > MAX_TOKENS:
            raise _resource_error(view, start, f"more than {MAX_TOKENS} tags")
        match found.lastindex:
            case 3:
                closing, name, _ = found.groups()[:3]
                part = _END if closing else _EMPTY if text[end - 2] == "/" else _START
                if part is _START:
                    depth += 1
                    if depth > MAX_DEPTH:
                        raise _resource_error(view, start, "nested too deep")
                elif closing:
                    depth -= 1
                if len(name) > LONGEST_NAME:
                    raise _resource_error(view, start, "a name is too long")
                yield XmlToken(part, start, end, *found.span(3), name)
            case 4:
                yield XmlToken(XmlPart.COMMENT, start, end, *found.span(4))
            case 5:
                yield XmlToken(XmlPart.CDATA, start, end, *found.span(5))
            case 6 if not text.startswith("<?xml ", start):
                yield XmlToken(XmlPart.INSTRUCTION, start, end, *found.span(6))
            case 7:
                literal = _LITERAL.search(found[7])
                first, last = (found.start(7) + at for at in literal.span(1)) if literal else (end, end)
                yield XmlToken(XmlPart.INSTRUCTION, start, end, first, last)
    if at < len(text):
        yield XmlToken(XmlPart.TEXT, at, len(text), at, len(text))


def check_well_formed(view: MarkupView) -> None:
    """Raise ``MessageError``: MALFORMED for XML that is not well-formed, RESOURCE for a document with declarations.

    Namespace prefixes need not be bound: an embedded fragment is often cut out of a larger document.
    """

    def doctype(_name: str, system: str | None, public: str | None, has_subset: bool) -> None:
        if has_subset:
            raise MessageError(
                Reason.RESOURCE, _coordinates_of_utf8(view, parser.CurrentByteIndex), "the document declares entities"
            )
        if (system or public) and (found := _UNKNOWN.search(view.text)):  # expat expects it in an external file
            raise MessageError(
                Reason.MALFORMED, _coordinates(view, found.start()), "an entity that is declared elsewhere"
            )

    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = doctype
    try:
        data = view.text.encode("utf-8")
        parser.Parse(data, True)
    except expat.ExpatError:
        raise MessageError(
            Reason.MALFORMED, _coordinates_of_utf8(view, parser.ErrorByteIndex), "XML that is not well-formed"
        ) from None
    except UnicodeEncodeError as fault:
        raise MessageError(Reason.MALFORMED, _coordinates(view, fault.start), "half of a character") from None


def _resource_error(view: MarkupView, at: int, detail: str) -> MessageError:
    """The error for a bound that is exceeded at character ``at``."""
    return MessageError(Reason.RESOURCE, _coordinates(view, at), detail)


def _coordinates_of_utf8(view: MarkupView, index: int) -> str:
    """The coordinates of byte ``index`` of the text in UTF-8."""
    return _coordinates(view, len(view.text.encode("utf-8", "replace")[: max(index, 0)].decode("utf-8", "ignore")))


def _coordinates(view: MarkupView, at: int) -> str:
    return f"byte {view.starts[at] if at < len(view.starts) else (view.ends[-1] if view.ends else 0)}"
