"""From settings to a running agent: the only place that knows every part."""

import asyncio
import hashlib
import logging
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

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
from deid_agent.config import AgentSettings, DeadLetterSettings, HttpSettings, Settings, TransportKind
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
    """``key``; ``ConfigurationError`` where it is everyone's and Kafka is to run with it."""
    if key.demo and settings.transport is TransportKind.KAFKA and not settings.allow_demo_key:
        raise ConfigurationError("the demonstration key is for demonstrations: give a key, or set allow_demo_key")
    return key


def keeper_of(settings: Settings, build: Mapping[str, str]) -> Keeper:
    """How dead letters are kept, and what they say of the build. ``ConfigurationError`` where the key is none."""
    path = settings.dead_letters.public_key
    return Keeper(None if path is None else letterkeys.load_public(path), tuple(build.items()))


def letter_box(settings: Settings, topics: Sequence[str]) -> LetterBox:
    """The dead letters of these input topics, of all where none is named. Raises ``ConfigurationError``."""
    ours = settings.directory
    if settings.transport is TransportKind.KAFKA or ours is None:
        return KafkaLetters(kafka_settings(settings), topics)
    return FolderLetters(ours.input, ours.dead_letters, _most(settings))


def check_folders(settings: Settings) -> None:
    """``ConfigurationError`` where a folder or file of the settings cannot serve. Writes nothing."""
    ours = settings.directory if settings.transport is TransportKind.DIRECTORY else None
    if ours is not None:
        check_places(ours.input, ours.output, ours.dead_letters, ours.state)
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
    build = _build(settings, parts)
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
        limits = _runner_settings(settings.agent, settings.dead_letters)
        runner = Runner(transport, executor, audit, limits, telemetry=telemetry, health=health)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.request_stop)
        telemetry.emit(Built(build["version"], build["rules"], build["models"], build["policy"]))
        async with _operator(settings.http, health, telemetry):
            await runner.run()
        if isinstance(transport, DirectoryTransport) and transport.exhausted:
            return Left(transport.letters, len(transport.unreadable), transport.skipped)
        return Left()
    finally:
        await audit.close()


@asynccontextmanager
async def _operator(http: HttpSettings, health: Health, telemetry: Telemetry) -> AsyncIterator[None]:
    """The operator's pages, for as long as this is open."""
    if not http.enabled:
        yield
        return
    server = OperatorServer(http.host, http.port, routes(health, telemetry.registry), telemetry)
    await server.start()
    try:
        yield
    finally:
        await server.stop()


def _transport(settings: Settings, keeper: Keeper, telemetry: Telemetry) -> Transport:
    if settings.transport is TransportKind.KAFKA:
        return KafkaTransport(kafka_settings(settings), keeper=keeper, telemetry=telemetry)
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


def _runner_settings(agent: AgentSettings, letters: DeadLetterSettings) -> RunnerSettings:
    return RunnerSettings(
        poll_limit=max(1, min(128, agent.max_in_flight // 2)),
        max_in_flight=agent.max_in_flight,
        batch_records=agent.batch,
        drain_s=agent.drain_s,
        start_timeout_s=agent.start_s,
        letters=LetterLimit(run=letters.run, ratio=letters.ratio),
    )


def _build(settings: Settings, parts: Workshop) -> dict[str, str]:
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
