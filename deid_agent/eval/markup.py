"""Annotated corpora in guideline markup: files of ``@@PATIENT`` and ``@@NOTE`` records.

    @@PATIENT id=da-01
    {"name": {...}, "mrn": "...", ...}
    @@NOTE id=da-01-1 type=discharge-summary date=2014-02-06
    text with [[TYPE|annotations]]
    @@END

Errors name file and line, never text.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.errors import ConfigurationError
from deid_agent.markup import Annotated, MarkupError, parse


@dataclass(frozen=True, slots=True)
class Note:
    """One annotated note. ``profile`` is what the corpus says of its patient, as JSON gave it."""

    id: str
    kind: str
    date: str
    patient: str
    annotated: Annotated = field(repr=False)
    profile: Mapping[str, object] = field(repr=False)

    @property
    def author(self) -> str:
        """The hand that wrote it: the id's first part."""
        return self.id.partition("-")[0]


def read_corpus(folder: Path) -> Iterator[Note]:
    """All notes of the ``*.txt`` files of a folder, by file name.

    Raises ``ConfigurationError`` naming file and line for a record or markup that does not parse.
    """
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise ConfigurationError(f"{folder}: holds no *.txt: point to the corpus folder")
    for path in paths:
        yield from read_file(path)


def read_file(path: Path) -> Iterator[Note]:
    """The notes of one file, in order."""
    patient = ""
    profile: Mapping[str, object] = {}
    lines = path.read_text("utf-8").split("\n")
    at = 0
    while at < len(lines):
        line, number = lines[at], at + 1
        at += 1
        if line.startswith("@@PATIENT "):
            patient = _fields(path, number, line).get("id", "")
            profile = _profile(path, number + 1, lines[at] if at < len(lines) else "")
            at += 1
        elif line.startswith("@@NOTE "):
            end = next((i for i in range(at, len(lines)) if lines[i] == "@@END"), None)
            if end is None:
                raise ConfigurationError(f"{path}:{number}: the note is never closed: add @@END")
            fields = _fields(path, number, line)
            try:
                annotated = parse("\n".join(lines[at:end]))
            except MarkupError as fault:
                raise ConfigurationError(f"{path}:{number + fault.line}: {fault.detail}") from None
            yield Note(
                fields.get("id", ""), fields.get("type", ""), fields.get("date", ""), patient, annotated, profile
            )
            at = end + 1
        elif line.strip():
            raise ConfigurationError(f"{path}:{number}: text outside a note: expected @@PATIENT or @@NOTE")


def _fields(path: Path, number: int, line: str) -> dict[str, str]:
    fields = dict(part.split("=", 1) for part in line.split()[1:] if "=" in part)
    if not fields.get("id"):
        raise ConfigurationError(f"{path}:{number}: the record has no id=")
    return fields


def _profile(path: Path, number: int, line: str) -> Mapping[str, object]:
    try:
        profile = json.loads(line)
    except json.JSONDecodeError:
        profile = None
    if not isinstance(profile, dict):
        raise ConfigurationError(f"{path}:{number}: expected a JSON object after @@PATIENT")
    return profile
