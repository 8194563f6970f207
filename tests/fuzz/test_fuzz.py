"""A short fuzz run as part of the suite; the long one is ``python tests/fuzz/fuzz.py 1000000``."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("fuzz.py")


def test_three_thousand_executions_neither_crash_nor_hang() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "3000", "--seconds-each", "30"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3000 executions, 0 wrong" in done.stdout
