"""The worker process: it ends with its parent and at its limit, and ignores signals."""

import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
from support.jobs import Grouped, loaded_lists, plain

from deid_agent.agent.job import Factory, Job
from deid_agent.agent.worker_frames import SIZE, Frame, FrameKind, encode_job, pack_frame, unpack_frame
from deid_agent.agent.worker_process import run_worker

PATIENCE_S = 60.0
Pair = tuple[socket.socket, SpawnProcess]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with worker(plain, 1) as pair:
        yield pair


@contextmanager
def worker(factory: Factory, most: int) -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    process = multiprocessing.get_context("spawn").Process(target=run_worker, args=(theirs, factory, 0.3))
    process.start()
    theirs.close()
    try:
        assert read(ours) == Frame(FrameKind.READY, most)
        yield ours, process
    finally:
        ours.close()
        process.kill()
        process.join()


def read(sock: socket.socket) -> Frame:
    (size,) = SIZE.unpack(sock.recv(SIZE.size, socket.MSG_WAITALL))
    return unpack_frame(sock.recv(size, socket.MSG_WAITALL))


def test_a_worker_ends_when_its_parent_closes(pair: Pair) -> None:
    ours, process = pair
    ours.close()
    process.join(PATIENCE_S)
    assert process.exitcode == 0


def test_garbage_collection_skips_loaded_lists() -> None:
    with worker(loaded_lists, 1) as (ours, _):
        ours.sendall(pack_frame(encode_job(1, Job(b"a"))))
        assert b"False" in read(ours).fields


def test_a_worker_ignores_the_signals_of_its_process_group(pair: Pair) -> None:
    ours, process = pair
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGTERM)
    ours.sendall(pack_frame(encode_job(1, Job(b"a"))))
    assert read(ours).number == 1


def test_an_orphan_at_work_is_ended_by_the_kernel(pair: Pair) -> None:
    ours, process = pair
    ours.sendall(pack_frame(encode_job(1, Job(b"hang"))))
    process.join(PATIENCE_S)
    assert process.exitcode == -signal.SIGALRM


def test_a_truncated_frame_ends_it_silently(pair: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    ours, process = pair
    ours.sendall(SIZE.pack(30) + b"\x01" * 30)
    process.join(PATIENCE_S)
    assert process.exitcode == 1
    assert capfd.readouterr().err == ""


def test_a_batch_is_announced_before_it_begins(tmp_path: Path) -> None:
    """The parent then knows which records cannot be responsible for a crash."""
    with worker(Grouped(tmp_path / "log"), 16) as (ours, process):
        ours.sendall(
            b"".join(pack_frame(encode_job(n, Job(payload))) for n, payload in enumerate([b"a", b"b", b"c"], 1))
        )
        assert read(ours) == Frame(FrameKind.BATCH, 3)
        assert [read(ours).number for _ in range(3)] == [1, 2, 3]
        ours.sendall(b"".join(pack_frame(encode_job(n, Job(payload))) for n, payload in enumerate([b"hang", b"b"], 4)))
        assert read(ours) == Frame(FrameKind.BATCH, 2)
        process.join(PATIENCE_S)
        assert process.exitcode == -signal.SIGALRM


def test_a_batch_has_few_jobs_and_few_bytes(tmp_path: Path) -> None:
    """A large job runs alone, without an announcement. Sixteen reports of 3 KB are a batch; those of 15 KB are not."""
    large, middle, report = b"x" * (1 << 15), b"x" * 15_000, b"x" * 3_000
    numbers: list[int] = []
    given = (
        ([b"a", b"b", large], 4),
        ([large], 1),
        ([b"c"] * 21, 23),
        ([report] * 16, 17),
        ([middle] * 5, 6),
        ([large, b"a", b"b"], 4),
    )
    with worker(Grouped(tmp_path / "log"), 16) as (ours, _):
        for payloads, answers in given:
            ours.sendall(b"".join(pack_frame(encode_job(n, Job(payload))) for n, payload in enumerate(payloads)))
            frames = [read(ours) for _ in range(answers)]
            numbers += [-frame.number if frame.kind is FrameKind.BATCH else frame.number for frame in frames]
    expected = [-2, 0, 1, 2, 0, -16, *range(16), -5, *range(16, 21)]
    expected += [-16, *range(16), -4, *range(5), 0, -2, 1, 2]
    assert numbers == expected


def test_a_callable_of_one_job_processes_them_in_sequence(pair: Pair) -> None:
    ours, _ = pair
    ours.sendall(b"".join(pack_frame(encode_job(n, Job(b"a"))) for n in range(3)))
    assert [read(ours).kind for _ in range(3)] == [FrameKind.PROCESSED] * 3


PARENT = """
import asyncio, os, sys
from support.jobs import Grouped, loaded_lists, plain
from deid_agent.agent.ports import Coordinates, Record
from deid_agent.agent.worker_pool import WorkerPool
from deid_agent.telemetry.emit import Telemetry

async def main():
    pool = WorkerPool(plain, 1, Telemetry())
    await pool.start()
    serving = asyncio.create_task(pool.serve())
    def done(record, completed):
        print(completed.result.payload.decode(), flush=True)
        if sys.argv[1] == "crash":
            os.kill(os.getpid(), 9)
        serving.cancel()
    pool.submit(Record(Coordinates("t", 0, 0), b"pid"), done)
    await serving

if __name__ == "__main__":
    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        pass
"""


@pytest.mark.parametrize("ending", ["crash", "exit"])
def test_no_worker_is_left_behind(tmp_path: Path, ending: str) -> None:
    """Neither if the parent is killed nor if it exits without stopping its pool."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, str(script), ending], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        try:
            gone = os.pidfd_open(worker)
        except ProcessLookupError:
            return
        assert select.select([gone], [], [], PATIENCE_S)[0]
        os.close(gone)
        assert parent.wait(PATIENCE_S) == (-signal.SIGKILL if ending == "crash" else 0)
