"""The console of an agent with every page filled, for a real browser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.browser import Watched
from support.consoles import CANARY, OPEN, World, world

from deid_agent.app import WorkerFactory
from deid_agent.cli.playground import PlaygroundFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.http.access import AccessSettings
from deid_agent.http.playground_process import PLAYGROUND_BYTES, PlaygroundProcess
from deid_agent.pipeline.policy import load_policy
from deid_agent.rules import data_folder
from deid_agent.telemetry import events

READY = {
    "": "#tiles .tile",
    "dead-letters": "#list td",
    "audit": ".entry",
    "rules": "#rules td",
    "playground": "#state:has-text('Ready')",
    "evaluation": "#models td",
}
"""An element that exists once the page has loaded its data."""


def playground() -> PlaygroundProcess:
    rules = data_folder("rules")
    made = load_policy("pseudonymised", rules)
    return PlaygroundProcess(
        PlaygroundFactory(
            WorkerFactory(rules=rules, key=SecretKey(bytes(32)), policy=made, max_bytes=PLAYGROUND_BYTES)
        ),
        deadline_s=60,
    )


@asynccontextmanager
async def console(file: Path, access: AccessSettings = OPEN, interval_s: float = 3600) -> AsyncIterator[World]:
    async with world(file, access, playground=playground(), interval_s=interval_s) as shown:
        shown.telemetry.emit(events.BatchCommitted(CANARY, 0, 20, 18, 0, 2, 0.2))
        shown.telemetry.emit(events.Gauged(CANARY, 0, 4, 7))
        shown.telemetry.emit(events.RecordProcessed("adt/0/1", 0.03, 1, (), (("DATE", 3), (CANARY, 1))))
        shown.sources.history.take_sample()
        yield shown


def assert_isolated(shown: World, seen: Watched) -> None:
    """No message on the browser's console, no script of a canary, no request to another host."""
    assert seen.messages == []
    assert [url for url in seen.requested if not url.startswith(f"{shown.base}/console/")] == []
    assert seen.requested
