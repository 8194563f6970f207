"""The positions from which the partitions of a group start: compared with the audit, or chosen by an operator."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata

from deid_agent.agent import DEID_ID, AuditedBatch, AuditHistory, Partition, ResumeFrom, last_batches
from deid_agent.config import Delivery
from deid_agent.telemetry import PositionChosen, Telemetry
from deid_agent.transport.kafka.consumer import Consumer, read_tails
from deid_agent.transport.kafka.messages import choose_partition
from deid_agent.transport.kafka.options import KafkaOptions
from deid_agent.transport.kafka.positions import (
    bounds_fault,
    chosen_position,
    lost_positions_error,
    make_note,
    position_fault,
)
from deid_agent.transport.kafka.producer import PartitionWriter
from deid_agent.transport.kafka.protocol import CommittedPosition, TopicIdentity, settled_positions, topic_identities

_TAIL = 500
"""Offsets at the end of each audit partition that every start reads."""

_DEEP_TAIL = 20_000
"""Offsets that a start reads if a partition has no position and none of the tail is about it."""

_UNKNOWN = TopicIdentity()


class StartPositions:
    """Compares the committed positions of a group with the audit.

    ``history`` reads the agent's own trail. An audit topic has the entries of all members and, with exactly-once
    delivery, only those of committed batches, so it takes precedence.
    """

    def __init__(
        self,
        settings: KafkaOptions,
        history: AuditHistory | None,
        choice: ResumeFrom | None,
        telemetry: Telemetry,
    ) -> None:
        self._settings = settings
        self._history = history
        self._choice = choice
        self._telemetry = telemetry
        self._audited: dict[Partition, AuditedBatch] = {}
        self._lost_topics: frozenset[str] = frozenset()
        self._identities: Mapping[str, TopicIdentity] = {}

    def topic_id(self, topic: str) -> str:
        """The id that the topic had at the last assignment; empty if unknown."""
        return self._identities.get(topic, _UNKNOWN).id

    def recreated(self, found: Mapping[str, TopicIdentity]) -> list[str]:
        """The topics that had another id at the last assignment."""
        return sorted(topic for topic, now in found.items() if self.topic_id(topic) not in ("", now.id) and now.id)

    def note_commit(self, stream: Partition, position: int) -> None:
        """Remember that this member moved the position."""
        self._audited[stream] = AuditedBatch(time.time(), position, position, self.topic_id(stream.topic))

    async def prepare(self, client: AIOKafkaClient, cluster: ClusterMetadata, topics: Iterable[str]) -> None:
        """Compare all partitions of the topics before the group is joined.

        Raises ``ConfigurationError`` if positions are gone and nothing was chosen, and aiokafka's errors.
        """
        streams = [Partition(topic, n) for topic in topics for n in cluster.partitions_for_topic(topic) or ()]
        self._audited = dict(await asyncio.to_thread(self._history)) if self._history is not None else {}
        identities = await topic_identities(client, {stream.topic for stream in streams})
        # The audit first: other members commit meanwhile, and a position read before it would look like a lost one.
        await self._read_audit_topic(cluster, streams, _TAIL)
        found, unstable = await settled_positions(client, self._settings.group_id, streams)
        # A transaction that a killed member left open is ended by the next owner, who compares the position then.
        streams = [stream for stream in streams if stream not in unstable]
        if self._settings.audit_topic is not None and any(self._is_unexplained(s, found) for s in streams):
            await self._read_audit_topic(cluster, streams, _DEEP_TAIL)
            found, unstable = await settled_positions(client, self._settings.group_id, streams)
            streams = [stream for stream in streams if stream not in unstable]
        self._lost_topics = frozenset(s.topic for s in streams if s in self._audited and s not in found)
        faults = self._faults({stream: found.get(stream) for stream in streams}, identities)
        if faults and self._choice is None:
            raise lost_positions_error(faults)
        if faults and self._choice is ResumeFrom.AUDIT:
            for stream in faults.keys() & self._audited.keys():
                self._audited[stream] = await self._leave_out_published(cluster, stream, self._audited[stream])

    async def settle(
        self, consumer: Consumer, writers: Mapping[Partition, PartitionWriter], identities: Mapping[str, TopicIdentity]
    ) -> dict[Partition, int]:
        """The start position of each partition, after ``open`` of its writer. A position that is new is committed.

        Raises ``ConfigurationError`` as ``prepare`` does, and aiokafka's errors.
        """
        self._identities = identities
        places = [TopicPartition(stream.topic, stream.number) for stream in writers]
        begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        bounds = {Partition(tp.topic, tp.partition): (begins[tp], ends[tp]) for tp in places}
        found = {stream: writer.found for stream, writer in writers.items()}
        faults = self._faults(found, identities, bounds)
        if faults and self._choice is None:
            raise lost_positions_error(faults)
        starts: dict[Partition, int] = {}
        new: list[Partition] = []
        for stream, writer in writers.items():
            identity, known = identities.get(stream.topic, _UNKNOWN), None if stream in faults else found[stream]
            writer.note = make_note(known, identity, stream.number, time.time()).text()
            if known is not None:
                starts[stream] = known.offset
                continue
            new.append(stream)
            starts[stream] = bounds[stream][0]
            if stream in faults and self._choice is not None:
                audited = self._audited.get(stream)
                starts[stream] = chosen_position(self._choice, stream, audited, identity, bounds[stream])
        # From here on a group without a position is one that has lost it.
        await asyncio.gather(*(writers[stream].move(starts[stream]) for stream in new))
        for stream in new:
            self._audited.pop(stream, None)
            if stream in faults:
                self._telemetry.emit(
                    PositionChosen(stream.topic, stream.number, str(self._choice), starts[stream], faults[stream])
                )
        self._lost_topics -= {stream.topic for stream in faults}
        return starts

    def _faults(
        self,
        found: Mapping[Partition, CommittedPosition | None],
        identities: Mapping[str, TopicIdentity],
        bounds: Mapping[Partition, tuple[int, int]] | None = None,
    ) -> dict[Partition, str]:
        faults = {}
        for stream, position in found.items():
            identity = identities.get(stream.topic, _UNKNOWN)
            fault = position_fault(position, self._audited.get(stream), identity, stream.number)
            if not fault and position is None and stream.topic in self._lost_topics:
                fault = "the group has no position, as in other partitions of the topic that the audit names"
            if not fault and position is not None and bounds is not None:
                fault = bounds_fault(position.offset, bounds[stream])
            if fault:
                faults[stream] = fault
        return faults

    def _is_unexplained(self, stream: Partition, found: Mapping[Partition, CommittedPosition]) -> bool:
        """Whether the position of a partition is gone, and the batch that would replace it is unknown or cut off."""
        return stream not in found and (
            stream not in self._audited or self._settings.delivery is not Delivery.EXACTLY_ONCE
        )

    async def _read_audit_topic(self, cluster: ClusterMetadata, streams: Iterable[Partition], most: int) -> None:
        if self._settings.audit_topic is None:
            return
        tails = await read_tails(self._settings, _partitions(cluster, self._settings.audit_topic), most)
        values: dict[int, list[bytes]] = {}
        for record in tails:
            values.setdefault(record.partition, []).append(record.value or b"")
        newest: dict[Partition, AuditedBatch] = {}
        for lines in values.values():
            # After the audit topic got more partitions, entries of one input partition are in two of them.
            for stream, batch in last_batches(lines).items():
                if stream not in newest or newest[stream].time < batch.time:
                    newest[stream] = batch
        for stream in newest.keys() & set(streams):
            self._audited[stream] = self._with_topic(self._audited.get(stream), newest[stream])

    def _with_topic(self, own: AuditedBatch | None, batch: AuditedBatch) -> AuditedBatch:
        """The last batch of a partition, known from the own trail and from the audit topic."""
        if own is not None and own.topic_id in ("", batch.topic_id) and own.first > batch.next:
            # It begins further on: it was not written to the topic at that time.
            return own
        if self._settings.delivery is Delivery.EXACTLY_ONCE:
            return replace(batch, first=batch.next, ids={})
        # The tail may begin in the middle of the batch that the own trail has in full.
        return batch if own is None else own.with_entry(batch)

    async def _leave_out_published(
        self, cluster: ClusterMetadata, stream: Partition, batch: AuditedBatch
    ) -> AuditedBatch:
        """The batch without the records whose output or dead letter readers already have."""
        output = self._settings.route(stream.topic)
        if not output or not batch.ids:
            return batch
        topics = (output, self._settings.dead_letter_topic(stream.topic))
        places = {tp for topic in topics for tp in _partitions(cluster, topic)}
        likely = {tp for tp in places if tp.partition == choose_partition(stream.number, _count(cluster, tp.topic))}
        missing = dict(batch.ids)
        # The other partitions have some of them if their topic got more partitions since.
        for chosen, most in ((likely, _TAIL), (likely, _DEEP_TAIL), (places - likely, _DEEP_TAIL)):
            tails = await read_tails(self._settings, sorted(chosen), most) if missing else ()
            headers = [header for record in tails for header in record.headers]
            published = {value.decode("ascii", "replace") for name, value in headers if name == DEID_ID and value}
            missing = {offset: id_ for offset, id_ in missing.items() if id_ not in published}
        return replace(batch, first=min(missing, default=batch.next))


def _partitions(cluster: ClusterMetadata, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in sorted(cluster.partitions_for_topic(topic) or ())]


def _count(cluster: ClusterMetadata, topic: str) -> int:
    return len(cluster.partitions_for_topic(topic) or ())
