"""An audit that keeps nothing, and what ``deid-agent audit verify`` says of one."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deid_agent.agent.audit import Entry


def verify(audit: Path) -> None:
    """``AssertionError`` with the command's own words where it finds fault."""
    command = [sys.executable, "-m", "deid_agent", "audit", "verify", str(audit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class NoAudit:
    """Implements ``agent.audit.AuditLog``. Keeps nothing."""

    async def append(self, entries: Sequence[Entry]) -> Sequence[bytes]:
        """Forget the entries."""
        del entries
        return ()

    async def close(self) -> None:
        """Nothing to close."""
