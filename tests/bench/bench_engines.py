"""The CPU of a batch on Spark and Ray, if they are there, beside that of a local run, and the share of the parent.

    PYTHONPATH=.:tests python tests/bench/bench_engines.py [--rows 1000] [--system default]

Each engine reads two units of notes of the corpus, few and many, with two processes that work. The difference is the
cost of the rows; the rest is the start, which includes one worker for each unit. It is CPU of all processes of a run,
so a busy machine changes it little: as the kernel adds it up for children, or as /proc shows it, since an engine may
take no notice of the end of its children. Spark and Ray come from ``make engines``.
"""

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from support.batch_kills import is_marked  # noqa: E402
from support.corpus import notes  # noqa: E402
from support.performance import user_environ  # noqa: E402

UNITS, FEW = 2, 64
_TICKS = os.sysconf("SC_CLK_TCK")
_TOKEN = "MEASURED_RUN"
_PR_SET_CHILD_SUBREAPER = 36
OPTIONS = {"local": ("--workers", str(UNITS)), "spark": ("--engine", "spark"), "ray": ("--engine", "ray")}


@dataclass
class Meter:
    """Adds up the CPU of the processes of a run while it runs: each as it was last seen."""

    mark: str
    seen: dict[tuple[str, str], float] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)
    _others: set[str] = field(default_factory=set)

    def watch(self) -> None:
        while not self.ended.wait(0.25):
            self.look()

    def look(self) -> None:
        """Note the CPU of each process of the run. Those that are not of it are looked at once."""
        for place in Path("/proc").iterdir():
            if not place.name.isdigit() or place.name in self._others:
                continue
            with suppress(OSError):
                if not is_marked(place, self.mark):
                    if (place / "environ").read_bytes():  # it is empty for a moment when a program begins
                        self._others.add(place.name)
                    continue
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                # A process has another start time than the one before with its number.
                self.seen[place.name, fields[19]] = (int(fields[11]) + int(fields[12])) / _TICKS

    def of(self, pid: int) -> float:
        return sum(cpu for (name, _), cpu in self.seen.items() if name == str(pid))


def write_notes(folder: Path, rows: int) -> Path:
    texts = [note.annotated.text for note in notes()]
    folder.mkdir()
    each = rows // UNITS
    for unit in range(UNITS):
        numbers = range(unit * each, (unit + 1) * each)
        columns = {
            "note_id": pa.array([n + 1 for n in numbers], pa.int64()),
            "person_id": pa.array([1001 + n % 97 for n in numbers], pa.int64()),
            "note_text": [texts[n % len(texts)] for n in numbers],
        }
        pq.write_table(pa.table(columns), folder / f"{unit}.parquet")
    return folder


def measure(engine: str, inputs: Path, out: Path, system: str) -> tuple[float, float]:
    """CPU seconds of a run with all its processes, and of its parent alone."""
    command = [sys.executable, "-m", "deid_agent", "batch", "run", str(inputs), str(out), *OPTIONS[engine]]
    environ = user_environ() | {"PYTHONPATH": str(ROOT), _TOKEN: str(out), "RAY_USAGE_STATS_ENABLED": "0"}
    environ["PYSPARK_SUBMIT_ARGS"] = f"--master local[{UNITS}] --conf spark.ui.enabled=false pyspark-shell"
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # children of dead processes become ours
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    meter = Meter(f"{_TOKEN}={out}")
    watcher = threading.Thread(target=meter.watch)
    watcher.start()
    try:
        run = subprocess.Popen(
            [*command, "--table", "omop/note", "--demo-key", "--system", system],
            env=environ,
            cwd=out.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        printed = run.communicate()[1]
        reap()
    finally:
        meter.ended.set()
        watcher.join()
    if run.returncode not in {0, 1}:
        sys.exit(f"{engine}: the run failed\n{printed.decode()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    added = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return max(added, sum(meter.seen.values())), meter.of(run.pid)


def reap() -> None:
    """Wait for the processes of the run whose parents are gone."""
    until = time.monotonic() + 60
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.1)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1000)
    options.add_argument("--system", default="default")
    options.add_argument("--engines", nargs="+", choices=[*OPTIONS], default=[*OPTIONS])
    chosen = options.parse_args()
    began = time.monotonic()
    there = [
        engine for engine in chosen.engines if engine == "local" or find_spec("pyspark" if engine == "spark" else "ray")
    ]
    costs: dict[str, list[tuple[float, float]]] = {engine: [] for engine in there}
    outputs = []
    with tempfile.TemporaryDirectory(prefix="deid-engines-") as folder:
        for size in (FEW, FEW + chosen.rows):
            inputs = write_notes(Path(folder) / f"in {size}", size)
            for engine, found in costs.items():
                out = Path(folder) / f"{engine} {size}"
                found.append(measure(engine, inputs, out, chosen.system))
                outputs.append([path.read_bytes() for path in sorted(out.glob("part-*"))])
            assert all(each == outputs[0] for each in outputs), "an engine has other outputs"
            outputs.clear()
    row = {engine: (many[0] - few[0]) / chosen.rows for engine, (few, many) in costs.items()}
    start = {engine: few[0] - FEW * row[engine] for engine, (few, _) in costs.items()}
    (few, many) = costs["local"]
    result = {
        "rows": chosen.rows,
        "system": chosen.system,
        "words_a_row": round(sum(len(n.annotated.text.split()) for n in notes()) / len(notes())),
        "ms_a_row": {engine: round(1000 * cpu, 1) for engine, cpu in row.items()},
        "rows_beside_local": {engine: round(cpu / row["local"], 3) for engine, cpu in row.items()},
        "start_s": {engine: round(cpu, 1) for engine, cpu in start.items()},
        "start_above_local_s": {engine: round(cpu - start["local"], 1) for engine, cpu in start.items()},
        "parent_share_of_rows": round((many[1] - few[1]) / (many[0] - few[0]), 4),
        "load": [round(each, 1) for each in os.getloadavg()],
        "seconds": round(time.monotonic() - began),
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
