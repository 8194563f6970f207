"""The contract of transports for those that take records from our MLLP listener, or give outputs to a receiver."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest
from support.mllp_world import MllpWorld
from support.transport_contract import TransportContract, after, numbered, published

from deid_agent.agent.ports import Record
from deid_agent.model.errors import TransportError


class OverMllp(TransportContract):
    """The contract suite without the features that MLLP cannot carry."""

    waived: ClassVar[Mapping[str, str]] = {"test_headers_are_passed_through_unchanged": "HL7 over MLLP has no headers"}


class FromListener(OverMllp):
    """An uncommitted message is not stored: its sender sends it again, as a record with another offset."""

    def assert_delivered_again(self, again: Sequence[Record], records: Sequence[Record]) -> None:
        assert [(r.key, r.payload) for r in again] == [(r.key, r.payload) for r in records]
        # Under the same numbers, or new ones if something may have been delivered under them; none is skipped.
        begin, end = records[0].coordinates.offset, records[-1].coordinates.offset
        assert begin <= again[0].coordinates.offset <= end + 1


class IntoReceiver(OverMllp):
    """A receiver takes single messages, so a batch may be delivered in part."""

    async def test_a_repeated_commit_delivers_nothing_twice(self, world: MllpWorld) -> None:
        await world.fill(numbered(3))
        transport = await self.started(world)
        records = await self.take(transport, 3)
        world.receiver.verdicts.extend(["AA", "AE"])
        batch = [published(record) for record in records]
        with pytest.raises(TransportError):
            await transport.commit(world.stream, batch, after(records))
        await transport.commit(world.stream, batch, after(records))
        assert [o.payload for o in await world.outputs()] == [b"clean payload %03d" % i for i in range(3)]
