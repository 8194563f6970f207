"""Kills processes of batch runs, and compares the outputs with those of an undisturbed run: one JSON object.

    PYTHONPATH=.:tests python tests/bench/kill_backfill.py [--local 40] [--delta 20] [--spark 40] [--seed 1]

Local runs lose their parent or a worker; runs on Spark lose the driver, an executor, a Python worker of Spark, or the
worker of a task. Spark and deltalake come from ``make engines``. The exit code is 1 if anything is lost, doubled or
different, or if a process outlives its run.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from support.batch_kills import LOCAL, LOCAL_DELTA, ON_SPARK, KilledRuns, write_inputs

FILES, ROWS = 12, 40


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--local", type=int, default=40)
    options.add_argument("--delta", type=int, default=20)
    options.add_argument("--spark", type=int, default=40)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deid-kills-") as folder:
        write_inputs(Path(folder), FILES, ROWS)
        runs = KilledRuns(Path(folder), random.Random(chosen.seed))
        for kind, kills in ((LOCAL, chosen.local), (LOCAL_DELTA, chosen.delta), (ON_SPARK, chosen.spark)):
            runs.kill(kind, kills, lambda line: sys.stderr.write(f"{line}\n"))
    result = {
        "kills": sum(runs.killed.values()),
        "killed": dict(sorted(runs.killed.items())),
        "folders": runs.rounds,
        "units": runs.rounds * FILES,
        "rows": runs.rounds * FILES * ROWS,
        "restarts": runs.restarts,
        "gave_up": runs.gave_up,
        "faults": runs.faults,
        "seconds": round(time.monotonic() - began),
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 1 if runs.faults else 0


if __name__ == "__main__":
    sys.exit(main())
