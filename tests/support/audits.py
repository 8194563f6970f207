"""An audit log that keeps nothing, and a check with ``deid-agent audit verify``."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deid_agent.agent.ports import AuditEntry


def verify(audit: Path) -> None:
    """Verify a trail. Raises ``AssertionError`` with the output of the command if it reports a fault."""
    command = [sys.executable, "-m", "deid_agent", "audit", "verify", "--unauthenticated", str(audit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class NoAudit:
    """Implements ``agent.audit.AuditLog``. Keeps nothing."""

    async def append(self, entries: Sequence[AuditEntry]) -> Sequence[bytes]:
        """Forget the entries."""
        del entries
        return ()

    async def close(self) -> None:
        """Nothing to close."""
