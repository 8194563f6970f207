"""A real Apache Kafka broker for tests: one node, KRaft mode, plain ``java``.

Its source is the first of these that exists:

- ``DEID_TEST_BROKER=host:port``: a running broker. It cannot be killed, so tests that kill are skipped.
- ``KAFKA_HOME``: an unpacked Kafka distribution.
- The jars of ``tests/system/broker/pom.xml``, fetched once by Maven into ``.cache/kafka-<version>``
  (``DEID_TEST_KAFKA_VERSION`` selects another version than the pom).
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NoError, for_code
from support.jars import ROOT, NoJars, find_jars, require_program

from deid_agent.transport.kafka.protocol import topic_identities

FILES = ROOT / "tests" / "system" / "broker"
START_LIMIT_S = 40.0

# Direct memory for requests of 50 MB; the default, the size of the heap, is not enough.
_MEMORY = ("-Xms96m", "-Xmx384m", "-XX:MaxDirectMemorySize=1g")
_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
COMMON_SETTINGS = """\
auto.create.topics.enable=false
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
broker.heartbeat.interval.ms=300
log.cleaner.dedupe.buffer.size=2097152
message.max.bytes=1048588
"""
"""The settings of every broker of the tests: it creates no topics, and forgets and notices in fractions of a second."""
_SETTINGS = (
    COMMON_SETTINGS
    + """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},BEHIND://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},BEHIND://127.0.0.1:{proxy}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,BEHIND:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
broker.session.timeout.ms=1500
"""
)


class Security(Protocol):
    """The security settings of a broker's listeners."""

    def settings(self, plain: str) -> str:
        """The broker's settings with the listeners added."""

    def users(self) -> list[str]:
        """Arguments for the formatting of the storage that make users known."""


class NoBroker(Exception):
    """A broker does not start; the text has the reason."""


@contextlib.contextmanager
def broker_or_skip() -> Iterator[None]:
    """Skip a test whose broker cannot start, with the reason."""
    try:
        yield
    except (NoBroker, NoJars) as reason:
        # A machine of a developer may have no Java, Maven or network. tests/conftest.py reports the skip in red, and
        # makes it a failure with DEID_REQUIRE_BROKER=1, as in CI.
        pytest.skip(str(reason))


def find_classpath() -> str:
    """The broker's jars as a Java class path, fetched if they are missing. Raises ``NoJars``."""
    require_program("java", "install a JDK 17 or set DEID_TEST_BROKER=host:port")
    if home := os.environ.get("KAFKA_HOME"):
        libs = Path(home) / "libs"
        if not libs.is_dir():
            raise NoJars(f"KAFKA_HOME={home} holds no libs folder: point it at an unpacked Kafka distribution")
        return f"{libs}/*"
    return find_jars("kafka", FILES / "pom.xml", "kafka_*.jar", os.environ.get("DEID_TEST_KAFKA_VERSION", ""))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    """Runs in the child: SIGKILL when pytest dies for any reason (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Cluster:
    """The operations of every test broker, started by the test or running elsewhere."""

    replicas = 1
    """The number of replicas of each topic."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    async def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic; return once clients see a leader for each of its partitions."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            topic = NewTopic(name, partitions, self.replicas, topic_configs=dict(settings or {}))
            async with asyncio.timeout(START_LIMIT_S):
                while True:
                    try:
                        answer = await admin.create_topics([topic], timeout_ms=10_000)
                        break
                    except AttributeError:
                        # On a busy machine the only broker is fenced for a moment. aiokafka then has no controller.
                        await asyncio.sleep(0.1)
            for _name, code, *_rest in answer.topic_errors:
                if (kind := for_code(code)) is not NoError:
                    raise kind(name)
            async with asyncio.timeout(START_LIMIT_S):
                while True:
                    (found,) = await admin.describe_topics([name])
                    if sum(p["leader"] >= 0 for p in found["partitions"]) == partitions:
                        return
                    await asyncio.sleep(0.02)
        finally:
            await admin.close()

    async def topic_id(self, name: str) -> str:
        """The id of a topic; it is another one after ``recreate_topic``."""
        client = AIOKafkaClient(bootstrap_servers=self.bootstrap)
        try:
            await client.bootstrap()
            return (await topic_identities(client, [name]))[name].id
        finally:
            await client.close()

    async def recreate_topic(self, name: str, partitions: int = 1) -> None:
        """Delete a topic and create it again under its name."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            await admin.delete_topics([name])
            async with asyncio.timeout(START_LIMIT_S):
                while name in await admin.list_topics():  # noqa: ASYNC110  the broker sends no notification
                    await asyncio.sleep(0.05)
        finally:
            await admin.close()
        await self.create_topic(name, partitions)

    async def configure_topic(self, name: str, settings: Mapping[str, str]) -> None:
        """Set these settings of the topic, and reset all others to their defaults."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, dict(settings))])
        finally:
            await admin.close()


class KafkaBroker(Cluster):
    """One broker process with its own storage under ``folder``; its log is ``folder/broker.log``."""

    memory: tuple[str, ...] = _MEMORY
    start_limit_s = START_LIMIT_S

    def __init__(self, folder: Path, classpath: str, *, security: "Security | None" = None) -> None:
        """``security`` adds encrypted listeners beside the plain one."""
        self._security = security
        self.port = free_port()
        self.behind = free_port()
        self.proxy = free_port()
        """Clients of the port ``behind`` are redirected to ``proxy``, so that a test can put a proxy there."""
        super().__init__(f"127.0.0.1:{self.port}")
        self.folder = folder
        self.log = folder / "broker.log"
        self._classpath = classpath
        self._process: subprocess.Popen[bytes] | None = None
        self.properties = folder / "server.properties"

    def start(self) -> None:
        """Start (formatting the storage the first time) and return once it takes connections."""
        self.launch()
        self.await_port()

    def launch(self) -> None:
        """Start the process (formatting the storage the first time) without waiting for it."""
        if not self.properties.exists():
            self.format()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self.properties)),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  pytest's main thread alone starts it
            )

    def stop(self) -> None:
        """Shut down in order, or kill if that takes too long. Safe to call twice."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL: nothing is flushed and no client is notified."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start again with the same port and storage, after ``stop`` or ``kill``."""
        self._end(signal.SIGKILL)
        self.start()

    def suspend(self) -> None:
        """SIGSTOP: connections stay open and the broker does not respond."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo ``suspend``."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)

    def settings(self) -> str:
        """The content of ``server.properties``."""
        ports = {"port": self.port, "behind": self.behind, "proxy": self.proxy, "controller": free_port()}
        return _SETTINGS.format(**ports, data=self.folder / "data")

    def format(self) -> None:
        """Write the settings and format the storage. Raises ``NoBroker``."""
        text = self.settings()
        users: list[str] = []
        if self._security is not None:
            text, users = self._security.settings(text), self._security.users()
        self.properties.write_text(text)
        command = self._command("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self.properties), *users)
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_LIMIT_S, check=False)
        if done.returncode != 0:
            raise NoBroker("the storage could not be formatted: " + (done.stdout + done.stderr)[-500:])

    def _command(self, main: str, *arguments: str) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile=file:{FILES / 'log4j2.properties'}"
        return ["java", *self.memory, *_JAVA, log4j, "-cp", self._classpath, main, *arguments]

    def await_port(self) -> None:
        """Return once the process takes connections. Raises ``NoBroker`` if it does not start."""
        deadline = time.monotonic() + self.start_limit_s
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=0.2):
                return
            time.sleep(0.02)
        self.kill()
        tail = self.log.read_text(errors="replace")[-1500:]
        raise NoBroker(f"the broker did not start within {self.start_limit_s:.0f} s; the end of its log:\n{tail}")
