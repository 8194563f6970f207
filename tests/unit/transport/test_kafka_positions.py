"""When a committed position is trusted, and the meaning of an operator's choice."""

import pytest

from deid_agent.agent import AuditedBatch, Partition, ResumeFrom
from deid_agent.model import ConfigurationError
from deid_agent.transport.kafka.positions import (
    PositionNote,
    bounds_fault,
    chosen_position,
    lost_positions_error,
    make_note,
    parse_note,
    position_fault,
)
from deid_agent.transport.kafka.protocol import CommittedPosition, TopicIdentity

ADT = Partition("adt", 0)
NOW = TopicIdentity("one", {0: 3})
AUDITED = AuditedBatch(100.0, 50, 60, "one")


def committed(offset: int, topic_id: str = "one", epoch: int = 3, since: float = 10.0) -> CommittedPosition:
    return CommittedPosition(offset, PositionNote(topic_id, epoch, since).text())


@pytest.mark.parametrize(
    ("found", "audited", "identity", "fault"),
    [
        (None, None, NOW, ""),
        (None, AUDITED, NOW, "no position, but the audit ends before offset 60"),
        (None, AUDITED, TopicIdentity("two"), "created again, the audit of the former topic"),
        (None, AUDITED, TopicIdentity(), "no position"),
        (committed(60), AUDITED, NOW, ""),
        (committed(50), AUDITED, NOW, ""),  # the last batch was not committed
        (committed(49), AUDITED, NOW, "position of the group is 49"),
        (committed(900), AUDITED, NOW, ""),  # other members went on
        (CommittedPosition(3), AUDITED, NOW, ""),  # a tool or an older version set it
        (CommittedPosition(3, "note of somebody"), AUDITED, NOW, ""),
        (CommittedPosition(3, "deid-agent topic=one epoch=x since=1"), AUDITED, NOW, ""),
        (committed(3, since=101.0), AUDITED, NOW, ""),  # the operator chose after the audit
        (committed(60), AUDITED, TopicIdentity("two", {0: 9}), "created again, the position 60"),
        (committed(60, topic_id=""), AUDITED, TopicIdentity("", {0: 0}), "created again"),
        (committed(60, topic_id=""), None, TopicIdentity("", {0: 3}), ""),
        (committed(60), None, TopicIdentity(), ""),
        (committed(3), AuditedBatch(100.0, 50, 60, "former"), NOW, ""),
    ],
)
def test_faults_of_positions(
    found: CommittedPosition | None, audited: AuditedBatch | None, identity: TopicIdentity, fault: str
) -> None:
    shown = position_fault(found, audited, identity, 0)
    assert fault in shown and bool(fault) == bool(shown)


@pytest.mark.parametrize(("position", "fault"), [(4, "offset 4 to 4"), (5, ""), (9, ""), (10, "ends before offset 9")])
def test_a_position_outside_of_the_topic(position: int, fault: str) -> None:
    shown = bounds_fault(position, (5, 9))
    assert fault in shown and bool(fault) == bool(shown)


def test_a_note_keeps_its_time_until_an_operator_chooses() -> None:
    first = make_note(None, NOW, 0, 20.0)
    assert parse_note(first.text()) == first == PositionNote("one", 3, 20.0)
    assert make_note(CommittedPosition(7, first.text()), NOW, 0, 99.0).since == 20.0
    assert make_note(None, TopicIdentity(), 0, 99.0) == PositionNote("", -1, 99.0)


def test_the_refusal_offers_the_choices_and_is_short() -> None:
    text = str(lost_positions_error({Partition("adt", n): "gone" for n in range(50)}))
    assert "adt/0: gone; adt/1: gone; adt/2: gone (and 47 more)" in text
    assert all(f" {choice} (" in text for choice in ResumeFrom)
    assert len(text) < 400


@pytest.mark.parametrize(
    ("choice", "audited", "bounds", "wanted"),
    [
        (ResumeFrom.EARLIEST, None, (5, 90), 5),
        (ResumeFrom.LATEST, None, (5, 90), 90),
        (ResumeFrom.AUDIT, AUDITED, (5, 90), 50),
        (ResumeFrom.AUDIT, AuditedBatch(1.0, 60, 60), (5, 60), 60),
        (ResumeFrom.AUDIT, None, (7, 7), 7),
    ],
)
def test_choices(choice: ResumeFrom, audited: AuditedBatch | None, bounds: tuple[int, int], wanted: int) -> None:
    assert chosen_position(choice, ADT, audited, NOW, bounds) == wanted


@pytest.mark.parametrize(
    ("audited", "bounds", "fault"),
    [
        (None, (5, 90), "no entry of this partition"),
        (AuditedBatch(1.0, 50, 60, "former"), (5, 90), "one of the former topic"),
        (AUDITED, (51, 90), "the topic has the offsets 51 to 89"),
        (AUDITED, (5, 49), "the topic has the offsets 5 to 48"),
    ],
)
def test_an_audit_that_cannot_be_continued(audited: AuditedBatch | None, bounds: tuple[int, int], fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        chosen_position(ResumeFrom.AUDIT, ADT, audited, NOW, bounds)
