"""``deid-agent run`` on Kafka in a separate process: started, killed, suspended and asked to stop by a test."""

import json
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.kafka_world import KafkaWorld
from support.keys import KEY

from deid_agent.agent.dead_letter_keys import generate_keys

_CLOCK = Path(__file__).with_name("clock")
_NOT_OURS = ("DEID_", "PYTHONDONTWRITEBYTECODE")  # an operator's start finds modules compiled


class AgentProcess:
    """One agent with its own folder for configuration, key, log and audit, which each start uses again."""

    def __init__(
        self,
        folder: Path,
        world: KafkaWorld,
        *,
        top: Mapping[str, object] | None = None,
        agent: Mapping[str, object] | None = None,
        kafka: Mapping[str, object] | None = None,
        bootstrap: str | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "dead-letters.key").exists():
            generate_keys(folder / "dead-letters.key")
        self.folder, self.log, self.audit = folder, folder / "log", folder / "audit"
        self._config = folder / "agent.toml"
        servers = {"bootstrap_servers": bootstrap or world.cluster.bootstrap, "group_id": world.settings.group_id}
        delivery = {"delivery": str(world.settings.delivery), "session_timeout_ms": 4_000}
        sections: dict[str, Mapping[str, object]] = {
            "": {"transport": "kafka", "system": "rules", **(top or {})},
            "agent": {"workers": 1, "drain_s": 5.0, "start_s": 20.0, **(agent or {})},
            "kafka": {**servers, **delivery, **(kafka or {})},
            "kafka.routes": {json.dumps(world.name): world.out},
            "dead_letters": {"public_key": str(folder / "dead-letters.key.pub")},
            "http": {"port": 0},
            "audit": {"path": str(self.audit)},
        }
        self._config.write_text("".join(_section(name, values) for name, values in sections.items()))
        self._key = folder / "deid.key"
        self._key.write_bytes(KEY)
        self._key.chmod(0o600)
        self._clock = folder / "clock"
        self.set_clock(0)
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = 0

    def start(self, *, file_limit: int | None = None) -> None:
        """Start it; with ``file_limit`` no file can grow past so many bytes, which simulates a full disk."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
        environ["DEID_KEY_FILE"] = str(self._key)
        environ["SHIFTED_CLOCK"] = str(self._clock)
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_CLOCK), environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "deid_agent", "run", "--config", str(self._config)]
        self._begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if file_limit is not None:
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (file_limit, file_limit))

    def set_clock(self, shift_s: int) -> None:
        """Set the wall clock of the agent and its workers so many seconds ahead, or behind if negative."""
        with self._clock.open("r+b" if self._clock.exists() else "w+b") as file:
            file.write(struct.pack("q", shift_s))

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.poll()

    def workers(self) -> list[int]:
        """Its current worker processes."""
        try:
            threads = Path(f"/proc/{self.pid}/task").iterdir()  # a child belongs to the thread that started it
            children = [child for thread in threads for child in (thread / "children").read_text().split()]
            return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
        except OSError:
            return []

    def most_memory(self) -> int:
        """Peak memory of the agent process in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) << 10

    def events(self, kind: str = "", *, ever: bool = False) -> list[dict[str, object]]:
        """Complete log lines since the last start (or of all starts), of one kind or all."""
        data = self.log.read_bytes()[0 if ever else self._begin :]
        lines = [json.loads(line) for line in data.split(b"\n")[:-1] if line.startswith(b"{")]
        return [line for line in lines if not kind or line["event"] == kind]

    def owned(self) -> int:
        """The number of its partitions, from its log."""
        owned = 0
        for line in self.events():
            if line["event"] == "PartitionsAssigned" and isinstance(streams := line["streams"], list):
                owned = len(streams)
            elif line["event"] == "PartitionsRevoked":
                owned = 0
        return owned

    def handles_sigterm(self) -> bool:
        """True once it has a handler for SIGTERM; before that, SIGTERM kills the interpreter."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)

    def suspend(self) -> None:
        """Send SIGSTOP: the process keeps its connections and does nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo ``suspend``."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self, within_s: float = 30) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)

    def end(self) -> None:
        """End it in any state; safe to call twice."""
        if self._process is not None and self.code is None:
            self.kill()


def _section(name: str, values: Mapping[str, object]) -> str:
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
    return (f"[{name}]\n" if name else "") + "".join(lines)
