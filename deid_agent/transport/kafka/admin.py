"""Queries of the broker: checks of the topics before anything is read, and the committed position of a partition.

aiokafka speaks OffsetFetch v1-v3. The broker answers these at once, possibly with the position *before* a transaction
that is just being completed: a new owner would then read committed records again. Version 7 (KIP-447, Kafka 2.5) can
wait for a stable position. This module adds that one request.
"""

import asyncio
from collections.abc import Mapping

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from deid_agent.agent import Partition
from deid_agent.model import ConfigurationError, RecordTime, TransientError
from deid_agent.transport.kafka.client import (
    CLIENT_ERRORS,
    ErrorClass,
    classify_error,
    run_to_completion,
    tls_advice,
    translate_error,
)
from deid_agent.transport.kafka.options import KafkaOptions

_TIME_SETTINGS = (
    "message.timestamp.type",
    "cleanup.policy",
    "retention.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms",
)


async def probe_broker(settings: KafkaOptions) -> list[str]:
    """The problems to fix before the agent can run, one line each; empty if there are none."""
    try:
        return await check_topics(settings)
    except (ConfigurationError, TransientError) as problem:
        return [str(problem)]


async def probe_output_topics(settings: KafkaOptions) -> list[str]:
    """As ``probe_broker``, for an agent that only writes to Kafka: checks the output topics alone."""
    try:
        return await check_output_topics(settings)
    except (ConfigurationError, TransientError) as problem:
        return [str(problem)]


async def check_topics(settings: KafkaOptions) -> list[str]:
    """The problems of the topics.

    Raises ``ConfigurationError`` if no bootstrap server answers or accepts the connection, ``TransientError`` if one
    does and then fails.
    """
    cluster = await fetch_metadata(settings)
    problems = []
    for source, target in settings.routes.items():
        counts = {}
        for topic in (source, target, settings.dead_letter_topic(source)):
            if not topic:
                continue  # outputs that go to another sink need no topic
            if problem := _topic_problem(cluster, topic):
                problems.append(problem)
            else:
                counts[topic] = len(cluster.partitions_for_topic(topic))
        if source in counts and target in counts and counts[source] > counts[target]:
            problems.append(
                f"topic {source!r} has {counts[source]} partitions and {target!r} has {counts[target]}: "
                f"add partitions to {target!r}, so that each input partition has its own"
            )
    if settings.audit_topic is not None and (problem := _topic_problem(cluster, settings.audit_topic)):
        problems.append(problem)
    return problems


async def check_output_topics(settings: KafkaOptions) -> list[str]:
    """The problems of the output topics alone. Raises as ``check_topics`` does."""
    cluster = await fetch_metadata(settings)
    return [problem for topic in settings.routes.values() if (problem := _topic_problem(cluster, topic))]


async def probe_output_times(settings: KafkaOptions, time: RecordTime) -> list[str]:
    """Warnings about output topics whose settings defeat the times of outputs, one line each; see ``time_warnings``.

    A topic whose settings may not be read is also a warning.
    """
    topics = sorted({topic for topic in settings.routes.values() if topic})
    admin = AIOKafkaAdminClient(**settings.connection(), request_timeout_ms=settings.request_timeout_ms)
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(_TIME_SETTINGS)) for topic in topics]
    found: dict[str, dict[str, str]] = {}
    try:
        async with asyncio.timeout(2 * settings.request_timeout_ms / 1000):
            await run_to_completion(admin.start())
            for answer in await admin.describe_configs(resources):
                for code, _message, _kind, topic, entries in answer.resources:
                    if code == 0:
                        found[topic] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
    except CLIENT_ERRORS as error:
        raise translate_error(error, "ask for the settings of the output topics", starting=True) from None
    finally:
        await run_to_completion(admin.close())
    warnings: list[str] = []
    for topic in topics:
        if topic in found:
            warnings += time_warnings(topic, found[topic], time)
        else:
            warnings.append(
                f"topic {topic!r}: its settings may not be read; check {', '.join(_TIME_SETTINGS)} yourself"
            )
    return warnings


def time_warnings(topic: str, found: Mapping[str, str], time: RecordTime) -> list[str]:
    """The warnings for a topic with these settings, if outputs have ``time``.

    A record without a time is kept until its segment file is old enough, and no limit of the broker refuses it.
    """
    warnings = []
    if found.get("message.timestamp.type") == "LogAppendTime" and time is not RecordTime.KEEP:
        warnings.append(
            f"topic {topic!r}: message.timestamp.type is LogAppendTime, so the broker stamps the arrival, which "
            "shows the date shift of a live feed; set it to CreateTime"
        )
    span_ms = time.span_days * 86_400_000
    retention = _milliseconds(found.get("retention.ms"))
    if "delete" in found.get("cleanup.policy", "") and 0 <= retention < span_ms:
        warnings.append(
            f"topic {topic!r}: retention.ms is {retention}, but outputs have the start of their {time}: the broker may "
            f"delete them at once; set it to {span_ms} or more, or record.timestamp to none"
        )
    for name in ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"):
        if 0 <= (limit := _milliseconds(found.get(name))) < span_ms:
            warnings.append(
                f"topic {topic!r}: {name} is {limit}, so the broker refuses outputs; set it to {span_ms} or more"
            )
    return warnings


def _milliseconds(value: str | None) -> int:
    """The value of a setting; -1 if it is absent, no number, or no limit."""
    try:
        return -1 if value is None else int(value)
    except ValueError:
        return -1


def _topic_problem(cluster: ClusterMetadata, topic: str) -> str:
    """Why this topic cannot be used; empty if it can."""
    if topic in cluster.unauthorized_topics:
        return f"topic {topic!r}: not authorized; grant the principal access"
    if not cluster.partitions_for_topic(topic):
        return f"topic {topic!r} does not exist, or may not be described: create it"
    return ""


async def fetch_metadata(settings: KafkaOptions) -> ClusterMetadata:
    """The broker's metadata of all topics. Raises as ``check_topics`` does."""
    client = AIOKafkaClient(**settings.connection(), request_timeout_ms=settings.request_timeout_ms)
    limit_s = 2 * settings.request_timeout_ms / 1000
    try:
        async with asyncio.timeout(limit_s):
            await run_to_completion(client.bootstrap())
            return await client.fetch_all_metadata()
    except KafkaConnectionError:
        # aiokafka logs the reason of a rejection and raises only that no server is left.
        raise await _explain_refusal(settings) from None
    except CLIENT_ERRORS as error:
        raise translate_error(error, f"ask {settings.bootstrap_servers} for its topics", starting=True) from None
    finally:
        await run_to_completion(client.close())


async def _explain_refusal(settings: KafkaOptions) -> ConfigurationError:
    """Why the bootstrap servers cannot be used: the reason of the first server that answers with more than silence."""
    reasons = []
    for host, port, _family in collect_hosts(settings.bootstrap_servers):
        options = settings.connection()
        options.pop("bootstrap_servers")
        try:
            async with asyncio.timeout(settings.request_timeout_ms / 1000):
                connection = await run_to_completion(
                    create_conn(host, port, request_timeout_ms=settings.request_timeout_ms, **options)
                )
            connection.close()
        except CLIENT_ERRORS as error:
            if advice := tls_advice(error):
                return ConfigurationError(f"Kafka: {host}:{port}: {advice}")
            if classify_error(type(error)) is ErrorClass.CONFIGURATION:
                return ConfigurationError(
                    f"Kafka: {host}:{port} rejected the connection: {type(error).__name__}; "
                    "check kafka.security_protocol and the kafka.sasl_ settings"
                )
            reasons.append(f"{host}:{port} {type(error).__name__}")
    return ConfigurationError(
        f"Kafka: no bootstrap server answers ({', '.join(reasons) or settings.bootstrap_servers}); "
        "check kafka.bootstrap_servers, kafka.security_protocol and that the broker is up"
    )


_OFFSET_FETCH = 9
_UNSTABLE_OFFSET_COMMIT = 88
_RETRY_S = 0.05
_RETRIABLE = (
    kafka_errors.NotCoordinatorError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.CoordinatorLoadInProgressError,
)


class _OffsetFetchResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = _OFFSET_FETCH
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString("utf-8")),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _OffsetFetchStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _OFFSET_FETCH
    API_VERSION = 7
    RESPONSE_TYPE = _OffsetFetchResponse
    SCHEMA = Schema(
        ("group_id", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("partitions", CompactArray(Int32)),
                ("tags", TaggedFields),
            ),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class _StableOffsetFetch(Request[_OffsetFetchStruct]):  # type: ignore[misc]
    API_KEY = _OFFSET_FETCH

    def __init__(self, group: str, stream: Partition) -> None:
        self._group = group
        self._stream = stream

    def build(self, request_struct_class: type[_OffsetFetchStruct]) -> _OffsetFetchStruct:
        return request_struct_class(self._group, [(self._stream.topic, [self._stream.number], {})], True, {})


async def stable_position(client: AIOKafkaClient, group: str, stream: Partition) -> int | None:
    """The committed position of ``group``; ``None`` if it never committed one.

    Waits while a transaction that moves the position is open, or its coordinator is unavailable: call it with a
    timeout. Raises aiokafka's errors.
    """
    while True:
        code, offset = await _fetch_position(client, group, stream)
        if code == 0:
            return None if offset < 0 else offset
        kind = kafka_errors.for_code(code)
        if code != _UNSTABLE_OFFSET_COMMIT and not issubclass(kind, _RETRIABLE):
            raise kind(stream.topic)
        await asyncio.sleep(_RETRY_S)


async def _fetch_position(client: AIOKafkaClient, group: str, stream: Partition) -> tuple[int, int]:
    """One attempt: error code and offset (-1 without one)."""
    try:
        node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        request = _StableOffsetFetch(group, stream)
        answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
    except _RETRIABLE as busy:
        return int(busy.errno), -1
    if answer.error_code:
        return int(answer.error_code), -1
    ((_topic, ((_partition, offset, _epoch, _metadata, code, _tags),), _topic_tags),) = answer.topics
    return int(code), int(offset)
