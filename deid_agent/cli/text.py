"""``deid-agent text``: notes in, sanitized notes out."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import click
import orjson

from deid_agent.cli.common import Exit, guarded, say, tagging_options, workshop
from deid_agent.context import facts_of_context
from deid_agent.deidentify import DeidentifiedText, Deidentifier
from deid_agent.errors import MessageError, Reason
from deid_agent.sites import Fact


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...|-]")
@click.option("--jsonl", is_flag=True, help='Lines {"id", "text", "context"?} in, {"id", "text", "spans"} out.')
@click.option("--json", "as_json", is_flag=True, help="Write the JSON line form for plain notes too.")
@click.option("--spans-only", is_flag=True, help="Leave the sanitized text out of JSON lines.")
@click.option("--by-patient", is_flag=True, help='Notes that share a "patient_id" are one patient\'s.')
@tagging_options
@guarded
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

    FILE is a note (or JSON lines with --jsonl); - or none is standard input. Spans are half-open character
    offsets in the note as it came. Members of a line that are not named here are left out of the output.
    """
    deidentifier = workshop(
        policy_name=policy_name, profile=profile, system=system, key_file=key_file, demo_key=demo_key, rules=rules
    ).deidentifier()
    code = Exit.DONE
    for name in files or ("-",):
        try:
            with _opened(name) as stream:
                if jsonl:
                    refused = _lines(stream, name, deidentifier, spans_only, by_patient)
                else:
                    refused = _note(stream, name, deidentifier, as_json or spans_only, spans_only)
        except OSError as problem:
            say(f"{name}: cannot be read ({type(problem).__name__})")
            refused = True
        code = Exit.REFUSED if refused else code
    return code


def _opened(name: str) -> BinaryIO:
    return sys.stdin.buffer if name == "-" else Path(name).open("rb")


def _note(stream: BinaryIO, name: str, deidentifier: Deidentifier, as_json: bool, spans_only: bool) -> bool:
    """One plain note; True where it was refused."""
    data = stream.read()
    try:
        note = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        say(f"{name}: byte {problem.start}: not UTF-8; convert the note first")
        return True
    document = "" if name == "-" else Path(name).name
    done = deidentifier.text(note, document=document)
    _write(_line(name, done, spans_only) if as_json else done.text.encode("utf-8"))
    return False


def _lines(stream: BinaryIO, name: str, deidentifier: Deidentifier, spans_only: bool, by_patient: bool) -> bool:
    """JSON lines; a line that is refused is named by its number and gives no output line."""
    known = _facts_by_patient() if by_patient else None
    refused = False
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            note = _read(line)
            facts = facts_of_context(note.context)
            if known and note.patient:
                facts = known(note.patient, facts)
            done = deidentifier.text(note.text, facts=facts, document=note.id, patient=note.patient)
        except MessageError as problem:
            say(f"{name}: line {number}: {problem}")
            refused = True
            continue
        _write(_line(note.id, done, spans_only))
    return refused


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
        if not isinstance(data.get(member), str):
            raise MessageError(Reason.MALFORMED, member, "must be a string")
    context, patient = data.get("context") or {}, data.get("patient_id")
    if not isinstance(context, dict):
        raise MessageError(Reason.MALFORMED, "context", "must be an object")
    if patient is not None and not isinstance(patient, str):
        raise MessageError(Reason.MALFORMED, "patient_id", "must be a string")
    return _Line(data["id"], data["text"], context, patient)


def _facts_by_patient() -> Callable[[str, tuple[Fact, ...]], tuple[Fact, ...]]:
    """What earlier lines said of a patient holds for later ones."""
    seen: dict[str, tuple[Fact, ...]] = {}

    def merged(patient: str, facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
        seen[patient] = tuple(dict.fromkeys((*seen.get(patient, ()), *facts)))
        return seen[patient]

    return merged


def _line(id_: str, done: DeidentifiedText, spans_only: bool) -> bytes:
    spans = [{"start": s.start, "end": s.end, "type": s.type.value, "source": s.source} for s in done.spans]
    body = {"id": id_, "spans": spans} if spans_only else {"id": id_, "text": done.text, "spans": spans}
    return orjson.dumps(body) + b"\n"


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
