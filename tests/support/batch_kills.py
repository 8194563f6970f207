"""Kills processes of ``deid-agent batch run`` at random moments, and compares the outputs with an undisturbed run."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from support.keys import KEY
from support.performance import user_environ

ROOT = Path(__file__).resolve().parents[2]
_TOKEN = "KILLED_RUN"
_WAIT_S = 300.0
SPARK = "--master local-cluster[2,1,768] --driver-memory 512m --conf spark.executor.memory=512m " + " ".join(
    f"--conf {name}={value}"
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.task.maxFailures": 100,  # the kills of this program are not those of a cluster
        "spark.deploy.maxExecutorRetries": -1,
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }.items()
)
SENTENCES = (
    "Ms. Zyblorq Quixwell slept well since 3/{day}/2019 and was seen by Dr. Okafor.",
    "Call 740-555-0183 if the fever comes back; MRN 4471902.",
    "Blood pressure was 120/80, and the lungs were clear on both sides.",
    "She takes 5 mg of lisinopril once a day and has no pain.",
)


@dataclass(frozen=True)
class Kind:
    """A way to run a batch: its name, its options, and the roles of the processes that may be killed."""

    name: str
    options: tuple[str, ...]
    roles: Mapping[str, str]
    """Parts of the command lines. The parent has none."""


PARENT = "parent"
LOCAL = Kind("local", ("--workers", "2"), {PARENT: "", "worker": "spawn_main"})
LOCAL_DELTA = Kind("local, delta", ("--workers", "2", "--format", "delta"), LOCAL.roles)
ON_SPARK = Kind(
    "spark",
    ("--engine", "spark"),
    {PARENT: "", "executor": "CoarseGrainedExecutorBackend", "python": "pyspark.daemon", "worker": "spawn_main"},
)


def is_marked(place: Path, variable: str) -> bool:
    """True if the process of a folder in ``/proc`` has inherited a variable (``NAME=value``). Raises ``OSError``."""
    return f"{variable}\0".encode() in (place / "environ").read_bytes()


def list_marked(variable: str) -> Iterator[Path]:
    """The folders in ``/proc`` of the processes that have inherited a variable."""
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                if is_marked(place, variable):
                    yield place


def write_inputs(folder: Path, files: int, rows: int) -> None:
    """Notes of patients, and a key."""
    (folder / "in").mkdir()
    for number in range(files):
        texts = [
            " ".join(SENTENCES[(n + k) % len(SENTENCES)].format(day=1 + (n + k) % 28) for k in range(6))
            for n in range(rows)
        ]
        columns = {
            "note_id": pa.array(range(number * rows + 1, (number + 1) * rows + 1), pa.int32()),
            "person_id": pa.array([1001 + n % 7 for n in range(rows)], pa.int64()),
            "note_text": texts,
        }
        pq.write_table(pa.table(columns), folder / "in" / f"{number:02}.parquet")
    (folder / "key").write_bytes(KEY)
    (folder / "key").chmod(0o600)


def read_outputs(out: Path) -> dict[str, bytes]:
    """The outputs and their audit parts by their names."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("part-*"))}


@dataclass
class KilledRuns:
    """Runs over the inputs in ``folder`` of which processes are killed."""

    folder: Path
    rng: random.Random
    killed: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    restarts: int = 0
    gave_up: int = 0
    faults: list[str] = field(default_factory=list)
    _references: dict[tuple[str, ...], dict[str, bytes]] = field(default_factory=dict)

    def kill(self, kind: Kind, kills: int, report: Callable[[str], object] = lambda _: None) -> None:
        """Kill this number of processes, in as many folders of outputs as that takes."""
        reference = self._make_reference(kind)
        left = kills
        while left > 0:
            self.rounds += 1
            out = self.folder / f"out {self.rounds}"
            left -= self._run_round(kind, out, left)
            self._check(kind, out, reference)
            report(f"{kind.name}: {kills - left} of {kills} kills, {len(self.faults)} faults")

    def _make_reference(self, kind: Kind) -> dict[str, bytes]:
        options = tuple(option for option in kind.options if option not in {"--engine", "spark"})
        if options not in self._references:
            out = self.folder / f"reference {len(self._references)}"
            whole = self._start(Kind(kind.name, options, {}), out)
            if whole.wait(_WAIT_S):
                raise RuntimeError((self.folder / "printed").read_text()[-2000:])
            self._references[options] = read_outputs(out)
        return self._references[options]

    def _start(self, kind: Kind, out: Path) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "deid_agent", "batch", "run", str(self.folder / "in"), str(out)]
        options = ["--table", "omop/note", "--system", "rules", "--key-file", str(self.folder / "key")]
        environ = user_environ() | {"PYTHONPATH": str(ROOT), _TOKEN: str(self.folder)}
        environ["PYSPARK_SUBMIT_ARGS"] = f"{SPARK} pyspark-shell"
        with (self.folder / "printed").open("ab") as printed:
            return subprocess.Popen(
                [*command, *options, *kind.options], env=environ, stdout=printed, stderr=printed, cwd=self.folder
            )

    def _list_processes(self) -> dict[int, str]:
        """The command lines of all processes of the runs, also of those whose parent is gone."""
        found = {}
        for place in list_marked(f"{_TOKEN}={self.folder}"):
            with suppress(OSError):
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode("latin-1")
        return found

    def _run_round(self, kind: Kind, out: Path, most: int) -> int:
        """Kill until a run ends by itself; the number of kills."""
        kills = 0
        run = self._start(kind, out)
        while kills < most:
            role = self.rng.choice([*kind.roles])
            victim = self._find_moment(kind, role, run, out)
            if victim is None:
                break
            lines = _count_lines(out)
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            kills += 1
            self.killed[f"{kind.name}: {role}"] += 1
            if role == PARENT:
                run.wait(_WAIT_S)
                self._wait_for_the_rest()
                self.restarts += 1
                run = self._start(kind, out)
                continue
            # A row that loses a second worker is refused, so the next kill is in another unit.
            _wait(lambda: run.poll() is not None or _count_lines(out) > lines)  # noqa: B023 - called at once
        for _ in range(3):
            run.wait(_WAIT_S)
            self._wait_for_the_rest()
            if run.returncode == 0:
                return kills
            self.gave_up += 1
            run = self._start(kind, out)
        self.faults.append(f"{kind.name}: a run that nobody kills ends with {run.wait(_WAIT_S)}")
        return kills

    def _find_moment(self, kind: Kind, role: str, run: "subprocess.Popen[bytes]", out: Path) -> int | None:
        """Wait for a moment, and return a process of the role; None if the run ends first."""
        at_change = self.rng.random() < 0.5
        names = _list_names(out)
        since = time.monotonic()
        delay = self.rng.uniform(0.0, 2.0)
        while run.poll() is None and time.monotonic() - since < _WAIT_S:
            if at_change and _list_names(out) == names:
                time.sleep(0.002)
                continue
            if not at_change and time.monotonic() - since < delay:
                time.sleep(0.01)
                continue
            processes = self._list_processes()
            working = any("spawn_main" in line for line in processes.values())
            mark = kind.roles[role]
            found = [pid for pid, line in processes.items() if mark in line and pid != run.pid] if mark else [run.pid]
            if working and found:
                return self.rng.choice(sorted(found))
            time.sleep(0.05)
        return None

    def _wait_for_the_rest(self) -> None:
        """Every process of a run ends by itself once its parent is gone."""
        if not _wait(lambda: not self._list_processes(), 60.0):
            left = self._list_processes()
            self.faults.append(f"{len(left)} processes are left: {sorted({line[:60] for line in left.values()})}")
            for pid in left:
                os.kill(pid, signal.SIGKILL)

    def _check(self, kind: Kind, out: Path, reference: Mapping[str, bytes]) -> None:
        found = read_outputs(out)
        if found != reference:
            lost, more = sorted({*reference} - {*found}), sorted({*found} - {*reference})
            other = sorted(name for name in {*reference} & {*found} if reference[name] != found[name])
            self.faults.append(f"{kind.name}: lost {lost}, more {more}, different {other}")
        lines = [json.loads(line) for line in (out / "_manifest.jsonl").read_bytes().splitlines()[1:]]
        if len({line["unit"] for line in lines}) != len(lines) or len(lines) * 2 != len(reference):
            self.faults.append(f"{kind.name}: {len(lines)} lines of units")
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "deid_agent", "batch", "verify", str(out)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            self.faults.append(f"{kind.name}: {done.stdout}")


def _count_lines(out: Path) -> int:
    path = out / "_manifest.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def _list_names(out: Path) -> set[str]:
    folders = [folder for folder in (out, out / "_audit", out / "_delta_log") if folder.is_dir()]
    return {name for folder in folders for name in os.listdir(folder)}  # noqa: PTH208 - names alone


def _wait(done: Callable[[], bool], most: float = _WAIT_S) -> bool:
    until = time.monotonic() + most
    while not done():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
