"""``deid-agent letters``: make keys for dead letters, list them, open one."""

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import ParamSpec

import click
import orjson

from deid_agent import config
from deid_agent.agent import letterkeys
from deid_agent.agent.letterbox import Choice, Damaged, Found, LetterBox, Span, as_dict, iso
from deid_agent.agent.letterhead import coordinates_of
from deid_agent.agent.ports import Coordinates, Record
from deid_agent.cli.common import Exit, guarded, say, shown
from deid_agent.cli.wire import letter_box
from deid_agent.errors import ConfigurationError, LetterError, Reason

P = ParamSpec("P")
WARNING = "deid-agent: originals in the clear, with all PHI:"


@click.group()
def letters() -> None:
    """Dead letters: make their keys, list them, open one."""


@letters.command()
@click.option(
    "--out",
    metavar="NAME",
    required=True,
    type=click.Path(path_type=Path),
    help="The private key; NAME.pub the public.",
)
@guarded
def keygen(out: Path) -> Exit:
    """Make a pair of keys: the agent seals dead letters with the public one, only the private one opens them."""
    public = letterkeys.generate(out)
    click.echo(f"key {public.id}: {shown(out)}.pub for the agent, {shown(out)} for whoever opens letters")
    return Exit.DONE


class _Range(click.ParamType[Span]):
    """``5``, ``5-9``, ``5-`` or ``-9``."""

    name = "range"

    def convert(self, value: str | Span, param: click.Parameter | None, ctx: click.Context | None) -> Span:
        if isinstance(value, Span):
            return value
        first, dash, last = value.partition("-")
        if (
            not all(part.isdecimal() or (dash and not part) for part in (first, last if dash else first))
            or value == "-"
        ):
            self.fail(f"{value!r}: write 5, 5-9, 5- or -9", param, ctx)
        return Span(int(first) if first else None, (int(last) if last else None) if dash else int(first))


class _Time(click.ParamType[int]):
    """ISO 8601; UTC where no offset is said. Milliseconds since 1970."""

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
    "--private-key", "key", metavar="FILE", type=click.Path(path_type=Path), help="What `letters keygen` made."
)


def choice_options(command: Callable[P, None]) -> Callable[P, None]:
    """The filters of ``list`` and ``replay``; a letter is meant where all of them fit."""
    for option in (
        click.option("--until", type=_Time(), help="Refused then or before."),
        click.option("--since", type=_Time(), help="Refused then or later; ISO 8601, UTC without an offset."),
        click.option("--code", "codes", multiple=True, type=click.Choice([r.value for r in Reason]), help="A reason."),
        click.option("--offset", "offsets", multiple=True, type=_Range(), help="Of the record: 5, 5-9, 5- or -9."),
        click.option("--partition", "partitions", multiple=True, type=click.IntRange(0), help="Of the record."),
        click.option("--topic", "topics", multiple=True, help="Input topic."),
    ):
        command = option(command)
    return command


def choice_of(
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    offsets: tuple[Span, ...],
    codes: tuple[str, ...],
    since: int | None,
    until: int | None,
) -> Choice:
    """What the filters mean."""
    return Choice(frozenset(topics), frozenset(partitions), offsets, frozenset(codes), Span(since, until))


def box_of(file: Path, choice: Choice) -> LetterBox:
    """The letters of the agent with these settings."""
    # The client logs what we report anyway; without a handler Python would print it.
    logging.getLogger().addHandler(logging.NullHandler())
    return letter_box(config.load(file), sorted(choice.topics))


@letters.command(name="list")
@config_option
@choice_options
@click.option("--json", "as_json", is_flag=True, help="One JSON line per letter.")
@guarded
def list_(
    file: Path,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    offsets: tuple[Span, ...],
    codes: tuple[str, ...],
    since: int | None,
    until: int | None,
    as_json: bool,
) -> Exit:
    """Where the dead letters are from, why they were refused, and whether they were put back. Needs no private key.

    Exit code 1 where something among them is no letter.
    """
    choice = choice_of(topics, partitions, offsets, codes, since, until)
    return asyncio.run(_list(box_of(file, choice), choice, as_json))


async def _list(box: LetterBox, choice: Choice, as_json: bool) -> Exit:
    code = Exit.DONE
    if not as_json:
        click.echo(_row(("record", "code", "stage", "where", "tries", "version", "refused", "put back")))
    async for found in box.letters():
        if isinstance(found, Damaged):
            code = Exit.REFUSED
            say(f"{shown(found.place)}: {found.why}")
        elif choice.takes(found.head):
            click.echo(orjson.dumps(as_dict(found)).decode() if as_json else _line(found))
    return code


def _line(found: Found) -> str:
    head = found.head
    back = {0: "-", 1: "yes"}.get(found.replayed, f"{found.replayed} times")
    refused = iso(head.time_ms)
    return _row((str(head.at), head.code, head.stage, head.where, str(head.attempts), head.version, refused, back))


def _row(cells: tuple[str, ...]) -> str:
    widths = (28, 12, 11, 24, 6, 10, 20, 0)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


@letters.command(name="open")
@config_option
@key_option
@click.argument("record", metavar="TOPIC/PARTITION/OFFSET")
@click.option("--out", metavar="FILE", required=True, type=click.Path(path_type=Path), help="Where the payload goes.")
@click.option("--head", is_flag=True, help="Print the record's key, headers and timestamp too, as JSON.")
@guarded
def open_(file: Path, key: Path | None, record: str, out: Path, head: bool) -> Exit:
    """Write the payload of one dead letter to a new file (mode 0600), in the clear."""
    try:
        at = coordinates_of(record)
    except ValueError:
        raise ConfigurationError("name the record as `letters list` does: topic/partition/offset") from None
    private = None if key is None else letterkeys.load_private(key)
    found = asyncio.run(_find(box_of(file, Choice()), at))
    if found is None:
        raise ConfigurationError(f"{at}: there is no such letter; `letters list` names them")
    try:
        original = found.opened(private)
    except LetterError as problem:
        say(f"{at}: {problem}")
        return Exit.REFUSED
    _write(out, original.payload)
    say(f"{WARNING} {shown(out)}" + (" and the lines below" if head else ""))
    if head:
        click.echo(orjson.dumps(_head(original), option=orjson.OPT_INDENT_2).decode())
    return Exit.DONE


async def _find(box: LetterBox, at: Coordinates) -> Found | None:
    """The last letter of a record: a topic that was made anew counts its offsets anew."""
    last = None
    async for found in box.letters():
        if isinstance(found, Found) and found.head.at == at:
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
