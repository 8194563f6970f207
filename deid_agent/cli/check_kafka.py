"""The checks of ``check`` that ask the broker, and the findings of all checks."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from deid_agent.agent import DEFAULT_PROJECT
from deid_agent.config import Settings, TransportKind
from deid_agent.model import ConfigurationError, TransientError
from deid_agent.pipeline import Policy
from deid_agent.transport.kafka import (
    KafkaOptions,
    kafka_options,
    matched_options,
    probe_broker,
    probe_compaction,
    probe_output_times,
    probe_output_topics,
    probe_retention,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``problem`` is empty if the check passed; a ``warning`` does not stop `run`."""

    name: str
    shown: str = ""
    problem: str = ""
    warning: str = ""


def attempt(name: str, step: Callable[[], str]) -> Finding:
    """The finding of one step, whose ``ConfigurationError`` is a problem."""
    try:
        return Finding(name, step())
    except ConfigurationError as problem:
        return Finding(name, problem=str(problem))


def attempt_warnings(name: str, step: Callable[[], list[str]]) -> Iterator[Finding]:
    """A finding for each warning. A step that fails gives none, because the check of its subject reports the error."""
    with suppress(ConfigurationError, TransientError):
        yield from (Finding(name, warning=warning) for warning in step())


def check_kafka(settings: Settings, policies: Callable[[], Mapping[str, Policy]]) -> Iterator[Finding]:
    """Connect to the broker: its topics, their compaction, the retention of positions and the times of outputs.

    ``policies`` are those of all projects.
    """
    yield from _broker(settings)
    yield from _compaction(settings)
    yield from attempt_warnings("positions", lambda: _position_retention(settings))
    yield from attempt_warnings("times", lambda: _topic_times(settings, policies()))


def _broker(settings: Settings) -> Iterator[Finding]:
    try:
        ask = probe_broker if settings.transport is TransportKind.KAFKA else probe_output_topics
        options = _options(settings)
        problems = asyncio.run(ask(options))
    except ConfigurationError as problem:
        yield Finding("broker", problem=str(problem))
        return
    routes = ", ".join(f"{a} to {b or 'MLLP'}" for a, b in options.routes.items())
    if options.topics_pattern is not None:
        # A topic that cannot be used yet does not stop the others.
        yield from (Finding("broker", warning=f"not read yet: {line}") for line in problems)
        routes += f", by {options.topics_pattern} now"
        problems = []
    yield from (Finding("broker", problem=line) for line in problems)
    if not problems:
        yield Finding("broker", f"{options.bootstrap_servers}: {routes}")


def _compaction(settings: Settings) -> Iterator[Finding]:
    """Compacted topics: a problem for messages that never have a key, a warning for outputs."""
    with suppress(ConfigurationError, TransientError):
        problems, warnings = asyncio.run(probe_compaction(_options(settings)))
        yield from (Finding("topics", problem=problem) for problem in problems)
        yield from (Finding("topics", warning=warning) for warning in warnings)


def _position_retention(settings: Settings) -> list[str]:
    if settings.transport is not TransportKind.KAFKA:
        return []
    return asyncio.run(probe_retention(kafka_options(settings)))


def _topic_times(settings: Settings, policies: Mapping[str, Policy]) -> list[str]:
    options, owners = _options(settings), {feed.topic: feed.project for feed in settings.feeds}
    found = []
    for name, policy in policies.items():
        routes = {a: b for a, b in options.routes.items() if owners.get(a, DEFAULT_PROJECT) == name}
        if routes:
            ours = options.model_copy(update={"routes": routes})
            found += asyncio.run(probe_output_times(ours, policy.record_time))
    return found


def _options(settings: Settings) -> KafkaOptions:
    """The options with the topics that a pattern matches now. Raises ``ConfigurationError``."""
    try:
        return asyncio.run(matched_options(kafka_options(settings)))
    except TransientError as problem:
        raise ConfigurationError(str(problem)) from None
