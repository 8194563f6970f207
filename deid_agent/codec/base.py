"""The interface of a message format, plain text as the simplest format, and tables of delimited or marked-up text."""

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import NamedTuple, Protocol

from deid_agent.codec.charsets import encode_text
from deid_agent.codec.labels import AGE_PLACEHOLDER, LabelMeaning, Labels, is_reading, load_labels
from deid_agent.model import (
    Attachment,
    Dropped,
    MappedText,
    Message,
    Narrative,
    PatientIdentifier,
    PhiType,
    PublishedPaths,
    Site,
    Subject,
    ValueKind,
)


class Codec(Protocol):
    """One message format: takes bytes, returns the values that may hold PHI. Immutable after construction."""

    @property
    def name(self) -> str:
        """The name of the format in configuration, logs and remarks."""

    def detect(self, raw: bytes) -> bool:
        """True if ``raw`` looks like this format. Cheap; never raises."""

    def parse(self, raw: bytes) -> Sequence[Message]:
        """The messages of one payload (a batch has several); their ``raw`` joined is ``raw``.

        Raises ``MessageError`` with MALFORMED, UNSUPPORTED or RESOURCE, and nothing else.
        """

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """The leaves of the payload: every text value, kept values included, decoded, with path, byte map and role.

        Leaves are in byte order, one for each value, and no two share a byte. Not included: encoded data of
        attachments, separators, tags, values of one character, and keys that the format's tables know. A run that
        can only be rewritten as a whole is one leaf.
        The leak guard searches the leaves of the finished output; ``LeafRole`` defines which of them it may rewrite.
        Raises as ``parse``.
        """

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:
        """The ranges of one message (``Message.raw``) that an allow-list policy does not publish.

        Without them it is a message of the same format. A text without paths has none: its own path is that of the
        value that holds it. Raises ``MessageError(UNSUPPORTED)`` if the format or the message cannot be reduced.
        """


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """Implements ``Message`` for UTF-8 text. It has no sites and no narratives: the caller reads the text itself."""

    raw: bytes = field(repr=False)
    identity: str = field(default="", repr=False)
    patients: tuple[PatientIdentifier, ...] = field(default=(), repr=False)
    sites: tuple[Site, ...] = ()
    narratives: tuple[Narrative, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    charset: str = "utf-8"
    sexes: Mapping[str, str] = field(default_factory=dict)

    def encode(self, text: str) -> bytes:
        """``text`` in the charset of the message, by default UTF-8."""
        return text.encode("utf-8", "surrogatepass") if self.charset == "utf-8" else encode_text(text, self.charset)


@dataclass(frozen=True, slots=True)
class PlainText:
    """Implements ``Codec`` for decoded UTF-8 text inside another format; ``path`` is the path of that text."""

    path: str
    name: str = "text"

    def detect(self, raw: bytes) -> bool:  # noqa: ARG002
        """Always False: every format is also plain text, so the caller selects this codec explicitly."""
        return False

    def parse(self, raw: bytes) -> Sequence[PlainMessage]:
        """The text as one message."""
        return [PlainMessage(raw)]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """The text as one leaf."""
        text = raw.decode("utf-8", "surrogatepass")
        return [Narrative(self.path, map_utf8(text))] if text else []

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:  # noqa: ARG002
        """Nothing: text has no paths."""
        return ()


def map_utf8(text: str) -> MappedText:
    """``text`` with each character mapped to its bytes in UTF-8."""
    if text.isascii():
        return MappedText(text, range(len(text)), range(1, len(text) + 1))
    starts, ends, at = array("Q"), array("Q"), 0
    for char in text:
        starts.append(at)
        at += 1 if char < "\x80" else 2 if char < "\u0800" else 3 if char < "\U00010000" else 4
        ends.append(at)
    return MappedText(text, starts, ends)


# Tables: a header, or the cell to the left, labels a value.

_TAG = re.compile(
    r"<(/?)(?:[\w.-]{1,20}:)?(table|tr|td|th)(?=[\s/>])(?>[^<>\"']+|\"[^\"]{0,4000}\"|'[^']{0,4000}'){0,100}>"
    r"|<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_RUN = re.compile(r"[^<>]+(?=<|\Z)")
_FIGURE = re.compile(r"[<>=~+-]{0,2} ?\d{1,7}(?:[.,]\d{1,6})?(?: ?(?:%|[A-Za-zµ]{1,6}(?:/[A-Za-z0-9^]{1,6}){0,2}))?")
_DELIMITERS = ("\t", ",", ";", "|")
_HEAD = 4096
_LONGEST_HEADER = 60
_COLUMN = re.compile(r"[^.:;,\d]{0,40}\d{0,2}")
"""The name of a column, unlike the text of a note: no sentence and no label with its value."""
_EQUAL = 0.9
"""Share of the lines of a table that have all cells. A last line may be a remark."""


class TableCell(NamedTuple):
    """A cell: characters ``[start, end)`` hold ``text``. ``header`` is true for the cell of a header (``th``)."""

    start: int
    end: int
    text: str
    header: bool = False


class LabelledCell(NamedTuple):
    """A cell whose column or left neighbor names an identity.

    ``type`` is None for the number of a column with a clinical label: it is kept, and is no text either.
    """

    cell: TableCell
    type: PhiType | None
    kind: ValueKind = ValueKind.VALUE
    subject: Subject = Subject.OTHER

    @property
    def blank(self) -> str:
        """The value that replaces a redacted one."""
        return AGE_PLACEHOLDER if self.type is PhiType.AGE else ""


def find_labelled_cells(labels: Labels, rows: Sequence[Sequence[TableCell]]) -> Iterator[LabelledCell]:
    """The cells of a table that hold an identifier, by their column or by the cell to the left, in order.

    Among them are the readings of the other columns (8/9), and beside an identifier their numbers: they are neither
    identifiers nor text.
    """
    found = list(_labelled_cells(labels, rows))
    identifies = any(each.type is not None for each in found)
    return (each for each in found if identifies or is_reading(each.cell.text))


def _labelled_cells(labels: Labels, rows: Sequence[Sequence[TableCell]]) -> Iterator[LabelledCell]:
    columns: list[LabelMeaning | None] = []
    dated: list[bool] = []
    for row in rows:
        times = [labels.names_time(cell.text) for cell in row]
        if not dated or all(cell.header for cell in row):
            dated = times
        meanings = [labels.of_text(cell.text) if cell.text else None for cell in row]
        if len(row) > 1 and any(meanings) and _is_header(row, meanings, labels):
            columns = _read_header(row, meanings, labels)
            continue
        fits = len(columns) == len(row)
        for at, cell in enumerate(row):
            before = meanings[at - 1] if at and meanings[at - 1] is not None else None
            meaning = columns[at] if fits and columns[at] is not None else before
            if meaning is None:
                timed = at > 0 and (times[at - 1] or dated[at : at + 1] == [True])
                if (fits or at) and (_FIGURE.fullmatch(cell.text) or (is_reading(cell.text) and not timed)):
                    yield LabelledCell(cell, None)
            if meaning is None or (meanings[at] is not None and not fits):
                continue
            if cell.text and (judged := labels.judge(meaning, cell.text)) is not None:
                yield LabelledCell(cell, *judged, meaning.subject)


def _read_header(
    row: Sequence[TableCell], meanings: Sequence[LabelMeaning | None], labels: Labels
) -> list[LabelMeaning | None]:
    """The meanings of columns. "Name" has none without another identity: problems, drugs and procedures have names."""
    things = [
        meaning is not None and labels.may_name_things(cell.text) for cell, meaning in zip(row, meanings, strict=True)
    ]
    about_people = any(
        meaning is not None and meaning.subject is not Subject.PROVIDER and not thing
        for meaning, thing in zip(meanings, things, strict=True)
    )
    return [None if thing and not about_people else meaning for meaning, thing in zip(meanings, things, strict=True)]


def _is_header(row: Sequence[TableCell], meanings: Sequence[LabelMeaning | None], labels: Labels) -> bool:
    """True if a row with labels is the header of columns, and not a label with its value."""
    if any(cell.header for cell in row):
        return all(cell.header for cell in row)
    if len(row) == 2 and meanings[1] is None:
        first = meanings[0]
        return first is None or labels.judge(first, row[1].text) is None
    words = [cell.text for cell in row]
    return not any(map(str.isdigit, "".join(words))) and all(len(word) <= _LONGEST_HEADER for word in words)


def markup_rows(text: str) -> list[list[TableCell]]:
    """The rows of the tables in a piece of HTML or CDA markup. A cell of several texts has no text."""
    rows: list[list[TableCell]] = [[]]
    begin, header = -1, False
    for tag in _TAG.finditer(text):
        if tag[2] is None:  # a comment or a CDATA section: what looks like a tag in it is none
            continue
        name = tag[2].lower()
        if begin >= 0:
            rows[-1].append(_read_cell(text, begin, tag.start(), header=header))
            begin = -1
        if name in {"tr", "table"}:
            rows.append([])
        elif not tag[1]:
            begin, header = tag.end(), name == "th"
    return [row for row in rows if row]


def _read_cell(text: str, begin: int, end: int, *, header: bool) -> TableCell:
    inside = text[begin:end]
    if "<" not in inside and ">" not in inside:
        value = inside.strip()
        start = begin + len(inside) - len(inside.lstrip()) if value else begin
        return TableCell(start, start + len(value), unescape(value), header)
    runs = [run for run in _RUN.finditer(text, begin, end) if not run[0].isspace()]
    if len(runs) != 1 or "<!" in inside or inside.count("<") != inside.count(">"):
        return TableCell(begin, begin, "", header)
    value = runs[0][0]
    start = runs[0].start() + len(value) - len(value.lstrip())
    return TableCell(start, runs[0].end() - len(value) + len(value.rstrip()), unescape(value.strip()), header)


class TableCodec:
    """Implements ``Codec`` for delimited text (CSV, TSV) in which a column or a label names an identity."""

    name = "table"

    def __init__(self, rules: Path) -> None:
        """Reads ``rules/labels.toml``. Raises ``ConfigurationError`` that names the file and the key."""
        self._labels = load_labels(rules)

    def detect(self, raw: bytes) -> bool:
        """True for two or more lines of equal cells with labels of identity in the first line or the first column.

        A note with commas is no table: divided into cells it would lose the sentences that recognizers need.
        """
        head = raw[:_HEAD].rpartition(b"\n")[0] or raw[:_HEAD]
        if b"\x00" in head or head.lstrip()[:1] in {b"<", b"{"}:
            return False
        text, _ = _decode_table(head)
        rows = _delimited_rows(text)
        return self._has_labels(rows) and next(find_labelled_cells(self._labels, rows), None) is not None

    def _has_labels(self, rows: Sequence[Sequence[TableCell]]) -> bool:
        """True if the first line names columns, or most lines are a label and its value."""
        if len(rows) < 2 or sum(len(row) == len(rows[0]) for row in rows) < _EQUAL * len(rows):
            return False
        names = all(_COLUMN.fullmatch(cell.text) for cell in rows[0])
        if names and any(self._labels.of_text(cell.text) for cell in rows[0]):
            return True
        labels = (_COLUMN.fullmatch(row[0].text) and self._labels.of_text(row[0].text) for row in rows)
        return len(rows[0]) == 2 and 2 * sum(map(bool, labels)) >= len(rows)

    def parse(self, raw: bytes) -> Sequence[PlainMessage]:
        """The table as one message. The text between the labelled cells is free text."""
        text, charset = _decode_table(raw)
        mapped = _map_table(text, charset)
        sites: list[Site] = []
        narratives: list[Narrative] = []
        at = 0
        for found in find_labelled_cells(self._labels, _delimited_rows(text)):
            cell = found.cell
            _add_piece(narratives, mapped, at, cell.start)
            first, last, group = mapped.starts[cell.start], mapped.ends[cell.end - 1], f"table@{cell.start}"
            if found.type is not None:
                site = Site("table", first, last, found.type, found.kind, found.subject, group, cell.text, found.blank)
                sites.append(site)
            at = cell.end
        _add_piece(narratives, mapped, at, len(text))
        return [PlainMessage(raw, sites=tuple(sites), narratives=tuple(narratives), charset=charset)]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """The text as one leaf."""
        text, charset = _decode_table(raw)
        mapped = _map_table(text, charset)
        return [Narrative("table", mapped)] if text else []

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:  # noqa: ARG002
        """Nothing: delimited text has no paths."""
        return ()


def _decode_table(raw: bytes) -> tuple[str, str]:
    try:
        return raw.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return raw.decode("latin-1"), "latin-1"


def _map_table(text: str, charset: str) -> MappedText:
    return map_utf8(text) if charset == "utf-8" else MappedText(text, range(len(text)), range(1, len(text) + 1))


def _delimited_rows(text: str) -> list[list[TableCell]]:
    """The rows of delimited text; empty if its first two lines do not have the same number of cells, two or more."""
    lines = [line for line in re.finditer(r"[^\r\n]+", text) if not line[0].isspace()]
    for mark in _DELIMITERS:
        rows = [_split_row(line[0], line.start(), mark) for line in lines[:2]]
        if len(rows) == 2 and len(rows[0]) == len(rows[1]) > 1:
            return [*rows, *(_split_row(line[0], line.start(), mark) for line in lines[2:])]
    return []


def _split_row(line: str, at: int, mark: str) -> list[TableCell]:
    cells: list[TableCell] = []
    begin = quoted = 0
    for index, char in enumerate(line + mark):
        if char == '"':
            quoted ^= 1
        elif char == mark and not quoted:
            value = line[begin:index]
            start, core = begin + len(value) - len(value.lstrip(' "\ufeff')), value.strip(' "\ufeff')
            cells.append(TableCell(at + start, at + start + len(core), core))
            begin = index + 1
    return cells


def _add_piece(narratives: list[Narrative], mapped: MappedText, start: int, end: int) -> None:
    text = mapped.text[start:end]
    if any(c.isalnum() for c in text):
        narratives.append(Narrative("table", MappedText(text, mapped.starts[start:end], mapped.ends[start:end])))
