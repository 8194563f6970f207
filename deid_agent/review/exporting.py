"""Writes gold in the formats of ``deid_agent.eval``: brat, i2b2 2014, JSON lines, and the project's markup.

The files hold the notes in the clear. Only their owner may read them.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from xml.sax.saxutils import escape, quoteattr

import orjson

from deid_agent.agent import sync_folder
from deid_agent.eval import CorpusFormat, Note
from deid_agent.model import CATEGORY, ConfigurationError, Span, counted

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKS = re.compile(r"\[\[|\]\]|(?m:^@@)|\r")
_LINE = re.compile(r"\r\n|\r|\n")
_CR = {"\r": "&#13;"}


def write_notes(notes: Sequence[Note], out: Path, form: CorpusFormat) -> list[str]:
    """Write notes into a new or empty folder, and return the names of the files.

    Raises ``ConfigurationError`` if the folder has files, or the format cannot hold some of the texts; ``OSError``, and
    then there is no file.
    """
    if form not in _WRITERS:
        raise ConfigurationError(f"--format {form}: cannot be written; choose one of {', '.join(_WRITERS)}")
    check, write = _WRITERS[form]
    if check is not None and (bad := sum(check.search(note.annotated.text) is not None for note in notes)):
        raise ConfigurationError(
            f"--format {form}: {counted(bad, 'note')} with characters that the format cannot hold: use jsonl"
        )
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise ConfigurationError(f"--out {out}: has files: name a new folder")
    names = list[str]()
    try:
        for name, data in write(notes):
            number = os.open(out / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            names.append(name)
            with os.fdopen(number, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
    except BaseException:  # half of an export is notes in the clear that nobody uses, or a gold that lacks some
        for name in names:
            (out / name).unlink(missing_ok=True)
        raise
    sync_folder(out)
    return names


def _write_brat(notes: Sequence[Note]) -> Iterator[tuple[str, bytes]]:
    for note in notes:
        text = note.annotated.text
        yield f"{note.id}.txt", text.encode()
        lines = [
            f"T{number}\t{span.type} {_fragments(span, text)}\t{_LINE.sub(' ', text[span.start : span.end])}\n"
            for number, span in enumerate(note.annotated.spans, 1)
        ]
        yield f"{note.id}.ann", "".join(lines).encode()


def _fragments(span: Span, text: str) -> str:
    """The offsets in each line of a span; brat shows no span over a line end."""
    found, at = list[str](), span.start
    for end in _LINE.finditer(text, span.start, span.end):
        found.append(f"{at} {end.start()}")
        at = end.end()
    return ";".join(each for each in (*found, f"{at} {span.end}") if len(set(each.split())) > 1)


def _write_2014(notes: Sequence[Note]) -> Iterator[tuple[str, bytes]]:
    for note in notes:
        text = note.annotated.text
        lines = ['<?xml version="1.0" encoding="UTF-8" ?>', "<deIdi2b2>", f"<TEXT>{escape(text, _CR)}</TEXT>", "<TAGS>"]
        for number, span in enumerate(note.annotated.spans):
            value = quoteattr(text[span.start : span.end], {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})
            lines.append(
                f'<{CATEGORY[span.type]} id="P{number}" start="{span.start}" end="{span.end}" text={value} '
                f'TYPE="{span.type}" comment="" />'
            )
        yield f"{note.patient}-{note.id}.xml", "\n".join([*lines, "</TAGS>", "</deIdi2b2>", ""]).encode()


def _write_json_lines(notes: Sequence[Note]) -> Iterator[tuple[str, bytes]]:
    lines = []
    for note in notes:
        spans = [{"start": s.start, "end": s.end, "type": s.type.value} for s in note.annotated.spans]
        members = {"id": note.id, "text": note.annotated.text, "patient_id": note.patient, "spans": spans}
        lines.append(orjson.dumps({**members, "kind": note.kind, "date": note.date}) + b"\n")
    yield "notes.jsonl", b"".join(lines)


def _write_markup(notes: Sequence[Note]) -> Iterator[tuple[str, bytes]]:
    parts = []
    for patient, group in groupby(sorted(notes, key=lambda note: note.patient), key=lambda note: note.patient):
        parts.append(f"@@PATIENT id={patient}\n{{}}\n")
        for note in group:
            fields = "".join(f" {name}={value}" for name, value in (("type", note.kind), ("date", note.date)) if value)
            text, out, at = note.annotated.text, list[str](), 0
            for span in note.annotated.spans:
                out += (text[at : span.start], f"[[{span.type}|{text[span.start : span.end]}]]")
                at = span.end
            parts.append(f"@@NOTE id={note.id}{fields}\n{''.join(out)}{text[at:]}\n@@END\n")
    yield "notes.txt", "".join(parts).encode()


Writer = Callable[[Sequence[Note]], Iterator[tuple[str, bytes]]]

_WRITERS: Mapping[CorpusFormat, tuple[re.Pattern[str] | None, Writer]] = MappingProxyType(
    {
        CorpusFormat.BRAT: (None, _write_brat),
        CorpusFormat.I2B2_2014: (_NO_XML, _write_2014),
        CorpusFormat.JSONL: (None, _write_json_lines),
        CorpusFormat.MARKUP: (_MARKS, _write_markup),
    }
)
EXPORTED = tuple(_WRITERS)
"""The formats that can be written."""
