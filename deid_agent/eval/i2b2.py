"""The XML of the 2014 and 2006 i2b2 tasks, which users bring themselves.

2014: one file per record, ``PATIENT-RECORD.xml``: ``<deIdi2b2><TEXT>`` and ``<TAGS>`` with offsets in characters of the
text. 2006: one file of ``<ROOT><RECORD ID><TEXT>`` with ``<PHI TYPE>`` around what it marks.

Read by the standard library's expat. A document type with declarations of its own is refused before one of them is
read, so nothing is expanded or fetched. Errors name file and line, never text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from deid_agent.errors import ConfigurationError
from deid_agent.eval.labels import coarse, type_of
from deid_agent.eval.markup import Note
from deid_agent.markup import Annotated
from deid_agent.phi import PhiType
from deid_agent.spans import Span, in_order


def read_2014(path: Path, remarks: list[str]) -> Note:
    """One record. A tag whose ``text`` is not what stands at its offsets is told in ``remarks`` and kept.

    Raises ``ConfigurationError`` for what is no such file.
    """
    reader = _Reader(path)
    reader.read()
    if not reader.texts:
        raise ConfigurationError(f"{path}: no <TEXT>: not a record of the 2014 i2b2 task")
    text = reader.texts[0]
    spans: dict[tuple[int, int, PhiType], Span] = {}
    for tag in reader.tags:
        span = _tag(path, tag, len(text))
        spans[span.start, span.end, span.type] = span
        said = tag.attributes.get("text")
        if said is not None and said.split() != text[span.start : span.end].split():
            remarks.append(f"{path}:{tag.line}: the tag's text is not what stands at its offsets")
    patient, _, _ = path.stem.partition("-")
    return Note(path.stem, "", "", patient, Annotated(text, tuple(in_order(spans.values()))), {})


def read_2006(path: Path) -> Iterator[Note]:
    """All records of the file, each a patient of its own, in the coarse types of that task."""
    reader = _Reader(path)
    reader.read()
    if not reader.texts:
        raise ConfigurationError(f"{path}: no <RECORD> with a <TEXT>: not a file of the 2006 i2b2 task")
    for id_, text, spans in zip(reader.records, reader.texts, reader.marks, strict=True):
        yield Note(id_, "", "", id_, Annotated(text, coarse(spans)), {})


@dataclass(frozen=True, slots=True)
class _Tag:
    name: str
    attributes: Mapping[str, str] = field(repr=False)
    line: int


def _tag(path: Path, tag: _Tag, length: int) -> Span:
    label = tag.attributes.get("TYPE") or tag.name
    kind = type_of(label)
    if kind is None:
        raise ConfigurationError(f"{path}:{tag.line}: a tag of an unknown TYPE: only those of the 2014 task are known")
    try:
        start, end = int(tag.attributes["start"]), int(tag.attributes["end"])
    except (KeyError, ValueError):
        raise ConfigurationError(f"{path}:{tag.line}: a tag needs start= and end= as numbers") from None
    if not 0 <= start < end <= length:
        raise ConfigurationError(f"{path}:{tag.line}: the tag lies outside of the text: {start} to {end} of {length}")
    return Span(start, end, kind, "gold")


class _Reader:
    """Collects texts, marks inside of them and tags behind them."""

    def __init__(self, path: Path) -> None:
        self.root = ""
        self.records: list[str] = []
        self.texts: list[str] = []
        self.marks: list[list[Span]] = []
        self.tags: list[_Tag] = []
        self._path = path
        self._inside: list[str] = []
        self._record = ""
        self._parts: list[str] = []
        self._length = 0
        self._open: tuple[int, PhiType] | None = None
        self._spans: list[Span] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text

    def read(self) -> None:
        """Raises ``ConfigurationError`` naming file and line."""
        try:
            self._parser.Parse(self._path.read_bytes(), True)
        except expat.ExpatError as fault:
            what = expat.ErrorString(fault.code)
            raise ConfigurationError(f"{self._path}:{fault.lineno}: XML that is not well-formed: {what}") from None
        except OSError as fault:
            raise ConfigurationError(f"{self._path}: cannot be read ({type(fault).__name__})") from None

    def _fail(self, detail: str) -> ConfigurationError:
        return ConfigurationError(f"{self._path}:{self._parser.CurrentLineNumber}: {detail}")

    def _doctype(self, _name: str, _system: str | None, _public: str | None, has_subset: bool) -> None:
        if has_subset:
            raise self._fail("the document declares entities: take its document type out")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.root = self.root or name
        if "TEXT" in self._inside:
            self._mark(name, attributes)
        elif name == "RECORD":
            self._record = attributes.get("ID", "")
            if not self._record:
                raise self._fail("a record without an ID")
        elif name == "TEXT":
            self._parts, self._spans, self._length = [], [], 0
        elif self._inside[-1:] == ["TAGS"]:
            self.tags.append(_Tag(name, attributes, self._parser.CurrentLineNumber))
        self._inside.append(name)

    def _mark(self, name: str, attributes: dict[str, str]) -> None:
        kind = type_of(attributes.get("TYPE", ""))
        if name != "PHI" or kind is None:
            raise self._fail("inside of a text: expected <PHI TYPE> with a TYPE of the 2006 task")
        if self._open is not None:
            raise self._fail("a mark inside of a mark")
        self._open = (self._length, kind)

    def _end(self, name: str) -> None:
        self._inside.pop()
        if self._open is not None and name == "PHI":
            start, kind = self._open
            self._open = None
            inside = "".join(self._parts)[start:]
            blank = len(inside) - len(inside.lstrip())
            if inside.strip():
                self._spans.append(Span(start + blank, start + len(inside.rstrip()), kind, "gold"))
        elif name == "TEXT":
            self.texts.append("".join(self._parts))
            self.marks.append(self._spans)
            self.records.append(self._record)

    def _text(self, data: str) -> None:
        if "TEXT" in self._inside:
            self._parts.append(data)
            self._length += len(data)
