"""``deid-agent replay``: put the records of dead letters back into their input, for the agent to take again."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click

from deid_agent.agent import letterkeys
from deid_agent.agent.letterbox import Choice, Damaged, Found, LetterBox, Span
from deid_agent.agent.letterkeys import PrivateKey
from deid_agent.agent.ports import Record
from deid_agent.cli.common import Exit, guarded, say, shown
from deid_agent.cli.letters import WARNING, box_of, choice_of, choice_options, config_option, key_option
from deid_agent.errors import ConfigurationError, LetterError


@click.command()
@config_option
@key_option
@choice_options
@click.option("--all", "everything", is_flag=True, help="All letters, where no filter is given.")
@click.option("--again", is_flag=True, help="Also those that were put back before.")
@click.option("--dry-run", is_flag=True, help="Open the letters and say what would be put back; change nothing.")
@guarded
def replay(
    file: Path,
    key: Path | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    offsets: tuple[Span, ...],
    codes: tuple[str, ...],
    since: int | None,
    until: int | None,
    everything: bool,
    again: bool,
    dry_run: bool,
) -> Exit:
    """Put the records of chosen dead letters back into their input, behind what stands there.

    Each is put back once, and its letter marked, also where this command is cut off and run again. The running
    agent takes them as it takes all others. Exit code 1 where a letter could not be opened or put back.
    """
    choice = choice_of(topics, partitions, offsets, codes, since, until)
    if choice.everything != everything:
        raise ConfigurationError(
            "--all and a filter exclude each other"
            if everything
            else "say which letters: --topic, --partition, --offset, --code, --since, --until, or --all"
        )
    work = _Work(choice, None if key is None else letterkeys.load_private(key), again, dry_run)
    box = box_of(file, choice)
    if not dry_run:
        say(f"{WARNING} they go back into the input")
    asyncio.run(_replay(box, work))
    said = "would be put back" if dry_run else "put back"
    say(f"deid-agent: {work.done} {said}, {work.before} were before, {work.failed} failed")
    return Exit.REFUSED if work.failed else Exit.DONE


async def _replay(box: LetterBox, work: "_Work") -> None:
    if work.dry_run:
        async for found in box.letters():
            if work.pick(found) is not None and isinstance(found, Found):
                work.told(found, "")
    else:
        await box.replay(work.pick, work.told)


@dataclass(slots=True)
class _Work:
    """Picks the letters that are meant, opens them, and counts."""

    choice: Choice
    private: PrivateKey | None
    again: bool
    dry_run: bool
    done: int = 0
    before: int = 0
    failed: int = 0

    def pick(self, found: Found | Damaged) -> Record | None:
        """The record of a letter that is meant and was not put back before."""
        if isinstance(found, Damaged):
            self._fail(found.place, found.why)
            return None
        if not self.choice.takes(found.head):
            return None
        if found.replayed and not self.again:
            self.before += 1
            return None
        try:
            return found.opened(self.private)
        except LetterError as problem:
            self._fail(str(found.head.at), str(problem))
            return None

    def told(self, found: Found, problem: str) -> None:
        """Count a record that was picked, and name it."""
        if problem:
            self._fail(str(found.head.at), problem)
        else:
            self.done += 1
            click.echo(str(found.head.at))

    def _fail(self, place: str, why: str) -> None:
        self.failed += 1
        say(f"{shown(place)}: {why}")
