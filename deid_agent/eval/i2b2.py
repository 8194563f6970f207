"""Reads the XML of the 2014 and 2006 i2b2 tasks. Users obtain the corpora themselves.

2014: one file for each record, ``PATIENT-RECORD.xml``: ``<deIdi2b2><TEXT>`` and ``<TAGS>`` with offsets in characters
of the text. 2006: one file of ``<ROOT><RECORD ID><TEXT>`` with ``<PHI TYPE>`` around each annotated span.

The standard library's expat parses both. A document type with an internal subset is refused before its declarations are
read, so no entity is expanded and nothing is fetched. Errors name file and line, never text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from deid_agent.eval.markup import LeftOut, Note, ParseLabel, map_to_2006_types, parse_label
from deid_agent.model import ANNOTATION, Annotated, ConfigurationError, PhiType, Span, in_order


def read_2014(path: Path, remarks: list[str], parse: ParseLabel = parse_label) -> Note:
    """Read one record of the 2014 task.

    A tag whose ``text`` attribute differs from the text at its offsets is kept, and ``remarks`` gains a line about it.
    Raises ``ConfigurationError`` if the file is not a record of the task.
    """
    document = _Document(path)
    document.parse()
    if not document.texts:
        raise ConfigurationError(f"{path}: no <TEXT>: not a record of the 2014 i2b2 task")
    text = document.texts[0]
    spans: dict[tuple[int, int, PhiType], Span] = {}
    for tag in document.tags:
        span = _parse_tag(path, tag, len(text), parse)
        if span is None:
            continue
        spans[span.start, span.end, span.type] = span
        quoted = tag.attributes.get("text")
        if quoted is not None and quoted.split() != text[span.start : span.end].split():
            remarks.append(f"{path}:{tag.line}: the tag's text attribute differs from the text at its offsets")
    patient, _, _ = path.stem.partition("-")
    return Note(path.stem, "", "", patient, Annotated(text, tuple(in_order(spans.values()))), {})


def read_2006(path: Path) -> Iterator[Note]:
    """Yield all records of a file of the 2006 task, under its eight types. Each record counts as a patient of its own.

    Raises ``ConfigurationError`` if the file is not one of the task.
    """
    document = _Document(path)
    document.parse()
    if not document.texts:
        raise ConfigurationError(f"{path}: no <RECORD> with a <TEXT>: not a file of the 2006 i2b2 task")
    for id_, text, spans in zip(document.records, document.texts, document.spans, strict=True):
        yield Note(id_, "", "", id_, Annotated(text, map_to_2006_types(spans)), {})


@dataclass(frozen=True, slots=True)
class _Tag:
    """An element of ``<TAGS>``."""

    name: str
    attributes: Mapping[str, str] = field(repr=False)
    line: int


def _parse_tag(path: Path, tag: _Tag, length: int, parse: ParseLabel) -> Span | None:
    label = tag.attributes.get("TYPE") or tag.name
    kind = parse(label)
    if isinstance(kind, LeftOut):
        return None
    if kind is None:
        raise ConfigurationError(f"{path}:{tag.line}: a tag of an unknown TYPE: use the types of the 2014 task")
    try:
        start, end = int(tag.attributes["start"]), int(tag.attributes["end"])
    except (KeyError, ValueError):
        raise ConfigurationError(f"{path}:{tag.line}: a tag needs start= and end= as numbers") from None
    if not 0 <= start < end <= length:
        raise ConfigurationError(f"{path}:{tag.line}: the tag lies outside the text: {start} to {end} of {length}")
    return Span(start, end, kind, ANNOTATION)


class _Document:
    """One XML file: its texts, the ``<PHI>`` spans of each text, and the tags after it."""

    def __init__(self, path: Path) -> None:
        self.records: list[str] = []
        self.texts: list[str] = []
        self.spans: list[list[Span]] = []
        self.tags: list[_Tag] = []
        self._path = path
        self._open_elements: list[str] = []
        self._record = ""
        self._text_parts: list[str] = []
        self._text_length = 0
        self._open_phi: tuple[int, PhiType] | None = None
        self._text_spans: list[Span] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._refuse_declarations
        self._parser.StartElementHandler = self._start_element
        self._parser.EndElementHandler = self._end_element
        self._parser.CharacterDataHandler = self._add_text

    def parse(self) -> None:
        """Parse the file. Raises ``ConfigurationError`` naming file and line."""
        try:
            self._parser.Parse(self._path.read_bytes(), True)
        except expat.ExpatError as error:
            detail = expat.ErrorString(error.code)
            raise ConfigurationError(f"{self._path}:{error.lineno}: XML that is not well-formed: {detail}") from None
        except OSError as error:
            raise ConfigurationError(f"{self._path}: cannot be read ({type(error).__name__})") from None

    def _error(self, detail: str) -> ConfigurationError:
        return ConfigurationError(f"{self._path}:{self._parser.CurrentLineNumber}: {detail}")

    def _refuse_declarations(self, _name: str, _system: str | None, _public: str | None, has_subset: bool) -> None:
        if has_subset:
            raise self._error("the document type has declarations, which may define entities: remove it")

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        if "TEXT" in self._open_elements:
            self._start_phi(name, attributes)
        elif name == "RECORD":
            self._record = attributes.get("ID", "")
            if not self._record:
                raise self._error("a <RECORD> without an ID")
        elif name == "TEXT":
            self._text_parts, self._text_spans, self._text_length = [], [], 0
        elif self._open_elements[-1:] == ["TAGS"]:
            self.tags.append(_Tag(name, attributes, self._parser.CurrentLineNumber))
        self._open_elements.append(name)

    def _start_phi(self, name: str, attributes: dict[str, str]) -> None:
        kind = parse_label(attributes.get("TYPE", ""))
        if name != "PHI" or kind is None:
            raise self._error("inside <TEXT>: expected <PHI TYPE> with a TYPE of the 2006 task")
        if self._open_phi is not None:
            raise self._error("a <PHI> inside another <PHI>")
        self._open_phi = (self._text_length, kind)

    def _end_element(self, name: str) -> None:
        self._open_elements.pop()
        if self._open_phi is not None and name == "PHI":
            start, kind = self._open_phi
            self._open_phi = None
            inside = "".join(self._text_parts)[start:]
            blank = len(inside) - len(inside.lstrip())
            if inside.strip():
                self._text_spans.append(Span(start + blank, start + len(inside.rstrip()), kind, ANNOTATION))
        elif name == "TEXT":
            self.texts.append("".join(self._text_parts))
            self.spans.append(self._text_spans)
            self.records.append(self._record)

    def _add_text(self, data: str) -> None:
        if "TEXT" in self._open_elements:
            self._text_parts.append(data)
            self._text_length += len(data)
