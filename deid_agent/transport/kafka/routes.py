"""The topics that a transport reads: those of ``kafka.routes``, or those that a pattern matches at the moment."""

from aiokafka.cluster import ClusterMetadata

from deid_agent.model import ConfigurationError
from deid_agent.telemetry import Telemetry, TopicSkipped, TopicsMatched
from deid_agent.transport.kafka.admin import resolve_routes, topic_problems
from deid_agent.transport.kafka.options import KafkaOptions


def usable_routes(settings: KafkaOptions, cluster: ClusterMetadata) -> tuple[dict[str, str], dict[str, str]]:
    """The routes of a pattern that can be used, and the problems of the others by input topic.

    One topic without its output topic must not stop the others.
    """
    found = resolve_routes(settings, cluster)
    problems = {}
    for topic, output in found.routes.items():
        if faults := topic_problems(found.model_copy(update={"routes": {topic: output}}), cluster):
            problems[topic] = "; ".join(faults)
    return {topic: output for topic, output in found.routes.items() if topic not in problems}, problems


def follow_pattern(settings: KafkaOptions, cluster: ClusterMetadata, telemetry: Telemetry) -> KafkaOptions:
    """The options with the usable routes of the pattern; unchanged without a pattern, or if its topics are the same.

    Raises ``ConfigurationError`` if there is nothing to read.
    """
    if settings.topics_pattern is None:
        return settings
    routes, skipped = usable_routes(settings, cluster)
    for topic, why in skipped.items():
        telemetry.emit(TopicSkipped(topic, why))
    if not routes:
        why = next(iter(skipped.values()), f"no topic matches kafka.topics_pattern {settings.topics_pattern!r}")
        raise ConfigurationError(f"Kafka: there is nothing to read: {why}")
    if routes == settings.routes:
        return settings
    telemetry.emit(TopicsMatched(tuple(routes)))
    return settings.model_copy(update={"routes": routes})
