"""The parts of the service get the values of the operator's settings."""

from pathlib import Path

import pytest

from deid_agent.cli import service as wire
from deid_agent.cli.audit_service import trail_settings
from deid_agent.config import AuditSettings, load_settings
from deid_agent.transport.kafka import kafka_options

KAFKA = """
transport = "kafka"
[agent]
drain_s = {drain_s}
[kafka]
bootstrap_servers = "localhost:9092"
[kafka.routes]
"in" = "out"
[dead_letters]
plain = true
[audit]
path = "audit"
"""


@pytest.mark.parametrize(("drain_s", "rebalance_ms"), [(5.0, 60_000), (20.0, 60_000), (300.0, 600_000)])
def test_a_group_waits_longer_than_a_member_drains(tmp_path: Path, drain_s: float, rebalance_ms: int) -> None:
    """Otherwise the group removes the member that drains, and its work is done twice."""
    path = tmp_path / "agent.toml"
    path.write_text(KAFKA.format(drain_s=drain_s))
    assert kafka_options(load_settings(path)).rebalance_timeout_ms == rebalance_ms


MLLP = """
transport = "mllp"
output = "kafka"
[agent]
batch = 10
[mllp]
dead_letters = "letters"
[kafka]
bootstrap_servers = "localhost:9092"
[kafka.routes]
"mllp" = "out"
[dead_letters]
plain = true
[audit]
path = "audit"
"""


def test_the_commit_timeout_covers_its_outputs_sent_one_by_one(tmp_path: Path) -> None:
    """Each may first wait for a message of another sender. A longer wait stops the agent."""
    path = tmp_path / "agent.toml"
    path.write_text(MLLP)
    settings = load_settings(path)
    longest_s = kafka_options(settings).longest_s
    assert longest_s >= 30
    assert wire._runner_settings(settings).commit_timeout_s == 60 + 10 * 2 * longest_s


@pytest.mark.parametrize(("topic", "returned"), [(None, False), ("audit", True)])
def test_only_an_audit_topic_needs_the_lines_of_the_trail(tmp_path: Path, topic: str | None, returned: bool) -> None:
    audit = AuditSettings(path=tmp_path, topic=topic)
    assert trail_settings(audit).return_lines is returned
