"""``deid-agent dead-letters`` and ``deid-agent replay``: keys for dead letters, listing, opening, and replaying."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec

import click
import orjson

from deid_agent.agent import (
    Coordinates,
    DamagedDeadLetter,
    DeadLetterFilter,
    DeadLetterStore,
    FoundDeadLetter,
    NumberRange,
    PrivateKey,
    Record,
    dead_letter_summary,
    generate_keys,
    load_private_key,
    parse_coordinates,
)
from deid_agent.cli.common import Exit, echo_error, handle_errors, new_key_option, printable
from deid_agent.cli.projects import ProjectDeadLetters
from deid_agent.cli.service_parts import open_dead_letters
from deid_agent.config import load_settings
from deid_agent.model import ConfigurationError, DeadLetterError, Reason, format_time
from deid_agent.pipeline import Validator

P = ParamSpec("P")
WARNING = "deid-agent: originals in the clear, with all PHI:"


@click.group()
def dead_letters() -> None:
    """Make keys for dead letters, list them, open one."""


@dead_letters.command()
@new_key_option
@handle_errors
def keygen(out: Path) -> Exit:
    """Make a pair of keys for dead letters.

    The agent seals dead letters with the public key; only the private key opens them.
    """
    public = generate_keys(out)
    click.echo(f"key {public.id}: {printable(out)}.pub for the agent, {printable(out)} for opening dead letters")
    return Exit.DONE


class _Range(click.ParamType[NumberRange]):
    """``5``, ``5-9``, ``5-`` or ``-9``."""

    name = "range"

    def convert(
        self, value: str | NumberRange, param: click.Parameter | None, ctx: click.Context | None
    ) -> NumberRange:
        if isinstance(value, NumberRange):
            return value
        first, dash, last = value.partition("-")
        if (
            not all(part.isdecimal() or (dash and not part) for part in (first, last if dash else first))
            or value == "-"
        ):
            self.fail(f"{value!r}: write 5, 5-9, 5- or -9", param, ctx)
        return NumberRange(int(first) if first else None, (int(last) if last else None) if dash else int(first))


class _Time(click.ParamType[int]):
    """ISO 8601, UTC without an offset; converted to milliseconds since 1970."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r}: write 2024-03-18 or 2024-03-18T14:30:00+01:00 (UTC without an offset)", param, ctx)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


config_option = click.option(
    "--config", "file", metavar="FILE", required=True, type=click.Path(path_type=Path), help="The agent's settings."
)
key_option = click.option(
    "--private-key",
    "key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The private key of the dead letters.",
)


def filter_options(command: Callable[Concatenate[DeadLetterFilter, P], None]) -> Callable[..., None]:
    """The filters of ``list`` and ``replay``, as one ``DeadLetterFilter``. A dead letter must match all of them."""

    @wraps(command)
    def run(
        topics: tuple[str, ...],
        partitions: tuple[int, ...],
        offsets: tuple[NumberRange, ...],
        codes: tuple[str, ...],
        since: int | None,
        until: int | None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        times = NumberRange(since, until)
        choice = DeadLetterFilter(frozenset(topics), frozenset(partitions), offsets, frozenset(codes), times)
        command(choice, *args, **kwargs)

    with_options: Callable[..., None] = run
    for option in (
        click.option("--until", type=_Time(), help="Refused at this time or before."),
        click.option("--since", type=_Time(), help="Refused at this time or later; ISO 8601, UTC without an offset."),
        click.option(
            "--code",
            "codes",
            multiple=True,
            type=click.Choice([r.value for r in Reason]),
            help="Reason.",
        ),
        click.option("--offset", "offsets", multiple=True, type=_Range(), help="Offset: 5, 5-9, 5- or -9."),
        click.option("--partition", "partitions", multiple=True, type=click.IntRange(0), help="Partition."),
        click.option("--topic", "topics", multiple=True, help="Input topic."),
    ):
        with_options = option(with_options)
    return with_options


def open_store(file: Path, choice: DeadLetterFilter) -> ProjectDeadLetters:
    """The dead letters of the agent with these settings. Raises ``ConfigurationError``."""
    # The Kafka client logs errors that we report ourselves; without a handler Python would print them.
    logging.getLogger().addHandler(logging.NullHandler())
    return open_dead_letters(load_settings(file), sorted(choice.topics))


@dead_letters.command(name="list")
@config_option
@filter_options
@click.option("--json", "as_json", is_flag=True, help="One JSON line per dead letter.")
@handle_errors
def list_(
    choice: DeadLetterFilter,
    file: Path,
    as_json: bool,
) -> Exit:
    """List dead letters: coordinates, reason, and whether they were replayed.

    Needs no private key. The exit code is 1 if something among them is not a valid dead letter.
    """
    return asyncio.run(_list(open_store(file, choice), choice, as_json))


async def _list(store: DeadLetterStore, choice: DeadLetterFilter, as_json: bool) -> Exit:
    code, listed = Exit.DONE, 0
    async for found in store.dead_letters():
        if isinstance(found, DamagedDeadLetter):
            code = Exit.REFUSED
            echo_error(f"{printable(found.location)}: {found.problem}")
        elif choice.matches(found.head):
            if not (listed or as_json):
                click.echo(_row(("record", "code", "stage", "where", "tries", "version", "refused", "put back")))
            listed += 1
            click.echo(orjson.dumps(dead_letter_summary(found)).decode() if as_json else _line(found))
    if not (listed or as_json) and code is Exit.DONE:
        echo_error(f"deid-agent: no dead letters{'' if choice.everything else ' match the filter'}")
    return code


def _line(found: FoundDeadLetter) -> str:
    head = found.head
    back = {0: "-", 1: "yes"}.get(found.replayed, f"{found.replayed} times")
    refused = format_time(head.time_ms // 1000)
    return _row((str(head.at), head.code, head.stage, head.where, str(head.attempts), head.version, refused, back))


def _row(cells: tuple[str, ...]) -> str:
    widths = (28, 12, 11, 24, 6, 10, 20, 0)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


@dead_letters.command(name="open")
@config_option
@key_option
@click.argument("record", metavar="TOPIC/PARTITION/OFFSET")
@click.option("--out", metavar="FILE", required=True, type=click.Path(path_type=Path), help="New file for the payload.")
@click.option("--head", is_flag=True, help="Print the record's key, headers and timestamp too, as JSON.")
@click.option("--diagnose", is_flag=True, help="Print where hl7apy or fhir.resources finds it invalid; no values.")
@handle_errors
def open_(file: Path, key: Path | None, record: str, out: Path, head: bool, diagnose: bool) -> Exit:
    """Write the payload of one dead letter to a file, in the clear.

    The file must not exist; it gets mode 0600.
    """
    try:
        at = parse_coordinates(record)
    except ValueError:
        raise ConfigurationError("name the record like `dead-letters list` does: topic/partition/offset") from None
    private = None if key is None else load_private_key(key)
    found = asyncio.run(_find(open_store(file, DeadLetterFilter()), at))
    if found is None:
        raise ConfigurationError(f"{at}: there is no such dead letter; `dead-letters list` shows them")
    try:
        original = found.open_record(private)
    except DeadLetterError as problem:
        echo_error(f"{at}: {problem}")
        return Exit.REFUSED
    _write(out, original.payload)
    echo_error(f"{WARNING} {printable(out)}" + (" and the lines below" if head else ""))
    if head:
        click.echo(orjson.dumps(_head(original), option=orjson.OPT_INDENT_2).decode())
    if diagnose:
        problems = sorted(Validator().problems(original.payload))
        click.echo("\n".join(problems) if problems else "valid by hl7apy or fhir.resources")
    return Exit.DONE


async def _find(store: DeadLetterStore, at: Coordinates) -> FoundDeadLetter | None:
    """The last dead letter of a record: a topic that was created again starts its offsets again."""
    last = None
    async for found in store.dead_letters():
        if isinstance(found, FoundDeadLetter) and found.head.at == at:
            last = found
    return last


def _write(out: Path, payload: bytes) -> None:
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(file, "wb") as sink:  # noqa: PTH123 - a descriptor
        sink.write(payload)


def _head(record: Record) -> dict[str, object]:
    return {
        "record": str(record.coordinates),
        "key": None if record.key is None else _readable(record.key),
        "headers": [[name, _readable(value)] for name, value in record.headers],
        "timestamp_ms": record.timestamp_ms,
        "tombstone": record.tombstone,
        "bytes": len(record.payload),
    }


def _readable(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


@click.command()
@config_option
@key_option
@filter_options
@click.option("--all", "everything", is_flag=True, help="All dead letters; in place of a filter.")
@click.option("--again", is_flag=True, help="Include those that were put back before.")
@click.option("--dry-run", is_flag=True, help="Open the dead letters and show which would be put back; change nothing.")
@handle_errors
def replay(
    choice: DeadLetterFilter,
    file: Path,
    key: Path | None,
    everything: bool,
    again: bool,
    dry_run: bool,
) -> Exit:
    """Put the records of dead letters back into their input.

    The records are appended to the input, and the running agent takes them like all others. Each record is put back
    once and its dead letter is marked, also if this command is interrupted and run again. The exit code is 1 if a dead
    letter could not be opened or put back.
    """
    if choice.everything != everything:
        raise ConfigurationError(
            "--all and a filter exclude each other"
            if everything
            else "select dead letters: --topic, --partition, --offset, --code, --since, --until, or --all"
        )
    job = _Replay(choice, None if key is None else load_private_key(key), again, dry_run)
    store = open_store(file, choice)
    if not dry_run:
        echo_error(f"{WARNING} they go back into the input")
    asyncio.run(_replay(store, job))
    result = "would be put back" if dry_run else "put back"
    echo_error(f"deid-agent: {job.done} {result}, {job.before} were put back before, {job.failed} failed")
    return Exit.REFUSED if job.failed else Exit.DONE


async def _replay(store: ProjectDeadLetters, job: "_Replay") -> None:
    if job.dry_run:
        choose = store.guarded(job.choose, job.report)
        async for found in store.dead_letters():
            if choose(found) is not None and isinstance(found, FoundDeadLetter):
                job.report(found, "")
    else:
        await store.replay(job.choose, job.report)


@dataclass(slots=True)
class _Replay:
    """Selects dead letters, opens them, and counts the results."""

    choice: DeadLetterFilter
    private: PrivateKey | None
    again: bool
    dry_run: bool
    done: int = 0
    before: int = 0
    failed: int = 0

    def choose(self, found: FoundDeadLetter | DamagedDeadLetter) -> Record | None:
        """The record of a dead letter that is selected and was not put back before; else None."""
        if isinstance(found, DamagedDeadLetter):
            self._fail(found.location, found.problem)
            return None
        if not self.choice.matches(found.head):
            return None
        if found.replayed and not self.again:
            self.before += 1
            return None
        try:
            return found.open_record(self.private)
        except DeadLetterError as problem:
            self._fail(str(found.head.at), str(problem))
            return None

    def report(self, found: FoundDeadLetter, problem: str) -> None:
        """Count a record that was chosen, and print its coordinates."""
        if problem:
            self._fail(str(found.head.at), problem)
        else:
            self.done += 1
            click.echo(str(found.head.at))

    def _fail(self, place: str, why: str) -> None:
        self.failed += 1
        echo_error(f"{printable(place)}: {why}")
