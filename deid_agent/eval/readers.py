"""Reads an annotated corpus in any supported format: the project's markup, i2b2 2014 and 2006, brat, JSON lines."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, pairwise
from pathlib import Path
from types import MappingProxyType

import orjson

from deid_agent.eval.i2b2 import read_2006, read_2014
from deid_agent.eval.markup import LeftOut, Note, ParseLabel, parse_label, read_corpus, read_file
from deid_agent.model import ANNOTATION, Annotated, ConfigurationError, Span, in_order, parse_source


class CorpusFormat(StrEnum):
    """The supported formats, by their names on the command line."""

    MARKUP = "markup"
    I2B2_2014 = "i2b2-2014"
    I2B2_2006 = "i2b2-2006"
    BRAT = "brat"
    JSONL = "jsonl"


_FORMAT_BY_SUFFIX: Mapping[str, CorpusFormat] = MappingProxyType(
    {
        ".txt": CorpusFormat.MARKUP,
        ".xml": CorpusFormat.I2B2_2014,
        ".jsonl": CorpusFormat.JSONL,
        ".ndjson": CorpusFormat.JSONL,
    }
)
_QUOTED = 2  # the column of the annotated text in a line of brat
_XML_ROOT = re.compile(rb"<([A-Za-z][\w.-]*)")


@dataclass(frozen=True, slots=True)
class Corpus:
    """The notes of a corpus. ``remarks`` are warnings for the user, by file and line, without text of a note."""

    format: CorpusFormat
    notes: tuple[Note, ...] = field(repr=False)
    remarks: tuple[str, ...] = ()


def read_annotated(path: Path, corpus_format: CorpusFormat | None = None, parse: ParseLabel = parse_label) -> Corpus:
    """Read the corpus at ``path``, a folder or a file. Without ``corpus_format`` the format is detected.

    ``parse`` reads the labels of brat, JSON lines and i2b2 2014.

    Raises ``ConfigurationError`` naming file and line for a bad file, and naming ``path`` if it does not exist, if its
    format cannot be detected, or if it holds no note.
    """
    if not path.exists():
        raise ConfigurationError(f"{path}: no such file or folder")
    remarks: list[str] = []
    chosen = corpus_format or detect_format(path)
    try:
        notes = tuple(_READERS[chosen](path, remarks, parse))
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not UTF-8: convert it first") from None
    if not notes:
        raise ConfigurationError(f"{path}: holds no note in the format {chosen}; choose another with --format")
    return Corpus(chosen, notes, tuple(remarks))


def detect_format(path: Path) -> CorpusFormat:
    """Detect the format by file names and first bytes. Raises ``ConfigurationError`` if they match no format."""
    if path.is_dir():
        if any(path.glob("*.ann")):
            return CorpusFormat.BRAT
        files = (file for suffix in _FORMAT_BY_SUFFIX for file in sorted(path.glob(f"*{suffix}")))
        path = next(files, path)
    if path.suffix == ".xml":
        with path.open("rb") as stream:
            root = _XML_ROOT.search(stream.read(4096))
        return CorpusFormat.I2B2_2006 if root is not None and root[1] == b"ROOT" else CorpusFormat.I2B2_2014
    if path.suffix in _FORMAT_BY_SUFFIX and path.is_file():
        return _FORMAT_BY_SUFFIX[path.suffix]
    raise ConfigurationError(f"{path}: unknown corpus format; choose it with --format ({', '.join(CorpusFormat)})")


def read_brat(folder: Path, parse: ParseLabel = parse_label) -> Iterator[Note]:
    """Yield every ``NAME.txt`` that has a ``NAME.ann`` beside it, by name, in brat's annotation format.

        T1<TAB>PATIENT 5 8;9 14<TAB>Ann Quill

    Each text counts as a patient of its own. Offsets count characters of the text file, with its line ends unchanged.
    Fragments with only white space between them become one span, since brat divides a span at a line end. Other
    fragments are refused, since a ``Span`` is contiguous. Lines that do not begin with T (relations, events, notes)
    hold no offsets and are skipped. The text of an annotation must be that at its offsets, except for white space: the
    offsets of another program may count bytes, or a file with other line ends.

    Source: brat.nlplab.org/standoff.html.

    Raises ``ConfigurationError`` naming file and line, never text.
    """
    for path in sorted(folder.glob("*.ann")):
        source = path.with_suffix(".txt")
        try:
            text, lines = source.read_bytes().decode("utf-8"), path.read_text("utf-8-sig").split("\n")
        except OSError as error:
            raise ConfigurationError(f"{error.filename}: cannot be read ({type(error).__name__})") from None
        except UnicodeDecodeError:
            raise ConfigurationError(f"{source}: the text or its .ann is not UTF-8: convert them first") from None
        found = (
            _parse_brat_span(f"{path}:{n}", line, text, parse)
            for n, line in enumerate(lines, 1)
            if line.startswith("T")
        )
        spans = {span for span in found if span is not None}
        yield Note(path.stem, "", "", path.stem, Annotated(text, tuple(in_order(spans))), {})


def _parse_brat_span(location: str, line: str, text: str, parse: ParseLabel) -> Span | None:
    fields = line.rstrip("\r").split("\t")
    label, _, offsets = fields[1].partition(" ") if len(fields) > 1 else ("", "", "")
    kind = parse(label)
    if isinstance(kind, LeftOut):
        return None
    if kind is None:
        raise ConfigurationError(f"{location}: an unknown label: use the types of the annotation guidelines")
    try:
        fragments = [(int(a), int(b)) for a, b in (fragment.split() for fragment in offsets.split(";"))]
    except ValueError:
        raise ConfigurationError(f"{location}: expected a label, a start and an end") from None
    if any(not 0 <= a < b <= len(text) for a, b in fragments):
        raise ConfigurationError(f"{location}: the annotation ends outside the text: correct its offsets")
    if any(b > c or text[b:c].strip() for (_, b), (c, _) in pairwise(fragments)):
        raise ConfigurationError(f"{location}: the fragments have text between them: make them separate annotations")
    begin, end = fragments[0][0], fragments[-1][1]
    if len(fields) > _QUOTED and fields[_QUOTED].split() != text[begin:end].split():
        raise ConfigurationError(f"{location}: the text of the annotation differs from that at its offsets")
    return Span(begin, end, kind, ANNOTATION)


def read_json_lines(
    path: Path, *, check_bounds: bool = True, annotated: bool = True, parse: ParseLabel = parse_label
) -> Iterator[Note]:
    """Yield every line as a note, in order, in the format that ``text --jsonl`` writes.

        {"id": "n1", "text": "...", "spans": [{"start": 0, "end": 9, "type": "PATIENT", "source": "rule"}]}

    ``text``, ``kind``, ``patient_id``, ``date``, ``context`` and a span's ``source`` are optional; other members are
    ignored.

    With ``check_bounds`` spans must lie within the line's text, if the line has one. Findings are read without this
    check, since ``text --jsonl`` writes the sanitized text with spans of the original. Without ``annotated`` a line
    needs no spans. Raises ``ConfigurationError`` naming file and line, never text.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({type(error).__name__})") from None
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if line.strip():
            note = _parse_line(f"{path}:{number}", line.removeprefix(b"\xef\xbb\xbf"), check_bounds, annotated, parse)
            if note.id in seen:
                raise ConfigurationError(f"{path}:{number}: an earlier line has the same id: make ids unique")
            seen.add(note.id)
            yield note


def _parse_line(location: str, line: bytes, check_bounds: bool, annotated: bool, parse: ParseLabel) -> Note:
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(f"{location}: column {error.colno}: not JSON") from None
    if not isinstance(data, dict) or not isinstance(data.get("id"), str):
        raise ConfigurationError(f'{location}: expected an object with "id" and "spans"')
    text = _string_member(location, data, "text")
    spans = data.get("spans", None if annotated else [])
    if not isinstance(spans, list):
        raise ConfigurationError(f'{location}: "spans" must be a list')
    length = len(text) if check_bounds and data.get("text") is not None else None
    found = {span for item in spans if (span := _parse_json_span(location, item, length, parse)) is not None}
    context = data.get("context") or {}
    if not isinstance(context, dict):
        raise ConfigurationError(f'{location}: "context" must be an object')
    patient = _string_member(location, data, "patient_id") or data["id"]
    kind, date = _string_member(location, data, "kind"), _string_member(location, data, "date")
    return Note(data["id"], kind, date, patient, Annotated(text, tuple(in_order(found))), context)


def _string_member(location: str, data: Mapping[str, object], member: str) -> str:
    value = data.get(member)
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f'{location}: "{member}" must be a string')
    return value or ""


def _parse_json_span(location: str, item: object, length: int | None, parse: ParseLabel) -> Span | None:
    if not isinstance(item, dict):
        raise ConfigurationError(f'{location}: a span must be an object with "start", "end" and "type"')
    start, end, label, source = (item.get(key) for key in ("start", "end", "type", "source"))
    kind = parse(label) if isinstance(label, str) else None
    if isinstance(kind, LeftOut):
        return None
    if kind is None:
        raise ConfigurationError(f"{location}: a span of an unknown type: use those of the annotation guidelines")
    if type(start) is not int or type(end) is not int or not 0 <= start < end:
        raise ConfigurationError(f"{location}: a span needs start and end as whole numbers, start before end")
    if length is not None and end > length:
        raise ConfigurationError(f"{location}: a span ends at {end}, after the text's {length} characters")
    return Span(start, end, kind, parse_source(source if isinstance(source, str) else ""))


def _read_markup(path: Path, _remarks: list[str], _parse: ParseLabel) -> Iterator[Note]:
    return read_corpus(path) if path.is_dir() else read_file(path)


def _read_i2b2_2014(path: Path, remarks: list[str], parse: ParseLabel) -> Iterator[Note]:
    return (read_2014(file, remarks, parse) for file in _list_files(path, ".xml"))


def _read_i2b2_2006(path: Path, _remarks: list[str], _parse: ParseLabel) -> Iterator[Note]:
    return chain.from_iterable(map(read_2006, _list_files(path, ".xml")))


def _read_brat(path: Path, _remarks: list[str], parse: ParseLabel) -> Iterator[Note]:
    return read_brat(path, parse)


def _read_jsonl(path: Path, _remarks: list[str], parse: ParseLabel) -> Iterator[Note]:
    return chain.from_iterable(read_json_lines(file, parse=parse) for file in _list_files(path, ".jsonl"))


def _list_files(path: Path, suffix: str) -> list[Path]:
    return sorted(path.glob(f"*{suffix}")) if path.is_dir() else [path]


_READERS: Mapping[CorpusFormat, Callable[[Path, list[str], ParseLabel], Iterator[Note]]] = MappingProxyType(
    {
        CorpusFormat.MARKUP: _read_markup,
        CorpusFormat.I2B2_2014: _read_i2b2_2014,
        CorpusFormat.I2B2_2006: _read_i2b2_2006,
        CorpusFormat.BRAT: _read_brat,
        CorpusFormat.JSONL: _read_jsonl,
    }
)
