"""Notes of files, folders and standard input: plain notes and JSON lines, in and out."""

import codecs
import os
import select
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import UnsupportedOperation

from deid_agent.cli.common import fault_text
from deid_agent.cli.inputs import Input, standard_input
from deid_agent.model import ConfigurationError, MessageError
from deid_agent.pipeline import DeidentifiedText, TextRequest, read_note_line, write_note_line

_CHUNK = 1 << 16
_WIDE = ("utf-16", "utf-32")


@dataclass(frozen=True, slots=True)
class FileNote:
    """A note of an input, or a ``fault`` in place of one.

    ``place`` names it in errors. ``last`` ends its input; the end of a file of lines has neither request nor fault.
    ``broken`` is a fault of the whole input: what was written of it is no output. ``size`` are its bytes.
    """

    source: Input
    place: str
    id: str = field(default="", repr=False)
    request: TextRequest | None = None
    context: Mapping[str, object] = field(default_factory=dict, repr=False)
    fault: str = ""
    last: bool = False
    broken: bool = False
    size: int = 0


NoteStream = Iterator[FileNote | None]
"""Notes in order. None: no further note waits now, so those before must not wait for one."""


def check_encoding(name: str) -> str:
    """The canonical name of an encoding of text. Raises ``ConfigurationError`` for an unknown one."""
    try:
        "a".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise ConfigurationError("--encoding: no such encoding of text; write utf-8, cp1252 or latin-1") from None


def encode_note(text: str, encoding: str) -> bytes:
    """``text`` in ``encoding``. A letter of a surrogate that it lacks loses its accents, or becomes ``?``."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_encodable(char, encoding) for char in text).encode(encoding)


def _encodable(char: str, encoding: str) -> str:
    for written in (char, unicodedata.normalize("NFKD", char)[:1]):
        try:
            written.encode(encoding)
        except UnicodeEncodeError:
            continue
        return written
    return "?"


def encode_line(id_: str, done: DeidentifiedText, *, spans_only: bool) -> bytes:
    """The JSON line of a note."""
    return write_note_line(id_, done, spans_only=spans_only) + b"\n"


def read_plain(source: Input, encoding: str) -> FileNote:
    """The plain note of an input."""
    place, name = source.shown, (source.label or source.name).encode("utf-8", "backslashreplace").decode("utf-8")
    if source.skipped:
        return FileNote(source, place, fault=f"{place}: skipped: {source.skipped}", last=True)
    try:
        data = standard_input().read() if source.path is None else source.path.read_bytes()
        if encoding.startswith(_WIDE) and data and b"\0" not in data:
            # Read as wide characters, a note in ASCII is foreign letters, and would be written as it is.
            raise UnicodeError
        text = data.decode(encoding)
    except OSError as problem:
        return FileNote(source, place, fault=f"{place}: cannot be read ({fault_text(problem)})", last=True)
    except UnicodeError as problem:
        advice = "convert the note first, or give --encoding" if encoding == "utf-8" else "correct --encoding"
        at = problem.start if isinstance(problem, UnicodeDecodeError) else 0
        fault = f"{place}: byte {at}: not {encoding.upper()}; {advice}"
        return FileNote(source, place, fault=fault, last=True, size=len(data))
    # The name in the folder, since notes of many patients may have one name: their dates must not move together.
    document = "" if source.path is None else source.name
    return FileNote(source, place, name, TextRequest(text, document), last=True, size=len(data))


def read_lines(source: Input) -> NoteStream:
    """The notes of a file of JSON lines; blank lines are left out."""
    if source.skipped:
        yield FileNote(source, source.shown, fault=f"{source.shown}: skipped: {source.skipped}", last=True)
        return
    try:
        for number, line in _number_lines(source):
            if line is None:
                yield None
            elif line.strip():
                yield _read_line(source, number, line)
    except OSError as problem:
        fault = f"{source.shown}: cannot be read ({fault_text(problem)})"
        yield FileNote(source, source.shown, fault=fault, last=True, broken=True)
        return
    yield FileNote(source, source.shown, last=True)


def _number_lines(source: Input) -> Iterator[tuple[int, bytes | None]]:
    """The lines with their numbers, from 1; None if standard input has no further line now."""
    number = 0
    for line in _open_lines(source):
        if line is not None:
            number += 1
            # Some tools write a byte order mark before UTF-8; parsers may ignore it (RFC 8259 section 8.1).
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line  # noqa: PLW2901
        yield number, line


def _open_lines(source: Input) -> Iterator[bytes | None]:
    if source.copy is not None:
        source.copy.seek(0)
        yield from source.copy
        return
    if source.path is not None:
        with source.path.open("rb") as stream:
            yield from stream
        return
    try:
        descriptor = standard_input().fileno()
    except UnsupportedOperation:  # standard input of a test
        yield from standard_input()
        return
    yield from _lines_as_they_come(descriptor)


def _lines_as_they_come(descriptor: int) -> Iterator[bytes | None]:
    """The lines of a pipe or terminal, and None whenever the next ``read`` would wait."""
    pieces: list[bytes] = []  # of a line that has not ended
    while True:
        if not select.select([descriptor], [], [], 0)[0]:
            yield None
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield b"".join((*pieces, end, b"\n"))
            pieces.clear()
        pieces.append(rest)
    if left := b"".join(pieces):
        yield left


def _read_line(source: Input, number: int, line: bytes) -> FileNote:
    place = f"{source.shown}: line {number}"
    try:
        note = read_note_line(line)
    except MessageError as problem:
        return FileNote(source, place, fault=f"{place}: {problem}", size=len(line))
    return FileNote(source, place, note.id, note.request, note.context, size=len(line))
