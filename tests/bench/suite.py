"""Every benchmark of ``docs/performance.md`` in one command, each in a process that is started as a user starts it.

    python tests/bench/suite.py [--limit-s 900] [--save] [--page] [--compare] [--rivals] [--no-kafka]

``--save`` adds a file to ``tests/bench/results``, ``--page`` writes the page from the newest one, ``--compare`` reports
the entries that cost more than in the newest one, and then exits with 1. ``--rivals`` installs other programs into
temporary environments and measures them in the same run. Entries without time are listed as not measured.
"""

import argparse
import datetime
import importlib.util
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.performance import PAGE, RESULTS, Entry, Results, compare, last_results, render, user_environ

from deid_agent.eval.markup import CorpusPart, read_corpus, select_part
from deid_agent.model import Document

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "bench"
ROUNDS, NOTES = 5, 8


@dataclass(frozen=True, slots=True)
class Tagger:
    """A tagger of ``rivals.py``, how many notes it reads at once, and the packages to install (none for ours)."""

    id: str
    title: str
    name: str
    group: int = 1
    needs: tuple[str, ...] = ()


OURS = (
    Tagger("notes-1", "deid-agent default, recall, one note at a time", "ours:default:recall"),
    Tagger("notes-16", "deid-agent default, recall, 16 notes at once", "ours:default:recall", 16),
    Tagger("rules-1", "deid-agent rules, one note at a time", "ours:rules:recall"),
)
RIVALS = (
    Tagger("presidio", "Presidio, patterns (no names)", "presidio", 1, ("presidio-analyzer==2.2.366",)),
    Tagger("scrubadub", "scrubadub (no names, no dates)", "scrubadub", 1, ("scrubadub==2.0.1",)),
    Tagger("scrubadub-names", "scrubadub with TextBlob names", "scrubadub-names", 1, ("scrubadub==2.0.1",)),
    Tagger("philter-lite", "philter-lite, its filters", "philter-lite", 1, ("philter-lite==0.6.0",)),
    Tagger("phileas", "phileas-redact (no names)", "phileas", 1, ("phileas-redact==1.0.0",)),
)
KAFKA = Entry("kafka", "the agent on Kafka with 1, 2 and 4 partitions", "agent", "us a record")
NO_TIME = "no time was left"
NO_MODEL = "its models are not in the package registry, only copies that others uploaded"


@dataclass(slots=True)
class Run:
    """The entries so far, and the end of the time."""

    ends: float
    entries: list[Entry] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        return self.ends - time.monotonic()

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        figure = f"{statistics.median(entry.values):.1f} {entry.unit}" if entry.values else ""
        sys.stderr.write(f"{entry.title} {entry.state}: {figure or f'not measured: {entry.absent}'}\n")


def answer(run: Run, command: Sequence[str], most_s: float = math.inf) -> list[dict[str, object]] | str:
    """The JSON lines that a command prints, or the reason why there are none."""
    if run.left_s < 10:
        return NO_TIME
    # A session of its own, so that all processes of the command end with it.
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=user_environ(),
        cwd=ROOT,
        start_new_session=True,
    ) as process:
        try:
            out, error = process.communicate(timeout=min(run.left_s, most_s))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            return _objects(out) or NO_TIME
    if process.returncode == 0:
        return _objects(out)
    if "nltk" in error.lower():
        return "it needs data of NLTK, which could not be downloaded"
    lines = error.strip().splitlines()
    return lines[-1][:120] if lines else f"exit code {process.returncode}"


def _objects(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def rounds_of_notes() -> tuple[list[list[str]], list[int]]:
    """Different notes of the corpus's dev part for each round, and their tokens."""
    notes = [note.annotated.text for note in select_part(list(read_corpus(ROOT / "corpus")), CorpusPart.DEV)]
    spread = notes[:: max(1, len(notes) // (ROUNDS * NOTES))]
    rounds = [spread[at * NOTES : (at + 1) * NOTES] for at in range(ROUNDS)]
    return rounds, [sum(len(Document(text).tokens) for text in some) for some in rounds]


def measure_tagger(run: Run, tagger: Tagger, request: Path, tokens: Sequence[int]) -> None:
    """Two entries, cold and warm; or one with the reason."""
    absent = Entry(tagger.id, tagger.title, "notes", "us a token")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        python = Path(sys.executable)
        if tagger.needs:
            python = Path(folder) / "bin" / "python"
            made = answer(run, [sys.executable, "-m", "venv", folder])
            if not isinstance(made, str):
                made = answer(run, [str(python), "-m", "pip", "install", "-q", *tagger.needs])
            if isinstance(made, str):
                run.add(_absent(absent, made if made == NO_TIME else f"cannot be installed: {made}"))
                return
        worker = BENCH / "suite_worker.py"
        found = answer(run, [str(python), str(worker), tagger.name, str(tagger.group), str(request)])
    if isinstance(found, str):
        run.add(_absent(absent, found))
        return
    (figures,) = found
    for state in ("cold", "warm"):
        times = figures[state]
        assert isinstance(times, dict)
        values = tuple(1e6 * seconds / count for seconds, count in zip(times["seconds"], tokens, strict=True))
        note = f"{figures['load_s']:.1f}, {figures['found']}" if state == "cold" else ""
        beside = tuple(times["reference"])
        run.add(Entry(f"{tagger.id}-{state}", tagger.title, "notes", "us a token", state, values, beside, note))


def measure_agent(run: Run) -> None:
    """The agent from memory to nowhere."""
    title = "no broker: ledger, worker, audit, events"
    found = answer(run, [sys.executable, str(BENCH / "agent_cost.py"), "--json", "--rounds", "5"])
    if isinstance(found, str):
        run.add(_absent(Entry("agent", title, "agent", "us a record"), found))
        return
    values = tuple(float(str(each["total_us"])) for each in found)
    beside = tuple(float(str(each["reference"])) for each in found)
    of_worker = statistics.median(float(str(each["worker_us"])) for each in found)
    run.add(Entry("agent", title, "agent", "us a record", "", values, beside, f"of it the worker {of_worker:.1f}"))


def measure_kafka(run: Run) -> None:
    """The agent and the bare loop on a real broker."""
    command = [sys.executable, str(BENCH / "bench_delivery.py"), "--json", "--rounds", "3", "--messages", "3000"]
    found = answer(run, [*command, "--only", "1 KB"], most_s=run.left_s / 2)
    if isinstance(found, str):
        run.add(_absent(KAFKA, found))
        return
    for each in found:
        case = str(each["case"])
        values, beside = each["cpu_us"], each["reference"]
        assert isinstance(values, list)
        assert isinstance(beside, list)
        note = f"{each['per_s']}/s, p99 {each['p99_ms']} ms; loop {each['loop_us']} us, {each['loop_per_s']}/s"
        name = f"kafka-{case.replace(' ', '-')}"
        run.add(Entry(name, f"Kafka, {case}", "agent", "us a record", "", tuple(values), tuple(beside), note))


def _absent(entry: Entry, why: str) -> Entry:
    return Entry(entry.id, entry.title, entry.kind, entry.unit, absent=why)


def describe_machine(begun: Sequence[float]) -> dict[str, str]:
    """The machine, its load, and the presence of the compiled core."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.machine()
    core = "installed" if importlib.util.find_spec("deid_agent_core") else "not installed: Python and NumPy alone"
    return {
        "Processor": f"{cpu}, {os.cpu_count()} cores",
        "Load before, after": f"{begun[0]:.1f}, {os.getloadavg()[0]:.1f}",
        "Python": f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        "Compiled core": core,
    }


def commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def measure(options: argparse.Namespace) -> Results:
    run, begun = Run(time.monotonic() + options.limit_s), os.getloadavg()
    rounds, tokens = rounds_of_notes()
    with tempfile.TemporaryDirectory() as folder:
        request = Path(folder) / "notes.json"
        request.write_text(json.dumps(rounds), "utf-8")
        for tagger in OURS:
            measure_tagger(run, tagger, request, tokens)
        measure_agent(run)
        if options.no_kafka:
            run.add(_absent(KAFKA, "left out of this run"))
        else:
            measure_kafka(run)
        for tagger in RIVALS if options.rivals else ():
            measure_tagger(run, tagger, request, tokens)
    run.add(_absent(Entry("spacy", "spaCy, a stock model of names", "notes", "us a token"), NO_MODEL))
    at = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Results(at, commit(), describe_machine(begun), tuple(run.entries))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=900.0)
    for name in ("--save", "--page", "--compare", "--rivals", "--no-kafka"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    before, regressed = last_results(), 0
    if options.save or options.compare or not options.page:
        results = measure(options)
        if options.save:
            results.save(RESULTS / f"{results.at[:16].replace(' ', '-').replace(':', '')}.json")
        if options.compare and before is not None:
            for change in compare(Results.load(before), results):
                mark = "  REGRESSION" if change.regressed else ""
                state = f" {change.entry.state}" if change.entry.state else ""
                sys.stdout.write(f"x{change.ratio:.2f} {change.entry.title}{state}{mark}\n")
                regressed += change.regressed
    if options.page and (newest := last_results()) is not None:
        PAGE.write_text(render(Results.load(newest)), "utf-8")
    return 1 if regressed else 0


if __name__ == "__main__":
    sys.exit(main())
