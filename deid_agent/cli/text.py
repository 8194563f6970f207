"""``deid-agent text``: notes in, sanitized notes out."""

import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Unpack

import click

from deid_agent.app import WorkerFactory
from deid_agent.cli.common import (
    Exit,
    TaggingOptions,
    echo_error,
    handle_errors,
    tagging_options,
    worker_factory,
)
from deid_agent.cli.inputs import (
    Input,
    OutputFile,
    check_names,
    list_inputs,
    prepare_folder,
    standard_input,
    standard_output,
)
from deid_agent.cli.note_files import (
    FileNote,
    NoteStream,
    check_encoding,
    encode_line,
    encode_note,
    read_lines,
    read_plain,
)
from deid_agent.model import ConfigurationError, Fact, PhiType, Span, Subject, ValueKind
from deid_agent.pipeline import (
    MAX_BATCH_CHARACTERS,
    MAX_GROUP,
    DeidentifiedText,
    Deidentifier,
    RefusedText,
    group_requests,
    unite_facts,
)
from deid_agent.recognize import INTRODUCING, NameMemory, PatientNames

_MOST_PATIENTS = 1 << 20
"""Patients whose names are remembered at once."""


@click.command()
@click.argument("sources", nargs=-1, metavar="[FILE|DIR...|-]")
@click.option("--jsonl", is_flag=True, help='Lines {"id", "text", "context"?} in, {"id", "text", "spans"} out.')
@click.option("--json", "as_json", is_flag=True, help="Write the JSON line form for plain notes too.")
@click.option("--spans-only", is_flag=True, help="Leave the sanitized text out of JSON lines.")
@click.option("--by-patient", is_flag=True, help='Notes of one "patient_id" share facts and names; reads twice.')
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Write to this folder under the same names."
)
@click.option("--workers", metavar="N", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes.")
@click.option("--encoding", metavar="NAME", default="utf-8", show_default=True, help="Encoding of plain notes.")
@tagging_options
@handle_errors
def text(
    sources: tuple[str, ...],
    jsonl: bool,
    as_json: bool,
    spans_only: bool,
    by_patient: bool,
    out: Path | None,
    workers: int,
    encoding: str,
    **tagging: Unpack[TaggingOptions],
) -> Exit:
    """De-identify notes.

    FILE is a note (or JSON lines with --jsonl), DIR a folder of such files; - or no FILE is standard input. Spans are
    half-open character offsets in the original note. Other members of an input line are not copied to the output.
    """
    if by_patient and not jsonl:
        raise ConfigurationError("--by-patient reads patient_id from lines: give it with --jsonl")
    if by_patient and workers > 1:
        raise ConfigurationError("--by-patient reads the notes of a patient in their order: leave out --workers")
    encoding = check_encoding(encoding)
    if jsonl and encoding != "utf-8":
        raise ConfigurationError("--encoding is that of plain notes: JSON lines are UTF-8 (RFC 8259)")
    inputs = list(list_inputs(sources or ("-",)))
    check_names(inputs, out)
    parts = worker_factory(**tagging)
    with ExitStack() as stack:
        if out is not None:
            prepare_folder(out, parts.key.demo)
        form = _Form(
            jsonl, jsonl or as_json or spans_only, spans_only, encoding, separate=out is None and len(inputs) > 1
        )
        writer = stack.enter_context(_Writer(out, form, _open_progress(stack, inputs)))
        if by_patient:
            inputs = [_copy_stream(stack, each) for each in inputs]
        notes = _read(inputs, jsonl=jsonl, encoding=encoding)
        if workers == 1:
            _run_inline(notes, parts, writer, inputs if by_patient else None)
        else:
            from deid_agent.cli.note_workers import run_in_workers  # noqa: PLC0415 - one note needs no pool

            run_in_workers(notes, parts, workers, writer.write)
    return Exit.REFUSED if writer.refused else Exit.DONE


def _read(inputs: Iterable[Input], *, jsonl: bool, encoding: str) -> NoteStream:
    for each in inputs:
        if jsonl:
            yield from read_lines(each)
        else:
            yield read_plain(each, encoding)


def _run_inline(notes: NoteStream, parts: WorkerFactory, writer: "_Writer", by_patient: list[Input] | None) -> None:
    """De-identify the notes in this process. ``by_patient`` are the inputs to read before, for their names."""
    deidentifier = parts.deidentifier(notes_only=True)
    known = _Patients() if by_patient is None else _gather(by_patient, deidentifier)
    waiting: list[FileNote] = []
    size = 0

    def finish() -> None:
        # A list: an interrupt that meets the end of a generator without its last item would be lost.
        results = iter(list(deidentifier.texts(each.request for each in waiting if each.request is not None)))
        for each in waiting:
            writer.write(each, None if each.request is None else next(results))
        waiting.clear()

    for note in notes:
        if note is not None:
            waiting.append(known.add_to(note))
            size += note.size
        if note is None or len(waiting) == MAX_GROUP or size > MAX_BATCH_CHARACTERS:
            finish()
            size = 0
    finish()


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of the outputs."""

    from_lines: bool
    lines: bool
    spans_only: bool
    encoding: str
    separate: bool
    """Several plain notes in one output: each ends its line."""

    def name(self, source: Input) -> str:
        """The name of the output file of an input."""
        if source.path is None:
            return "notes.jsonl" if self.lines else "note.txt"
        return f"{source.name}.jsonl" if self.lines and not self.from_lines else source.name

    def encode(self, note: FileNote, done: DeidentifiedText) -> bytes:
        """A note in this form."""
        if self.lines:
            return encode_line(note.id, done, spans_only=self.spans_only)
        data = encode_note(done.text, self.encoding)
        return data + b"\n" if self.separate and not data.endswith(b"\n") else data


@dataclass(slots=True)
class _Writer:
    """Writes results to standard output, or to files of the folder ``out``, and faults to standard error.

    A file appears when its input has ended. As a context manager it removes an unfinished file.
    """

    out: Path | None
    form: _Form
    advance: Callable[[int], None]
    refused: bool = False
    _file: ExitStack = field(default_factory=ExitStack)
    _write: Callable[[bytes], object] | None = None

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def write(self, note: FileNote, result: DeidentifiedText | RefusedText | None) -> None:
        """Write the result of a note; at the end of its input, finish the file."""
        fault = f"{note.place}: {result}" if isinstance(result, RefusedText) else note.fault
        if fault:
            echo_error(fault)
            self.refused = True
        if isinstance(result, DeidentifiedText):
            self._write_data(note.source, self.form.encode(note, result))
        elif note.last and not note.fault and note.request is None:
            self._write_data(note.source, b"")
        if note.last:
            self._finish(broken=note.broken)
        self.advance(note.size)

    def _write_data(self, source: Input, data: bytes) -> None:
        if self.out is None:
            out = standard_output()
            out.write(data)
            out.flush()
            return
        if self._write is None:
            target = self.out / self.form.name(source)
            self._write = self._file.enter_context(OutputFile(target)).write
        self._write(data)

    def _finish(self, *, broken: bool) -> None:
        self._write = None
        fault = OSError() if broken else None
        self._file.__exit__(type(fault) if fault else None, fault, None)
        self._file = ExitStack()


def _open_progress(stack: ExitStack, inputs: Iterable[Input]) -> Callable[[int], None]:
    """A progress bar with the remaining time on a terminal, if the inputs are files; else nothing."""
    sizes = [_size(each) for each in inputs]
    if None in sizes or not sys.stderr.isatty():
        return lambda _: None
    total = sum(size for size in sizes if size)
    return stack.enter_context(click.progressbar(length=total, label="notes", file=sys.stderr)).update


def _size(source: Input) -> int | None:
    try:
        return 0 if source.skipped else source.path.stat().st_size if source.path is not None else None
    except OSError:
        return None


def _copy_stream(stack: ExitStack, source: Input) -> Input:
    """Standard input or a pipe, which ends after one reading, as a copy in an unnamed file (mode 0600).

    The file is removed when the process ends. A pipe that cannot be read is left to the reader, which reports it.
    """
    if source.skipped or (source.path is not None and source.path.is_file()):
        return source
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    if source.path is None:
        shutil.copyfileobj(standard_input(), copy)
        return replace(source, copy=copy)
    try:
        with source.path.open("rb") as stream:
            shutil.copyfileobj(stream, copy)
    except OSError:
        return source
    return replace(source, copy=copy)


@dataclass(frozen=True, slots=True)
class _Patients:
    """The facts about each patient, and the memory of the patients' names if notes of one patient share them."""

    facts: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict, repr=False)
    memory: NameMemory | None = None

    def names_of(self, patient: str | None) -> PatientNames | None:
        return None if self.memory is None or not patient else self.memory.of_patient(patient)

    def add_to(self, note: FileNote) -> FileNote:
        """The note with all that is known of its patient."""
        request = note.request
        if request is None or self.memory is None or not request.patient:
            return note
        facts = self.facts.get(request.patient, request.facts)
        return replace(note, request=replace(request, facts=facts, names=self.names_of(request.patient)))


def _gather(inputs: Iterable[Input], deidentifier: Deidentifier) -> _Patients:
    """The facts about each patient, from every context and the names after a title or a label, and all sure names.

    Inputs and lines that cannot be read are skipped here; the second reading reports them.
    """
    facts: dict[str, dict[tuple[Fact, ...], None]] = {}
    # The memory ends with this process, so no other key is needed.
    patients = _Patients(memory=NameMemory(secrets.token_bytes(32), _MOST_PATIENTS))
    requests = (note.request for each in inputs for note in read_lines(each) if note is not None)
    for group in group_requests(request for request in requests if request is not None and request.patient):
        named = [replace(request, facts=(), names=patients.names_of(request.patient)) for request in group]
        for request, result in zip(group, deidentifier.texts(named), strict=True):
            of_patient = facts.setdefault(request.patient or "", {})
            of_patient[request.facts] = None
            if isinstance(result, DeidentifiedText):
                of_patient |= dict.fromkeys(_find_introduced(request.text, result.spans))
    return replace(patients, facts={patient: unite_facts(found) for patient, found in facts.items()})


def _find_introduced(text: str, spans: Iterable[Span]) -> Iterator[tuple[Fact, ...]]:
    """Names after a title or a label, each as the facts of one person."""
    for span in spans:
        if span.source in INTRODUCING:
            subject = Subject.PATIENT if span.type is PhiType.PATIENT else Subject.PROVIDER
            yield (Fact(span.type, ValueKind.NAME, subject, "note", text[span.start : span.end]),)
