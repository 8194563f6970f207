"""Looks at the broker before anything is read: is it there, does it let us in, are the topics there."""

import asyncio

from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaConnectionError

from deid_agent.errors import ConfigurationError, TransientError
from deid_agent.transport.kafka_calls import uncut
from deid_agent.transport.kafka_errors import CLIENT_ERRORS, Verdict, tls_advice, translate, verdict_of
from deid_agent.transport.kafka_settings import KafkaSettings


async def probe(settings: KafkaSettings) -> list[str]:
    """What an operator has to mend before the agent can run, one line each; empty where all is well."""
    try:
        return await inspect(settings)
    except (ConfigurationError, TransientError) as problem:
        return [str(problem)]


async def probe_outputs(settings: KafkaSettings) -> list[str]:
    """As ``probe``, for records that come from elsewhere: the output topics alone."""
    try:
        return await check_outputs(settings)
    except (ConfigurationError, TransientError) as problem:
        return [str(problem)]


async def inspect(settings: KafkaSettings) -> list[str]:
    """The faults of the topics.

    Raises ``ConfigurationError`` where no bootstrap server answers or lets us in, ``TransientError`` where
    one does and then fails.
    """
    cluster = await metadata(settings)
    problems = []
    for source, target in settings.routes.items():
        counts = {}
        for topic in (source, target, settings.letters_of(source)):
            if not topic:
                continue  # what is sent elsewhere needs no topic
            if problem := _missing(cluster, topic):
                problems.append(problem)
            else:
                counts[topic] = len(cluster.partitions_for_topic(topic))
        if source in counts and target in counts and counts[source] != counts[target]:
            problems.append(
                f"topic {source!r} has {counts[source]} partitions and {target!r} has {counts[target]}: "
                "give them as many, so that order per partition is kept"
            )
    if settings.audit_topic is not None and (problem := _missing(cluster, settings.audit_topic)):
        problems.append(problem)
    return problems


async def check_outputs(settings: KafkaSettings) -> list[str]:
    """The faults of the output topics alone, for records that come from elsewhere. Raises as ``inspect`` does."""
    cluster = await metadata(settings)
    return [problem for topic in settings.routes.values() if (problem := _missing(cluster, topic))]


def _missing(cluster: ClusterMetadata, topic: str) -> str:
    """Why this topic can't be used; empty where it can."""
    if topic in cluster.unauthorized_topics:
        return f"topic {topic!r}: not authorized; grant the principal access"
    if not cluster.partitions_for_topic(topic):
        return f"topic {topic!r} does not exist, or may not be described: create it"
    return ""


async def metadata(settings: KafkaSettings) -> ClusterMetadata:
    """What the broker says of all topics; raises as ``inspect`` does."""
    client = AIOKafkaClient(**settings.connection(), request_timeout_ms=settings.request_timeout_ms)
    limit_s = 2 * settings.request_timeout_ms / 1000
    try:
        async with asyncio.timeout(limit_s):
            await uncut(client.bootstrap())
            return await client.fetch_all_metadata()
    except KafkaConnectionError:
        # The library logs why a server turned it away and says only that none was left.
        raise await _refusal(settings) from None
    except CLIENT_ERRORS as error:
        raise translate(error, f"ask {settings.bootstrap_servers} for its topics", starting=True) from None
    finally:
        await uncut(client.close())


async def _refusal(settings: KafkaSettings) -> ConfigurationError:
    """Why the bootstrap servers can't be used: the verdict of the first that does more than not answer."""
    reasons = []
    for host, port, _family in collect_hosts(settings.bootstrap_servers):
        options = settings.connection()
        options.pop("bootstrap_servers")
        try:
            async with asyncio.timeout(settings.request_timeout_ms / 1000):
                connection = await uncut(
                    create_conn(host, port, request_timeout_ms=settings.request_timeout_ms, **options)
                )
            connection.close()
        except CLIENT_ERRORS as error:
            if advice := tls_advice(error):
                return ConfigurationError(f"Kafka: {host}:{port}: {advice}")
            if verdict_of(type(error)) is Verdict.CONFIGURATION:
                return ConfigurationError(
                    f"Kafka: {host}:{port} turned us away: {type(error).__name__}; "
                    "check kafka.security_protocol and the kafka.sasl_ settings"
                )
            reasons.append(f"{host}:{port} {type(error).__name__}")
    return ConfigurationError(
        f"Kafka: no bootstrap server answers ({', '.join(reasons) or settings.bootstrap_servers}); "
        "check kafka.bootstrap_servers, kafka.security_protocol and that the broker is up"
    )
