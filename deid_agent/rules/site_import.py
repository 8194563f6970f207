"""Lists of a site from what it has: a CSV of staff and places, an HL7 master file, FHIR resources.

Each reader gives values by type, in the form of the lists of a site folder. The input holds names of people, so errors
name the file and the line and quote no value.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deid_agent.model import ConfigurationError, PhiType

Found = tuple[PhiType, str]
MOST_BYTES: Final = 512 * 1024 * 1024

_COLUMNS: Final[Mapping[str, PhiType]] = {
    "site": PhiType.HOSPITAL,
    "clinic": PhiType.HOSPITAL,
    "hospital": PhiType.HOSPITAL,
    "ward": PhiType.HOSPITAL,
    "organization": PhiType.ORGANIZATION,
    "street": PhiType.STREET,
    "city": PhiType.CITY,
    "zip": PhiType.ZIP,
    "login": PhiType.USERNAME,
    "phone": PhiType.PHONE,
    "pager": PhiType.PHONE,
    "fax": PhiType.FAX,
    "email": PhiType.EMAIL,
    "license": PhiType.LICENSE,
    "id": PhiType.IDNUM,
}
_PERSON_COLUMNS: Final = ("name", "family", "given", "middle", "credential")
COLUMNS: Final = (*_PERSON_COLUMNS, *_COLUMNS)
"""The columns of a CSV. ``credential`` is read and not kept: notes write it beside the name."""

_ESCAPE = re.compile(r"\\([FSTRE])\\")
_SEGMENTS = frozenset({"STF", "PRA", "ORG", "LOC"})


def read_import(path: Path) -> list[Found]:
    """The values of a file: CSV, HL7 v2 or FHIR, which its first characters show.

    Raises ``ConfigurationError`` without a value if the file cannot be read.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigurationError(f"{path}: more than {MOST_BYTES >> 20} MiB: divide the file")
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{path}: cannot be read as UTF-8 ({type(problem).__name__})") from None
    start = text.lstrip()[:4].lstrip("\x0b")
    if not start:
        raise ConfigurationError(f"{path}: the file is empty")
    if start[0] in "{[":
        found = _read_fhir(path, text)
    elif start[:3] in {"MSH", "FHS", "BHS"}:
        found = _read_hl7(path, text)
    else:
        found = _read_csv(path, text)
    values = list(dict.fromkeys((kind, " ".join(value.split())) for kind, value in found))
    return [(kind, value) for kind, value in values if any(map(str.isalnum, value))]


def _read_csv(path: Path, text: str) -> Iterator[Found]:
    if "\0" in text:
        raise ConfigurationError(f"{path}: a NUL character: export the file as text in UTF-8")
    head = text.lstrip().partition("\n")[0]
    divider = max(",;\t", key=head.count)
    rows = csv.reader(io.StringIO(text.lstrip(), newline=""), delimiter=divider, strict=True)
    try:
        names = [name.strip().lower() for name in next(rows)]
        for at, name in enumerate(names, 1):
            # The header is not quoted either: without a header line it is the first person of the list.
            if name not in COLUMNS:
                raise ConfigurationError(
                    f"{path}: column {at} has no known name in line 1: the columns are {', '.join(COLUMNS)}"
                )
            if name in names[: at - 1]:
                raise ConfigurationError(f"{path}: column {at}: {name} is there twice")
        for row in rows:
            if len(row) > len(names) or (row and len(row) < len(names)):
                raise ConfigurationError(f"{path}:{rows.line_num}: {len(row)} columns instead of {len(names)}")
            yield from _read_row({name: value.strip() for name, value in zip(names, row, strict=False)})
    except csv.Error:
        raise ConfigurationError(f"{path}:{rows.line_num}: is not CSV: check the quotes") from None


def _read_row(row: Mapping[str, str]) -> Iterator[Found]:
    if row.get("name"):
        yield PhiType.DOCTOR, row["name"]
    if family := row.get("family"):
        yield PhiType.DOCTOR, join_name(family, (row.get("given", ""), row.get("middle", "")))
    for name, value in row.items():
        if value and name in _COLUMNS:
            yield _COLUMNS[name], value


def join_name(family: str, given: Iterable[str]) -> str:
    """``Keller, Ruth M``."""
    first = " ".join(part for part in given if part)
    return f"{family.replace(',', ' ')}, {first.replace(',', ' ')}" if first else family.replace(",", " ")


@dataclass(frozen=True, slots=True)
class _Segment:
    """A segment with its delimiters: those of field, component and repetition."""

    fields: Sequence[str]
    delimiters: str

    def values(self, at: int, part: int = 1) -> list[str]:
        """A component of each repetition of a field, without its further subcomponents."""
        return [names[part - 1] for names in self.repetitions(at) if len(names) >= part and names[part - 1]]

    def repetitions(self, at: int) -> list[list[str]]:
        """The components of each repetition of a field. A value to delete (two quotes) is empty."""
        whole = self.fields[at] if at < len(self.fields) else ""
        found = [[part.split("&")[0].strip() for part in each.split(self.delimiters[1])] for each in self._split(whole)]
        return [["" if part == '""' else _unescape(part) for part in parts] for parts in found]

    def _split(self, field: str) -> list[str]:
        return field.split(self.delimiters[2])


def _read_hl7(path: Path, text: str) -> Iterator[Found]:
    """STF and PRA and ORG of staff (MFN^M02), and LOC of locations (MFN^M05)."""
    delimiters, read = "|^~", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        segment = line.strip("\x0b\x1c ")
        if segment[:3] in {"MSH", "FHS", "BHS"}:
            if len(segment) < 8 or segment[3].isalnum():
                raise ConfigurationError(f"{path}:{number}: {segment[:3]} does not name the delimiters")
            delimiters = segment[3:6]
        elif segment[:3] in _SEGMENTS and segment[3:4] == delimiters[0]:
            read += segment[:3] in {"STF", "LOC"}
            yield from _read_segment(_Segment(segment.split(delimiters[0]), delimiters))
    if not read:
        raise ConfigurationError(f"{path}: no STF or LOC segment: give a master file MFN^M02 or MFN^M05")


def _read_segment(segment: _Segment) -> Iterator[Found]:
    values = segment.values
    match segment.fields[0]:
        case "STF":
            for parts in segment.repetitions(3):
                if parts[0]:
                    yield PhiType.DOCTOR, join_name(parts[0], parts[1:3])
            yield from ((PhiType.PHONE, value) for value in values(10) if _has_digits(value, 7))
            yield from ((PhiType.STREET, value) for value in values(11))
            yield from ((PhiType.EMAIL, value) for value in values(15) if "@" in value)
        case "PRA":
            yield from ((PhiType.HOSPITAL, value) for value in values(2, 2))
            yield from ((PhiType.LICENSE, value) for value in values(6) if _has_digits(value, 5))
        case "ORG":
            yield from ((PhiType.HOSPITAL, value) for value in values(2, 2))
        case "LOC":
            yield from ((PhiType.HOSPITAL, value) for value in (*values(2), *values(4)))
            yield from ((PhiType.STREET, value) for value in values(5))


def _has_digits(value: str, least: int) -> bool:
    return sum(map(str.isdigit, value)) >= least


def _unescape(value: str) -> str:
    return _ESCAPE.sub(lambda found: {"F": "|", "S": "^", "T": "&", "R": "~", "E": "\\"}[found[1]], value)


def _read_fhir(path: Path, text: str) -> Iterator[Found]:
    """Practitioner, PractitionerRole, Location and Organization: a resource, a bundle, a list, or one a line."""
    try:
        roots: list[object] = [json.loads(text)]
    except (ValueError, RecursionError):
        roots = list(_read_lines(path, text))
    read = 0
    while roots:
        each = roots.pop()
        if isinstance(each, list):
            roots += each
        elif isinstance(each, dict) and each.get("resourceType") == "Bundle":
            entries = each.get("entry")
            roots += [e.get("resource") for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
        elif isinstance(each, dict):
            read += each.get("resourceType") in {"Practitioner", "PractitionerRole", "Location", "Organization"}
            yield from _read_resource(each)
            if isinstance(each.get("contained"), list):
                roots += each["contained"]
    if not read:
        raise ConfigurationError(f"{path}: no Practitioner, PractitionerRole, Location or Organization")


def _read_lines(path: Path, text: str) -> Iterator[object]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                raise ConfigurationError(f"{path}:{number}: is not JSON: give a resource, a bundle or NDJSON") from None


def _read_resource(resource: Mapping[str, object]) -> Iterator[Found]:
    match resource.get("resourceType"):
        case "Practitioner":
            for name in _dicts(resource.get("name")):
                given = [part for part in _items(name.get("given")) if isinstance(part, str)]
                family, whole = name.get("family"), name.get("text")
                if isinstance(family, str) and family.strip():
                    yield PhiType.DOCTOR, join_name(family, given)
                elif isinstance(whole, str):
                    yield PhiType.DOCTOR, whole
            yield from _read_contacts(resource)
        case "PractitionerRole":
            for key, kind in (("practitioner", PhiType.DOCTOR), ("organization", PhiType.HOSPITAL)):
                yield from ((kind, shown) for shown in _texts(resource.get(key), "display"))
            yield from ((PhiType.HOSPITAL, shown) for shown in _texts(resource.get("location"), "display"))
            yield from _read_contacts(resource)
        case "Location" | "Organization":
            yield from ((PhiType.HOSPITAL, name) for name in _texts(resource, "name"))
            yield from ((PhiType.HOSPITAL, n) for n in _items(resource.get("alias")) if isinstance(n, str))
            yield from _read_contacts(resource)


def _read_contacts(resource: Mapping[str, object]) -> Iterator[Found]:
    kinds = {"phone": PhiType.PHONE, "pager": PhiType.PHONE, "fax": PhiType.FAX, "email": PhiType.EMAIL}
    for point in _dicts(resource.get("telecom")):
        system, value = point.get("system"), point.get("value")
        if not (isinstance(system, str) and isinstance(value, str) and system in kinds):
            continue
        if system == "email" or _has_digits(value, 7):
            yield kinds[system], value
    for address in _dicts(resource.get("address")):
        yield from ((PhiType.STREET, line) for line in _items(address.get("line")) if isinstance(line, str))
        yield from ((PhiType.CITY, city) for city in _texts(address, "city"))


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _dicts(value: object) -> Iterator[Mapping[str, object]]:
    yield from (each for each in _items(value) if isinstance(each, dict))


def _texts(value: object, key: str) -> Iterator[str]:
    for each in _dicts(value):
        if isinstance(text := each.get(key), str) and text.strip():
            yield text
