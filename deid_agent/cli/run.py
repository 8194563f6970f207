"""``deid-agent run``: the service."""

from pathlib import Path

import click

from deid_agent import config
from deid_agent import key as keys
from deid_agent.cli.common import Exit, guarded, say, shown, warn_of_demo
from deid_agent.cli.wire import Left, check_key, serve


@click.command()
@click.option(
    "--config", "file", metavar="FILE", required=True, type=click.Path(path_type=Path), help="The settings, in TOML."
)
@click.option("--policy", help="Profile name or policy file; overrides the file and the environment.")
@click.option("--workers", type=click.IntRange(0, 256), help="Worker processes; overrides agent.workers.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Least severe log line.")
@click.option(
    "--demo-key", is_flag=True, help="Use the public demonstration key; refused on Kafka and MLLP unless allowed."
)
@guarded
def run(file: Path, policy: str | None, workers: int | None, log_level: str | None, demo_key: bool) -> Exit:
    """Take messages in, publish them sanitized, until stopped (SIGTERM or ^C) or until a folder is empty.

    Logs are JSON lines on standard error; they name messages by their coordinates, the dead letters by their files.
    Nothing starts before settings, key, rules and policy are sound. A folder that is done ends with exit code 1
    where something in it was refused or not taken.
    """
    overrides: dict[str, object] = {"policy": policy, "log_level": log_level}
    if workers is not None:
        overrides["agent"] = {"workers": workers}
    settings = config.load(file, overrides)
    key = keys.DEMO if demo_key else keys.load(settings.key_file)
    check_key(settings, key)
    warn_of_demo(key)
    left = serve(settings, key)
    if left == Left() or settings.directory is None:
        return Exit.DONE
    say(
        f"deid-agent: {left.refused} files refused, {left.unreadable} unreadable, {left.skipped} folders, links and "
        f"others skipped; their names are in {shown(settings.directory.dead_letters)}"
    )
    return Exit.REFUSED
