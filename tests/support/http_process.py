"""``deid-agent run`` with the HTTP interface in a separate process, with TLS and logins if a test asks for them."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from support.keys import KEY

PATIENCE_S = 60.0
TOKEN = "t0ken-of-the-laboratory-Zyblorqvist-000000000"


@dataclass
class HttpProcess:
    """One agent with its folder. ``service`` are lines of the section ``[service]``, ``top`` those before all sections.

    ``sections`` are lines after all others. The token belongs to the client ``lab``, and with ``-ward`` after it to
    ``ward``.
    """

    folder: Path
    service: str = ""
    policy: str = "pseudonymised"
    top: str = ""
    sections: str = ""
    listen: int = 0
    process: "subprocess.Popen[bytes] | None" = None
    port: int = 0
    operator: int = 0
    _begun: int = field(default=0)

    def start(self) -> "HttpProcess":
        key, tokens = self.folder / "deid.key", self.folder / "tokens"
        clients = {"lab": TOKEN, "ward": f"{TOKEN}-ward"}
        lines = "".join(f"{name} {hashlib.sha256(own.encode()).hexdigest()}\n" for name, own in clients.items())
        for path, data in ((key, KEY), (tokens, lines.encode())):
            path.write_bytes(data)
            path.chmod(0o600)
        config = self.folder / "http.toml"
        config.write_text(
            f'transport = "http"\nsystem = "rules"\npolicy = "{self.policy}"\nlog_level = "debug"\n{self.top}\n'
            f"[agent]\nworkers = 1\nmax_message_bytes = 1048576\n[service]\nport = {self.listen}\nrecords_per_s = 1e6\n"
            f"{self.service}\n"
            f'[http]\nport = 0\n[audit]\npath = "{self.folder}/audit"\n{self.sections}\n'
        )
        environ = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
        environ["DEID_KEY_FILE"] = str(key)
        log = self.folder / "log"
        self._begun = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            command = [sys.executable, "-m", "deid_agent", "run", "--config", str(config)]
            self.process = subprocess.Popen(command, env=environ, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_S
        while "AgentStarted" not in (seen := {line["event"]: line for line in self.events()}):
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        self.port, self.operator = (int(str(seen[name]["port"])) for name in ("ServiceListening", "Listening"))
        return self

    def events(self) -> list[dict[str, object]]:
        """The complete log lines since the last start."""
        data = (self.folder / "log").read_bytes()[self._begun :]
        return [json.loads(line) for line in data.split(b"\n")[:-1] if line.startswith(b"{")]

    def entries(self) -> list[dict[str, object]]:
        """The entries of the audit trail."""
        lines = [
            line for path in sorted((self.folder / "audit").glob("*.jsonl")) for line in path.read_text().split("\n")
        ]
        return [json.loads(line) for line in lines if line.startswith('{"kind":"entry"') and line.endswith("}")]

    def kept(self) -> bytes:
        """Everything that it wrote: log, audit, and whatever else is in its folder, without key and tokens."""
        found = [path for path in self.folder.rglob("*") if path.is_file() and path.name not in {"deid.key", "tokens"}]
        return b"".join(path.read_bytes() for path in found)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)
