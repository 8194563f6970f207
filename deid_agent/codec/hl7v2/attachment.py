"""Embedded documents: the datatype ED, and documents that a sender put where text belongs.

HL7 v2.8.2 chapter 2A.2.24 (ED), tables 0191, 0291, 0299, 0834.
"""

import base64
import binascii
import re
from types import MappingProxyType

from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.escape import plain
from deid_agent.codec.hl7v2.wire import Range, Separators, split
from deid_agent.sites import Attachment

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
LONG = 256
"""No word of prose, and no ED component but the data, is so long."""
_BARE = re.compile(r"[A-Za-z0-9+/]{256,}={0,2}")
_SPACE = re.compile(r"\s+")


def is_bare(text: str) -> bool:
    """True for what is no prose but a document: one long base64 word."""
    return len(text) >= LONG and _BARE.fullmatch(text) is not None


def bare(view: View, a: int, b: int, path: str) -> Attachment:
    """A document without its description; only its own first bytes say what it is."""
    text = view.text[a:b]
    data, encoding, _ = _data(text, "")
    unknown = UNKNOWN if encoding == "base64" or is_bare(text) else ""
    kind = next((name for magic, name in _MAGIC if data.lstrip().lower().startswith(magic)), unknown)
    return Attachment(path, *view.span(a, b), kind, encoding, data)


def encapsulated(view: View, pieces: list[Range], marks: Separators, path: str) -> Attachment | None:
    """The document of an ED value, from its components; None where ED.5 is empty.

    What does not decode as its encoding says is handed on undecoded, as ``application/octet-stream``: never as text.
    """
    a, b = pieces[4]
    value = plain(view, a, b, marks)
    if value in {"", '""'}:
        return None
    main, sub, encoding = (plain(view, *piece, marks).strip().lower() for piece in pieces[1:4])
    named = split(sub, 0, len(sub), "&")[0]
    declared = media(main, sub[named[0] : named[1]])
    data, encoding, kind = _data(value, encoding)
    return Attachment(
        f"{path}.5",
        *view.span(a, b),
        kind if kind is not None else declared,
        encoding,
        data,
        media=view.span(pieces[1][0], pieces[2][1]),
        plain=f"text{marks.component}plain".encode(),
    )


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


def _data(value: str, encoding: str) -> tuple[bytes, str, str | None]:
    """Bytes, their encoding (base64, hex, text), and the media type where decoding failed."""
    dense = _SPACE.sub("", value)
    try:
        if encoding == "base64" or (encoding not in {"a", "hex"} and _looks_base64(dense)):
            return base64.b64decode(dense, validate=True), "base64", None
        if encoding == "hex":
            return bytes.fromhex(dense), "hex", None
    except (binascii.Error, ValueError):
        return value.encode("utf-8", "replace"), "text", UNKNOWN
    return value.encode("utf-8", "replace"), "text", None


def _looks_base64(dense: str) -> bool:
    return len(dense) >= 16 and len(dense) % 4 == 0 and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", dense) is not None
