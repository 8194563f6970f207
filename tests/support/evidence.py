"""Pairs, notes and feeds of invented texts for the tests of ``deid_agent.evidence``."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from deid_agent.eval import Note
from deid_agent.evidence import TextPair, make_pair
from deid_agent.model import parse_annotated


def pair_of(original: str, output: str, note: str = "n", patient: str = "p") -> TextPair:
    """An aligned pair."""
    return make_pair(note, patient, original, output)


def gold(id_: str, patient: str, markup: str) -> Note:
    """A note in the markup of the corpus."""
    return Note(id_, "", "", patient, parse_annotated(markup), {})


def write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """JSON lines."""
    path.write_text("".join(json.dumps(dict(row)) + "\n" for row in rows), "utf-8")
    return path


def gold_line(note: Note) -> dict[str, object]:
    """A note of a reviewed sample as a JSON line."""
    spans = [{"start": s.start, "end": s.end, "type": s.type.value} for s in note.annotated.spans]
    return {"id": note.id, "patient_id": note.patient, "text": note.annotated.text, "spans": spans}
