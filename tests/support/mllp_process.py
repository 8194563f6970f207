"""``deid-agent run`` with the MLLP listener in a separate process: started, killed, asked to stop by a test."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.keys import KEY
from support.mllp_world import PATIENCE_S, Peer

from deid_agent.agent.dead_letter_keys import generate_keys


class MllpProcess:
    """One agent with its own folder, which each start uses again, on any free port."""

    def __init__(
        self,
        folder: Path,
        *,
        top: Mapping[str, object] | None = None,
        mllp: Mapping[str, object] | None = None,
        sections: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "dead-letters.key").exists():
            generate_keys(folder / "dead-letters.key")
        self.folder, self.log = folder, folder / "log"
        self.config = folder / "agent.toml"
        parts: dict[str, Mapping[str, object]] = {
            "": {"transport": "mllp", "system": "rules", **(top or {})},
            "agent": {"workers": 1, "drain_s": 5.0, "start_s": 20.0},
            "mllp": {"port": 0, "dead_letters": str(folder / "dead"), **(mllp or {})},
            "dead_letters": {"public_key": str(folder / "dead-letters.key.pub")},
            "http": {"port": 0},
            "audit": {"path": str(folder / "audit")},
            **(sections or {}),
        }
        self.config.write_text("".join(_section(name, values) for name, values in parts.items()))
        key = folder / "deid.key"
        key.write_bytes(KEY)
        key.chmod(0o600)
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
        self.environ["DEID_KEY_FILE"] = str(key)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "MllpProcess":
        command = [sys.executable, "-m", "deid_agent", "run", "--config", str(self.config)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, env=self.environ, stdout=log, stderr=log)
        return self

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def events(self, kind: str) -> list[dict[str, object]]:
        """Complete log lines of one kind since the last start."""
        lines = [json.loads(line) for line in self.log.read_bytes().split(b"\n")[:-1] if line.startswith(b"{")]
        return [line for line in lines if line["event"] == kind]

    @property
    def port(self) -> int | None:
        """The port that it listens on; None until it listens."""
        listening = self.events("MllpListening")
        return int(str(listening[0]["port"])) if listening else None

    async def peer(self) -> Peer:
        """A connection, once it listens."""
        async with asyncio.timeout(3 * PATIENCE_S):
            while self.port is None or not self.events("AgentStarted"):
                assert self.process.poll() is None, self.log.read_text()
                await asyncio.sleep(0.02)
        return await Peer.to(self.port)

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Another command of the program, with the same settings."""
        return subprocess.run(
            [sys.executable, "-m", "deid_agent", *words, "--config", str(self.config)],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


def _section(name: str, values: Mapping[str, object]) -> str:
    lines = [f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items()]
    return (f"[{name}]\n" if name else "") + "".join(lines)
