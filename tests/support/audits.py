"""Asks ``deid-agent audit verify`` about an audit."""

import subprocess
import sys
from pathlib import Path


def verify(audit: Path) -> None:
    """``AssertionError`` with the command's own words where it finds fault."""
    command = [sys.executable, "-m", "deid_agent", "audit", "verify", str(audit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
