"""HL7 v2 written as HL7 v2 XML, for tests that compare both syntaxes. Independent of the codec."""

import re
from functools import lru_cache
from xml.sax.saxutils import escape, quoteattr

from support.hl7 import RULES

from deid_agent.codec.hl7v2 import Hl7Codec, Hl7XmlCodec
from deid_agent.codec.markup.document import MarkupMessage

NAMESPACE = 'xmlns="urn:hl7-org:v2xml"'
_ESCAPE = re.compile(r"\\([^\\]*)\\")
_MARKS = {"F": "|", "S": "^", "T": "&amp;", "R": "~", "E": "\\"}
_BELOW = ("CX", "HD")
"""Datatypes that stand in for any: only the number counts."""


@lru_cache(maxsize=1)
def xml_codec() -> Hl7XmlCodec:
    return Hl7XmlCodec(Hl7Codec(RULES))


def parsed_xml(text: str | bytes) -> MarkupMessage:
    """The one message of a document."""
    (message,) = xml_codec().parse(text.encode() if isinstance(text, str) else text)
    return message


def to_xml(message: str, root: str = "ORU_R01") -> str:
    """A message with the usual separators as XML. Fields after OBR are in a group, like those of a real structure."""
    lines = [line for line in re.split(r"[\r\n]+", message) if line]
    out = "".join(_segment(line) for line in lines[1:])
    head, group = f"<?xml version='1.0'?>\n<{root} {NAMESPACE}>\n{_segment(lines[0])}", f"{root}.PATIENT_RESULT"
    return f"{head}<{group}>{out}</{group}></{root}>"


def _segment(line: str) -> str:
    name, *fields = line.split("|")
    if name in {"MSH", "FHS", "BHS"}:
        rest = "".join(_field(f"{name}.{n}", text) for n, text in enumerate(fields[1:], start=3))
        return f"<{name}><{name}.1>|</{name}.1><{name}.2>{escape(fields[0])}</{name}.2>{rest}</{name}>\n"
    return f"<{name}>{''.join(_field(f'{name}.{n}', text) for n, text in enumerate(fields, start=1))}</{name}>\n"


def _field(name: str, text: str) -> str:
    if not text:
        return f"<{name}/>"
    return "".join(f"<{name}>{_parts(each, '^&')}</{name}>\n" for each in text.split("~") if text)


def _parts(text: str, marks: str) -> str:
    if not marks:
        return _text(text)
    if not any(mark in text for mark in marks):
        return _text(text)
    if marks[0] not in text and len(marks) == 2:
        return f"<CX.1>{_parts(text, marks[1:])}</CX.1>"
    kind = _BELOW[len(marks) % 2]
    pieces = enumerate(text.split(marks[0]), start=1)
    return "".join(f"<{kind}.{n}>{_parts(piece, marks[1:])}</{kind}.{n}>" for n, piece in pieces if piece)


def _text(text: str) -> str:
    out, at = "", 0
    for found in _ESCAPE.finditer(text):
        out += escape(text[at : found.start()])
        out += _MARKS.get(found[1]) or f"<escape V={quoteattr(found[1])}/>"
        at = found.end()
    return out + escape(text[at:])
