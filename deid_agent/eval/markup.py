"""Notes of an annotated corpus: the project's own markup, its fixed split, and the labels of other corpora.

A file of the project's corpus holds ``@@PATIENT`` and ``@@NOTE`` records:

    @@PATIENT id=da-01
    {"name": {...}, "mrn": "...", ...}
    @@NOTE id=da-01-1 type=discharge-summary date=2014-02-06
    text with [[TYPE|annotations]]
    @@END

Errors name file and line, never text.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path
from types import MappingProxyType

from deid_agent.model import (
    CATEGORY,
    Annotated,
    ConfigurationError,
    MarkupError,
    PhiCategory,
    PhiType,
    Span,
    in_order,
    parse_annotated,
)

DEV_AUTHORS = frozenset({"dd", "dk"})
"""Author prefixes whose notes all belong to dev. Whole authors are held out because a new site is a new author."""
FIRST_AUTHORS = frozenset(f"d{letter}" for letter in "abcdefghijkl")
"""Author prefixes whose patients may be in dev. Notes under later prefixes are for training only."""
HELD_OUT_SITES = frozenset({"ep", "et"})
"""Prefixes of invented sites whose notes no model learns from: they show how a system does at a new site."""
_DEV_MODULUS = 10
_LABELS: Mapping[str, PhiType] = MappingProxyType(
    {
        "IPADDR": PhiType.IPADDRESS,
        "IPADDRESS": PhiType.IPADDRESS,
        "DEPARTMENT": PhiType.HOSPITAL,
        "ROOM": PhiType.LOCATION_OTHER,
        "OTHER": PhiType.LOCATION_OTHER,
        "ID": PhiType.IDNUM,
        "LOCATION": PhiType.CITY,
    }
)
"""Labels of i2b2 that are not names of a ``PhiType``.

Sources: Stubbs & Uzuner 2015, Table 1 (2014 i2b2/UTHealth); Uzuner, Luo & Szolovits 2007, "Evaluating the
State-of-the-Art in Automatic De-identification" (2006 i2b2).
"""


@dataclass(frozen=True, slots=True)
class Note:
    """One annotated note. ``profile`` is the JSON object with the patient's data from the corpus."""

    id: str
    kind: str
    date: str
    patient: str
    annotated: Annotated = field(repr=False)
    profile: Mapping[str, object] = field(repr=False)

    @property
    def author(self) -> str:
        """The author's prefix: the part of the id before the first hyphen."""
        return self.id.partition("-")[0]


class CorpusPart(StrEnum):
    """A part of the split, by its name on the command line."""

    DEV = "dev"
    TRAIN = "train"
    SITES = "sites"
    ALL = "all"


def read_corpus(folder: Path) -> Iterator[Note]:
    """Yield the notes of all ``*.txt`` files of a folder, by file name.

    Raises ``ConfigurationError`` naming file and line for a record or markup that does not parse.
    """
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise ConfigurationError(f"{folder}: holds no *.txt: point to the corpus folder")
    for path in paths:
        yield from read_file(path)


def read_file(path: Path) -> Iterator[Note]:
    """Yield the notes of one file, in order. Raises ``ConfigurationError`` as ``read_corpus`` does."""
    patient = ""
    profile: Mapping[str, object] = {}
    lines = path.read_text("utf-8").split("\n")
    at = 0
    while at < len(lines):
        line, number = lines[at], at + 1
        at += 1
        if line.startswith("@@PATIENT "):
            patient = _parse_fields(path, number, line).get("id", "")
            profile = _parse_profile(path, number + 1, lines[at] if at < len(lines) else "")
            at += 1
        elif line.startswith("@@NOTE "):
            end = next((i for i in range(at, len(lines)) if lines[i] == "@@END"), None)
            if end is None:
                raise ConfigurationError(f"{path}:{number}: the note is not closed: add @@END")
            fields = _parse_fields(path, number, line)
            try:
                annotated = parse_annotated("\n".join(lines[at:end]))
            except MarkupError as error:
                raise ConfigurationError(f"{path}:{number + error.line}: {error.detail}") from None
            yield Note(
                fields.get("id", ""), fields.get("type", ""), fields.get("date", ""), patient, annotated, profile
            )
            at = end + 1
        elif line.strip():
            raise ConfigurationError(f"{path}:{number}: text outside a note: expected @@PATIENT or @@NOTE")


def _parse_fields(path: Path, number: int, line: str) -> dict[str, str]:
    fields = dict(part.split("=", 1) for part in line.split()[1:] if "=" in part)
    if not fields.get("id"):
        raise ConfigurationError(f"{path}:{number}: the record has no id=")
    return fields


def _parse_profile(path: Path, number: int, line: str) -> Mapping[str, object]:
    try:
        profile = json.loads(line)
    except json.JSONDecodeError:
        profile = None
    if not isinstance(profile, dict):
        raise ConfigurationError(f"{path}:{number}: expected a JSON object after @@PATIENT")
    return profile


def select_part(notes: Iterable[Note], part: CorpusPart) -> list[Note]:
    """Return the notes of one part of the split, in order."""
    return [note for note in notes if part in {CorpusPart.ALL, part_of_patient(note.patient)}]


def part_of_patient(patient: str) -> CorpusPart:
    """The part of the split that has the notes of a patient."""
    if patient.partition("-")[0] in HELD_OUT_SITES:
        return CorpusPart.SITES
    return CorpusPart.DEV if is_dev_patient(patient) else CorpusPart.TRAIN


def is_dev_patient(patient: str) -> bool:
    """Whether a patient belongs to dev: all patients of a dev author, and about a tenth of those of the first authors.

    The SHA-256 digest of the patient id makes the choice, so notes that are added later move no patient. All notes of
    a patient are in the same part because they share names and numbers.
    """
    author = patient.partition("-")[0]
    if author in DEV_AUTHORS:
        return True
    digest = hashlib.sha256(patient.encode()).digest()
    return author in FIRST_AUTHORS and int.from_bytes(digest[:8]) % _DEV_MODULUS == 0


def parse_label(label: str) -> PhiType | None:
    """Return the PHI type for a label of the project or of i2b2, in any case, or ``None`` for an unknown label."""
    name = label.strip().upper().replace("_", "-")
    try:
        return PhiType(name)
    except ValueError:
        return _LABELS.get(name)


class LeftOut(Enum):
    """The type of a label whose spans are left out."""

    LEFT_OUT = ""


ParseLabel = Callable[[str], PhiType | LeftOut | None]
"""Returns the type of a label, ``LEFT_OUT`` for spans to leave out, or ``None`` for an unknown label."""


def map_to_2006_types(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the spans under the eight types of the 2006 i2b2 task, in place of the project's twenty-eight.

    IDNUM replaces every id, CITY every location except hospitals, PHONE every telephone number. Spans of types that the
    2006 task does not annotate (professions, organizations, user names, network addresses) are dropped; callers apply
    this to the annotations and to the findings.
    """
    kept = (Span(s.start, s.end, kind, s.source) for s in spans if (kind := _find_2006_type(s.type)) is not None)
    return tuple(in_order(kept))


def _find_2006_type(kind: PhiType) -> PhiType | None:
    if kind in {PhiType.HOSPITAL, PhiType.PATIENT, PhiType.DOCTOR, PhiType.DATE, PhiType.AGE}:
        return kind
    if CATEGORY[kind] is PhiCategory.ID:
        return PhiType.IDNUM
    if kind in {PhiType.PHONE, PhiType.FAX}:
        return PhiType.PHONE
    if CATEGORY[kind] is PhiCategory.LOCATION and kind is not PhiType.ORGANIZATION:
        return PhiType.CITY
    return None
