"""XML in tokens, with the place of each. Nothing is fetched, nothing declared is expanded.

Well-formedness is what the standard library's expat says of the same characters; a document type with declarations
of its own is refused before expat reads one. The tokens then rely on it.
Source: XML 1.0 (fifth edition), 2.1 and 4.4.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from xml.parsers import expat

from deid_agent.codec.markup.charset import View
from deid_agent.errors import MessageError, Reason

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


class Part(StrEnum):
    """What a token is."""

    START = "start"
    EMPTY = "empty"
    END = "end"
    TEXT = "text"
    CDATA = "cdata"
    COMMENT = "comment"
    INSTRUCTION = "instruction"


@dataclass(frozen=True, slots=True)
class Token:
    """Characters ``[start, end)``; ``[first, last)`` is its text, or of a tag what stands behind its ``name``.

    The text of an instruction stands behind its target, that of a document type is its address.
    """

    part: Part
    start: int
    end: int
    first: int
    last: int
    name: str = ""


def tokens(view: View) -> Iterator[Token]:
    """The tokens of a document that ``check`` has accepted, in order.

    Raises ``MessageError(RESOURCE)`` for too many of them, tags nested too deep or a name too long.
    """
    text = view.text
    at = depth = 0
    for count, found in enumerate(_TOKEN.finditer(text), start=1):
        start, end = found.span()
        if at < start:
            yield Token(Part.TEXT, at, start, at, start)
        at = end
        if count > MAX_TOKENS:
            raise resource(view, start, f"more than {MAX_TOKENS} tags")
        match found.lastindex:
            case 3:
                part = Part.END if found[1] else Part.EMPTY if text[end - 2] == "/" else Part.START
                depth += {Part.START: 1, Part.END: -1}.get(part, 0)
                if depth > MAX_DEPTH:
                    raise resource(view, start, "nested too deep")
                if len(found[2]) > LONGEST_NAME:
                    raise resource(view, start, "a name is too long")
                yield Token(part, start, end, *found.span(3), found[2])
            case 4:
                yield Token(Part.COMMENT, start, end, *found.span(4))
            case 5:
                yield Token(Part.CDATA, start, end, *found.span(5))
            case 6 if not text.startswith("<?xml ", start):
                yield Token(Part.INSTRUCTION, start, end, *found.span(6))
            case 7 if literal := _LITERAL.search(found[7]):
                first, last = (found.start(7) + at for at in literal.span(1))
                yield Token(Part.INSTRUCTION, start, end, first, last)
    if at < len(text):
        yield Token(Part.TEXT, at, len(text), at, len(text))


def check(view: View) -> None:
    """Raises ``MessageError``: MALFORMED for what is not well-formed, RESOURCE for a document that declares anything.

    Namespace prefixes need not be bound: what is embedded is often cut out of a larger document.
    """

    def doctype(_name: str, system: str | None, public: str | None, has_subset: bool) -> None:
        if has_subset:
            raise MessageError(Reason.RESOURCE, _where(view, parser.CurrentByteIndex), "the document declares entities")
        if (system or public) and (found := _UNKNOWN.search(view.text)):  # expat would leave it to a file elsewhere
            raise MessageError(Reason.MALFORMED, _byte(view, found.start()), "an entity that is declared elsewhere")

    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = doctype
    try:
        data = view.text.encode("utf-8")
        parser.Parse(data, True)
    except expat.ExpatError:
        raise MessageError(
            Reason.MALFORMED, _where(view, parser.ErrorByteIndex), "XML that is not well-formed"
        ) from None
    except UnicodeEncodeError as fault:
        raise MessageError(Reason.MALFORMED, _byte(view, fault.start), "half of a character") from None


def resource(view: View, at: int, detail: str) -> MessageError:
    """A refusal at character ``at``."""
    return MessageError(Reason.RESOURCE, _byte(view, at), detail)


def _where(view: View, index: int) -> str:
    """``index`` counts bytes of the characters as UTF-8."""
    return _byte(view, len(view.text.encode("utf-8", "replace")[: max(index, 0)].decode("utf-8", "ignore")))


def _byte(view: View, at: int) -> str:
    return f"byte {view.starts[at] if at < len(view.starts) else (view.ends[-1] if view.ends else 0)}"
