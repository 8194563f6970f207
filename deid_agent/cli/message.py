"""``deid-agent message``: HL7 or FHIR messages in, sanitized messages out."""

import os
import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Unpack

import click
import orjson

from deid_agent.app import remark_dict
from deid_agent.cli.common import (
    Exit,
    TaggingOptions,
    echo_error,
    fault_text,
    handle_errors,
    printable,
    refuse_existing,
    tagging_options,
    worker_factory,
)
from deid_agent.cli.inputs import Input, OutputFile, check_names, list_inputs, prepare_folder
from deid_agent.cli.unexamined_file import render_ledger
from deid_agent.codec import Envelope
from deid_agent.config import load_envelope
from deid_agent.model import ConfigurationError, MessageError, Reason, TransientError, counted
from deid_agent.pipeline import (
    Deidentified,
    Deidentifier,
    RestrictedZip,
    ShapeName,
    ShapeOptions,
    UnexaminedCounts,
    Validator,
    add_registry,
    check_payloads,
    make_envelope,
    make_registry_options,
)


@click.command()
@click.argument("sources", nargs=-1, metavar="[FILE|DIR...|-]")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write to this folder under the same names.",
)
@click.option(
    "--remarks", metavar="FILE", type=click.Path(path_type=Path), help="One JSON line per message; - with --out."
)
@click.option("--json", "as_json", is_flag=True, help="Write the remarks lines to standard output; needs --out.")
@click.option(
    "--unexamined",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Count the values that leave unchanged and unread, by path (CSV).",
)
@click.option(
    "--envelope",
    "envelope_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The messages are inside records: places and fields (TOML).",
)
@click.option(
    "--validate",
    is_flag=True,
    help="Refuse outputs that hl7apy or fhir.resources find less valid. Of XML: that it is well-formed.",
)
@click.option(
    "--shape",
    type=click.Choice([each.value for each in ShapeName]),
    default=ShapeName.NONE.value,
    envvar="DEID_SHAPE",
    help="The form of the outputs, which must then be FHIR in JSON (docs/conformance.md).",
)
@click.option(
    "--on-restricted-zip",
    type=click.Choice([each.value for each in RestrictedZip]),
    default=RestrictedZip.MASK.value,
    envvar="DEID_ON_RESTRICTED_ZIP",
    help="With --shape: the patients of ZIP areas of few people.",
)
@click.option(
    "--age-date",
    type=click.DateTime(["%Y-%m-%d"]),
    envvar="DEID_AGE_DATE",
    help="With --shape: the day of all ages.",
)
@tagging_options
@handle_errors
def message(
    sources: tuple[str, ...],
    out: Path | None,
    remarks: Path | None,
    as_json: bool,
    unexamined: Path | None,
    envelope_file: Path | None,
    validate: bool,
    shape: str,
    on_restricted_zip: str,
    age_date: datetime | None,
    **tagging: Unpack[TaggingOptions],
) -> Exit:
    """De-identify HL7 v2 messages, FHIR resources and C-CDA documents.

    HL7 v2 and FHIR may be in their usual syntax or in XML.

    The format is detected. A message that cannot be parsed is named on standard error, gives no output and makes the
    exit code 1. So does an entry of a folder that is not a file (an unreadable folder, a broken link, a pipe). Hidden
    files are ignored.
    """
    if remarks is not None and str(remarks) == "-":
        as_json, remarks = True, None
    if as_json and out is None:
        raise ConfigurationError("--json writes to standard output: send the messages elsewhere with --out DIR")
    refuse_existing("--remarks", remarks)
    refuse_existing("--unexamined", unexamined)
    inputs = list(list_inputs(sources or ("-",)))
    if not inputs:
        echo_error(f"deid-agent: no message in {', '.join(map(printable, sources))}: hidden files are ignored")
        return Exit.DONE
    if out is None and (count := sum(not item.skipped for item in inputs)) > 1:
        raise ConfigurationError(f"{counted(count, 'message')} for one standard output: name a folder with --out DIR")
    check_names(inputs, out)
    day = None if age_date is None else age_date.date()
    options = ShapeOptions(ShapeName(shape), RestrictedZip(on_restricted_zip), day)
    parts = worker_factory(shape=options, **tagging)
    deidentifier = parts.deidentifier()
    envelope = None if envelope_file is None else _load_envelope(envelope_file)
    validator = Validator() if validate else None
    code = Exit.DONE
    unread: UnexaminedCounts | None = None if unexamined is None else Counter()
    with _report(remarks, as_json) as report, _progress(inputs) as bar:
        if out is not None:
            prepare_folder(out, parts.key.demo)
        for item in bar:
            line = _one(item, out, deidentifier, envelope, validator, parts.max_bytes, unread)
            if line["outcome"] != "published":
                code = Exit.REFUSED
            report.write(orjson.dumps(line) + b"\n")
            report.flush()  # so that a full disk stops the command here, not at the end
    if unexamined is not None and unread is not None:
        _write_unexamined(unexamined, unread)
    return code


def _load_envelope(path: Path) -> Envelope:
    settings = load_envelope(path)
    options = None if settings.registry is None else make_registry_options(settings.registry)
    return add_registry([("", make_envelope(settings))], options)[""]


def _write_unexamined(path: Path, counts: UnexaminedCounts) -> None:
    try:
        path.write_text(render_ledger(counts), "utf-8")
    except OSError as problem:
        raise ConfigurationError(f"--unexamined {path}: cannot be written ({fault_text(problem)})") from None


def _report(remarks: Path | None, as_json: bool) -> AbstractContextManager[BinaryIO]:
    """The output for remarks: a file, standard output (not closed), or the null device."""
    if remarks is None:
        return nullcontext(sys.stdout.buffer) if as_json else Path(os.devnull).open("wb")
    try:
        return remarks.open("wb")
    except OSError as problem:
        raise ConfigurationError(f"--remarks {remarks}: cannot be written ({fault_text(problem)})") from None


def _progress(inputs: list[Input]) -> "click._termui_impl.ProgressBar[Input]":
    hidden = len(inputs) < 20 or not sys.stderr.isatty()
    return click.progressbar(inputs, label="messages", file=sys.stderr, hidden=hidden)


def _one(
    item: Input,
    out: Path | None,
    deidentifier: Deidentifier,
    envelope: Envelope | None,
    validator: Validator | None,
    max_bytes: int,
    unread: UnexaminedCounts | None,
) -> dict[str, object]:
    """De-identify and write one message. Returns its line for the remarks file."""
    name = item.name.encode("utf-8", "backslashreplace").decode("utf-8")
    if item.skipped:
        echo_error(f"{printable(item.name)}: skipped: {item.skipped}")
        return {"file": name, "outcome": "skipped", "reason": item.skipped, "remarks": []}
    try:
        payload = sys.stdin.buffer.read() if item.path is None else item.path.read_bytes()
        if len(payload) > max_bytes:
            raise MessageError(Reason.RESOURCE, "payload", f"over {counted(max_bytes, 'byte')}")
        done = deidentifier.message(payload, envelope=envelope)
        if validator is not None:
            check_payloads(validator, envelope, payload, done.payload, moved=deidentifier.is_shaped)
        _write(done, item, out)
        if unread is not None:
            unread.update(deidentifier.count_unexamined(payload, envelope))
    except MessageError as problem:
        echo_error(f"{printable(item.name)}: {problem}")
        return {"file": name, "outcome": "dead_lettered", "reason": problem.reason.value, "remarks": []}
    except TransientError as problem:
        raise ConfigurationError(f"{printable(item.name)}: {problem}") from None
    except OSError as problem:
        if out is None and item.path is None:
            raise
        echo_error(f"{printable(item.name)}: cannot be read or written ({fault_text(problem)})")
        return {"file": name, "outcome": "dead_lettered", "reason": Reason.RESOURCE.value, "remarks": []}
    return {"file": name, "outcome": "published", "remarks": [remark_dict(remark) for remark in done.remarks]}


def _write(done: Deidentified, item: Input, out: Path | None) -> None:
    if out is None:
        sys.stdout.buffer.write(done.payload)
        sys.stdout.buffer.flush()
        return
    with OutputFile(out / ("message" if item.path is None else item.name)) as file:
        file.write(done.payload)
