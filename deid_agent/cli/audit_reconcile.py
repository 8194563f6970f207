"""``deid-agent audit reconcile``: every input of a feed is accounted for exactly once, or named."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import orjson

from deid_agent.agent import DEFAULT_PROJECT, Coordinates, Outcome, OutputMarks, Partition
from deid_agent.audit import (
    AuditedRecord,
    FoundResults,
    InputRecords,
    PartitionBalance,
    balance,
    read_audited,
)
from deid_agent.cli.common import Exit, handle_errors, printable
from deid_agent.config import DEMO_KEY, SecretKey, Settings, TransportKind, load_key, load_project_keys, load_settings
from deid_agent.model import ConfigurationError, counted
from deid_agent.transport.folder import read_journal
from deid_agent.transport.kafka import kafka_options, open_offsets
from deid_agent.transport.mllp import numbers_file, read_numbers

_MOST = 100
"""Most offsets that are printed for a partition."""

_Trails = dict[Partition, dict[int, AuditedRecord]]


@click.command()
@click.option("--config", "file", metavar="FILE", required=True, type=click.Path(path_type=Path))
@click.option(
    "--trail",
    "trails",
    metavar="FOLDER",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Trail of an agent of the group; give those of all. Default: audit.path.",
)
@click.option("--expired-outputs", is_flag=True, help="Accept outputs that retention or compaction removed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per partition.")
@handle_errors
def reconcile(file: Path, trails: tuple[Path, ...], expired_outputs: bool, as_json: bool) -> Exit:
    """Check that every committed input was published, refused or dropped by the policy, exactly once.

    Reads the offsets of the input, the outputs, the dead letters and the trails. The exit code is 1 if an offset is not
    accounted for; each is named with what is wrong. It can run beside the agent. Run `audit verify` first.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    settings = load_settings(file)
    found = _balances(settings, trails or (settings.audit.path,), expired_outputs=expired_outputs)
    wrong = sum(len(each.faults) for each in found)
    for each in found:
        if as_json:
            click.echo(orjson.dumps(_as_json(each)))
        else:
            _print(each)
    if not as_json:
        verdict = f"NOT ACCOUNTED FOR: {counted(wrong, 'offset')}" if wrong else "accounted for: every record, once"
        click.echo(verdict)
    return Exit.REFUSED if wrong else Exit.DONE


def _balances(settings: Settings, trails: Sequence[Path], *, expired_outputs: bool) -> list[PartitionBalance]:
    if settings.transport is TransportKind.KAFKA:
        return asyncio.run(_kafka(settings, trails, expired_outputs=expired_outputs))
    inputs = _folder_input(settings) if settings.transport is TransportKind.DIRECTORY else _mllp_inputs(settings)
    audited = read_audited(trails)
    return [balance(each, audited.get(each.stream, {}), FoundResults(), id_of={}) for each in inputs]


async def _kafka(settings: Settings, trails: Sequence[Path], *, expired_outputs: bool) -> list[PartitionBalance]:
    options, marks = kafka_options(settings), _marks(settings)
    found = []
    async with open_offsets(options) as feed:
        # The positions first: results and entries of what is before them exist already.
        inputs = [each for topic in feed.routes for each in await feed.input_offsets(topic)]
        outputs = {topic: await feed.output_ids(topic) for topic in {*feed.routes.values()} if topic}
        dead_letters = {topic: await feed.dead_letters(topic) for topic in feed.routes}
        routes, topic_ids = feed.routes, feed.topic_ids
    audited: _Trails = await asyncio.to_thread(read_audited, trails, topic_ids)
    for each in inputs:
        stream, entries = each.stream, audited.get(each.stream, {})
        if each.position is None and entries:
            raise ConfigurationError(
                f"{stream}: group {options.group_id!r} has no position, but a trail has entries: check kafka.group_id "
                "and the trails, or see docs/recovery.md"
            )
        ids = {
            offset: marks[stream.topic].id_of(
                Coordinates(stream.topic, stream.number, offset), topic_ids.get(stream.topic, "")
            )
            for offset in each.offsets
            if offset not in entries
        }
        records = InputRecords(stream, each.begin, each.committed, each.end, each.offsets)
        results = FoundResults(outputs.get(routes[stream.topic]), dead_letters[stream.topic])
        found.append(balance(records, entries, results, id_of=ids, expired_outputs=expired_outputs))
    return found


def _marks(settings: Settings) -> Mapping[str, OutputMarks]:
    """The marks of each topic, by the key of its project."""
    key = _key(settings)
    keys = {DEFAULT_PROJECT: key, **load_project_keys(settings.projects, settings.keys, key)}
    default = OutputMarks(key.secret)  # of topics by a pattern too
    return defaultdict(lambda: default, {each.topic: OutputMarks(keys[each.project].secret) for each in settings.feeds})


def _key(settings: Settings) -> SecretKey:
    """The key that made the ids of outputs; without one, only entries know them."""
    return DEMO_KEY if settings.allow_demo_key and settings.key_file is None else load_key(settings.key_file)


def _folder_input(settings: Settings) -> list[InputRecords]:
    if settings.directory is None:
        raise ConfigurationError("there is no [directory] section")
    seen = read_journal(settings.directory.state)
    position = max(seen.committed, default=-1) + 1
    # An offset that was read and neither committed nor given up belongs to a file that is gone or cannot be read.
    offsets = sorted(offset for offset in seen.seen - seen.given_up if offset < position)
    end = max(seen.seen, default=-1) + 1
    return [InputRecords(Partition("files", 0), 0, position, end, offsets, seen.given_up)]


def _mllp_inputs(settings: Settings) -> list[InputRecords]:
    if settings.mllp is None:
        raise ConfigurationError("there is no [mllp] section")
    path = numbers_file(settings.mllp)
    try:
        known = read_numbers(path)
    except OSError as error:
        raise ConfigurationError(f"mllp.state: {path}: {error.strerror}") from None
    return [
        InputRecords(Partition("mllp", slot), used.first, used.next, used.next, range(used.first, used.next))
        for slot, used in known.items()
        if used.next > used.first
    ]


def _print(each: PartitionBalance) -> None:
    records, outcomes = each.input, each.outcomes
    click.echo(
        printable(
            f"{records.stream}: {counted(len(records.offsets), 'record')} from {records.begin} to the position "
            f"{records.committed}: {outcomes.get(Outcome.PUBLISHED, 0)} published, "
            f"{outcomes.get(Outcome.DEAD_LETTERED, 0)} dead letters, "
            f"{outcomes.get(Outcome.SUPPRESSED, 0)} dropped by policy, "
            f"{len(each.faults)} not accounted for; {counted(each.pending, 'offset')} to come, {each.absent} without a "
            f"record, {each.vanished} compacted since, {each.expired} before the beginning"
        )
    )
    for offset, problem in each.faults[:_MOST]:
        click.echo(printable(f"{records.stream}/{offset}: {problem}"))
    if len(each.faults) > _MOST:
        click.echo(f"and {counted(len(each.faults) - _MOST, 'more offset')}; --json names all")


def _as_json(each: PartitionBalance) -> dict[str, object]:
    records = each.input
    return {
        "topic": records.stream.topic,
        "partition": records.stream.number,
        "begin": records.begin,
        "committed": records.committed,
        "end": records.end,
        "records": len(records.offsets),
        "outcomes": dict(each.outcomes),
        "absent": each.absent,
        "vanished": each.vanished,
        "expired": each.expired,
        "faults": [{"offset": offset, "problem": problem} for offset, problem in each.faults],
    }
