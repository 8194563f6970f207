"""A trail of some hundred entries, and the report of verify after a change to its lines."""

import asyncio
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import orjson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from support.trails import entry, head_at, written

from deid_agent.audit.examine import examine_trail
from deid_agent.audit.keys import KEY_FILE
from deid_agent.audit.reading import TrailReport, verify_trail
from deid_agent.audit.trail import TrailSettings
from deid_agent.model.errors import ConfigurationError

ENTRIES = 300
REMARKS = b'[{"path":"PID-5[1]","type":"PATIENT","method":"surrogate","source":"structure","count":2}]'
often = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
seldom = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@cache
def original() -> dict[str, tuple[bytes, ...]]:
    """A trail of some hundred entries over several segments: the lines of each file."""
    folder = Path(mkdtemp())
    batches = [[entry(n * 3 + k, n % 2, remarks=REMARKS) for k in range(3)] for n in range(ENTRIES // 3)]
    asyncio.run(written(folder / "audit", batches, TrailSettings(checkpoint_s=3600, segment_bytes=30_000)))
    files = {
        path.name: path.read_bytes() for path in (folder / "audit").iterdir() if path.name not in {"lock", KEY_FILE}
    }
    shutil.rmtree(folder)
    return {name: tuple(data.splitlines(keepends=True)) for name, data in files.items()}


Trail = dict[str, list[bytes]]
"""Lines by file, for a test to change."""


def names() -> list[str]:
    return sorted(name for name in original() if name.endswith(".jsonl"))


@cache
def first_key() -> str:
    """The public key of the first epoch: the one that an auditor keeps."""
    return str(orjson.loads(original()[names()[0]][0])["public_key"])


@cache
def true_head(lines: int) -> bytes:
    """The head that the agent signed, or would have signed, after this many lines."""
    with TemporaryDirectory() as folder:
        for name, content in original().items():
            (Path(folder) / name).write_bytes(b"".join(content))
        return head_at(Path(folder), lines)


def verify_changed(
    change: Callable[[Trail], object], *, key: bool = True, kept: bytes | None = None, started: bool | None = None
) -> TrailReport:
    """The report of verify after the change; ``started`` is true if an agent continues the trail."""
    with TemporaryDirectory() as where:
        trail = {name: list(lines) for name, lines in original().items()}
        change(trail)
        folder = Path(where) / "audit"
        folder.mkdir()
        for name, lines in trail.items():
            (folder / name).write_bytes(b"".join(lines))
        head = None
        if kept is not None:
            head = Path(where) / "kept.json"
            head.write_bytes(kept)
        if started is not None:
            assert started == can_start(folder)
        return verify_trail(folder, {first_key()} if key else None, head)


def can_start(folder: Path) -> bool:
    try:
        examine_trail(folder)
    except ConfigurationError:
        return False
    return True


def codes(report: TrailReport) -> set[str]:
    return {str(fault.code) for fault in report.faults}


def at(report: TrailReport, name: str) -> set[int]:
    return {fault.line for fault in report.faults if fault.segment == name and fault.line}


@st.composite
def lines_of_trail(draw: st.DrawFn, least: int = 0) -> tuple[str, int]:
    """A segment and the index of a line in it."""
    name = draw(st.sampled_from(names()))
    return name, draw(st.integers(least, len(original()[name]) - 1))
