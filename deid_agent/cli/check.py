"""``deid-agent check``: whether ``run`` would start."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from pathlib import Path

import click
import orjson

from deid_agent.agent import DEFAULT_PROJECT
from deid_agent.app import WorkerFactory
from deid_agent.audit import LineKind, examine_trail, read_target_keys
from deid_agent.cli.check_envelope import check_envelope
from deid_agent.cli.check_kafka import Finding, attempt, attempt_warnings, check_kafka
from deid_agent.cli.common import Exit, handle_errors
from deid_agent.cli.drift_monitor import read_states
from deid_agent.cli.projects import (
    check_rekey,
    choose_profile_bound,
    describe_markings,
    describe_policy,
    describe_shape,
    make_shape,
    project_parts,
)
from deid_agent.cli.service_http import check_service
from deid_agent.cli.service_jobs import check_jobs
from deid_agent.cli.service_mllp import check_listener, check_receiver
from deid_agent.cli.service_parts import check_folders, check_key, check_memory, make_sealer, make_worker_factory
from deid_agent.config import DEMO_KEY, ProjectSettings, Settings, TransportKind, load_key, load_settings
from deid_agent.core import describe_core
from deid_agent.model import ConfigurationError, PhiType, RecordTime, TransientError, counted
from deid_agent.pipeline import (
    Method,
    Policy,
    ScopeTableFile,
    ShapeName,
    Validator,
    load_policy,
    make_registry_options,
    open_table,
)
from deid_agent.recognize import load_rules
from deid_agent.rules import data_folder, digest_folder, digest_sites, find_rules
from deid_agent.schemas import SchemaRegistry
from deid_agent.transport.kafka import kafka_options


@click.command()
@click.option(
    "--config", "file", metavar="FILE", required=True, type=click.Path(path_type=Path), help="The settings to check."
)
@click.option("--offline", is_flag=True, help="Do not connect to the broker, the receiver or the schema registry.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per check.")
@handle_errors
def check(file: Path, offline: bool, as_json: bool) -> Exit:
    """Check whether `run` would start, without taking a message.

    Checks settings, rules, models, key, policy, folders, the broker or the MLLP receiver, and the schema registry. The
    exit code is 2 if `run` would fail. Lines with `warn` name settings with which `run` starts but reveals more than
    the policy states.
    """
    # The Kafka client logs errors that we report ourselves; without a handler Python would print them.
    logging.getLogger().addHandler(logging.NullHandler())
    code = Exit.DONE
    for finding in _findings(file, offline):
        if finding.problem:
            code = Exit.CONFIGURATION
        detail = finding.problem or finding.warning or finding.shown
        if as_json:
            line = {"check": finding.name, "ok": not finding.problem, "detail": detail}
            click.echo(orjson.dumps(line | ({"warning": True} if finding.warning else {})).decode())
        else:
            mark = "FAIL" if finding.problem else "warn" if finding.warning else "ok"
            click.echo(f"{mark:5}{finding.name:14}{detail}".rstrip())
    return code


def _findings(file: Path, offline: bool) -> Iterator[Finding]:
    try:
        settings = load_settings(file)
    except ConfigurationError as problem:
        yield Finding("settings", problem=str(problem))
        return
    yield Finding("settings", str(file))
    steps: tuple[tuple[str, Callable[[], str]], ...] = (
        ("rules", lambda: _rules(settings)),
        *((("site", lambda: _site(settings)),) if _has_sites(settings) else ()),
        ("models", lambda: digest_folder(data_folder("models", _str(settings.models)))[:16]),
        ("core", describe_core),
        ("key", lambda: f"id {check_key(settings, load_key(settings.key_file)).id}"),
        ("policy", lambda: _policy(settings)),
        ("dates", lambda: str(load_policy(settings.policy, _rules_folder(settings)).date_bounds)),
        *((("scope table", lambda: _scope_table(settings)),) if settings.scope_table is not None else ()),
        ("recognizers", lambda: _recognizers(settings)),
        *(() if settings.transport is TransportKind.HTTP else (("dead letters", lambda: _dead_letters(settings)),)),
        ("folders", lambda: _folders(settings)),
        *((("shape", lambda: _shape(settings)),) if make_shape(settings).name is not ShapeName.NONE else ()),
        *((("memory", lambda: _memory(settings)),) if settings.agent.remembered_patients else ()),
        *((("validation", _validation),) if settings.agent.validate_output else ()),
        *((("console", lambda: _console(settings)),) if settings.http.console else ()),
    )
    for name, step in steps:
        yield attempt(name, step)
    yield from _projects(settings)
    yield from _bounds(settings)
    if added := describe_markings(settings):
        yield Finding("additions", added)
    yield from _crosswalks(settings)
    yield from _envelopes(settings, offline)
    yield from _publish(settings)
    yield attempt("times", lambda: _times(settings))
    yield from attempt_warnings("times", lambda: _dates_and_times(settings))
    kinds = {settings.transport, settings.destination}
    if TransportKind.KAFKA in kinds:
        kafka = attempt("kafka", lambda: str(kafka_options(settings).connection()["security_protocol"]))
        yield kafka
        if not offline and not kafka.problem:
            yield from check_kafka(settings, lambda: _policies(settings))
    if settings.transport is TransportKind.MLLP:
        yield attempt("mllp", lambda: check_listener(settings))
    if settings.transport is TransportKind.HTTP:
        yield attempt("service", lambda: check_service(settings))
    if settings.jobs is not None:
        yield attempt("jobs", lambda: check_jobs(settings, _job_policies(settings)))
    if settings.destination is TransportKind.MLLP:
        yield attempt("mllp_out", lambda: asyncio.run(check_receiver(settings, offline)))


def _job_policies(settings: Settings) -> dict[str, Policy]:
    """The policy of each project that may have jobs."""
    names = {name: each.policy for name, each in settings.projects.items() if each.has_jobs}
    folder = _rules_folder(settings)
    return {
        name: load_policy(policy or settings.policy, folder)
        for name, policy in {DEFAULT_PROJECT: settings.policy, **names}.items()
    }


def _projects(settings: Settings) -> Iterator[Finding]:
    """Policy, key and routes of each project, and whether the audit shows another key. Asks the sources of keys."""
    try:
        if not settings.has_projects and not read_target_keys(settings.audit.path, ()).named:
            return
        parts = make_worker_factory(settings, load_key(settings.key_file))
    except ConfigurationError as problem:
        if settings.has_projects:  # else the findings of key and policy show it
            yield Finding("project", problem=str(problem))
        return
    try:
        for name, each in project_parts(parts).items() if settings.has_projects else ():
            routes = [f"{feed.topic} to {feed.target}" for feed in settings.feeds if feed.project == name]
            generation = f" of generation {each.generation}" if each.generation else ""
            yield Finding(
                "project",
                f"{name}: policy {each.policy.name}, digest {each.policy.digest[:16]}; key id {each.key.id}"
                f"{generation}; {''.join(f'shape {each}; ' for each in describe_shape(each.shape).values())}"
                f"{', '.join(routes) or 'no route'}",
            )
            if (each.system, each.profile) != (settings.system, settings.profile):
                yield attempt(f"project {name}", lambda: _recognizers(settings, each.system, each.profile))  # noqa: B023
        check_rekey(settings, parts)
    except ConfigurationError as problem:
        yield Finding("project", problem=str(problem))


def _crosswalks(settings: Settings) -> Iterator[Finding]:
    """The keys that open the crosswalk of each project, or why it cannot be written."""
    if not settings.crosswalks:
        return
    try:
        parts = make_worker_factory(settings, load_key(settings.key_file))
        for name, sealer in parts.crosswalks:
            path = settings.crosswalks[name].path
            if path.is_dir():
                examine_trail(path, LineKind.CROSSWALK)
            alone = "" if len(sealer.ids) > 1 else ", one person alone"
            yield Finding("crosswalk", f"{name}: {path}, opened with key {' and then key '.join(sealer.ids)}{alone}")
    except ConfigurationError as problem:
        yield Finding("crosswalk", problem=str(problem))


def _validation() -> str:
    """Both libraries of schemas load, and read a sample as valid."""
    problems = Validator().problems(b'{"resourceType":"Patient","active":true}')
    if problems:
        raise ConfigurationError(f"fhir.resources finds a sample invalid ({min(problems)}): install the pinned version")
    return "hl7apy, fhir.resources"


def _times(settings: Settings) -> str:
    """The time of outputs, and the information that it gives readers of a whole topic or folder about shifted dates."""
    policy = load_policy(settings.policy, _rules_folder(settings))
    time = policy.record_time
    shifted = policy.date_bounds.shifted
    ordered = shifted and settings.destination is TransportKind.KAFKA
    order = (
        "; the order of a live topic shows the shift of events to about a day; births are not affected"
        if ordered
        else ""
    )
    if settings.destination is TransportKind.MLLP or time is RecordTime.NONE:
        return f"outputs have no time{order}"
    shown = f"outputs have the {'time' if time is RecordTime.KEEP else time} of their record"
    if not shifted:
        return shown
    if time is RecordTime.YEAR:
        return f"{shown}: near the turn of a year an event has fewer candidate days{order}"
    return f"{shown}: readers of all outputs know the shift of events to that precision; births are not affected"


def _dates_and_times(settings: Settings) -> list[str]:
    """Warnings if outputs have a finer time than the dates in them."""
    found = []
    for policy in {each.digest: each for each in _policies(settings).values()}.values():
        coarse = policy.method(PhiType.DATE, "") in {Method.GENERALIZE, Method.MASK, Method.REDACT}
        if coarse and policy.record_time not in {RecordTime.YEAR, RecordTime.NONE}:
            time = policy.record_time
            found.append(f"policy {policy.name} publishes no days, but record.timestamp is {time}; set it to year")
    return found


def _policies(settings: Settings) -> dict[str, Policy]:
    """The policy of each project."""
    named = {name: each.policy or settings.policy for name, each in settings.projects.items()}
    folder = _rules_folder(settings)
    return {name: load_policy(policy, folder) for name, policy in {DEFAULT_PROJECT: settings.policy, **named}.items()}


def _str(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _rules_folder(settings: Settings) -> Path:
    return find_rules(settings.rules).folder


def _has_sites(settings: Settings) -> bool:
    return isinstance(settings.rules, tuple) and len(settings.rules) > 1


def _rules(settings: Settings) -> str:
    found = find_rules(settings.rules)
    loaded = load_rules(found.folder, found.sites)
    return (
        f"{counted(len(loaded.patterns), 'pattern')}, {counted(len(loaded.vetoes), 'veto', 'vetoes')}, "
        f"{counted(len(loaded.late_vetoes), 'late veto', 'late vetoes')}, "
        f"digest {digest_folder(found.folder)[:16]}"
    )


def _site(settings: Settings) -> str:
    """What the site folders add and remove, in numbers, and their digest."""
    found = find_rules(settings.rules)
    site = load_rules(found.folder, found.sites).site
    return "" if site is None else f"{site.summary}, digest {digest_sites(found.sites)[:16]}"


def _policy(settings: Settings) -> str:
    policy = load_policy(settings.policy, _rules_folder(settings))
    names = f", names {policy.names_digest[:16]}" if policy.names_digest else ""
    return f"{policy.name}, digest {policy.digest[:16]}{names}"


def _scope_table(settings: Settings) -> str:
    """The identity of the scope table and its size."""
    if settings.scope_table is None:
        return ""
    key = load_key(settings.key_file)
    found = ScopeTableFile.of(settings.scope_table, key, load_policy(settings.policy, _rules_folder(settings)))
    aliases = open_table(settings.scope_table, key).aliases
    return f"{found.identity}, {counted(aliases, 'alias', 'aliases')}"


def _publish(settings: Settings) -> Iterator[Finding]:
    """The paths that an allow-list policy publishes. A policy without a list, or one that fails to load, gives none."""
    with suppress(ConfigurationError):
        policy = load_policy(settings.policy, _rules_folder(settings))
        if policy.published is not None:
            yield Finding("publish", f"only {', '.join(sorted(policy.published.paths))}")


def _recognizers(settings: Settings, system: str | None = None, profile: str | None = None) -> str:
    system, profile = system or settings.system, profile or settings.profile
    found = find_rules(settings.rules)
    WorkerFactory(
        rules=found.folder,
        sites=found.sites,
        key=DEMO_KEY,
        policy=load_policy(settings.policy, found.folder),
        system=system,
        profile=profile,
        models=settings.models,
    ).deidentifier()
    return f"system {system}, profile {profile}"


def _bounds(settings: Settings) -> Iterator[Finding]:
    """The claim of each project with a leak bound, and whether its feeds still are like the sample."""
    users: dict[str, ProjectSettings | None] = {DEFAULT_PROJECT: None, **settings.projects}
    digests = set()
    for name, project in users.items():
        policy = (None if project is None else project.policy) or settings.policy
        try:
            bound = choose_profile_bound(settings, project)
            if bound is None:
                continue
            digests.add(bound.digest)
            yield Finding("bound", f"{name}: {bound.sentence} {bound.cost}, digest {bound.digest}")
            if (used := describe_policy(load_policy(policy, _rules_folder(settings)))) != bound.policy:
                shown = f"{name}: it was computed with policy {bound.policy}, and {used} is used"
                yield Finding("bound", warning=f"{shown}: check that this one keeps no more")
        except ConfigurationError as problem:
            digests.add("")
            yield Finding("bound", problem=str(problem))
    if digests:
        yield from _drift(settings, digests)


def _drift(settings: Settings, digests: Set[str]) -> Iterator[Finding]:
    """The comparisons of feeds with the samples of these bounds, from the file that the agent keeps."""
    if not settings.drift.window:
        yield Finding("drift", warning="drift.window is 0: no feed is compared with the sample of its bound")
    elif settings.drift.file is None:
        yield Finding("drift", warning="set drift.file: without it the comparisons end with the agent")
    else:
        try:
            states = [each for each in read_states(settings.drift.file) if each.bound in digests]
        except ConfigurationError as problem:
            yield Finding("drift", problem=str(problem))
            return
        if not states:
            yield Finding("drift", "no feed is compared yet")
        for state in states:
            yield Finding("drift", warning=state.remark) if state.differs else Finding("drift", state.remark)


def _envelopes(settings: Settings, offline: bool) -> Iterator[Finding]:
    """The places of the messages of each topic with an envelope; with a registry also if its schema has them."""
    client: SchemaRegistry | None = None
    if settings.registry is not None:
        try:
            client = SchemaRegistry(make_registry_options(settings.registry))
            shown = settings.registry.url
            yield Finding("registry", shown if offline else f"{shown}: {client.probe()}")
        except (ConfigurationError, TransientError) as problem:
            yield Finding("registry", problem=str(problem))
            client = None
    for topic, each in settings.envelopes.items():
        places = f"{topic}: {', '.join(each.payload) or 'the record'}, {each.encoding}"
        if not each.schema_registry or client is None or offline:
            yield Finding("envelope", places)
            continue
        try:
            state, fault = check_envelope(client, topic, each)
            yield Finding("envelope", f"{places}; {state}", problem=f"{topic}: {fault}" if fault else "")
        except TransientError as error:
            yield Finding("envelope", problem=f"{topic}: {error}")


def _shape(settings: Settings) -> str:
    shape = make_shape(settings).check(load_policy(settings.policy, _rules_folder(settings)))
    return describe_shape(shape)["shape"]


def _memory(settings: Settings) -> str:
    return check_memory(settings, load_policy(settings.policy, _rules_folder(settings)))


def _dead_letters(settings: Settings) -> str:
    public = make_sealer(settings, {}).public
    return "in the clear, with all PHI" if public is None else f"sealed to {public.id}"


def _console(settings: Settings) -> str:
    who = "open to this machine" if settings.http.token() is None else "with the token"
    rights = "may replay" if settings.http.console_write else "read-only"
    return f"{settings.http.host}:{settings.http.port}, {who}, {rights}"


def _folders(settings: Settings) -> str:
    check_folders(settings)
    if settings.audit.path.is_dir():
        examine_trail(settings.audit.path)
    ours = settings.directory if settings.transport is TransportKind.DIRECTORY else None
    places = [ours.input, ours.output] if ours else []
    if settings.transport is TransportKind.MLLP and settings.mllp is not None:
        places = [place for place in (settings.mllp.output, settings.mllp.dead_letters) if place is not None]
    return ", ".join(map(str, (*places, settings.audit.path)))
