"""The command line. Only this package assembles an agent, prints and exits.

A command's module is imported when the command is called, so that ``--version``, ``--help`` and shell completion load
nothing else.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Final, NamedTuple

import click

from deid_agent import __version__, pause_gc

__all__ = ["main"]


class _Entry(NamedTuple):
    """A command: its module, its name there, and its line in ``--help``, which a test compares with its help text."""

    module: str
    attribute: str
    help: str


COMMANDS: Final[Mapping[str, _Entry]] = {
    "audit": _Entry("audit", "audit", "Verify and read the audit trail."),
    "batch": _Entry("batch", "batch", "De-identify tables: Parquet, CSV and NDJSON files, Delta and Iceberg tables."),
    "bound": _Entry("bound", "bound", "Compute how far models must lean so that a budget of leaks may be claimed."),
    "check": _Entry("check", "check", "Check whether `run` would start, without taking a message."),
    "console": _Entry("serve", "console", "Serve the console on this machine, without an agent."),
    "crosswalk": _Entry("crosswalk", "crosswalk", "Open the crosswalk of a project, by its two custodians."),
    "dead-letters": _Entry("dead_letters", "dead_letters", "Make keys for dead letters, list them, open one."),
    "demo": _Entry("serve", "demo", "De-identify sample messages and show the result."),
    "eval": _Entry("evaluate", "evaluate", "Score a system over an annotated corpus."),
    "evidence": _Entry("evidence", "evidence", "Report about a de-identified feed: leaks, equity, utility."),
    "message": _Entry("message", "message", "De-identify HL7 v2 messages, FHIR resources and C-CDA documents."),
    "replay": _Entry("dead_letters", "replay", "Put the records of dead letters back into their input."),
    "review": _Entry("review", "review", "Have people review notes: a queue, their decisions, the gold."),
    "rules": _Entry("inventory", "rules", "List and test rules; make the lists and rules of a site."),
    "run": _Entry("serve", "run", "Run the agent: read messages and publish them sanitized."),
    "text": _Entry("text", "text", "De-identify notes."),
    "train": _Entry("train", "train", "Train models from annotated notes."),
}

RENAMED: Final[Mapping[str, str]] = {"letters": "dead-letters"}
"""Old names of commands with their new ones; using an old one is an error that names the new one."""

_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class _LazyGroup(click.Group):
    """Imports a command when it is looked up, and exits with 130 and one line on ^C."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in RENAMED:
            ctx.fail(f"the command {cmd_name!r} is renamed; write {RENAMED[cmd_name]!r}")
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if cmd_name != "train":
            limit_threads = import_module("deid_agent.config").limit_blas_threads
            limit_threads()
        with pause_gc():
            command = getattr(import_module(f"deid_agent.cli.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - for the type checker
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in sorted(COMMANDS.items())])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("deid-agent: interrupted", err=True)
            ctx.exit(_INTERRUPTED)


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done, 1 some input was refused, 2 the call or the configuration is wrong, "
    "3 the agent stopped because it was unsafe to continue, 130 interrupted.",
)
@click.version_option(__version__, prog_name="deid-agent")
def main() -> None:
    """De-identify HL7 v2 messages and FHIR resources in a stream."""
