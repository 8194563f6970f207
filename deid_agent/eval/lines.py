"""Notes and findings as JSON lines: the form that ``text --jsonl`` writes and other programs can.

    {"id": "n1", "text": "...", "spans": [{"start": 0, "end": 9, "type": "PATIENT", "source": "rule"}]}

``text``, ``kind``, ``patient_id``, ``date`` and ``context`` may be absent, ``source`` too; other members are ignored.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from deid_agent.errors import ConfigurationError
from deid_agent.eval.labels import type_of
from deid_agent.eval.markup import Note
from deid_agent.markup import Annotated
from deid_agent.spans import Span, in_order


def read_lines(path: Path, *, bound: bool = True, annotated: bool = True) -> Iterator[Note]:
    """Every line as a note, in order.

    With ``bound`` spans must lie inside of the line's own text where it has one; findings are read without, since
    ``text --jsonl`` gives the sanitized text beside spans of the original. Without ``annotated`` a line needs no spans.
    Raises ``ConfigurationError`` naming file and line, never text.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as fault:
        raise ConfigurationError(f"{path}: cannot be read ({type(fault).__name__})") from None
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if line.strip():
            note = _note(f"{path}:{number}", line.removeprefix(b"\xef\xbb\xbf"), bound, annotated)
            if note.id in seen:
                raise ConfigurationError(f"{path}:{number}: an id that an earlier line has")
            seen.add(note.id)
            yield note


def _note(where: str, line: bytes, bound: bool, annotated: bool) -> Note:
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as fault:
        raise ConfigurationError(f"{where}: column {fault.colno}: not JSON") from None
    if not isinstance(data, dict) or not isinstance(data.get("id"), str):
        raise ConfigurationError(f'{where}: expected an object with "id" and "spans"')
    text = _string(where, data, "text")
    spans = data.get("spans", None if annotated else [])
    if not isinstance(spans, list):
        raise ConfigurationError(f'{where}: "spans" must be a list')
    length = len(text) if bound and data.get("text") is not None else None
    found = {_span(where, item, length) for item in spans}
    context = data.get("context") or {}
    if not isinstance(context, dict):
        raise ConfigurationError(f'{where}: "context" must be an object')
    patient = _string(where, data, "patient_id") or data["id"]
    kind, date = _string(where, data, "kind"), _string(where, data, "date")
    return Note(data["id"], kind, date, patient, Annotated(text, tuple(in_order(found))), context)


def _string(where: str, data: Mapping[str, object], member: str) -> str:
    value = data.get(member)
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f'{where}: "{member}" must be a string')
    return value or ""


def _span(where: str, item: object, length: int | None) -> Span:
    if not isinstance(item, dict):
        raise ConfigurationError(f'{where}: a span must be an object with "start", "end" and "type"')
    start, end, label, source = (item.get(key) for key in ("start", "end", "type", "source"))
    kind = type_of(label) if isinstance(label, str) else None
    if kind is None:
        raise ConfigurationError(f"{where}: a span of an unknown type: use those of the annotation guidelines")
    if type(start) is not int or type(end) is not int or not 0 <= start < end:
        raise ConfigurationError(f"{where}: a span needs start and end as whole numbers, start before end")
    if length is not None and end > length:
        raise ConfigurationError(f"{where}: a span ends at {end}, behind the text's {length} characters")
    return Span(start, end, kind, source if isinstance(source, str) else "")
