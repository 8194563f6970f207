"""A cluster of three real Apache Kafka brokers for tests, each in a process of its own with a small heap.

Each node is broker and controller (KRaft). Every topic has three replicas, and a record is acknowledged once two of
them have it (``min.insync.replicas=2``). Leaders and coordinators move by two requests that aiokafka lacks.
"""

import asyncio
import base64
import contextlib
import shutil
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NoError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)
from support.kafka_broker import COMMON_SETTINGS, Cluster, KafkaBroker, free_port

T = TypeVar("T")

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
_NODES = 3
_WAIT_S = 180.0
_REQUEST_MS = 5_000
_SETTINGS = (
    COMMON_SETTINGS
    + """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
auto.leader.rebalance.enable=false
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=2
broker.session.timeout.ms=2000
replica.lag.time.max.ms=3000
controller.quorum.fetch.timeout.ms=1500
controller.quorum.election.timeout.ms=800
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=1
log.index.size.max.bytes=1048576
"""
)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as the cluster describes it."""

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class KafkaNode(KafkaBroker):
    """One broker of a cluster. ``controllers`` are the controllers' ports of all nodes, by node number."""

    memory = ("-Xms64m", "-Xmx256m")
    start_limit_s = 180.0  # it recovers its logs while the others and the agents keep the processors busy

    def __init__(self, folder: Path, classpath: str, number: int, controllers: Mapping[int, int]) -> None:
        super().__init__(folder, classpath)
        self.number = number
        self._controllers = controllers

    def settings(self) -> str:
        """See ``KafkaBroker.settings``."""
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in self._controllers.items())
        return _SETTINGS.format(
            number=self.number,
            voters=voters,
            port=self.port,
            controller=self._controllers[self.number],
            data=self.folder / "data",
        )

    def format_like(self, other: "KafkaNode") -> None:
        """Copy the formatted storage of another node under an identity of its own: faster than a further ``java``."""
        shutil.copytree(other.folder / "data", self.folder / "data")
        meta = self.folder / "data" / "meta.properties"
        own = {"node.id": str(self.number), "directory.id": _new_id()}
        lines = [line.partition("=") for line in meta.read_text().splitlines()]
        meta.write_text("".join(f"{name}{sign}{own.get(name, value)}\n" for name, sign, value in lines))
        self.properties.write_text(self.settings())


class ThreeBrokers(Cluster):
    """Three nodes under one folder. Nodes are numbered from 1; ``nodes[0]`` is node 1."""

    replicas = _NODES

    def __init__(self, folder: Path, classpath: str) -> None:
        self.folder = folder
        controllers = {number: free_port() for number in range(1, _NODES + 1)}
        folders = [folder / f"node-{number}" for number in controllers]
        for each in folders:
            each.mkdir(parents=True)
        self.nodes = tuple(
            KafkaNode(each, classpath, number, controllers) for each, number in zip(folders, controllers, strict=True)
        )
        super().__init__(",".join(node.bootstrap for node in self.nodes))

    def start(self) -> None:
        """Format the storage and start all nodes. Raises ``NoBroker``."""
        first, *others = self.nodes
        first.format()
        for node in others:
            node.format_like(first)
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.await_port()

    def kill(self) -> None:
        """SIGKILL to all nodes."""
        for node in self.nodes:
            node.kill()

    def node(self, number: int) -> KafkaNode:
        """The node with this number."""
        return self.nodes[number - 1]

    async def describe(self, topics: Sequence[str]) -> list[PartitionState]:
        """The partitions of these topics; of those that do not exist yet none."""
        async with self._admin() as admin:
            found = await admin.describe_topics(list(topics))
        return [
            PartitionState(
                topic["topic"], each["partition"], each["leader"], tuple(each["replicas"]), tuple(each["isr"])
            )
            for topic in found
            for each in topic["partitions"]
        ]

    async def coordinator(self) -> int:
        """The number of the node that coordinates all consumer groups."""
        (state,) = await retried(lambda: self.describe([OFFSETS]))
        return state.leader

    async def recovered(self, topics: Sequence[str]) -> None:
        """Return once every partition has a leader and all replicas are in sync."""

        async def complete() -> bool:
            states = await self.describe(topics)
            return all(state.leader > 0 and len(state.in_sync) == self.replicas for state in states)

        await self._until(complete)

    async def move_leaders(self, topics: Sequence[str]) -> int:
        """Give each partition of these topics another leader; return the number of partitions.

        The next replica becomes the preferred one, then the preferred leaders are elected.
        """
        before = {(state.topic, state.number): state for state in await retried(lambda: self.describe(topics))}
        orders: dict[str, list[tuple[int, list[int]]]] = {}
        for state in before.values():
            at = (state.replicas.index(state.leader) + 1) if state.leader in state.replicas else 0
            orders.setdefault(state.topic, []).append((state.number, [*state.replicas[at:], *state.replicas[:at]]))
        await retried(lambda: self._ask(_Reassign(orders)))
        elect = _Elect({topic: [number for number, _ in found] for topic, found in orders.items()})

        async def moved() -> bool:
            await self._ask(elect)
            after = await self.describe(topics)
            return all(state.leader not in (-1, before[state.topic, state.number].leader) for state in after)

        await self._until(moved)
        return len(before)

    async def grow_topic(self, topic: str, partitions: int) -> None:
        """Add partitions; return once each has a leader."""
        async with self._admin() as admin:
            await admin.create_partitions({topic: NewPartitions(partitions)}, timeout_ms=_REQUEST_MS)

        async def led() -> bool:
            states = await self.describe([topic])
            return len(states) == partitions and all(state.leader > 0 for state in states)

        await self._until(led)

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(_WAIT_S):
            while not await retried(holds):  # noqa: ASYNC110  the brokers send no notification
                await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, request_timeout_ms=_REQUEST_MS)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    async def _ask(self, request: "_Reassign | _Elect") -> None:
        """Send a request to any node, which passes it on to the controller. Raises aiokafka's errors."""
        client = AIOKafkaClient(bootstrap_servers=self.bootstrap, request_timeout_ms=_REQUEST_MS)
        await client.bootstrap()
        try:
            answer = await client.send(client.get_random_node(), request)
        finally:
            await client.close()
        if (kind := for_code(answer.error_code)) is not NoError:
            raise kind(type(request).__name__)


async def retried(call: Callable[[], Awaitable[T]]) -> T:
    """The result of a call that is repeated while nodes are down."""
    async with asyncio.timeout(_WAIT_S):
        while True:
            try:
                return await call()
            except (KafkaError, OSError, TimeoutError, ValueError):
                await asyncio.sleep(0.1)


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class _ReassignResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 45
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("error_message", CompactString("utf-8")),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ReassignStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 45
    API_VERSION = 0
    RESPONSE_TYPE = _ReassignResponse
    SCHEMA = Schema(
        ("timeout_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(("partition", Int32), ("replicas", CompactArray(Int32)), ("tags", TaggedFields)),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Reassign(Request[_ReassignStruct]):  # type: ignore[misc]
    """AlterPartitionReassignments: the replicas of each partition, the preferred leader first."""

    API_KEY = 45

    def __init__(self, orders: Mapping[str, Sequence[tuple[int, list[int]]]]) -> None:
        self._orders = orders

    def build(self, request_struct_class: type[_ReassignStruct]) -> _ReassignStruct:
        tags: dict[int, bytes] = {}
        topics = [
            (topic, [(number, order, tags) for number, order in found], tags) for topic, found in self._orders.items()
        ]
        return request_struct_class(_REQUEST_MS, topics, tags)


class _ElectResponse(Response):  # type: ignore[misc]
    API_KEY = 43
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "topics",
            Array(
                ("name", String("utf-8")),
                ("partitions", Array(("partition", Int32), ("error_code", Int16), ("message", String("utf-8")))),
            ),
        ),
    )


class _ElectStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 43
    API_VERSION = 1
    RESPONSE_TYPE = _ElectResponse
    SCHEMA = Schema(
        ("election_type", Int8),
        ("topics", Array(("name", String("utf-8")), ("partitions", Array(Int32)))),
        ("timeout_ms", Int32),
    )


class _Elect(Request[_ElectStruct]):  # type: ignore[misc]
    """ElectLeaders: the preferred leader of each partition."""

    API_KEY = 43

    def __init__(self, partitions: Mapping[str, Sequence[int]]) -> None:
        self._partitions = partitions

    def build(self, request_struct_class: type[_ElectStruct]) -> _ElectStruct:
        return request_struct_class(0, list(self._partitions.items()), _REQUEST_MS)
