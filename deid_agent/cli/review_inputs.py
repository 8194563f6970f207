"""The notes of files for ``deid-agent review add``: plain text, JSON lines, and the narratives of messages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from deid_agent.cli.common import fault_text
from deid_agent.cli.inputs import Input, list_inputs, standard_input
from deid_agent.cli.note_files import read_lines, read_plain
from deid_agent.model import MessageError
from deid_agent.pipeline import Deidentifier, MessagePlan
from deid_agent.review import SourceNote

SHORTEST = 20
"""Characters of the shortest text of a message that is a note: a value of a word needs no reviewer."""
LONGEST = 1_000_000
"""Characters of the longest note, as of the longest text of a message."""
_MOST_BYTES = 256 << 20
_LINES = frozenset({".jsonl", ".ndjson"})
_UNKNOWN = frozenset({"key", "table"})
"""Unexamined values that may be anything: those that no table calls a code, a number, or kept by the policy."""
_MESSAGE = (b"MSH", b"FHS", b"BHS", b"{", b"[", b"<", b"\x0bMSH")


@dataclass(slots=True)
class NoteSources:
    """Reads notes, and keeps the faults with their places, and the number of texts that are too short."""

    deidentifier: Deidentifier
    faults: list[str] = field(default_factory=list)
    short: int = 0

    def read(self, sources: Sequence[str]) -> Iterator[SourceNote]:
        """The notes of files and folders. Raises ``ConfigurationError`` for a source that does not exist."""
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
        if suffix in _LINES and not _is_fhir_line(start):
            yield from self._read_lines(source)
        elif suffix != ".txt" and start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_MESSAGE):
            yield from self._read_message(source)
        else:
            note = read_plain(source, "utf-8")
            if note.request is None:
                self.faults.append(note.fault)
            elif note.request.text.strip():
                yield SourceNote(source.name, note.request.text)
            else:
                self.faults.append(f"{source.shown}: has no text")

    def _read_lines(self, source: Input) -> Iterator[SourceNote]:
        for note in read_lines(source):
            if note is None or (note.request is None and not note.fault):
                continue
            if note.request is None:
                self.faults.append(note.fault)
            elif not note.request.text.strip():
                self.faults.append(f"{note.place}: has no text")
            else:
                patient = note.request.patient or ""
                yield SourceNote(note.id, note.request.text, patient, facts=note.request.facts)

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
        unexamined = sum(count for (_, _, why), count in counts.items() if why in _UNKNOWN)
        yield from (replace(note, unexamined=unexamined) for note in notes)

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


def _is_fhir_line(start: bytes) -> bool:
    """Whether the first line of a file is a FHIR resource; a line that is cut off decides by its first member."""
    line = start.lstrip().split(b"\n", 1)[0]
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return b'"resourceType"' in line
    return isinstance(found, dict) and "resourceType" in found
