"""From settings to a running agent: the only place that knows every part."""

import asyncio
import hashlib
import logging
import secrets
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from deid_agent import __version__, resources
from deid_agent import policy as policies
from deid_agent.agent import letterkeys
from deid_agent.agent.deadletter import LetterLimit
from deid_agent.agent.flow import RunnerSettings
from deid_agent.agent.health import Health
from deid_agent.agent.job import Executor
from deid_agent.agent.lane import LaneSettings
from deid_agent.agent.letterbox import LetterBox
from deid_agent.agent.letterhead import Keeper
from deid_agent.agent.ports import Transport
from deid_agent.agent.runner import Runner
from deid_agent.agent.workers import InlineExecutor, WorkerPool
from deid_agent.audit.lines import Signer
from deid_agent.audit.trail import AuditTrail, TrailSettings
from deid_agent.cli.wire_mllp import check_mllp_folders, listener, mllp_transport, receiver, sent_out
from deid_agent.config import AgentSettings, HttpSettings, Settings, TransportKind
from deid_agent.console.app import LIMITS, console
from deid_agent.console.gate import Access
from deid_agent.console.history import History
from deid_agent.console.inventory import Running
from deid_agent.console.room import Room
from deid_agent.console.trying import MOST, Trial
from deid_agent.console.views import Sources
from deid_agent.errors import ConfigurationError
from deid_agent.key import Key
from deid_agent.operator.pages import routes
from deid_agent.operator.server import OperatorServer
from deid_agent.policy import KeyMode
from deid_agent.telemetry.emit import Telemetry, stream_handler
from deid_agent.telemetry.events import Built
from deid_agent.telemetry.quiet import no_core, quiet, quiet_loop
from deid_agent.transport.files import DirectoryTransport
from deid_agent.transport.folder_letters import FolderLetters
from deid_agent.transport.folders import check_audit, check_places
from deid_agent.transport.kafka import KafkaTransport
from deid_agent.transport.kafka_letters import KafkaLetters
from deid_agent.transport.kafka_settings import Delivery, KafkaSettings
from deid_agent.transport.mllp_letters import MllpLetters
from deid_agent.wiring import Workshop


@dataclass(frozen=True, slots=True)
class Left:
    """What a finite folder did not give: files refused, unreadable, and skipped as no files."""

    refused: int = 0
    unreadable: int = 0
    skipped: int = 0


def serve(settings: Settings, key: Key) -> Left:
    """Run the agent of ``settings`` until it is stopped or has nothing more to come.

    Returns what a finite folder left over; a source without an end tells its own by log and metrics. Raises
    ``ConfigurationError`` where it cannot start, ``UnsafeError`` where it had to stop.
    """
    _set_up_logging(settings.log_level)
    no_core()
    telemetry = Telemetry()
    with quiet(telemetry):
        return asyncio.run(_serve(settings, key, telemetry))


def workshop_of(settings: Settings, key: Key) -> Workshop:
    """What the workers are given. File names are read as text, Kafka keys as identifiers, unless the policy differs."""
    rules = resources.folder("rules", None if settings.rules is None else str(settings.rules))
    policy = policies.load(settings.policy, rules)
    if settings.transport is TransportKind.DIRECTORY and policy.record_key in {KeyMode.IDENTIFIER, KeyMode.DROP}:
        policy = policy.with_key(KeyMode.TEXT)
    return Workshop(
        rules=rules,
        key=key,
        policy=policy,
        system=settings.system,
        models=settings.models,
        profile=settings.profile,
        max_bytes=settings.agent.max_message_bytes,
        validate=settings.agent.validate_output,
    )


def check_key(settings: Settings, key: Key) -> Key:
    """``key``; ``ConfigurationError`` where it is everyone's and Kafka or MLLP is to run with it."""
    if key.demo and settings.transport is not TransportKind.DIRECTORY and not settings.allow_demo_key:
        raise ConfigurationError("the demonstration key is for demonstrations: give a key, or set allow_demo_key")
    return key


def keeper_of(settings: Settings, build: Mapping[str, str]) -> Keeper:
    """How dead letters are kept, and what they say of the build. ``ConfigurationError`` where the key is none."""
    path = settings.dead_letters.public_key
    return Keeper(None if path is None else letterkeys.load_public(path), tuple(build.items()))


def letter_box(settings: Settings, topics: Sequence[str]) -> LetterBox:
    """The dead letters of these input topics, of all where none is named. Raises ``ConfigurationError``."""
    if settings.transport is TransportKind.MLLP:
        section, listening = listener(settings)
        return MllpLetters(listening, section.dead_letters, _most(settings))
    ours = settings.directory
    if settings.transport is TransportKind.KAFKA or ours is None:
        return KafkaLetters(kafka_settings(settings), topics)
    return FolderLetters(ours.input, ours.dead_letters, _most(settings))


def check_folders(settings: Settings) -> None:
    """``ConfigurationError`` where a folder or file of the settings cannot serve. Writes nothing."""
    ours = settings.directory if settings.transport is TransportKind.DIRECTORY else None
    if ours is not None:
        check_places(ours.input, ours.output, ours.dead_letters, ours.state)
    if settings.transport is TransportKind.MLLP and settings.mllp is not None:
        check_mllp_folders(settings.mllp)
    check_audit(settings.audit.path, None if ours is None else ours.input)


def kafka_settings(settings: Settings) -> KafkaSettings:
    """The transport's own settings, out of ours. Raises ``ConfigurationError``."""
    ours = settings.kafka
    if ours is None:
        raise ConfigurationError("there is no [kafka] section")
    return KafkaSettings(
        bootstrap_servers=ours.bootstrap_servers,
        group_id=ours.group_id,
        routes=ours.routes,
        dead_letter_suffix=ours.dead_letter_suffix,
        audit_topic=settings.audit.topic,
        delivery=Delivery(ours.delivery.value),
        client_id=ours.client_id,
        instance_id=ours.instance_id,
        session_timeout_ms=ours.session_timeout_ms,
        # A member that still drains must not be thrown out meanwhile.
        rebalance_timeout_ms=max(60_000, int(2_000 * settings.agent.drain_s)),
        max_request_bytes=ours.max_request_bytes,
        compression=ours.compression,
        security_protocol=ours.security_protocol,
        ssl_cafile=ours.ssl_cafile,
        ssl_certfile=ours.ssl_certfile,
        ssl_keyfile=ours.ssl_keyfile,
        ssl_password=ours.key_password(),
        sasl_mechanism=ours.sasl_mechanism,
        sasl_username=ours.sasl_username,
        sasl_password=ours.user_password(),
    )


async def _serve(settings: Settings, key: Key, telemetry: Telemetry) -> Left:
    loop = asyncio.get_running_loop()
    quiet_loop(loop, telemetry)
    parts = workshop_of(settings, key)
    check_folders(settings)
    build = build_of(settings, parts)
    keeper = keeper_of(settings, {name: value for name, value in build.items() if name != "version"})
    audit = AuditTrail(
        settings.audit.path,
        build,
        Signer(key.audit_seed),
        telemetry,
        TrailSettings(settings.audit.checkpoint_s, settings.audit.segment_bytes),
    )
    health = Health()
    try:
        transport = _transport(settings, keeper, telemetry)
        executor = _executor(settings.agent, parts, telemetry)
        limits = _runner_settings(settings)
        runner = Runner(transport, executor, audit, limits, telemetry=telemetry, health=health)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.request_stop)
        telemetry.emit(Built(build["version"], build["rules"], build["models"], build["policy"]))
        running = Running(parts, settings, build, key.demo)
        async with _operator(settings.http, health, telemetry, running):
            await runner.run()
        if isinstance(transport, DirectoryTransport) and transport.exhausted:
            return Left(transport.letters, len(transport.unreadable), transport.skipped)
        return Left()
    finally:
        await audit.close()


@asynccontextmanager
async def _operator(http: HttpSettings, health: Health, telemetry: Telemetry, running: Running) -> AsyncIterator[None]:
    """The operator's pages, for as long as this is open."""
    if not http.enabled:
        yield
        return
    async with AsyncExitStack() as stack:
        pages = [*routes(health, telemetry.registry)]
        if http.console:
            sources = sources_of(http, running, telemetry, health)
            access = Access(http.token(), http.console_write, http.loopback)
            pages += await stack.enter_async_context(console(sources, access, telemetry))
        server = OperatorServer(http.host, http.port, pages, telemetry, LIMITS if http.console else None)
        await server.start()
        stack.push_async_callback(server.stop)
        yield


@asynccontextmanager
async def show_console(settings: Settings, key: Key, port: int) -> AsyncIterator[int]:
    """The console alone, on loopback; gives the port. Raises ``ConfigurationError``."""
    telemetry = Telemetry()
    parts = workshop_of(settings, key)
    http = settings.http.model_copy(update={"host": "127.0.0.1", "port": port, "console": True})
    running = Running(parts, settings, build_of(settings, parts), key.demo)
    access = Access(http.token(), http.console_write)
    async with console(sources_of(http, running, telemetry, None), access, telemetry) as pages:
        server = OperatorServer(http.host, port, pages, telemetry, LIMITS)
        await server.start()
        try:
            yield server.port
        finally:
            await server.stop()


def sources_of(http: HttpSettings, running: Running, telemetry: Telemetry, health: Health | None) -> Sources:
    """Where a console looks. The playground gets a key that nobody knows: see ``Trial``."""
    settings = running.settings
    parts = replace(running.parts, key=Key(secrets.token_bytes(32)), max_bytes=MOST, validate=False)
    return Sources(
        running=running,
        box=partial(letter_box, settings, ()),
        audit=settings.audit.path,
        public=Signer(running.parts.key.audit_seed).public,
        history=History(telemetry.registry, time.time),
        health=health,
        room=Room(Trial(parts)) if http.console_playground else None,
        report=http.console_report if http.has_token else None,
    )


def _transport(settings: Settings, keeper: Keeper, telemetry: Telemetry) -> Transport:
    if settings.transport is TransportKind.MLLP:
        kafka = kafka_settings(settings) if settings.goes_to is TransportKind.KAFKA else None
        return mllp_transport(settings, keeper, telemetry, kafka)
    if settings.transport is TransportKind.KAFKA:
        return sent_out(settings, KafkaTransport(kafka_settings(settings), keeper=keeper, telemetry=telemetry))
    ours = settings.directory
    if ours is None:
        raise ConfigurationError("there is no [directory] section")
    return DirectoryTransport(
        ours.input,
        ours.output,
        ours.dead_letters,
        ours.state,
        watch=ours.watch,
        interval_s=ours.interval_s,
        settle_s=ours.settle_s,
        max_file_bytes=_most(settings),
        keeper=keeper,
        telemetry=telemetry,
    )


def _most(settings: Settings) -> int:
    """The largest file that is read; one that is longer than a message may be is refused, not left."""
    return 4 * settings.agent.max_message_bytes


def _executor(agent: AgentSettings, parts: Workshop, telemetry: Telemetry) -> Executor:
    if agent.workers == 0:
        return InlineExecutor(parts)
    lanes = LaneSettings(deadline_s=agent.deadline_s, attempts=agent.attempts)
    return WorkerPool(parts, agent.workers, telemetry, lanes)


def _runner_settings(settings: Settings) -> RunnerSettings:
    agent, letters = settings.agent, settings.dead_letters
    defaults = RunnerSettings()
    return RunnerSettings(
        # A sender waits for its answer before it sends on: to wait for more would only slow it down.
        linger_s=0.0 if settings.transport is TransportKind.MLLP else defaults.linger_s,
        settle_timeout_s=defaults.settle_timeout_s + _patience_s(settings),
        poll_limit=max(1, min(128, agent.max_in_flight // 2)),
        max_in_flight=agent.max_in_flight,
        batch_records=agent.batch,
        drain_s=agent.drain_s,
        start_timeout_s=agent.start_s,
        letters=LetterLimit(run=letters.run, ratio=letters.ratio),
    )


def _patience_s(settings: Settings) -> float:
    """How long a settle may take where outputs go one by one: each may wait as long as one takes, and takes as long."""
    match settings.transport, settings.goes_to:
        case _, TransportKind.MLLP:
            longest_s = receiver(settings.mllp_out).longest_s
        case TransportKind.MLLP, TransportKind.KAFKA:
            longest_s = kafka_settings(settings).longest_s
        case _:
            return 0.0
    return settings.agent.batch * 2 * longest_s


def build_of(settings: Settings, parts: Workshop) -> dict[str, str]:
    """What the audit says of the program and its configuration: versions and digests."""
    # Secrets are written as stars, so the digest tells nothing of them.
    configuration = hashlib.sha256(settings.model_dump_json().encode()).hexdigest()
    models = resources.folder("models", None if settings.models is None else str(settings.models))
    return {
        "version": __version__,
        "rules": resources.digest(parts.rules)[:16],
        "models": resources.digest(models)[:16],
        "policy": f"{parts.policy.name}:{parts.policy.digest[:16]}",
        "configuration": configuration[:16],
        "key": parts.key.id,
    }


def _set_up_logging(level: str) -> None:
    """JSON lines of typed events on standard error, for our own lines and those of libraries."""
    root = logging.getLogger()
    root.handlers[:] = [stream_handler()]
    root.setLevel(level.upper())
