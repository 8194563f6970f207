"""Embedded documents: the datatype ED, and documents that a sender put where text belongs.

HL7 v2.8.2 chapter 2A.2.24 (ED), tables 0191, 0291, 0299, 0834.
"""

import re
from types import MappingProxyType

from deid_agent import armor
from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.escape import plain
from deid_agent.codec.hl7v2.wire import Range, Separators, split
from deid_agent.errors import MessageError, Reason

UNKNOWN = "application/octet-stream"
_MAIN = MappingProxyType(
    {
        "ap": "application", "au": "audio", "ft": "text", "im": "image", "ns": "application", "sd": "application",
        "si": "image", "tx": "text", "tex": "text",
    }
)  # fmt: skip
_SUB = MappingProxyType(
    {
        "pdf": "application/pdf", "rtf": "application/rtf", "richtext": "application/rtf", "html": "text/html",
        "htm": "text/html", "xhtml": "application/xhtml+xml", "xml": "text/xml", "cda": "text/xml",
        "txt": "text/plain", "plain": "text/plain", "jpeg": "image/jpeg", "jpg": "image/jpeg", "tiff": "image/tiff",
        "png": "image/png", "gif": "image/gif", "dicom": "application/dicom",
    }
)  # fmt: skip
_MAGIC = ((b"%pdf", "application/pdf"), (b"{\\rtf", "application/rtf"), (b"<?xml", "text/xml"), (b"<html", "text/html"))
_STARTS = (
    *(magic for magic, _ in _MAGIC), b"<clinicaldocument", b"<!doctype", b"pk\x03\x04", b"\x89png", b"\xff\xd8\xff",
    b"gif8", b"ii*\x00", b"mm\x00*", b"\x1f\x8b", b"msh|",
)  # fmt: skip
LONG = 256
"""No word of prose, and no ED component but the data, is so long."""


_SPACE = re.compile(r"\s+")


def is_mixed(dense: str) -> bool:
    """Base64 has small letters, capitals and digits; a rule of dashes or a gene has not."""
    return any("a" <= c <= "z" for c in dense) and any("A" <= c <= "Z" for c in dense) and any(map(str.isdigit, dense))


def begins(dense: str) -> bool:
    """True where base64 or hexadecimal digits are the beginning of a document of a known kind."""
    for read in (armor.read, armor.read_hex):
        try:
            data, _ = read(dense[:24])
        except ValueError:
            continue
        if data.lstrip().lower().startswith(_STARTS):
            return True
    return False


def kind(data: bytes, encoding: str) -> str:
    """The media type that a document's own first bytes show; none for other decoded data, unknown for undecoded."""
    rest = UNKNOWN if encoding == "text" and len(data) >= LONG else ""
    return next((name for magic, name in _MAGIC if data.lstrip().lower().startswith(magic)), rest)


def piece(
    view: View, pieces: list[Range], marks: Separators, observation: tuple[str, str]
) -> tuple[str, str, str, tuple[str, ...]] | None:
    """Value, media type, encoding and key of an ED; None where ED.5 is empty."""
    value = plain(view, *pieces[4], marks)
    if value in {"", '""'}:
        return None
    main, sub, encoding = (plain(view, *each, marks).strip().lower() for each in pieces[1:4])
    named = split(sub, 0, len(sub), "&")[0]
    return value, media(main, sub[named[0] : named[1]]), encoding, (*observation, main, sub, encoding)


def media(main: str, sub: str) -> str:
    """ED.2 and ED.3, in lower case, as a media type; empty where they say nothing."""
    if "/" in main:
        return main
    if "/" in sub:
        return sub
    if sub in _SUB or main in _SUB:
        return _SUB.get(sub) or _SUB[main]
    main = _MAIN.get(main, main)
    return f"{main}/{sub or ('plain' if main == 'text' else 'octet-stream')}" if main else ""


def decoded(value: str, encoding: str) -> tuple[bytes, str, armor.Armor, str | None]:
    """Bytes, their encoding (base64, hex, text) and its layout, and the media type where decoding failed.

    What does not decode as its encoding says is handed on undecoded, as ``application/octet-stream``: never as text.
    What is written in its place is in the encoding that the message declares, so that a receiver can decode it.
    Raises ``MessageError(RESOURCE)`` where it is too long.
    """
    try:
        if encoding == "base64" or (encoding not in {"a", "hex"} and _looks_base64(value)):
            data, layout = armor.read(value)
            return data, "base64", layout, None
        if encoding == "hex":
            data, layout = armor.read_hex(value)
            return data, "hex", layout, None
    except armor.TooLongError:
        raise MessageError(Reason.RESOURCE, "OBX-5", "attachment too long") from None
    except ValueError:
        kept = encoding if encoding in {"base64", "hex"} else "text"
        return value.encode("utf-8", "replace"), kept, armor.PLAIN, UNKNOWN
    return value.encode("utf-8", "replace"), "text", armor.PLAIN, None


def _looks_base64(value: str) -> bool:
    dense = _SPACE.sub("", value)
    if len(dense) < 16 or re.fullmatch(r"[A-Za-z0-9+/_-]+={0,2}", dense) is None:
        return False
    return len(dense) % 4 == 0 or (len(dense) >= LONG and is_mixed(dense))
