"""Payloads that say what they say as it stands: read as text without a parser.

Of a payload without escapes, every value stands in its bytes letter by letter, between signs that are neither letters
nor digits and part no number. Who wants to know that something is *not* there need not parse it then.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_HEADERS = (b"MSH", b"FHS", b"BHS")
_ESCAPE = re.compile(
    rb"\\(?:([FSTREP])|(\.(?:br|sp|ce)[-+0-9]{0,6})|([HN]|X[0-9A-Fa-f]+|[CM][0-9A-Fa-f]+|\.[a-z]{2}[-+0-9]{0,6}))\\"
)
_SIGNS = {b"F": b"|", b"S": b"^", b"T": b"&", b"R": b"~", b"E": b"\\", b"P": b"#"}
_JOINTS = re.compile(rb"[\^&](?:(?:\0+|[^|^&~\r\n])?[\^&])*")
_CONTROL = re.compile(rb"[\x0e\x0f\x1b]")
_BREAKS = re.compile(r"\\[nrt]")
_BLOCK = re.compile(
    r"</?(?:address|blockquote|body|br|caption|center|col|colgroup|dd|div|dl|dt|h[1-6]|hr|html|img|li|ol|p|pre|table|tbody|"
    r"td|tfoot|th|thead|tr|ul)(?=[\s/>])[^<>]*>"
)
_INLINE = re.compile(r"</?(?:a|b|big|cite|code|em|font|i|q|small|span|strong|sub|sup|tt|u)(?=[\s/>])[^<>]*>")
_SPACES = re.compile(r"\s+")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|nbsp|#160|#39);")
_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, slots=True)
class Reading:
    """``texts`` in ASCII together hold every value, each between signs that are no letters and no digits.

    ``rows``: values of one composite stand in consecutive lines of one text; else they may stand anywhere.
    """

    texts: tuple[str, ...] = field(repr=False)
    rows: bool


def reading(raw: bytes, hidden: Iterable[tuple[int, int]]) -> Reading | None:
    """What ``raw`` says, byte ranges ``hidden`` (values that are of no interest) blanked out.

    None where that is not sure: another format than HL7 v2 with the usual separators or JSON, an escape or an entity
    that stands for a letter, a digit or part of a number, bytes that are not ASCII.
    """
    data = bytearray(raw)
    for start, end in hidden:
        data[start:end] = bytes(end - start)
    found = bytes(data)
    first = found.lstrip(b" \t\r\n\x0b")[:1]
    if not found.isascii() or _PERCENT.search(found) or first not in (b"{", b"M", b"F", b"B"):
        return None
    return _json(found) if first == b"{" else _hl7(found)


def _hl7(found: bytes) -> Reading | None:
    """Lines with the usual separators; escapes of separators and line breaks are read, any other ends it.

    Components of one character and hidden ones are left out: they stand between no two others.
    """
    if any(found.count(name) != found.count(name + b"|^~\\&|") for name in _HEADERS) or _CONTROL.search(found):
        return None
    escapes = found.count(b"\\") != found.count(b"|^~\\&|")
    if escapes and any(each[3] for each in _ESCAPE.finditer(found)):
        return None
    found = _JOINTS.sub(b"\n", found)
    return Reading(((_ESCAPE.sub(_meaning, found) if escapes else found).decode("ascii"),), rows=True)


def _meaning(escape: re.Match[bytes]) -> bytes:
    return _SIGNS[escape[1]] if escape[1] else b"\n"


def _json(found: bytes) -> Reading | None:
    """Strings with line breaks and quotes as their only escapes; markup as it stands, and as a reader sees it."""
    text = found.decode("ascii")
    if "\\" in text:
        text = _BREAKS.sub("  ", text)
        if "\\" in text.replace('\\"', ""):
            return None
    if "<" not in text and "&" not in text:
        return Reading((text,), rows=False)
    text = _SPACES.sub(" ", _ENTITY.sub(" ", text))
    seen = _INLINE.sub("", _BLOCK.sub("\n", text))
    return None if "&" in text or "<" in seen else Reading((text, seen), rows=False)
