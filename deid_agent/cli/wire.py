"""From settings to a running agent: the only place that knows every part."""

import asyncio
import logging
import signal
from dataclasses import dataclass

from deid_agent import __version__, resources
from deid_agent import policy as policies
from deid_agent.agent.audit import AuditFile
from deid_agent.agent.deadletter import LetterLimit
from deid_agent.agent.flow import RunnerSettings
from deid_agent.agent.job import Executor
from deid_agent.agent.lane import LaneSettings
from deid_agent.agent.ports import Transport
from deid_agent.agent.runner import Runner
from deid_agent.agent.workers import InlineExecutor, WorkerPool
from deid_agent.config import AgentSettings, Settings, TransportKind
from deid_agent.errors import ConfigurationError
from deid_agent.key import Key
from deid_agent.policy import KeyMode
from deid_agent.telemetry.emit import Telemetry, stream_handler
from deid_agent.transport.files import DirectoryTransport
from deid_agent.transport.folders import check_audit, check_places
from deid_agent.transport.kafka import KafkaTransport
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
    return asyncio.run(_serve(settings, key))


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
        sasl_mechanism=ours.sasl_mechanism,
        sasl_username=ours.sasl_username,
        sasl_password=None if ours.sasl_password is None else ours.sasl_password.get_secret_value(),
    )


async def _serve(settings: Settings, key: Key) -> Left:
    telemetry = Telemetry()
    parts = workshop_of(settings, key)
    check_folders(settings)
    audit = AuditFile(settings.audit.path, _build(settings, parts), telemetry)
    try:
        transport = _transport(settings, telemetry)
        runner = Runner(
            transport,
            _executor(settings.agent, parts, telemetry),
            audit,
            _runner_settings(settings.agent),
            telemetry=telemetry,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.request_stop)
        await runner.run()
        if isinstance(transport, DirectoryTransport) and transport.exhausted:
            return Left(transport.letters, len(transport.unreadable), transport.skipped)
        return Left()
    finally:
        await audit.close()


def _transport(settings: Settings, telemetry: Telemetry) -> Transport:
    if settings.transport is TransportKind.KAFKA:
        return KafkaTransport(kafka_settings(settings))
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
        max_file_bytes=4 * settings.agent.max_message_bytes,
        telemetry=telemetry,
    )


def _executor(agent: AgentSettings, parts: Workshop, telemetry: Telemetry) -> Executor:
    if agent.workers == 0:
        return InlineExecutor(parts)
    lanes = LaneSettings(deadline_s=agent.deadline_s, attempts=agent.attempts)
    return WorkerPool(parts, agent.workers, telemetry, lanes)


def _runner_settings(agent: AgentSettings) -> RunnerSettings:
    return RunnerSettings(
        poll_limit=max(1, min(128, agent.max_in_flight // 2)),
        max_in_flight=agent.max_in_flight,
        batch_records=agent.batch,
        drain_s=agent.drain_s,
        start_timeout_s=agent.start_s,
        letters=LetterLimit(run=agent.dead_letter_run, ratio=agent.dead_letter_ratio),
    )


def _build(settings: Settings, parts: Workshop) -> dict[str, str]:
    """What every audit entry says of the program and its configuration: versions and digests."""
    models = resources.folder("models", None if settings.models is None else str(settings.models))
    return {
        "version": __version__,
        "rules": resources.digest(parts.rules)[:16],
        "models": resources.digest(models)[:16],
        "policy": f"{parts.policy.name}:{parts.policy.digest[:16]}",
        "key": parts.key.id,
    }


def _set_up_logging(level: str) -> None:
    """JSON lines of typed events on standard error, for our own lines and those of libraries."""
    root = logging.getLogger()
    root.handlers[:] = [stream_handler()]
    root.setLevel(level.upper())
