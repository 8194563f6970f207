"""Assembles an agent from settings and runs it. Only this module and ``service_mllp`` know every part."""

import asyncio
import logging
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from deid_agent.agent import (
    DeadLetterLimit,
    DeadLetterSealer,
    Executor,
    Health,
    InlineExecutor,
    Processed,
    ResumeFrom,
    Runner,
    RunnerSettings,
    Transport,
    WorkerPool,
    WorkerSettings,
)
from deid_agent.app import WorkerFactory
from deid_agent.audit import AuditTrail, CrosswalkTrail, Signer, read_last_batches
from deid_agent.cli.audit_service import describe_crosswalks, open_crosswalks, open_witness, trail_settings
from deid_agent.cli.drift_monitor import make_monitor
from deid_agent.cli.inventory import RunningAgent, read_inventory
from deid_agent.cli.playground import PlaygroundFactory
from deid_agent.cli.projects import (
    check_rekey,
    dead_letter_builds,
    describe_policy,
    describe_projects,
    output_marks,
    project_parts,
)
from deid_agent.cli.service_http import http_transport, readiness, serve_requests
from deid_agent.cli.service_mllp import (
    mllp_transport,
    receiver_section,
    with_mllp_output,
)
from deid_agent.cli.service_parts import (
    check_folders,
    describe_build,
    make_sealer,
    make_worker_factory,
    max_file_bytes,
    open_dead_letters,
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
    ReviewDesk,
    console_routes,
    operator_routes,
)
from deid_agent.model import ConfigurationError, Marking
from deid_agent.telemetry import Built, ProjectOpened, Telemetry, no_core, quiet, quiet_loop, stream_handler
from deid_agent.transport import HttpTransport
from deid_agent.transport.folder import FolderTransport


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
        {**build, **describe_projects(settings, parts), **describe_crosswalks(parts)},
        Signer(key.audit_seed),
        telemetry,
        trail_settings(settings.audit),
        on_head=None if witness is None else witness.offer,
    )
    crosswalks: dict[str, CrosswalkTrail] = {}
    try:
        crosswalks.update(open_crosswalks(settings, parts, key, telemetry))
        transport = _transport(settings, sealer, telemetry, resume_from)
        executor = _executor(settings.agent, parts, telemetry)
        limits = _runner_settings(settings)
        marks, others = output_marks(settings, parts)
        path = settings.audit.unexamined
        ledger = None if path is None else UnexaminedFile(path, telemetry)
        monitor = make_monitor(settings, parts, telemetry)
        runner = Runner(
            transport,
            executor,
            audit,
            limits,
            marks=marks,
            telemetry=telemetry,
            health=health,
            on_published=_call_each(None if ledger is None else ledger.add, None if monitor is None else monitor.add),
            projects=others,
            crosswalks=crosswalks,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.request_stop)
        more = build.get("site", ""), build.get("bound", "")
        telemetry.emit(Built(build["version"], build["rules"], build["models"], build["policy"], core_name(), *more))
        if settings.has_projects:
            for each in project_parts(parts).values():
                telemetry.emit(ProjectOpened(each.name, describe_policy(each.policy), each.key.id, each.generation))
        running = RunningAgent(parts, settings, build, key.demo)
        async with AsyncExitStack() as stack:
            for kept in (ledger, monitor):
                if kept is not None:
                    await stack.enter_async_context(kept.kept_written())
            await stack.enter_async_context(_operator(settings.http, health, telemetry, running))
            if isinstance(transport, HttpTransport):
                ready = readiness(health, executor)
                requests = serve_requests(settings, transport, project_parts(parts), ready, telemetry)
                await stack.enter_async_context(requests)
            await runner.run()
        if isinstance(transport, FolderTransport) and transport.exhausted:
            return FolderResult(transport.dead_letters, len(transport.unreadable), transport.skipped)
        return FolderResult()
    finally:
        for crosswalk in crosswalks.values():
            await crosswalk.close()
        await audit.close()
        if witness is not None:
            await loop.run_in_executor(None, witness.close)


def _call_each(*calls: Callable[[Processed], None] | None) -> Callable[[Processed], None] | None:
    """One call for several; None if there is none."""
    wanted = [each for each in calls if each is not None]

    def call(result: Processed) -> None:
        for each in wanted:
            each(result)

    return call if wanted else None


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
async def show_console(
    settings: Settings, key: SecretKey, port: int, desk: ReviewDesk | None = None
) -> AsyncIterator[int]:
    """Serve only the console, on loopback, inside the ``with`` block, and the review of a desk. Yields the port."""
    telemetry = Telemetry()
    parts = make_worker_factory(settings, key)
    http = settings.http.model_copy(update={"host": "127.0.0.1", "port": port, "console": True})
    running = RunningAgent(parts, settings, describe_build(settings, parts), key.demo)
    access = AccessSettings(http.token(), http.console_write)
    sources = replace(console_sources(http, running, telemetry, None), desk=desk)
    async with console_routes(sources, access, telemetry) as pages:
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
        marking=Marking(),
        crosswalks=(),
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
    if settings.transport is TransportKind.HTTP:
        return http_transport(settings)
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
        max_file_bytes=max_file_bytes(settings),
        sealer=sealer,
        telemetry=telemetry,
    )


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
        linger_s=0.0 if settings.transport in {TransportKind.MLLP, TransportKind.HTTP} else defaults.linger_s,
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


def _set_up_logging(level: str) -> None:
    """Write JSON lines of typed events to standard error, for our own log lines and those of libraries."""
    root = logging.getLogger()
    root.handlers[:] = [stream_handler()]
    root.setLevel(level.upper())
