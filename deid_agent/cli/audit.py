"""``deid-agent audit``: verify the trail, show and export its entries, print the public keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Concatenate

import click
import orjson

from deid_agent.agent import Outcome
from deid_agent.audit import (
    EntryFilter,
    LineKind,
    Signer,
    TrailEntry,
    TrailFault,
    TrailReport,
    audit_event,
    audit_event_r4,
    first_public_key,
    read_entries,
    value_counts,
    verify_trail,
)
from deid_agent.cli.audit_proofs import check, prove
from deid_agent.cli.audit_reconcile import reconcile
from deid_agent.cli.audit_report import report
from deid_agent.cli.common import Exit, P, echo_error, handle_errors, printable, refuse_existing, warn_of_demo
from deid_agent.cli.trusted_keys import find_trusted
from deid_agent.config import DEMO_KEY, load_key
from deid_agent.model import ConfigurationError, Reason, counted, format_time

_MOST = 100
"""Most faults that are printed: a forged trail has one for each checkpoint."""

_FORMS: Mapping[str, Callable[[TrailEntry], object]] = {
    "jsonl": dict,
    "fhir": audit_event,
    "fhir-r4": audit_event_r4,
}

_FOLDER = click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
_KEY_FILE = click.option("--key-file", metavar="FILE", type=click.Path(path_type=Path), help="The agent's secret key.")


@click.group()
def audit() -> None:
    """Verify and read the audit trail."""


audit.add_command(prove)
audit.add_command(check)
audit.add_command(reconcile)
audit.add_command(report)


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The folder and the options of a command that verifies a trail."""

    folder: Path
    public: tuple[str, ...]
    key_file: Path | None
    head: Path | None
    unauthenticated: bool
    strict: bool
    as_json: bool


def verify_options(command: Callable[Concatenate[VerifyOptions, P], None]) -> Callable[..., None]:
    """Adds the options of ``VerifyOptions``."""

    @wraps(command)
    def run(
        folder: Path,
        public: tuple[str, ...],
        key_file: Path | None,
        head: Path | None,
        unauthenticated: bool,
        strict: bool,
        as_json: bool,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        given = VerifyOptions(folder, public, key_file, head, unauthenticated, strict, as_json)
        command(given, *args, **kwargs)

    with_options: Callable[..., None] = run
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON line per fault, and a summary line at the end."),
        click.option("--strict", is_flag=True, help="Report the traces of a crash or a running agent as faults."),
        click.option(
            "--unauthenticated", is_flag=True, help="Trust the keys that the trail names: shows consistency only."
        ),
        click.option(
            "--head",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="Heads kept elsewhere: a copy of head.json, or a witness.",
        ),
        _KEY_FILE,
        click.option(
            "--public-key", "public", metavar="HEX", multiple=True, help="Trusted public key; see `audit key`."
        ),
        _FOLDER,
    ):
        with_options = option(with_options)
    return with_options


@audit.command()
@verify_options
@handle_errors
def verify(given: VerifyOptions) -> Exit:
    """Find every entry that was changed, dropped, moved or cut off.

    The exit code is 1 if there is a fault, and 2 without a key. The trusted keys come from --public-key, else from the
    agent's own secret key (--key-file, DEID_KEY_FILE, DEID_KEY). Only the first key of the trail (`audit key FOLDER`,
    kept elsewhere) shows that nobody who has the secret key rewrote the trail.
    """
    return verify_folder(given)


def verify_folder(given: VerifyOptions, kind: LineKind | None = None) -> Exit:
    """Verify a trail and print the result. Raises ``ConfigurationError`` if its entries are not of ``kind``."""
    folder = _existing(given.folder)
    trusted = None if given.unauthenticated else find_trusted(given.public, given.key_file)
    if trusted is None and not given.unauthenticated:
        raise ConfigurationError(
            "no key: give --public-key, the output of `deid-agent audit key FOLDER` when the trail was new, or "
            "--unauthenticated to check consistency only"
        )
    report = verify_trail(folder, trusted, given.head)
    if kind is not None and report.kind not in {None, kind}:
        raise ConfigurationError(f"{printable(folder)}: its entries are of the kind {report.kind}, not {kind}")
    faults = [*report.faults, *(report.warnings if given.strict else ())]
    warnings = [] if given.strict else report.warnings
    if given.as_json:
        for fault in (*faults, *warnings):
            click.echo(orjson.dumps(_fault(fault) | {"fault": fault in faults}))
        click.echo(orjson.dumps(_summary(report, not faults, trusted is not None)))
    else:
        for fault in faults[:_MOST]:
            click.echo(_line(fault))
        if len(faults) > _MOST:
            click.echo(f"and {counted(len(faults) - _MOST, 'more fault')}; --json shows all")
        for fault in warnings:
            echo_error(f"deid-agent: warning: {_line(fault)}")
        _print_summary(report, not faults)
        if trusted is None:
            echo_error("deid-agent: warning: no key was given: this shows only that changes were signed, not by whom")
        elif report.first_key and report.first_key not in trusted:
            echo_error(
                "deid-agent: warning: trusted by the secret key: a holder of it can make such a trail; give the "
                "first key of the trail"
            )
    return Exit.REFUSED if faults else Exit.DONE


@audit.command()
@click.argument("folder", metavar="[FOLDER]", type=click.Path(path_type=Path), required=False)
@_KEY_FILE
@click.option("--demo-key", is_flag=True, help="Print that of the public demonstration key.")
@handle_errors
def key(folder: Path | None, key_file: Path | None, demo_key: bool) -> None:
    """Print the first public key of the trail in FOLDER. Keep it outside the agent's machine as long as the trail.

    Without FOLDER: print the public key of the agent's secret, which signs the first line of each segment.
    """
    if folder is not None:
        click.echo(first_public_key(_existing(folder)))
        return
    secret = DEMO_KEY if demo_key else load_key(key_file)
    warn_of_demo(secret)
    click.echo(Signer(secret.audit_seed).public)


def _filter_options(command: Callable[Concatenate[EntryFilter, P], None]) -> Callable[..., None]:
    """The options that select entries, as one ``EntryFilter``."""

    @wraps(command)
    def run(
        topic: str | None,
        partition: int | None,
        offset: int | None,
        outcome: str | None,
        reason: str | None,
        deid_id: str | None,
        project: str | None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        command(EntryFilter(topic, partition, offset, outcome, reason, deid_id, project), *args, **kwargs)

    with_options: Callable[..., None] = run
    for option in (
        click.option("--reason", type=click.Choice([reason.value for reason in Reason])),
        click.option("--id", "deid_id", metavar="HEX", help="The deid-id header of an output."),
        click.option("--outcome", type=click.Choice([outcome.value for outcome in Outcome])),
        click.option("--offset", type=int),
        click.option("--partition", type=int),
        click.option("--topic"),
        click.option("--project", help="The project; that of an agent without projects is default."),
    ):
        with_options = option(with_options)
    return with_options


@audit.command()
@_FOLDER
@_filter_options
@handle_errors
def show(choice: EntryFilter, folder: Path) -> None:
    """List entries, one line each, without verifying them.

    A line has time, coordinates, outcome, number of replaced values, and for a refusal reason, stage and path.
    """
    for item in read_entries(_existing(folder), choice):
        coordinates = f"{item['topic']}/{item['partition']}/{item['offset']}"
        why = " ".join(str(item[name]) for name in ("reason", "stage", "where") if name in item)
        recorded = format_time(float(str(item["time"])))
        values = sum(count for _, count in value_counts(item))
        click.echo(printable(f"{recorded} {coordinates} {item['outcome']} {values} {why}".rstrip()))


@audit.command()
@_FOLDER
@click.option("--form", type=click.Choice(list(_FORMS)), default="jsonl", show_default=True)
@click.option("--out", metavar="FILE", default="-", help="New file; - is standard output.")
@_filter_options
@handle_errors
def export(choice: EntryFilter, folder: Path, form: str, out: str) -> None:
    """Write entries as JSON lines or FHIR AuditEvents, without verifying them.

    JSON lines include the build; AuditEvent resources in NDJSON are of FHIR R5 (fhir) or R4 (fhir-r4).
    """
    refuse_existing("--out", out)
    entries = read_entries(_existing(folder), choice)
    with click.open_file(out, "wb") as sink:
        for item in entries:
            sink.write(orjson.dumps(_FORMS[form](item), option=orjson.OPT_APPEND_NEWLINE))


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise ConfigurationError(f"{printable(folder)}: no such folder")
    return folder


def _line(fault: TrailFault) -> str:
    return printable(
        f"{fault.where}: {fault.coordinates + ': ' if fault.coordinates else ''}{fault.code}: {fault.detail}"
    )


def _fault(fault: TrailFault) -> dict[str, object]:
    return {
        "segment": fault.segment,
        "line": fault.line or None,
        "coordinates": fault.coordinates or None,
        "code": fault.code,
        "detail": fault.detail,
    }


def _print_summary(report: TrailReport, sound: bool) -> None:
    for name, stream in report.streams.items():
        click.echo(
            printable(
                f"{name}: offsets {stream.first} to {stream.last}, {counted(stream.entries, 'entry', 'entries')}, "
                f"{counted(stream.absent, 'offset')} absent, {stream.repeated} repeated"
            )
        )
    if report.keys == [Signer(DEMO_KEY.audit_seed).public]:
        echo_error("deid-agent: warning: signed with the public demonstration key, which anyone can use")
    if report.trail:
        names = ", ".join(name or "an unnamed agent" for name in report.agents)
        click.echo(
            printable(
                f"trail {report.trail} of {names}: {counted(report.epochs, 'epoch')}, first key {report.first_key}"
            )
        )
    click.echo(
        f"{'sound' if sound else 'NOT SOUND'}: {counted(report.segments, 'segment')}, {counted(report.lines, 'line')}, "
        f"{counted(report.entries, 'entry', 'entries')}, {counted(report.checkpoints, 'checkpoint')}, "
        f"signed by {', '.join(report.keys) or 'nobody'}"
    )


def _summary(report: TrailReport, sound: bool, trusted: bool) -> dict[str, object]:
    return {
        "sound": sound,
        "key_given": trusted,
        "segments": report.segments,
        "lines": report.lines,
        "entries": report.entries,
        "checkpoints": report.checkpoints,
        "keys": list(report.keys),
        "trail": report.trail,
        "agents": list(report.agents),
        "first_key": report.first_key,
        "epochs": report.epochs,
        "streams": {
            name: {
                "entries": stream.entries,
                "first": stream.first,
                "last": stream.last,
                "absent": stream.absent,
                "repeated": stream.repeated,
            }
            for name, stream in report.streams.items()
        },
    }
