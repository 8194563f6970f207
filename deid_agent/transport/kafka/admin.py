"""Queries of the broker before anything is read: whether it answers, and whether the topics can be used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaConnectionError

from deid_agent.model import ConfigurationError, TransientError
from deid_agent.transport.kafka.client import (
    CLIENT_ERRORS,
    ErrorClass,
    classify_error,
    run_to_completion,
    tls_advice,
    translate_error,
)
from deid_agent.transport.kafka.options import KafkaOptions


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
    return topic_problems(resolve_routes(settings, cluster), cluster)


def resolve_routes(settings: KafkaOptions, cluster: ClusterMetadata) -> KafkaOptions:
    """The options with the routes of the topics that a pattern matches now; unchanged without a pattern."""
    if settings.topics_pattern is None:
        return settings
    routes = {topic: settings.route(topic) for topic in sorted(cluster.topics()) if topic != settings.audit_topic}
    return settings.model_copy(update={"routes": {topic: out for topic, out in routes.items() if out is not None}})


async def matched_options(settings: KafkaOptions) -> KafkaOptions:
    """``resolve_routes`` with the topics of the broker, which it asks only if there is a pattern.

    Raises as ``check_topics`` does, and ``ConfigurationError`` if no topic matches.
    """
    if settings.topics_pattern is None:
        return settings
    found = resolve_routes(settings, await fetch_metadata(settings))
    if not found.routes:
        raise ConfigurationError(f"Kafka: no topic matches kafka.topics_pattern {settings.topics_pattern!r}")
    return found


def topic_problems(settings: KafkaOptions, cluster: ClusterMetadata) -> list[str]:
    """The problems of the topics in these metadata."""
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
    others = (settings.audit_topic, *dict.fromkeys(settings.provenance_topics.values()))
    problems += (problem for topic in others if topic is not None and (problem := _topic_problem(cluster, topic)))
    return problems


async def check_output_topics(settings: KafkaOptions) -> list[str]:
    """The problems of the output topics alone. Raises as ``check_topics`` does."""
    cluster = await fetch_metadata(settings)
    return [problem for topic in settings.routes.values() if (problem := _topic_problem(cluster, topic))]


def _topic_problem(cluster: ClusterMetadata, topic: str) -> str:
    """Why this topic cannot be used; empty if it can."""
    if topic in cluster.unauthorized_topics:
        return f"topic {topic!r}: not authorized; grant the principal access"
    if not cluster.partitions_for_topic(topic):
        return f"topic {topic!r} does not exist, or may not be described: create it"
    return ""


async def fetch_metadata(settings: KafkaOptions) -> ClusterMetadata:
    """The broker's metadata of all topics. Raises as ``check_topics`` does."""
    async with open_client(settings) as client, asyncio.timeout(2 * settings.request_timeout_ms / 1000):
        return await client.fetch_all_metadata()


@asynccontextmanager
async def open_client(settings: KafkaOptions) -> AsyncIterator[AIOKafkaClient]:
    """A connected client. Connecting may take twice as long as a request. Raises as ``check_topics`` does."""
    client = AIOKafkaClient(**settings.connection(), request_timeout_ms=settings.request_timeout_ms)
    try:
        async with asyncio.timeout(2 * settings.request_timeout_ms / 1000):
            await run_to_completion(client.bootstrap())
        yield client
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
