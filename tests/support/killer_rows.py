"""A worker for rows that dies or hangs at marked rows, for the tests of ``batch``. Each start adds a line to a file."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from deid_agent.agent import Job, Process, Result
from deid_agent.batch.jobs import RowWorkerFactory

KILLER, HANGER = "row that kills", "row that hangs"


@dataclass(frozen=True)
class DyingFactory:
    """Builds the worker of ``parts``, which dies at ``KILLER`` and hangs at ``HANGER``."""

    parts: RowWorkerFactory
    starts: Path

    def __call__(self) -> Process:
        with self.starts.open("a") as file:
            file.write("start\n")
        process = self.parts()

        def run(job: Job) -> Result:
            if KILLER.encode() in job.payload:
                os.kill(os.getpid(), signal.SIGKILL)
            if HANGER.encode() in job.payload:
                time.sleep(600)
            return process(job)

        return run
