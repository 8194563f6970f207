"""``deid-agent audit``: is the trail whole, what does it say, who signs it."""

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import BinaryIO

import click
import orjson

from deid_agent import key as keys
from deid_agent.agent.ports import Outcome
from deid_agent.audit.entries import Choice, Item, audit_event, counts, read
from deid_agent.audit.lines import Signer, is_public_key
from deid_agent.audit.verify import Report
from deid_agent.audit.verify import verify as look_at
from deid_agent.audit.walk import Fault
from deid_agent.cli.common import Exit, P, guarded, say, shown, warn_of_demo
from deid_agent.errors import ConfigurationError, Reason

_MOST = 100
"""Faults that are told to a person: a forged trail has one for each checkpoint."""

_FOLDER = click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
_KEY_FILE = click.option("--key-file", metavar="FILE", type=click.Path(path_type=Path), help="The agent's secret key.")


@click.group()
def audit() -> None:
    """Verify and read the audit trail."""


@audit.command()
@_FOLDER
@click.option("--public-key", "public", metavar="HEX", multiple=True, help="Who may have signed; see `audit key`.")
@_KEY_FILE
@click.option("--head", metavar="FILE", type=click.Path(path_type=Path), help="A copy of head.json kept elsewhere.")
@click.option("--strict", is_flag=True, help="What a crash or a running agent leaves is a fault too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per fault, and one of the whole at the end.")
@guarded
def verify(
    folder: Path, public: tuple[str, ...], key_file: Path | None, head: Path | None, strict: bool, as_json: bool
) -> Exit:
    """Find every entry that was changed, dropped, moved or cut off; exit code 1 where there is one.

    The keys that may have signed come from --public-key, else from the agent's own secret key (--key-file,
    DEID_KEY_FILE, DEID_KEY). Without either the keys that the trail names are believed, which shows consistency only.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"{shown(folder)}: no such folder")
    trusted = _trusted(public, key_file)
    report = look_at(folder, trusted, head)
    faults = [*report.faults, *(report.doubts if strict else ())]
    doubts = [] if strict else report.doubts
    if as_json:
        for fault in (*faults, *doubts):
            click.echo(orjson.dumps(_fault(fault) | {"fault": fault in faults}))
        click.echo(orjson.dumps(_summary(report, not faults, trusted is not None)))
    else:
        for fault in faults[:_MOST]:
            click.echo(_line(fault))
        if len(faults) > _MOST:
            click.echo(f"and {len(faults) - _MOST} more faults; --json tells all")
        for fault in doubts:
            say(f"deid-agent: warning: {_line(fault)}")
        _tell(report, not faults)
        if trusted is None:
            say("deid-agent: warning: no key was given: nobody changed this without signing anew, no more is shown")
    return Exit.REFUSED if faults else Exit.DONE


@audit.command()
@_KEY_FILE
@click.option("--demo-key", is_flag=True, help="The public demonstration key's.")
@guarded
def key(key_file: Path | None, demo_key: bool) -> None:
    """Print the public key that the agent signs its audit with; an auditor needs no more to verify it."""
    secret = keys.DEMO if demo_key else keys.load(key_file)
    warn_of_demo(secret)
    click.echo(Signer(secret.audit_seed).public)


def _choosing(command: Callable[P, None]) -> Callable[P, None]:
    """Options that choose entries."""
    for option in (
        click.option("--reason", type=click.Choice([reason.value for reason in Reason])),
        click.option("--outcome", type=click.Choice([outcome.value for outcome in Outcome])),
        click.option("--offset", type=int),
        click.option("--partition", type=int),
        click.option("--topic"),
    ):
        command = option(command)
    return command


@audit.command()
@_FOLDER
@_choosing
@guarded
def show(
    folder: Path, topic: str | None, partition: int | None, offset: int | None, outcome: str | None, reason: str | None
) -> None:
    """List entries, one line each: time, coordinates, outcome, values replaced, why and where. Does not verify."""
    for item in read(_existing(folder), Choice(topic, partition, offset, outcome, reason)):
        coordinates = f"{item['topic']}/{item['partition']}/{item['offset']}"
        why = " ".join(str(item[name]) for name in ("reason", "stage", "where") if name in item)
        recorded = audit_event(item)["recorded"]
        click.echo(
            shown(
                f"{recorded} {coordinates} {item['outcome']} {sum(count for _, count in counts(item))} {why}".rstrip()
            )
        )


@audit.command()
@_FOLDER
@click.option("--form", type=click.Choice(["jsonl", "fhir"]), default="jsonl", show_default=True)
@click.option("--out", metavar="FILE", type=click.File("wb", lazy=False), default="-", help="- is standard output.")
@_choosing
@guarded
def export(
    folder: Path,
    form: str,
    out: BinaryIO,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    outcome: str | None,
    reason: str | None,
) -> None:
    """Write entries as JSON lines with their build, or as FHIR R5 AuditEvent resources (NDJSON). Does not verify."""
    as_line: Callable[[Item], object] = audit_event if form == "fhir" else dict
    for item in read(_existing(folder), Choice(topic, partition, offset, outcome, reason)):
        out.write(orjson.dumps(as_line(item), option=orjson.OPT_APPEND_NEWLINE))


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise ConfigurationError(f"{shown(folder)}: no such folder")
    return folder


def _trusted(public: Collection[str], key_file: Path | None) -> frozenset[str] | None:
    if wrong := [text for text in public if not is_public_key(text.lower())]:
        raise ConfigurationError(f"--public-key {wrong[0]}: not 64 hex digits; take what `deid-agent audit key` prints")
    if public:
        return frozenset(text.lower() for text in public)
    if key_file is None and not (os.environ.get("DEID_KEY_FILE") or os.environ.get("DEID_KEY")):
        return None
    return frozenset({Signer(keys.load(key_file).audit_seed).public})


def _line(fault: Fault) -> str:
    return shown(f"{fault.where}: {fault.coordinates + ': ' if fault.coordinates else ''}{fault.code}: {fault.detail}")


def _fault(fault: Fault) -> dict[str, object]:
    return {
        "segment": fault.segment,
        "line": fault.line or None,
        "coordinates": fault.coordinates or None,
        "code": fault.code,
        "detail": fault.detail,
    }


def _tell(report: Report, sound: bool) -> None:
    for name, stream in report.streams.items():
        click.echo(
            shown(
                f"{name}: offsets {stream.first} to {stream.last}, {stream.entries} entries, "
                f"{stream.absent} offsets absent, {stream.repeated} repeated"
            )
        )
    if report.keys == [Signer(keys.DEMO.audit_seed).public]:
        say("deid-agent: warning: signed with the demonstration key: everyone can")
    click.echo(
        f"{'sound' if sound else 'NOT SOUND'}: {report.segments} segments, {report.lines} lines, {report.entries} "
        f"entries, {report.checkpoints} checkpoints, signed by {', '.join(report.keys) or 'nobody'}"
    )


def _summary(report: Report, sound: bool, trusted: bool) -> dict[str, object]:
    return {
        "sound": sound,
        "key_given": trusted,
        "segments": report.segments,
        "lines": report.lines,
        "entries": report.entries,
        "checkpoints": report.checkpoints,
        "keys": list(report.keys),
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
