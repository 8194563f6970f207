"""Settings of topics and brokers that defeat a feed: times, compaction, and how long positions are kept."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from deid_agent.model import RecordTime
from deid_agent.transport.kafka.admin import open_client
from deid_agent.transport.kafka.client import CLIENT_ERRORS, run_to_completion, translate_error
from deid_agent.transport.kafka.options import KafkaOptions

_TIME_SETTINGS = (
    "message.timestamp.type",
    "cleanup.policy",
    "retention.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms",
)
_RETENTION = "offsets.retention.minutes"


async def probe_output_times(settings: KafkaOptions, time: RecordTime) -> list[str]:
    """Warnings about output topics whose settings defeat the times of outputs, one line each; see ``time_warnings``.

    A topic whose settings may not be read is also a warning. Raises ``ConfigurationError`` and ``TransientError``.
    """
    topics = sorted({topic for topic in settings.routes.values() if topic})
    found = await _read_settings(settings, ConfigResourceType.TOPIC, topics, _TIME_SETTINGS)
    warnings: list[str] = []
    for topic in topics:
        if topic in found:
            warnings += time_warnings(topic, found[topic], time)
        else:
            warnings.append(
                f"topic {topic!r}: its settings may not be read; check {', '.join(_TIME_SETTINGS)} yourself"
            )
    return warnings


async def probe_compaction(settings: KafkaOptions) -> tuple[list[str], list[str]]:
    """Problems and warnings about compacted topics, which take no message without a key.

    Dead letters and audit entries never have a key, so that a topic for them must not be compacted. A topic whose
    settings may not be read has neither. Raises as ``probe_output_times`` does.
    """
    outputs = {topic for topic in settings.routes.values() if topic}
    keyless = {settings.dead_letter_topic(topic) for topic in settings.routes} | {settings.audit_topic or ""} - {""}
    found = await _read_settings(settings, ConfigResourceType.TOPIC, sorted(outputs | keyless), ("cleanup.policy",))
    compacted = {topic for topic, values in found.items() if "compact" in values.get("cleanup.policy", "")}
    problems = [
        f"topic {topic!r}: cleanup.policy is compact, and dead letters and audit entries have no key: set it to delete"
        for topic in sorted(keyless & compacted)
    ]
    warnings = [
        f"topic {topic!r}: cleanup.policy is compact: a record without a key cannot be published there and becomes a "
        "dead letter (KEYLESS)"
        for topic in sorted(outputs & compacted)
    ]
    return problems, warnings


async def probe_retention(settings: KafkaOptions) -> list[str]:
    """A warning if brokers forget the positions of a group before the longest planned stop is over.

    Raises as ``probe_output_times`` does.
    """
    async with open_client(settings) as client:
        brokers = [str(broker.nodeId) for broker in client.cluster.brokers()]
    found = await _read_settings(settings, ConfigResourceType.BROKER, brokers, (_RETENTION,))
    return retention_warnings([values[_RETENTION] for values in found.values() if _RETENTION in values], settings)


def retention_warnings(minutes: Iterable[str], settings: KafkaOptions) -> list[str]:
    """The warning for brokers with these values of ``offsets.retention.minutes``."""
    known = [int(value) for value in minutes if value.isdigit()]
    if not known:
        return [f"{_RETENTION} of the brokers may not be read; it must exceed kafka.longest_stop_hours"]
    if min(known) < settings.longest_stop_hours * 60:
        return [
            f"{_RETENTION} is {min(known)}: the broker forgets where the group was before a stop of "
            f"kafka.longest_stop_hours ({settings.longest_stop_hours}) is over; raise it to "
            f"{settings.longest_stop_hours * 60} or more"
        ]
    return []


async def _read_settings(
    settings: KafkaOptions, kind: ConfigResourceType, names: Sequence[str], wanted: Sequence[str]
) -> dict[str, dict[str, str]]:
    """The settings by resource, without those that may not be read."""
    admin = AIOKafkaAdminClient(**settings.connection(), request_timeout_ms=settings.request_timeout_ms)
    resources = [ConfigResource(kind, name, dict.fromkeys(wanted)) for name in names]
    found: dict[str, dict[str, str]] = {}
    try:
        async with asyncio.timeout(2 * settings.request_timeout_ms / 1000):
            await run_to_completion(admin.start())
            for answer in await admin.describe_configs(resources) if resources else ():
                for code, _message, _kind, name, entries in answer.resources:
                    if code == 0:
                        found[name] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
    except CLIENT_ERRORS as error:
        raise translate_error(error, "ask for the settings of topics and brokers", starting=True) from None
    finally:
        await run_to_completion(admin.close())
    return found


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
