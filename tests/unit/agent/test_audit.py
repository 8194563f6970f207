import fcntl
import json
import os
import stat
from pathlib import Path

import pytest

from deid_agent.agent.audit import AuditFile, Entry, line_of
from deid_agent.agent.ports import Coordinates, Outcome
from deid_agent.errors import ConfigurationError, UnsafeError
from deid_agent.telemetry.emit import Telemetry

BUILD = {"version": "0.1.0", "policy": "sha256:ab"}


def entry(offset: int, **more: object) -> Entry:
    return Entry(Coordinates("adt", 0, offset), Outcome.PUBLISHED, **more)  # type: ignore[arg-type]


def audit(path: Path) -> AuditFile:
    return AuditFile(path, BUILD, Telemetry(), clock=lambda: 1700000000.12345)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_holds_what_happened_and_under_which_build() -> None:
    full = entry(7, input_digest="i", output_digest="o", remarks=b'[{"path": "PID-5", "count": 2}]')
    line = line_of(full, BUILD, 12.3456)
    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "time": 12.346,
        "topic": "adt",
        "partition": 0,
        "offset": 7,
        "outcome": "published",
        "input_digest": "i",
        "output_digest": "o",
        "build": BUILD,
        "remarks": [{"path": "PID-5", "count": 2}],
    }


def test_a_refusal_says_why() -> None:
    letter = Entry(Coordinates("adt", 0, 1), Outcome.DEAD_LETTERED, "POISON", "PID-5", "worker", 3)
    line = json.loads(line_of(letter, BUILD, 0))
    assert (line["outcome"], line["reason"], line["where"], line["stage"], line["attempts"]) == (
        "dead_lettered",
        "POISON",
        "PID-5",
        "worker",
        3,
    )


def test_remarks_never_break_a_line() -> None:
    assert line_of(entry(1, remarks=b"[\n]"), BUILD, 0).count(b"\n") == 1


async def test_entries_are_there_after_append_and_an_existing_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for begin in (0, 2):
        log = audit(path)
        await log.append([entry(begin), entry(begin + 1)])
        assert len(lines(path)) == begin + 2
        await log.close()
        await log.close()
    assert [line["offset"] for line in lines(path)] == [0, 1, 2, 3]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = audit(path)
    await log.append([entry(0), entry(1)])
    await log.close()
    path.write_bytes(path.read_bytes()[:-9])
    log = audit(path)
    await log.append([entry(2)])
    await log.close()
    assert [line["offset"] for line in lines(path)] == [0, 2]


async def test_a_torn_only_line_longer_than_a_block_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"x" * 200_000)
    log = audit(path)
    await log.close()
    assert path.read_bytes() == b""


async def test_two_agents_never_share_a_file(tmp_path: Path) -> None:
    first = audit(tmp_path / "audit.jsonl")
    with pytest.raises(ConfigurationError, match="in use"):
        audit(tmp_path / "audit.jsonl")
    await first.close()
    await audit(tmp_path / "audit.jsonl").close()


async def test_a_start_that_failed_leaves_no_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await audit(path).close()
    assert not path.exists()
    path.touch()
    await audit(path).close()
    assert path.exists(), "a file that was there before is not ours to take away"


async def test_a_file_that_went_between_opening_and_locking_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    other = audit(path)
    lock = fcntl.flock
    once = iter((True,))

    def late(file: int, how: int) -> None:
        if next(once, False):
            other._end()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    log = audit(path)
    await log.append([entry(0)])
    await log.close()
    assert [line["offset"] for line in lines(path)] == [0]


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        audit(tmp_path / "missing" / "audit.jsonl")


async def test_a_full_disk_is_unsafe_and_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = audit(tmp_path / "audit.jsonl")
    with monkeypatch.context() as patch:

        def full(file: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", full)
        with pytest.raises(UnsafeError, match="No space left on device; nothing was settled"):
            await log.append([entry(0)])
    with pytest.raises(UnsafeError, match="start again"):
        await log.append([entry(1)])
    await log.close()
    with pytest.raises(UnsafeError, match="closed"):
        await log.append([entry(2)])
