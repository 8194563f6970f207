"""Whether a committed position can be trusted, and the position that an operator chooses in place of a lost one.

The agent stores a note with each position: the id of the topic, the leader epoch of the partition, and the time since
which positions only grow. The note is a text of the group's own commit, so it is as durable as the position and moves
with it. A position without a note was set by an operator's tool, or by an older version: it is accepted as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from deid_agent.agent import AuditedBatch, Partition, ResumeFrom
from deid_agent.model import ConfigurationError
from deid_agent.transport.kafka.protocol import CommittedPosition, TopicIdentity

_MARK = "deid-agent"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class PositionNote:
    """The note of a position. Entries of the audit before ``since`` are older than an operator's choice."""

    topic_id: str = ""
    epoch: int = -1
    since: float = 0.0

    def text(self) -> str:
        """The form in which the note is committed."""
        return f"{_MARK} topic={self.topic_id} epoch={self.epoch} since={self.since:.3f}"


def parse_note(text: str) -> PositionNote | None:
    """The note in a committed text; None if no agent wrote it."""
    mark, *members = text.split(" ")
    named = dict(member.partition("=")[::2] for member in members)
    try:
        if mark == _MARK:
            return PositionNote(named["topic"], int(named["epoch"]), float(named["since"]))
    except (KeyError, ValueError):
        pass
    return None


def make_note(found: CommittedPosition | None, identity: TopicIdentity, number: int, now: float) -> PositionNote:
    """The note for the positions that follow. Only a choice of an operator, and a first start, begin a new time."""
    known = parse_note(found.metadata) if found is not None else None
    return PositionNote(identity.id, identity.epochs.get(number, -1), now if known is None else known.since)


def position_fault(
    found: CommittedPosition | None, audited: AuditedBatch | None, identity: TopicIdentity, number: int
) -> str:
    """Why the committed position of a partition contradicts the audit or the topic; empty if it does not."""
    if found is None:
        return "" if audited is None else _fault_without_position(audited, identity)
    note = parse_note(found.metadata)
    if note is None:
        return ""
    epoch = identity.epochs.get(number, -1)
    if _differ(note.topic_id, identity.id) or (not (note.topic_id and identity.id) and 0 <= epoch < note.epoch):
        return f"the topic was deleted and created again, the position {found.offset} is one of the former topic"
    # Entries before the operator's last choice, or of a former topic, are about other records.
    counts = audited is not None and audited.time > note.since and not _differ(audited.topic_id, identity.id)
    if audited is not None and counts and found.offset < audited.first:
        return f"the position of the group is {found.offset}, but the audit ends before offset {audited.next}"
    return ""


def _fault_without_position(audited: AuditedBatch, identity: TopicIdentity) -> str:
    if _differ(audited.topic_id, identity.id):
        return f"the topic was deleted and created again, the audit of the former topic ends before {audited.next}"
    return f"the group has no position, but the audit ends before offset {audited.next}"


def bounds_fault(position: int, bounds: tuple[int, int]) -> str:
    """Why a partition with these first and end offsets cannot be read from this position; empty if it can."""
    begin, end = bounds
    if position < begin:
        return f"records were deleted before they were read, those from offset {position} to {begin - 1}"
    if position > end:
        return f"the position of the group is {position}, but the topic ends before offset {end}"
    return ""


def _differ(one: str, other: str) -> bool:
    return bool(one and other and one != other)


def lost_positions_error(faults: Mapping[Partition, str]) -> ConfigurationError:
    """The refusal to start from positions that are gone. One line that offers the choices."""
    shown = "; ".join(f"{stream}: {fault}" for stream, fault in sorted(faults.items())[:_SHOWN])
    more = f" (and {len(faults) - _SHOWN} more)" if len(faults) > _SHOWN else ""
    return ConfigurationError(
        f"Kafka: {shown}{more}. Nothing was read. Start once with --resume-from audit (after the last audited record), "
        "earliest (every record that the topic has, also those that were processed) or latest (only new records); "
        "docs/recovery.md explains the choice"
    )


def chosen_position(
    choice: ResumeFrom,
    stream: Partition,
    audited: AuditedBatch | None,
    identity: TopicIdentity,
    bounds: tuple[int, int],
) -> int:
    """The position of this choice in a partition with these first and end offsets. Raises ``ConfigurationError``."""
    begin, end = bounds
    if choice is ResumeFrom.EARLIEST or begin == end:
        return begin
    if choice is ResumeFrom.LATEST:
        return end
    if audited is None:
        fault = "the audit has no entry of this partition"
    elif _differ(audited.topic_id, identity.id):
        fault = "the audit is one of the former topic"
    elif not begin <= audited.first <= end:
        fault = f"the audit ends before offset {audited.next}, but the topic has the offsets {begin} to {end - 1}"
    else:
        return audited.first
    raise ConfigurationError(
        f"Kafka: {stream}: --resume-from audit is not possible: {fault}. Choose earliest or latest, or set the "
        "position with kafka-consumer-groups"
    )
