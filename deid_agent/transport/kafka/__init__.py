"""Apache Kafka as a source, a sink and a dead-letter queue."""

from deid_agent.transport.kafka.admin import matched_options, probe_broker, probe_output_topics
from deid_agent.transport.kafka.dead_letters import KafkaDeadLetters
from deid_agent.transport.kafka.offsets import open_offsets
from deid_agent.transport.kafka.options import KafkaOptions, kafka_options
from deid_agent.transport.kafka.sink import KafkaSink
from deid_agent.transport.kafka.source import KafkaTransport
from deid_agent.transport.kafka.topic_settings import probe_compaction, probe_output_times, probe_retention

__all__ = [
    "KafkaDeadLetters",
    "KafkaOptions",
    "KafkaSink",
    "KafkaTransport",
    "kafka_options",
    "matched_options",
    "open_offsets",
    "probe_broker",
    "probe_compaction",
    "probe_output_times",
    "probe_output_topics",
    "probe_retention",
]
