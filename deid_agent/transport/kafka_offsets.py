"""Where a group stands in a partition, once no transaction on it is open.

aiokafka speaks OffsetFetch v1-v3, which answers at once and may answer with the position *before* a
transaction that is just being completed: a new owner would then read settled records again. Version 7
(KIP-447, Kafka 2.5) can be told to wait for a stable position; this module adds that one request.
"""

import asyncio

from aiokafka import errors as theirs
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
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

from deid_agent.agent.ports import Partition

_OFFSET_FETCH = 9
_UNSTABLE_OFFSET_COMMIT = 88
_RETRY_S = 0.05
_AGAIN = (theirs.NotCoordinatorError, theirs.CoordinatorNotAvailableError, theirs.CoordinatorLoadInProgressError)


class _Answer(Response):  # type: ignore[misc]  # aiokafka has no types
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


class _Struct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _OFFSET_FETCH
    API_VERSION = 7
    RESPONSE_TYPE = _Answer
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


class _StableOffsetFetch(Request[_Struct]):  # type: ignore[misc]
    API_KEY = _OFFSET_FETCH

    def __init__(self, group: str, stream: Partition) -> None:
        self._group = group
        self._stream = stream

    def build(self, request_struct_class: type[_Struct]) -> _Struct:
        return request_struct_class(self._group, [(self._stream.topic, [self._stream.number], {})], True, {})


async def stable_position(client: AIOKafkaClient, group: str, stream: Partition) -> int | None:
    """The committed position of ``group``; ``None`` where it never committed one.

    Waits while a transaction that moves it is open or its coordinator is not there: bound it with a
    timeout. Raises the client's errors.
    """
    while True:
        code, offset = await _ask(client, group, stream)
        if code == 0:
            return None if offset < 0 else offset
        kind = theirs.for_code(code)
        if code != _UNSTABLE_OFFSET_COMMIT and not issubclass(kind, _AGAIN):
            raise kind(stream.topic)
        await asyncio.sleep(_RETRY_S)


async def _ask(client: AIOKafkaClient, group: str, stream: Partition) -> tuple[int, int]:
    """One try: error code and offset (-1 where there is none)."""
    try:
        node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        request = _StableOffsetFetch(group, stream)
        answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
    except _AGAIN as busy:
        return int(busy.errno), -1
    if answer.error_code:
        return int(answer.error_code), -1
    ((_topic, ((_partition, offset, _epoch, _metadata, code, _tags),), _topic_tags),) = answer.topics
    return int(code), int(offset)
