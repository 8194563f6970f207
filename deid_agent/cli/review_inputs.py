"""The notes of files for ``deid-agent review add``: plain text, JSON lines, and the narratives of messages."""

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from deid_agent.cli.common import fault_text
from deid_agent.cli.inputs import Input, list_inputs, standard_input
from deid_agent.cli.note_files import read_plain
from deid_agent.model import MessageError
from deid_agent.pipeline import Deidentifier, MessagePlan, read_note_line
from deid_agent.review import SourceNote

SHORTEST = 20
"""Characters of the shortest text of a message that is a note: a value of a word needs no reviewer."""
LONGEST = 1_000_000
"""Characters of the longest note, as of the longest text of a message."""
_MOST_BYTES = 256 << 20
_TEXT = frozenset({"", ".txt", ".text", ".md"})
_LINES = frozenset({".jsonl", ".ndjson"})
_RARE = 10
"""A place is rare if fewer than one in so many messages has a value there that nothing examined."""
_ANYTHING = frozenset({"key", "table"})
"""Why values are unexamined that may be anything, unlike codes, numbers and values that the policy keeps."""
_MESSAGE = (b"MSH", b"FHS", b"BHS", b"{", b"[", b"<", b"\x0bMSH")


@dataclass(slots=True)
class NoteSources:
    """Reads notes, and keeps the faults with their places, and the number of texts that are too short."""

    deidentifier: Deidentifier
    faults: list[str] = field(default_factory=list)
    short: int = 0
    _messages: list[frozenset[str]] = field(default_factory=list)
    """The places of each file of messages with values that nothing examined."""

    def read(self, sources: Sequence[str]) -> list[SourceNote]:
        """The notes of files and folders. Raises ``ConfigurationError`` for a source that does not exist.

        The unexamined values of a note are those of its file at rare places: status and units are in every message.
        """
        notes = list(self._read_all(sources))
        frequent = Counter(place for places in self._messages for place in places)
        rare = {place for place, count in frequent.items() if _RARE * count < len(self._messages)}
        # Until here the number of the file, plus one; 0 for a note that is no message.
        return [
            replace(note, unexamined=len(self._messages[note.unexamined - 1] & rare)) if note.unexamined else note
            for note in notes
        ]

    def _read_all(self, sources: Sequence[str]) -> Iterator[SourceNote]:
        for source in list_inputs(sources):
            if source.skipped:
                self.faults.append(f"{source.shown}: skipped: {source.skipped}")
                continue
            try:
                for number, note in enumerate(self._read(source), 1):
                    if fault := _find_fault(note.text):
                        self.faults.append(f"{source.shown}: note {number}: {fault}")
                    else:
                        yield note
            except OSError as problem:
                self.faults.append(f"{source.shown}: cannot be read ({fault_text(problem)})")

    def _read(self, source: Input) -> Iterator[SourceNote]:
        start = _peek(source.path)
        suffix = Path(source.name).suffix.lower()
        if source.path is not None and suffix in _LINES and not _is_fhir_line(start):
            yield from self._read_lines(source, source.path)
        elif suffix != ".txt" and start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_MESSAGE):
            yield from self._read_message(source)
        elif source.path is not None and suffix not in _TEXT:
            # A table, or the annotations of brat beside their texts, would be a note of many patients, or of none.
            self.faults.append(f"{source.shown}: neither a message nor .txt or .jsonl; convert it")
        else:
            note = read_plain(source, "utf-8")
            if note.request is None:
                self.faults.append(note.fault)
            elif note.request.text.strip():
                yield SourceNote(source.name, note.request.text)
            else:
                self.faults.append(f"{source.shown}: has no text")

    def _read_lines(self, source: Input, path: Path) -> Iterator[SourceNote]:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    note = read_note_line(line.removeprefix(BOM_UTF8) if number == 1 else line)
                except MessageError as problem:
                    self.faults.append(f"{source.shown}: line {number}: {problem}")
                    continue
                if note.request.text.strip():
                    patient = note.request.patient or _find_patient(line)
                    yield SourceNote(note.id, note.request.text, patient, facts=note.request.facts)
                else:
                    self.faults.append(f"{source.shown}: line {number}: has no text")

    def _read_message(self, source: Input) -> Iterator[SourceNote]:
        data = standard_input().read() if source.path is None else source.path.read_bytes()
        if len(data) > _MOST_BYTES:
            self.faults.append(f"{source.shown}: has more than {_MOST_BYTES >> 20} MB; divide it")
            return
        try:
            plan = self.deidentifier.plan(data)
            notes = [*self._list_narratives(source.name, plan)]
            counts = self.deidentifier.count_unexamined_in(plan)
        except MessageError as problem:
            self.faults.append(f"{source.shown}: {problem}")
            return
        self._messages.append(frozenset(f"{form} {path}" for form, path, why in counts if why in _ANYTHING))
        yield from (replace(note, unexamined=len(self._messages)) for note in notes)

    def _list_narratives(self, name: str, plan: MessagePlan) -> Iterator[SourceNote]:
        for number, part in enumerate(each for outer in plan.parts for each in outer.all_parts()):
            # Texts of a message without an identifier of its patient are of one unknown person.
            unknown = f"{name}#{number}"
            for place, (patient, text) in enumerate(part.own_texts()):
                if text.label or not text.text.strip():
                    continue
                if len(text.text) < SHORTEST:
                    self.short += 1
                    continue
                of = f"scope:{patient}" if patient is not None else unknown
                yield SourceNote(f"{name}#{number}.{place}", text.text, of, part.codec.name, facts=text.facts)


def _find_fault(text: str) -> str:
    """Why a text is no note; empty if it is one."""
    if len(text) > LONGEST:
        return f"has more than {LONGEST:,} characters; divide it"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "has half of a character (a surrogate); correct its encoding"
    return ""


def _peek(path: Path | None) -> bytes:
    if path is None:
        return b""
    with path.open("rb") as file:
        return file.read(1 << 16)


def _find_patient(line: bytes) -> str:
    """The member ``patient`` of a line, which some exports have in place of ``patient_id``."""
    found = orjson.loads(line.removeprefix(BOM_UTF8)).get("patient")
    return found if isinstance(found, str) else ""


def _is_fhir_line(start: bytes) -> bool:
    """Whether the first line of a file is a FHIR resource; a line that is cut off decides by its first member."""
    line = start.lstrip().split(b"\n", 1)[0]
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return b'"resourceType"' in line
    return isinstance(found, dict) and "resourceType" in found
