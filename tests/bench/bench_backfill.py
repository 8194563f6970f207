"""The CPU of a FHIR bulk export, and from it the core hours of 100 million notes: a table.

    python tests/bench/bench_backfill.py EXPORT [--lines 500] [--notes 100000000] [--cores 128] [--usd 0.05]

Three runs of ``deid-agent batch run`` with one worker: the persons alone, with the first lines of DocumentReference,
and with the first lines of every other type. EXPORT is that of docs/tutorial-backfill.md or one of yours.
"""

import argparse
import base64
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.performance import user_environ

ROOT = Path(__file__).resolve().parents[2]
PERSONS = {"Patient", "Practitioner", "PractitionerRole", "RelatedPerson"}


@dataclass(frozen=True)
class Sample:
    """Some lines of an export."""

    files: dict[str, list[bytes]]

    @property
    def lines(self) -> int:
        return sum(map(len, self.files.values()))

    @property
    def words(self) -> int:
        return sum(len(text.split()) for lines in self.files.values() for line in lines for text in read_texts(line))


def read_texts(line: bytes) -> list[str]:
    contents = orjson.loads(line).get("content") or []
    data = [each.get("attachment", {}).get("data") for each in contents if isinstance(each, dict)]
    return [base64.b64decode(each).decode("utf-8", "replace") for each in data if each]


def take(paths: Iterable[Path], most: int) -> Sample:
    files: dict[str, list[bytes]] = {}
    for path in paths:
        with path.open("rb") as file:
            files[path.name] = list(islice(file, most))
    return Sample(files)


def measure(persons: Sample, sample: Sample) -> float:
    """CPU seconds of a run over persons and sample, with all its processes."""
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder) / "in"
        export.mkdir()
        for name, lines in (persons.files | sample.files).items():
            (export / name).write_bytes(b"".join(lines))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "deid_agent", "batch", "run", str(export), str(Path(folder) / "out")]
        environ = user_environ() | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*command, "--table", "fhir", "--demo-key"], env=environ, stdout=subprocess.PIPE, check=False
        )
        if done.returncode not in {0, 1}:
            sys.exit("the run failed")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def type_of(path: Path) -> str:
    with path.open("rb") as file:
        line = file.readline()
    return str(orjson.loads(line)["resourceType"]) if line.strip() else ""


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("export", type=Path)
    options.add_argument("--lines", type=int, default=500)
    options.add_argument("--notes", type=int, default=100_000_000)
    options.add_argument("--cores", type=int, default=128)
    options.add_argument("--usd", type=float, default=0.05, help="of a core hour")
    chosen = options.parse_args()
    types = {path: type_of(path) for path in sorted(chosen.export.glob("*.ndjson"))}
    persons = take((path for path, name in types.items() if name in PERSONS), 10**9)
    notes = take((path for path, name in types.items() if name == "DocumentReference"), chosen.lines)
    others = take(
        (p for p, name in types.items() if name and name not in {*PERSONS, "DocumentReference"}), chosen.lines
    )
    base = measure(persons, Sample({}))
    note_s = (measure(persons, notes) - base) / max(notes.lines, 1)
    other_s = (measure(persons, others) - base) / max(others.lines, 1)
    words = notes.words / max(notes.lines, 1)
    hours = note_s * chosen.notes / 3600
    rows = [
        ("persons and start", f"{base:.1f} s CPU, {persons.lines} lines"),
        ("a note", f"{note_s * 1000:.1f} ms CPU, {words:.0f} words, {notes.lines} measured"),
        ("another line", f"{other_s * 1000:.1f} ms CPU, {others.lines} measured"),
        (f"{chosen.notes:,} notes", f"{hours:,.0f} core hours"),
        (f"on {chosen.cores} cores", f"{hours / chosen.cores:.1f} h"),
        (f"at {chosen.usd} USD a core hour", f"{hours * chosen.usd:,.0f} USD"),
        (f"and {chosen.notes:,} other lines", f"{other_s * chosen.notes / 3600:,.0f} core hours"),
    ]
    table = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    sys.stdout.write("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
