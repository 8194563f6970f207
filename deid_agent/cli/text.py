"""``deid-agent text``: notes in, sanitized notes out."""

import codecs
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import click
import orjson

from deid_agent.cli.common import (
    Exit,
    echo_error,
    fault_text,
    handle_errors,
    printable,
    tagging_options,
    worker_factory,
)
from deid_agent.model import (
    ConfigurationError,
    Fact,
    MessageError,
    PhiType,
    Reason,
    Subject,
    ValueKind,
)
from deid_agent.pipeline import DeidentifiedText, Deidentifier, facts_from_context, unite_facts
from deid_agent.recognize import INTRODUCING, NameMemory, PatientNames

_MOST_PATIENTS = 1 << 20
"""Patients whose names are remembered at once."""


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...|-]")
@click.option("--jsonl", is_flag=True, help='Lines {"id", "text", "context"?} in, {"id", "text", "spans"} out.')
@click.option("--json", "as_json", is_flag=True, help="Write the JSON line form for plain notes too.")
@click.option("--spans-only", is_flag=True, help="Leave the sanitized text out of JSON lines.")
@click.option("--by-patient", is_flag=True, help='Notes of one "patient_id" share facts and names; reads twice.')
@tagging_options
@handle_errors
def text(
    files: tuple[str, ...],
    jsonl: bool,
    as_json: bool,
    spans_only: bool,
    by_patient: bool,
    policy_name: str,
    profile: str,
    system: str,
    key_file: Path | None,
    demo_key: bool,
    rules: str | None,
) -> Exit:
    """De-identify notes.

    FILE is a note (or JSON lines with --jsonl); - or no FILE is standard input. Spans are half-open character offsets
    in the original note. Other members of an input line are not copied to the output.
    """
    if by_patient and not jsonl:
        raise ConfigurationError("--by-patient reads patient_id from lines: give it with --jsonl")
    _check_inputs(files)
    deidentifier = worker_factory(
        policy_name=policy_name, profile=profile, system=system, key_file=key_file, demo_key=demo_key, rules=rules
    ).deidentifier(notes_only=True)
    refused = False
    with ExitStack() as stack:
        sources = [_Source(name, _spooled(stack) if by_patient and name == "-" else None) for name in files or ("-",)]
        known = _gathered(sources, deidentifier) if by_patient else _Patients()
        for source in sources:
            try:
                if jsonl:
                    refused |= _lines(source, deidentifier, spans_only, known)
                else:
                    refused |= _note(source, deidentifier, as_json or spans_only, spans_only, len(sources) > 1)
            except _UnreadableError as problem:
                echo_error(f"{printable(source.name)}: cannot be read ({problem})")
                refused = True
    return Exit.REFUSED if refused else Exit.DONE


def _check_inputs(files: Iterable[str]) -> None:
    """Raise ``ConfigurationError`` for a missing file or a folder, before anything is written."""
    for name in files:
        if name == "-":
            continue
        path = Path(name)
        try:
            if path.is_dir():
                raise ConfigurationError(f"{printable(name)}: is a folder; name the files in it")
            if not path.exists():
                raise ConfigurationError(f"{printable(name)}: no such file; correct the path")
        except OSError as problem:
            raise ConfigurationError(f"{printable(name)}: cannot be read ({fault_text(problem)})") from None


class _UnreadableError(Exception):
    """An input cannot be read, as opposed to an output that cannot be written."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A file, standard input, or a copy of standard input that can be read twice."""

    name: str
    kept: BinaryIO | None = field(default=None, repr=False)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines with their numbers, from 1."""
        try:
            with self._opened() as stream:
                for number, line in enumerate(stream, 1):
                    # Some tools write a byte order mark before UTF-8; parsers may ignore it (RFC 8259 section 8.1).
                    yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        except OSError as problem:
            raise _UnreadableError(fault_text(problem)) from None

    def read(self) -> bytes:
        """The whole content."""
        try:
            with self._opened() as stream:
                return stream.read()
        except OSError as problem:
            raise _UnreadableError(fault_text(problem)) from None

    def _opened(self) -> AbstractContextManager[BinaryIO]:
        if self.kept is not None:
            self.kept.seek(0)
            return nullcontext(self.kept)
        return nullcontext(sys.stdin.buffer) if self.name == "-" else Path(self.name).open("rb")


def _spooled(stack: ExitStack) -> BinaryIO:
    """A copy of standard input in an unnamed file (mode 0600), which is removed when the process ends."""
    kept = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    shutil.copyfileobj(sys.stdin.buffer, kept)
    return kept


def _note(source: _Source, deidentifier: Deidentifier, as_json: bool, spans_only: bool, several: bool) -> bool:
    """De-identify one plain note. Returns True if it was refused."""
    data = source.read()
    try:
        note = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        echo_error(f"{printable(source.name)}: byte {problem.start}: not UTF-8; convert the note first")
        return True
    document = "" if source.name == "-" else Path(source.name).name
    try:
        done = deidentifier.text(note, document=document)
    except MessageError as problem:
        echo_error(f"{printable(source.name)}: {problem}")
        return True
    name = source.name.encode("utf-8", "backslashreplace").decode("utf-8")
    out = _line(name, done, spans_only) if as_json else done.text.encode("utf-8")
    _write(out + b"\n" if several and not out.endswith(b"\n") else out)
    return False


def _lines(source: _Source, deidentifier: Deidentifier, spans_only: bool, known: "_Patients") -> bool:
    """De-identify JSON lines. A refused line gives no output and is reported by its number. True if there is one."""
    refused = False
    for number, line in source.lines():
        if not line.strip():
            continue
        try:
            note = _read(line)
            facts = facts_from_context(note.context)
            facts = known.facts.get(note.patient or "", facts)
            names = known.names_of(note.patient)
            done = deidentifier.text(note.text, facts=facts, document=note.id, patient=note.patient, names=names)
        except MessageError as problem:
            echo_error(f"{printable(source.name)}: line {number}: {problem}")
            refused = True
            continue
        _write(_line(note.id, done, spans_only))
    return refused


@dataclass(frozen=True, slots=True)
class _Patients:
    """The facts about each patient, and the memory of the patients' names if notes of one patient share them."""

    facts: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict, repr=False)
    memory: NameMemory | None = None

    def names_of(self, patient: str | None) -> PatientNames | None:
        return None if self.memory is None or not patient else self.memory.of_patient(patient)


def _gathered(sources: Iterable[_Source], deidentifier: Deidentifier) -> _Patients:
    """The facts about each patient, from every context and the names after a title or a label, and all sure names.

    Inputs and lines that cannot be read are skipped here; the second reading reports them.
    """
    contexts: dict[str, dict[tuple[Fact, ...], None]] = {}
    # The memory ends with this process, so no other key is needed.
    patients = _Patients(memory=NameMemory(secrets.token_bytes(32), _MOST_PATIENTS))
    for source in sources:
        with suppress(_UnreadableError):
            for _, line in source.lines():
                with suppress(MessageError):
                    note = _read(line)
                    if note.patient:
                        of_patient = contexts.setdefault(note.patient, {})
                        of_patient[facts_from_context(note.context)] = None
                        of_patient |= dict.fromkeys(_introduced(note, deidentifier, patients))
    return replace(patients, facts={patient: unite_facts(facts) for patient, facts in contexts.items()})


def _introduced(note: "_Line", deidentifier: Deidentifier, patients: _Patients) -> Iterator[tuple[Fact, ...]]:
    """Names after a title or a label, each as the facts of one person."""
    names = patients.names_of(note.patient)
    for span in deidentifier.text(note.text, document=note.id, names=names).spans:
        if span.source in INTRODUCING:
            subject = Subject.PATIENT if span.type is PhiType.PATIENT else Subject.PROVIDER
            yield (Fact(span.type, ValueKind.NAME, subject, "note", note.text[span.start : span.end]),)


@dataclass(frozen=True, slots=True)
class _Line:
    """A checked input line."""

    id: str
    text: str = field(repr=False)
    context: dict[str, object] = field(repr=False)
    patient: str | None = field(repr=False)


def _read(line: bytes) -> _Line:
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as problem:
        raise MessageError(Reason.MALFORMED, f"column {problem.colno}", "not JSON") from None
    if not isinstance(data, dict):
        raise MessageError(Reason.MALFORMED, "line", "not an object")
    for member in ("id", "text"):
        if member not in data:
            raise MessageError(Reason.MALFORMED, member, "is missing; each line needs id and text")
        if not isinstance(data[member], str):
            raise MessageError(Reason.MALFORMED, member, "must be a string")
    context, patient = data.get("context"), data.get("patient_id")
    context = {} if context is None else context
    if not isinstance(context, dict):
        raise MessageError(Reason.MALFORMED, "context", "must be an object")
    if patient is not None and not isinstance(patient, str):
        raise MessageError(Reason.MALFORMED, "patient_id", "must be a string")
    return _Line(data["id"], data["text"], context, patient)


def _line(id_: str, done: DeidentifiedText, spans_only: bool) -> bytes:
    spans = [{"start": s.start, "end": s.end, "type": s.type.value, "source": str(s.source)} for s in done.spans]
    body = {"id": id_, "spans": spans} if spans_only else {"id": id_, "text": done.text, "spans": spans}
    return orjson.dumps(body) + b"\n"


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
