"""Assembles an agent from settings and runs it. Only this module and ``service_mllp`` know every part."""

import asyncio
import hashlib
import logging
import secrets
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from deid_agent import __version__
from deid_agent.agent import (
    DeadLetterLimit,
    DeadLetterSealer,
    DeadLetterStore,
    Executor,
    Health,
    InlineExecutor,
    ResumeFrom,
    Runner,
    RunnerSettings,
    Transport,
    WorkerPool,
    WorkerSettings,
    load_public_key,
)
from deid_agent.app import WorkerFactory
from deid_agent.audit import AuditTrail, Signer, read_last_batches
from deid_agent.cli.audit_service import open_witness, trail_settings
from deid_agent.cli.inventory import RunningAgent, read_inventory
from deid_agent.cli.playground import PlaygroundFactory
from deid_agent.cli.projects import (
    check_rekey,
    dead_letter_builds,
    describe_policy,
    describe_projects,
    make_projects,
    output_marks,
    project_parts,
    read_policy,
)
from deid_agent.cli.service_mllp import (
    check_mllp_folders,
    listener_section,
    mllp_transport,
    receiver_section,
    with_mllp_output,
)
from deid_agent.cli.unexamined_file import UnexaminedFile
from deid_agent.config import AgentSettings, HttpSettings, SecretKey, Settings, TransportKind
from deid_agent.core import core_name
from deid_agent.http import (
    CONSOLE_LIMITS,
    PLAYGROUND_BYTES,
    AccessSettings,
    ConsoleSources,
    History,
    OperatorServer,
    PlaygroundProcess,
    console_routes,
    operator_routes,
)
from deid_agent.model import ConfigurationError
from deid_agent.pipeline import Policy, ScopeTableFile, make_envelope, make_registry_options
from deid_agent.rules import data_folder, digest_folder
from deid_agent.telemetry import Built, ProjectOpened, Telemetry, no_core, quiet, quiet_loop, stream_handler
from deid_agent.transport.folder import FolderDeadLetters, FolderTransport, check_audit_folder, check_transport_folders
from deid_agent.transport.mllp import MllpDeadLetters

_PROJECTS = ("routes", "keys", "projects", "allow_rekey")


@dataclass(frozen=True, slots=True)
class FolderResult:
    """The numbers of files that a folder without watch left: refused, unreadable, and entries that are not files."""

    refused: int = 0
    unreadable: int = 0
    skipped: int = 0


def serve(settings: Settings, key: SecretKey, resume_from: ResumeFrom | None = None) -> FolderResult:
    """Run the agent until it is stopped or its folder is empty.

    ``resume_from`` chooses the start in partitions of Kafka whose position is gone. Returns the files that a folder
    without watch left; other sources report refusals in logs and metrics only. Raises ``ConfigurationError`` if the
    agent cannot start, and ``UnsafeError`` if it had to stop.
    """
    _set_up_logging(settings.log_level)
    no_core()
    telemetry = Telemetry()
    with quiet(telemetry):
        return asyncio.run(_serve(settings, key, telemetry, resume_from))


def make_worker_factory(settings: Settings, key: SecretKey) -> WorkerFactory:
    """The factory of the workers.

    Raises ``ConfigurationError`` if a setting contradicts a policy, or if the key of a project cannot be loaded.
    """
    rules = data_folder("rules", None if settings.rules is None else str(settings.rules))
    policy, projects = read_policy(settings, settings.policy, rules), make_projects(settings, key, rules)
    for each in (policy, *(project.policy for project in projects)):
        check_memory(settings, each)
    return WorkerFactory(
        rules=rules,
        key=key,
        policy=policy,
        system=settings.system,
        models=settings.models,
        profile=settings.profile,
        max_bytes=settings.agent.max_message_bytes,
        validate=settings.agent.validate_output,
        unexamined=settings.audit.unexamined is not None,
        remembered_patients=settings.agent.remembered_patients,
        envelopes=tuple((topic, make_envelope(each)) for topic, each in settings.envelopes.items()),
        registry=None if settings.registry is None else make_registry_options(settings.registry),
        projects=projects,
        scopes=None if settings.scope_table is None else ScopeTableFile.of(settings.scope_table, key, policy),
    )


def check_memory(settings: Settings, policy: Policy) -> str:
    """A description of the memory of names.

    Raises ``ConfigurationError`` if the policy unlinks documents: the output of a document may depend on no other.
    """
    patients, workers = settings.agent.remembered_patients, max(1, settings.agent.workers)
    if patients and policy.unlinked:
        raise ConfigurationError(
            f"agent.remembered_patients: set 0, because the policy {policy.name} unlinks documents and none may depend "
            "on another"
        )
    held = "each of the workers" if workers > 1 else "the worker"
    return f"names of {patients} patients in {held}; outputs depend on earlier messages"


def check_key(settings: Settings, key: SecretKey) -> SecretKey:
    """``key``. Raises ``ConfigurationError`` if it is the demonstration key and the transport must not run with it."""
    if key.demo and settings.transport is not TransportKind.DIRECTORY and not settings.allow_demo_key:
        raise ConfigurationError("the demonstration key is for demonstrations: set key_file, or set allow_demo_key")
    return key


def make_sealer(settings: Settings, build: Mapping[str, str]) -> DeadLetterSealer:
    """The sealer of dead letters, with the build for their headers. An invalid key is a ``ConfigurationError``."""
    path = settings.dead_letters.public_key
    return DeadLetterSealer(None if path is None else load_public_key(path), tuple(build.items()))


def open_dead_letters(settings: Settings, topics: Sequence[str]) -> DeadLetterStore:
    """The dead letters of these input topics, or of all if ``topics`` is empty. Raises ``ConfigurationError``."""
    if settings.transport is TransportKind.MLLP:
        return MllpDeadLetters(listener_section(settings), _max_file_bytes(settings))
    ours = settings.directory
    if settings.transport is TransportKind.KAFKA or ours is None:
        from deid_agent.transport.kafka import KafkaDeadLetters, kafka_options  # noqa: PLC0415 - only with Kafka

        return KafkaDeadLetters(kafka_options(settings), topics)
    return FolderDeadLetters(ours.input, ours.dead_letters, _max_file_bytes(settings))


def check_folders(settings: Settings) -> None:
    """Raise ``ConfigurationError`` if a folder or file of the settings cannot be used. Writes nothing."""
    ours = settings.directory if settings.transport is TransportKind.DIRECTORY else None
    if ours is not None:
        check_transport_folders(ours.input, ours.output, ours.dead_letters, ours.state)
    if settings.transport is TransportKind.MLLP and settings.mllp is not None:
        check_mllp_folders(settings.mllp)
    check_audit_folder(settings.audit.path, None if ours is None else ours.input)
    if settings.audit.unexamined is not None:
        UnexaminedFile(settings.audit.unexamined, Telemetry())


async def _serve(
    settings: Settings, key: SecretKey, telemetry: Telemetry, resume_from: ResumeFrom | None
) -> FolderResult:
    loop = asyncio.get_running_loop()
    quiet_loop(loop, telemetry)
    parts = make_worker_factory(settings, key)
    check_folders(settings)
    build = describe_build(settings, parts)
    check_rekey(settings, parts)
    sealer = replace(
        make_sealer(settings, {name: value for name, value in build.items() if name != "version"}),
        builds=dead_letter_builds(settings, parts),
    )
    health = Health()
    witness = open_witness(settings.audit, telemetry, health, loop)
    audit = AuditTrail(
        settings.audit.path,
        {**build, **describe_projects(settings, parts)},
        Signer(key.audit_seed),
        telemetry,
        trail_settings(settings.audit),
        on_head=None if witness is None else witness.offer,
    )
    try:
        transport = _transport(settings, sealer, telemetry, resume_from)
        executor = _executor(settings.agent, parts, telemetry)
        limits = _runner_settings(settings)
        marks, others = output_marks(settings, parts)
        path = settings.audit.unexamined
        ledger = None if path is None else UnexaminedFile(path, telemetry)
        runner = Runner(
            transport,
            executor,
            audit,
            limits,
            marks=marks,
            telemetry=telemetry,
            health=health,
            on_published=None if ledger is None else ledger.add,
            projects=others,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.request_stop)
        telemetry.emit(Built(build["version"], build["rules"], build["models"], build["policy"], core_name()))
        if settings.has_projects:
            for each in project_parts(parts).values():
                telemetry.emit(ProjectOpened(each.name, describe_policy(each.policy), each.key.id, each.generation))
        running = RunningAgent(parts, settings, build, key.demo)
        kept = nullcontext() if ledger is None else ledger.kept_written()
        async with kept, _operator(settings.http, health, telemetry, running):
            await runner.run()
        if isinstance(transport, FolderTransport) and transport.exhausted:
            return FolderResult(transport.dead_letters, len(transport.unreadable), transport.skipped)
        return FolderResult()
    finally:
        await audit.close()
        if witness is not None:
            await loop.run_in_executor(None, witness.close)


@asynccontextmanager
async def _operator(
    http: HttpSettings, health: Health, telemetry: Telemetry, running: RunningAgent
) -> AsyncIterator[None]:
    """Serve the operator's pages inside the ``with`` block."""
    if not http.enabled:
        yield
        return
    async with AsyncExitStack() as stack:
        pages = [*operator_routes(health, telemetry.registry)]
        if http.console:
            sources = console_sources(http, running, telemetry, health)
            access = AccessSettings(http.token(), http.console_write, http.loopback)
            pages += await stack.enter_async_context(console_routes(sources, access, telemetry))
        server = OperatorServer(http.host, http.port, pages, telemetry, CONSOLE_LIMITS if http.console else None)
        await server.start()
        stack.push_async_callback(server.stop)
        yield


@asynccontextmanager
async def show_console(settings: Settings, key: SecretKey, port: int) -> AsyncIterator[int]:
    """Serve only the console, on loopback, inside the ``with`` block. Yields the port."""
    telemetry = Telemetry()
    parts = make_worker_factory(settings, key)
    http = settings.http.model_copy(update={"host": "127.0.0.1", "port": port, "console": True})
    running = RunningAgent(parts, settings, describe_build(settings, parts), key.demo)
    access = AccessSettings(http.token(), http.console_write)
    async with console_routes(console_sources(http, running, telemetry, None), access, telemetry) as pages:
        server = OperatorServer(http.host, port, pages, telemetry, CONSOLE_LIMITS)
        await server.start()
        try:
            yield server.port
        finally:
            await server.stop()


def console_sources(
    http: HttpSettings, running: RunningAgent, telemetry: Telemetry, health: Health | None
) -> ConsoleSources:
    """The parts that the console shows. The playground gets a random key, see ``PlaygroundFactory``."""
    settings = running.settings
    # Another key cannot open a scope table.
    parts = replace(
        running.parts,
        key=SecretKey(secrets.token_bytes(32)),
        scopes=None,
        projects=(),
        max_bytes=PLAYGROUND_BYTES,
        validate=False,
    )
    return ConsoleSources(
        build=running.build,
        demo=running.demo,
        inventory=partial(read_inventory, running),
        open_dead_letters=partial(open_dead_letters, settings, ()),
        audit_folder=settings.audit.path,
        audit_key=Signer(running.parts.key.audit_seed).public,
        history=History(telemetry.registry, time.time),
        health=health,
        playground=PlaygroundProcess(PlaygroundFactory(parts)) if http.console_playground else None,
        report=http.console_report if http.has_token else None,
    )


def _transport(
    settings: Settings, sealer: DeadLetterSealer, telemetry: Telemetry, resume_from: ResumeFrom | None
) -> Transport:
    if settings.transport is TransportKind.MLLP:
        return mllp_transport(settings, sealer, telemetry)
    if settings.transport is TransportKind.KAFKA:
        from deid_agent.transport.kafka import KafkaTransport, kafka_options  # noqa: PLC0415 - only with Kafka

        transport = KafkaTransport(
            kafka_options(settings),
            sealer=sealer,
            telemetry=telemetry,
            history=partial(read_last_batches, settings.audit.path),
            resume_from=resume_from,
        )
        return with_mllp_output(settings, transport)
    ours = settings.directory
    if ours is None:
        raise ConfigurationError("there is no [directory] section")
    return FolderTransport(
        ours,
        max_file_bytes=_max_file_bytes(settings),
        sealer=sealer,
        telemetry=telemetry,
    )


def _max_file_bytes(settings: Settings) -> int:
    """The largest file that is read. A file above the limit for messages is read and refused, not skipped."""
    return 4 * settings.agent.max_message_bytes


def _executor(agent: AgentSettings, parts: WorkerFactory, telemetry: Telemetry) -> Executor:
    if agent.workers == 0:
        return InlineExecutor(parts)
    workers = WorkerSettings(deadline_s=agent.deadline_s, attempts=agent.attempts)
    return WorkerPool(parts, agent.workers, telemetry, workers)


def _runner_settings(settings: Settings) -> RunnerSettings:
    agent, dead_letters = settings.agent, settings.dead_letters
    defaults = RunnerSettings()
    return RunnerSettings(
        # A sender waits for its answer before it sends the next message, so waiting for more would only delay it.
        linger_s=0.0 if settings.transport is TransportKind.MLLP else defaults.linger_s,
        commit_timeout_s=defaults.commit_timeout_s + _serial_delivery_s(settings),
        poll_limit=max(1, min(128, agent.max_in_flight // 2)),
        max_in_flight=agent.max_in_flight,
        batch_records=agent.batch,
        drain_s=agent.drain_s,
        start_timeout_s=agent.start_s,
        dead_letters=DeadLetterLimit(run=dead_letters.run, ratio=dead_letters.ratio),
    )


def _serial_delivery_s(settings: Settings) -> float:
    """The extra time of a commit that delivers outputs one by one: each may wait for one other and then be sent."""
    match settings.transport, settings.destination:
        case _, TransportKind.MLLP:
            longest_s = receiver_section(settings).longest_s
        case TransportKind.MLLP, TransportKind.KAFKA:
            from deid_agent.transport.kafka import kafka_options  # noqa: PLC0415 - only with Kafka

            longest_s = kafka_options(settings).longest_s
        case _:
            return 0.0
    return settings.agent.batch * 2 * longest_s


def describe_build(settings: Settings, parts: WorkerFactory) -> dict[str, str]:
    """Versions and digests of the program and its configuration, for the audit."""
    # Secrets are masked in the JSON, so the digest reveals nothing about them.
    unset = {
        name for name in _PROJECTS if not getattr(settings, name)
    }  # an agent without projects has its former digest
    configuration = hashlib.sha256(settings.model_dump_json(exclude=unset).encode()).hexdigest()
    models = data_folder("models", None if settings.models is None else str(settings.models))
    return {
        "version": __version__,
        "rules": digest_folder(parts.rules)[:16],
        "models": digest_folder(models)[:16],
        "policy": describe_policy(parts.policy),
        "configuration": configuration[:16],
        "key": parts.key.id,
        **({} if parts.scopes is None else {"scopes": parts.scopes.identity}),
    }


def _set_up_logging(level: str) -> None:
    """Write JSON lines of typed events to standard error, for our own log lines and those of libraries."""
    root = logging.getLogger()
    root.handlers[:] = [stream_handler()]
    root.setLevel(level.upper())
