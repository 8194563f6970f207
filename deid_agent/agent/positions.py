"""The end of an audit trail by partition: evidence of what was processed, for a start whose positions are gone.

An entry is written before its record is committed. After a crash the last batch of a partition may therefore be
audited and not committed, so its first record is the only position from which nothing can be lost.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import orjson

from deid_agent.agent.ports import Partition


class ResumeFrom(StrEnum):
    """An operator's choice of the position for partitions whose position is gone or contradicts the audit."""

    AUDIT = "audit"
    """After the last record of the audit."""

    EARLIEST = "earliest"
    """All records that the topic still has, also those that were processed before."""

    LATEST = "latest"
    """Only records that arrive from now on."""


@dataclass(frozen=True, slots=True)
class AuditedBatch:
    """The last batch of a partition in an audit.

    ``next`` is the position after it. ``first`` is its first offset, or ``next`` if the batch is known to be committed.
    ``ids`` are the ``deid-id`` of its records by offset, without suppressed ones. ``topic_id`` is empty if unknown.
    """

    time: float
    first: int
    next: int
    topic_id: str = ""
    ids: Mapping[int, str] = field(default_factory=dict)

    def with_entry(self, entry: "AuditedBatch") -> "AuditedBatch":
        """This batch after one more entry: extended, or replaced by the entry if that begins a batch.

        A record that is refused after its batch was audited has a second entry within the batch.
        """
        same_topic = self.topic_id in ("", entry.topic_id)  # entries of older versions have no topic id
        if same_topic and (entry.time == self.time or self.first <= entry.first < self.next):
            kept = self.ids
            if entry.first < self.next:
                # A record that was published in vain and is suppressed now has no output to look for.
                kept = {at: id_ for at, id_ in kept.items() if not entry.first <= at < entry.next}
            ids = {**kept, **entry.ids}
            return replace(entry, first=min(self.first, entry.first), next=max(self.next, entry.next), ids=ids)
        return entry


AuditHistory = Callable[[], Mapping[Partition, AuditedBatch]]
"""Reads the last batches of an agent's own trail. It blocks."""

_ENTRY = re.compile(
    rb'\{"kind":"entry","time":(\d{1,12}(?:\.\d{1,9})?),"topic":("(?:[^"\\]|\\.){1,512}"),"partition":([0-9]{1,10}),'
    rb'"offset":([0-9]{1,19}),(?:"topic_id":"([\w-]{1,32})",)?(?:"project":"[\w-]{1,64}",)?"outcome":"(\w{1,32})"(?:,"deid_id":"([0-9a-f]{32})")?'
)


def last_batches(lines: Iterable[bytes]) -> dict[Partition, AuditedBatch]:
    """The last batch of each partition in the lines of a trail. Lines of another form are skipped."""
    found: dict[Partition, AuditedBatch] = {}
    for line in lines:
        entry = _ENTRY.match(line)
        if entry is None:
            continue
        time, topic, number, offset, topic_id, outcome, id_ = entry.groups()
        try:
            stream, at = Partition(str(orjson.loads(topic)), int(number)), int(offset)
        except orjson.JSONDecodeError:
            continue
        ids = {} if id_ is None or outcome == b"suppressed" else {at: id_.decode()}
        one = AuditedBatch(float(time), at, at + 1, (topic_id or b"").decode(), ids)
        known = found.get(stream)
        found[stream] = one if known is None else known.with_entry(one)
    return found
