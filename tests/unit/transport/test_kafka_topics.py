"""Topics that a pattern matches, and settings of brokers."""

import re

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.metadata import MetadataResponse_v1

from deid_agent.model import ConfigurationError
from deid_agent.telemetry import Telemetry
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.routes import follow_pattern, usable_routes
from deid_agent.transport.kafka.topic_settings import retention_warnings

OPTIONS = KafkaOptions(
    bootstrap_servers="b:9092", topics_pattern=r"hl7\..*", output="deid.{topic}", audit_topic="hl7.audit"
)


def cluster(**partitions: int) -> ClusterMetadata:
    """A broker with these topics; ``_`` in a name is a dot."""
    topics = [
        (0, name.replace("_", "."), False, [(0, number, 1, [1], [1]) for number in range(count)])
        for name, count in partitions.items()
    ]
    found = ClusterMetadata()
    found.update_metadata(MetadataResponse_v1([(1, "b", 9092, None)], 1, topics))
    return found


COMPLETE = {"hl7_adt": 2, "deid_hl7_adt": 2, "hl7_adt_dlq": 1, "hl7_audit": 1}


def test_only_topics_with_their_outputs_are_read() -> None:
    found = cluster(**COMPLETE, hl7_oru=2, deid_hl7_oru=1, hl7_oru_dlq=1, hl7_mdm=1, other=1)
    routes, problems = usable_routes(OPTIONS, found)
    assert routes == {"hl7.adt": "deid.hl7.adt"}
    assert "has 2 partitions" in problems["hl7.oru"] and "does not exist" in problems["hl7.mdm"]
    assert set(problems) == {"hl7.oru", "hl7.mdm"}


def test_options_change_only_with_the_topics() -> None:
    first = follow_pattern(OPTIONS, cluster(**COMPLETE), Telemetry())
    assert first.routes == {"hl7.adt": "deid.hl7.adt"}
    assert follow_pattern(first, cluster(**COMPLETE, more=3), Telemetry()) is first
    more = follow_pattern(first, cluster(**COMPLETE, hl7_x=1, deid_hl7_x=1, hl7_x_dlq=1, hl7_audit_dlq=1), Telemetry())
    assert list(more.routes) == ["hl7.adt", "hl7.x"]


@pytest.mark.parametrize(("topics", "why"), [({"other": 1}, "no topic matches"), ({"hl7_adt": 1}, "does not exist")])
def test_nothing_to_read_is_an_error(topics: dict[str, int], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        follow_pattern(OPTIONS, cluster(**topics), Telemetry())


@pytest.mark.parametrize(
    ("minutes", "wanted"),
    [
        (["10080"], ""),
        (["10080", "10079"], "offsets.retention.minutes is 10079.*raise it to 10080"),
        ([], "may not be read"),
        (["-1", "x"], "may not be read"),
    ],
)
def test_brokers_must_keep_positions_for_the_longest_stop(minutes: list[str], wanted: str) -> None:
    warnings = retention_warnings(minutes, OPTIONS)
    assert bool(warnings) == bool(wanted)
    assert all(re.search(wanted, line) for line in warnings)
