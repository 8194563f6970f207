"""``deid-agent console``: the letters, the audit and the rules of an agent that runs elsewhere, or not at all."""

import asyncio
import logging
import signal
from pathlib import Path

import click

from deid_agent import config
from deid_agent import key as keys
from deid_agent.cli.common import Exit, guarded, warn_of_demo
from deid_agent.cli.wire import check_key, show_console


@click.command()
@click.option(
    "--config", "file", metavar="FILE", required=True, type=click.Path(path_type=Path), help="The agent's settings."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=9465, show_default=True, help="Of the console.")
@click.option("--demo-key", is_flag=True, help="The agent runs with the public demonstration key.")
@guarded
def console(file: Path, port: int, demo_key: bool) -> Exit:
    """Serve the console on this machine alone, without an agent: dead letters, audit, rules, playground; until ^C.

    It takes no message and writes nothing, unless http.console_write and a token let it put dead letters back.
    """
    # Other handlers would print what the client of Kafka says, which we report anyway.
    logging.getLogger().addHandler(logging.NullHandler())
    settings = config.load(file)
    key = keys.DEMO if demo_key else keys.load(settings.key_file)
    check_key(settings, key)
    warn_of_demo(key)
    asyncio.run(_serve(settings, key, port))
    return Exit.DONE


async def _serve(settings: config.Settings, key: keys.Key, port: int) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with show_console(settings, key, port) as listening:
        click.echo(f"console: http://127.0.0.1:{listening}/console/  (^C ends it)")
        await ended.wait()
