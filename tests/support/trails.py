"""Trails for tests: written by the real writer under a settable clock, read back as lines."""

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from deid_agent.agent.ports import AuditEntry, Coordinates, Outcome
from deid_agent.audit.reading import verify_trail
from deid_agent.audit.storage import (
    ChainPosition,
    LineKind,
    Signer,
    TrailOrigin,
    encode_statement,
    segment_files,
)
from deid_agent.audit.trail import AuditTrail, TrailSettings
from deid_agent.audit.walk import TrailWalk
from deid_agent.telemetry.emit import Telemetry

BUILD = {"version": "0.1.0", "policy": "p:ab", "key": "0badc0de"}
SIGNER = Signer(bytes(32))
OTHER = Signer(b"\1" * 32)
TRUSTED = frozenset({SIGNER.public})
SMALL = TrailSettings(checkpoint_s=3600, segment_bytes=4000, epoch_s=1e9)
ORIGIN = TrailOrigin("0" * 32, "ward-3")
EPOCH_KEYS: dict[str, Signer] = {}
"""Every signing key that a trail of this process used, by its public half: a thief may have any of them."""
_numbers = itertools.count()


class Clock:
    """Seconds, moved by the test."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.12345

    def __call__(self) -> float:
        return self.now


def entry(offset: int, partition: int = 0, **more: object) -> AuditEntry:
    return AuditEntry(Coordinates("adt", partition, offset), Outcome.PUBLISHED, **more)  # type: ignore[arg-type]


def trail(
    folder: Path,
    settings: TrailSettings | None = None,
    *,
    clock: Clock | None = None,
    signer: Signer = SIGNER,
    build: dict[str, str] | None = None,
    telemetry: Telemetry | None = None,
) -> AuditTrail:
    # One hour between checkpoints: only the clock of the test decides when one is due.
    return AuditTrail(
        folder,
        BUILD if build is None else build,
        signer,
        telemetry or Telemetry(),
        settings or TrailSettings(checkpoint_s=3600, epoch_s=1e9),
        clock=clock or Clock(),
        make_seed=make_seed,
    )


def make_seed() -> bytes:
    """Another seed with each call, the same ones in each run."""
    seed = hashlib.sha256(b"%d" % next(_numbers)).digest()
    EPOCH_KEYS[Signer(seed).public] = Signer(seed)
    return seed


def head_at(folder: Path, lines: int) -> bytes:
    """The head that the agent signed, or would have signed, after this many lines of the trail."""
    walk = TrailWalk(wanted=[lines])
    for number, path in segment_files(folder).items():
        walk.read(number, path, last=False)
    seen = walk.seen[lines]
    assert seen.origin is not None and seen.tree is not None
    place = ChainPosition(lines, next(iter(seen.chains)), seen.tree)
    return EPOCH_KEYS[seen.key].sign(encode_statement(LineKind.HEAD, place, seen.origin, 1)) + b"}\n"


async def written(folder: Path, batches: Sequence[Sequence[AuditEntry]], settings: TrailSettings | None = None) -> None:
    """A complete trail; half an hour passes between two batches."""
    clock = Clock()
    log = trail(folder, settings, clock=clock)
    for batch in batches:
        await log.append(batch)
        clock.now += 1800
    await log.close()


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in segment_files(folder).values() for line in path.read_bytes().splitlines()]


def offsets(folder: Path) -> list[object]:
    return [line["offset"] for line in lines(folder) if line["kind"] == "entry"]


def kinds(folder: Path) -> str:
    """The kinds of all lines by their initials, with a space between segments."""
    return " ".join(
        "".join(str(json.loads(line)["kind"])[0] for line in path.read_bytes().splitlines())
        for path in segment_files(folder).values()
    )


def sound(folder: Path) -> bool:
    """True if a check finds no fault and has no warning."""
    report = verify_trail(folder, TRUSTED)
    return not report.faults and not report.warnings
