"""``deid-agent check``: would ``run`` start? Settings, rules, models, key, policy, folders or broker."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import orjson

from deid_agent import config, resources
from deid_agent import key as keys
from deid_agent import policy as policies
from deid_agent.audit.trail import examine
from deid_agent.cli.common import Exit, guarded
from deid_agent.cli.wire import check_folders, check_key, kafka_settings, keeper_of
from deid_agent.cli.wire_mllp import check_listener, check_receiver
from deid_agent.config import Settings, TransportKind
from deid_agent.errors import ConfigurationError
from deid_agent.recognize import registry
from deid_agent.transport.kafka_probe import probe, probe_outputs
from deid_agent.wiring import Workshop


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``problem`` is empty where it is in order."""

    name: str
    shown: str = ""
    problem: str = ""


@click.command()
@click.option(
    "--config", "file", metavar="FILE", required=True, type=click.Path(path_type=Path), help="The settings to check."
)
@click.option("--offline", is_flag=True, help="Leave the broker alone.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per thing that was checked.")
@guarded
def check(file: Path, offline: bool, as_json: bool) -> Exit:
    """Check settings, rules, models, key and broker without taking a message; exit code 2 where `run` would fail."""
    # The client logs what we report anyway; without a handler Python would print it.
    logging.getLogger().addHandler(logging.NullHandler())
    code = Exit.DONE
    for finding in _findings(file, offline):
        if finding.problem:
            code = Exit.CONFIGURATION
        if as_json:
            line = {"check": finding.name, "ok": not finding.problem, "detail": finding.problem or finding.shown}
            click.echo(orjson.dumps(line).decode())
        else:
            mark = "FAIL" if finding.problem else "ok"
            click.echo(f"{mark:5}{finding.name:14}{finding.problem or finding.shown}".rstrip())
    return code


def _findings(file: Path, offline: bool) -> Iterator[Finding]:
    try:
        settings = config.load(file)
    except ConfigurationError as problem:
        yield Finding("settings", problem=str(problem))
        return
    yield Finding("settings", str(file))
    steps: tuple[tuple[str, Callable[[], str]], ...] = (
        ("rules", lambda: _rules(settings)),
        ("models", lambda: resources.digest(resources.folder("models", _str(settings.models)))[:16]),
        ("key", lambda: f"id {check_key(settings, keys.load(settings.key_file)).id}"),
        ("policy", lambda: _policy(settings)),
        ("recognizers", lambda: _recognizers(settings)),
        ("dead letters", lambda: _letters(settings)),
        ("folders", lambda: _folders(settings)),
        *((("console", lambda: _console(settings)),) if settings.http.console else ()),
    )
    for name, step in steps:
        yield _try(name, step)
    kinds = {settings.transport, settings.goes_to}
    if TransportKind.KAFKA in kinds:
        kafka = _try("kafka", lambda: kafka_settings(settings).security_protocol)
        yield kafka
        if not offline and not kafka.problem:
            yield from _broker(settings)
    if settings.transport is TransportKind.MLLP:
        yield _try("mllp", lambda: check_listener(settings))
    if settings.goes_to is TransportKind.MLLP:
        yield _try("mllp_out", lambda: asyncio.run(check_receiver(settings, offline)))


def _try(name: str, step: Callable[[], str]) -> Finding:
    try:
        return Finding(name, step())
    except ConfigurationError as problem:
        return Finding(name, problem=str(problem))


def _str(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _rules_folder(settings: Settings) -> Path:
    return resources.folder("rules", _str(settings.rules))


def _rules(settings: Settings) -> str:
    folder = _rules_folder(settings)
    loaded = registry.load_rules(folder)
    return f"{len(loaded.patterns)} patterns, {len(loaded.vetoes)} vetoes, digest {resources.digest(folder)[:16]}"


def _policy(settings: Settings) -> str:
    policy = policies.load(settings.policy, _rules_folder(settings))
    return f"{policy.name}, digest {policy.digest[:16]}"


def _recognizers(settings: Settings) -> str:
    folder = _rules_folder(settings)
    Workshop(
        rules=folder,
        key=keys.DEMO,
        policy=policies.load(settings.policy, folder),
        system=settings.system,
        profile=settings.profile,
        models=settings.models,
    ).deidentifier()
    return f"system {settings.system}, profile {settings.profile}"


def _letters(settings: Settings) -> str:
    public = keeper_of(settings, {}).public
    return "in the clear, with all PHI" if public is None else f"sealed to {public.id}"


def _console(settings: Settings) -> str:
    who = "open to this machine" if settings.http.token() is None else "with the token"
    does = "may replay" if settings.http.console_write else "read-only"
    return f"{settings.http.host}:{settings.http.port}, {who}, {does}"


def _folders(settings: Settings) -> str:
    check_folders(settings)
    if settings.audit.path.is_dir():
        examine(settings.audit.path)
    ours = settings.directory if settings.transport is TransportKind.DIRECTORY else None
    places = [ours.input, ours.output] if ours else []
    if settings.transport is TransportKind.MLLP and settings.mllp is not None:
        places = [place for place in (settings.mllp.output, settings.mllp.dead_letters) if place is not None]
    return ", ".join(map(str, (*places, settings.audit.path)))


def _broker(settings: Settings) -> Iterator[Finding]:
    try:
        ask = probe if settings.transport is TransportKind.KAFKA else probe_outputs
        problems = asyncio.run(ask(kafka_settings(settings)))
    except ConfigurationError as problem:
        problems = [str(problem)]
    for line in problems:
        yield Finding("broker", problem=line)
    if not problems and settings.kafka is not None:
        routes = ", ".join(f"{a} to {b or 'MLLP'}" for a, b in settings.kafka.routes.items())
        yield Finding("broker", f"{settings.kafka.bootstrap_servers}: {routes}")
