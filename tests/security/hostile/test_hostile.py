"""Hostile payloads: bounded memory, no hang, nothing fetched, then a reason or a right answer.

Every case of ``support.hostile`` runs in a process of its own with a limit on memory and a watchdog; a MemoryError,
a connection, a hang or a crash there is an outcome that no case allows.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.hostile import CASES, Found

SCRIPT = Path(__file__).resolve().parents[2] / "support" / "hostile.py"
FIXED = 64
"""MiB that a process may grow by for any payload: tables and caches on first use."""


@pytest.fixture(scope="module")
def found() -> dict[str, Found]:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, check=True, timeout=600)
    return {line["name"]: Found(**line) for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", CASES)
def test_every_case_ends_with_its_outcome_within_its_memory(name: str, found: dict[str, Found]) -> None:
    case, this = CASES[name], found[name]
    assert this.outcome in case.allowed, this.where
    assert this.grown <= FIXED + case.times * this.size


def test_every_case_ran(found: dict[str, Found]) -> None:
    assert set(found) == set(CASES)


def test_no_error_names_a_value(found: dict[str, Found]) -> None:
    assert not any("Okafor" in each.where or "Ada" in each.where for each in found.values())


def test_the_guard_against_connections_works() -> None:
    """Proves that a case which connected would be seen."""
    program = "import sys; from support.hostile import _forbid; sys.addaudithook(_forbid); import socket; "
    program += "socket.create_connection(('192.0.2.1', 9))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=SCRIPT.parents[1], check=False, timeout=60
    )
    assert b"while a message is processed" in done.stderr
