"""Two requests that aiokafka 0.14 lacks.

OffsetFetch v7 (KIP-447, Kafka 2.5) waits for a stable position. The versions of aiokafka are answered at once, possibly
with the position *before* a transaction that is just being completed: a new owner would then read committed records
again. Metadata v10 (KIP-516, Kafka 2.8) returns the id of a topic, which changes when a topic is deleted and created
again, and the leader epochs of its partitions.
"""

import asyncio
import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO

from aiokafka import errors as kafka_errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from deid_agent.agent import Partition

_OFFSET_FETCH = 9
_METADATA = 3
_UNSTABLE_OFFSET_COMMIT = 88
_RETRY_S = 0.05
_RETRIABLE = (
    kafka_errors.NotCoordinatorError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.CoordinatorLoadInProgressError,
)
_NO_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """The committed position of a group in one partition, and the text that was committed with it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """A topic as it exists now. ``id`` is empty if the broker has no topic ids; ``epochs`` are the leader epochs."""

    id: str = ""
    epochs: Mapping[int, int] = field(default_factory=dict)


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]  # aiokafka has no types
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class _OffsetFetchResponse(Response):  # type: ignore[misc]
    API_KEY = _OFFSET_FETCH
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString("utf-8")),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _OffsetFetchStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _OFFSET_FETCH
    API_VERSION = 7
    RESPONSE_TYPE = _OffsetFetchResponse
    SCHEMA = Schema(
        ("group_id", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("partitions", CompactArray(Int32)),
                ("tags", TaggedFields),
            ),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class _StableOffsetFetch(Request[_OffsetFetchStruct]):  # type: ignore[misc]
    API_KEY = _OFFSET_FETCH

    def __init__(self, group: str, streams: Collection[Partition]) -> None:
        self._group = group
        self._topics: dict[str, list[int]] = {}
        for stream in sorted(streams):
            self._topics.setdefault(stream.topic, []).append(stream.number)

    def build(self, request_struct_class: type[_OffsetFetchStruct]) -> _OffsetFetchStruct:
        none: dict[int, bytes] = {}
        topics = [(topic, numbers, none) for topic, numbers in self._topics.items()]
        return request_struct_class(self._group, topics, True, none)


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = _METADATA
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("id", _Uuid),
                ("internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("operations", Int32),
        ("tags", TaggedFields),
    )


class _MetadataStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _METADATA
    API_VERSION = 10
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields))),
        ("create", Boolean),
        ("cluster_operations", Boolean),
        ("topic_operations", Boolean),
        ("tags", TaggedFields),
    )


class _TopicIds(Request[_MetadataStruct]):  # type: ignore[misc]
    API_KEY = _METADATA

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_MetadataStruct]) -> _MetadataStruct:
        return request_struct_class([(_NO_ID, topic, {}) for topic in self._topics], False, False, False, {})


async def stable_position(client: AIOKafkaClient, group: str, stream: Partition) -> CommittedPosition | None:
    """The committed position of ``group`` in one partition; None if it never committed one.

    Waits while a transaction that moves the position is open, or its coordinator is unavailable: call it with a
    timeout. Raises aiokafka's errors.
    """
    while True:
        found, unstable = await settled_positions(client, group, [stream])
        if not unstable:
            return found.get(stream)
        await asyncio.sleep(_RETRY_S)


async def settled_positions(
    client: AIOKafkaClient, group: str, streams: Collection[Partition]
) -> tuple[Mapping[Partition, CommittedPosition], frozenset[Partition]]:
    """The committed positions of ``group``, and the partitions whose position an open transaction moves.

    A partition in neither has no position. Waits while the coordinator is unavailable. Raises aiokafka's errors.
    """
    while streams:
        found: dict[Partition, CommittedPosition] = {}
        unstable: set[Partition] = set()
        code, topics = await _fetch_positions(client, group, streams)
        codes = {code}
        for topic, partitions, *_ in topics:
            for number, offset, _epoch, metadata, error, _more in partitions:
                if error == _UNSTABLE_OFFSET_COMMIT:
                    unstable.add(Partition(topic, number))
                elif not error and offset >= 0:
                    found[Partition(topic, number)] = CommittedPosition(offset, metadata or "")
                codes.add(0 if error == _UNSTABLE_OFFSET_COMMIT else error)
        if codes == {0}:
            return found, frozenset(unstable)
        for kind in map(kafka_errors.for_code, codes - {0}):
            if not issubclass(kind, _RETRIABLE):
                raise kind(", ".join(sorted({stream.topic for stream in streams})))
        await asyncio.sleep(_RETRY_S)
    return {}, frozenset()


async def _fetch_positions(
    client: AIOKafkaClient, group: str, streams: Collection[Partition]
) -> tuple[int, Sequence[tuple[str, Sequence[tuple[int, int, int, str, int, object]], object]]]:
    """One attempt: the error code of the whole answer, and its topics."""
    try:
        node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        answer = await client.send(node, _StableOffsetFetch(group, streams), group=ConnectionGroup.COORDINATION)
    except _RETRIABLE as busy:
        return int(busy.errno), ()
    return int(answer.error_code), answer.topics


async def topic_identities(client: AIOKafkaClient, topics: Collection[str]) -> Mapping[str, TopicIdentity]:
    """The identities of those topics that exist. A broker without topic ids (before 2.8) yields none of them.

    Asks any broker, and creates no topic. Raises aiokafka's errors.
    """
    try:
        answer = await _ask_any(client, _TopicIds(sorted(topics)))
    except (NotImplementedError, kafka_errors.IncompatibleBrokerVersion):  # aiokafka's words for a broker before 2.8
        return {}
    return {
        name: TopicIdentity(_id_text(id_), {number: epoch for _, number, _, epoch, *_ in partitions})
        for code, name, id_, _internal, partitions, *_ in answer.topics
        if code == 0
    }


async def _ask_any(client: AIOKafkaClient, request: Request[_MetadataStruct]) -> _MetadataResponse:
    """The answer of the first broker that gives one. Raises the error of the last."""
    failure: Exception = kafka_errors.NodeNotReadyError("no broker is known")
    for broker in client.cluster.brokers():
        try:
            answer: _MetadataResponse = await client.send(broker.nodeId, request)
        except kafka_errors.KafkaError as error:
            failure = error
        else:
            return answer
    raise failure


def _id_text(raw: bytes) -> str:
    """The id as Kafka's tools show it; empty if the broker has none."""
    return "" if raw == _NO_ID else base64.urlsafe_b64encode(raw).decode().rstrip("=")
