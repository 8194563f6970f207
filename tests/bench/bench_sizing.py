"""Throughput and cost of a worker: messages per second, CPU per message, memory, through a folder.

The agent as ``deid-agent run`` starts it, over the sample messages of the package, each with identifiers of its own.
Seconds count from the first committed record to the last one, so the start is excluded.

    python tests/bench/bench_sizing.py [--messages 300] [--workers 1 2] [--system default]
                                       [--notes | --large | --of FOLDER]

``--of`` uses your own messages, repeated as needed under different names.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deid_agent.eval.markup import CorpusPart, read_corpus, select_part

ROOT = Path(__file__).resolve().parents[2]
_ESCAPES = str.maketrans({"|": "\\F\\", "^": "\\S\\", "&": "\\T\\", "~": "\\R\\", "\\": "\\E\\"})
SAMPLES = ("01-adt-a01.hl7", "02-oru-discharge.hl7", "03-mdm-t02.hl7", "04-document-reference.json", "05-bundle.json")
CONFIG = """
transport = "directory"
system = "{system}"
log_level = "debug"
[http]
enabled = false
[agent]
workers = {workers}
deadline_s = 600
[directory]
input = "{root}/in"
output = "{root}/out"
dead_letters = "{root}/dead"
state = "{root}/state"
[dead_letters]
plain = true
[audit]
path = "{root}/audit"
"""
MB = 1 << 20


@dataclass
class Seen:
    """The measurements of a run: times of committed records, and peak memory and CPU of each process."""

    finished: list[float] = field(default_factory=list)
    memory: dict[int, int] = field(default_factory=dict)
    cpu: dict[int, float] = field(default_factory=dict)
    loaded: dict[int, float] = field(default_factory=dict)  # CPU by the time of the first record


def messages(folder: Path, count: int) -> int:
    """Distinct messages of about the samples' sizes, and the sum of their bytes."""
    total = 0
    for number in range(count):
        name = SAMPLES[number % len(SAMPLES)]
        text = (ROOT / "deid_agent" / "samples" / name).read_bytes().decode()
        changed = re.sub(r"\b(?:4471902|5530177)\b", f"{4_000_000 + 37 * number}", text)
        data = changed.encode()
        (folder / f"{number:06}-{name}").write_bytes(data)
        total += len(data)
    return total


def notes(folder: Path, count: int) -> int:
    """Reports, each a note of the corpus (the dev part) with one OBX per line."""
    head, *rest = (ROOT / "deid_agent" / "samples" / SAMPLES[1]).read_bytes().decode().split("\r")
    others = [line for line in rest if line and not line.startswith("OBX")]
    found = select_part(read_corpus(ROOT / "corpus"), CorpusPart.DEV)
    total = 0
    for number in range(count):
        lines = found[number % len(found)].annotated.text.translate(_ESCAPES).splitlines()
        report = [f"OBX|{index}|TX|18842-5^Discharge summary^LN||{line}||||||F" for index, line in enumerate(lines, 1)]
        data = "\r".join([head, *others, *report, ""]).encode()
        (folder / f"{number:06}").write_bytes(data)
        total += len(data)
    return total


def own(folder: Path, count: int, source: Path) -> int:
    """Files below ``source`` in the order of their names, repeated until there are enough."""
    paths = sorted(path for path in source.rglob("*") if path.is_file())
    total = 0
    for number in range(count):
        data = paths[number % len(paths)].read_bytes()
        (folder / f"{number:06}").write_bytes(data)
        total += len(data)
    return total


def large(folder: Path) -> int:
    """One message with a report of 5 MB."""
    text = (ROOT / "deid_agent" / "samples" / "02-oru-discharge.hl7").read_bytes().decode()
    first, *rest = [line for line in text.split("\r") if line]
    reports = [line for line in rest if line.startswith("OBX")]
    others = [line for line in rest if not line.startswith("OBX")]
    many = reports * (5 * MB // sum(map(len, reports)))
    data = "\r".join([first, *others, *many, ""]).encode()
    (folder / "large.hl7").write_bytes(data)
    return len(data)


def look(pid: int, seen: Seen) -> None:
    """The agent and its workers as they are now."""
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        pids += map(int, (task / "children").read_text().split())
    for each in pids:
        if each != pid and b"spawn_main" not in Path(f"/proc/{each}/cmdline").read_bytes():
            continue
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{each}/status").read_text().splitlines() if ":" in line
        )
        if "VmHWM" not in status:
            continue
        seen.memory[each] = int(status["VmHWM"].split()[0]) << 10
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        seen.cpu[each] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(root: Path, workers: int, system: str) -> tuple[int, Seen]:
    """One run; the agent's process id, and its measurements."""
    (root / "agent.toml").write_text(CONFIG.format(root=root, workers=workers, system=system))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    environ |= {"DEID_KEY": "5a" * 32, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "deid_agent", "run", "--config", str(root / "agent.toml")]
    seen, ended = Seen(), threading.Event()
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as agent:

        def watch() -> None:
            while not ended.wait(0.1):
                try:
                    look(agent.pid, seen)
                except (OSError, ValueError):
                    continue

        watching = threading.Thread(target=watch)
        watching.start()
        assert agent.stderr is not None
        for line in agent.stderr:
            event = json.loads(line) if line.startswith("{") else {"event": ""}
            if event["event"] == "AgentStarted":
                look(agent.pid, seen)
                seen.loaded = dict(seen.cpu)
            if event["event"] == "RecordFinished":
                seen.finished.append(float(event["time"]))
        ended.set()
        watching.join()
    if agent.returncode not in {0, 1}:
        raise SystemExit(f"the agent ended with {agent.returncode}")
    return agent.pid, seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--system", default="default")
    parser.add_argument("--large", action="store_true", help="one message of 5 MB in place of many")
    parser.add_argument("--notes", action="store_true", help="reports that hold a note of the corpus each")
    parser.add_argument("--of", type=Path, help="messages of your own")
    options = parser.parse_args()
    print(f"{'workers':>7} {'messages':>8} {'bytes':>7} {'each s':>7} {'ms CPU':>7} {'agent MB':>9} {'worker MB':>18}")  # noqa: T201
    for workers in options.workers:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            (root / "in").mkdir()
            count = 1 if options.large else options.messages
            if options.large:
                total = large(root / "in")
            elif options.notes:
                total = notes(root / "in", count)
            elif options.of:
                total = own(root / "in", count, options.of)
            else:
                total = messages(root / "in", count)
            agent, seen = measured(root, workers, options.system)
            wall = max(seen.finished) - min(seen.finished)
            cpu = sum(seconds - seen.loaded.get(pid, 0) for pid, seconds in seen.cpu.items() if pid != agent)
            speed = f"{(count - 1) / wall:7.1f}" if count > 1 and wall > 0 else f"{'-':>7}"
            of_workers = ", ".join(f"{seen.memory[pid] / MB:.0f}" for pid in seen.memory if pid != agent)
            print(  # noqa: T201
                f"{workers:>7} {count:>8} {total // count:>7} {speed} {1000 * cpu / count:7.1f} "
                f"{seen.memory[agent] / MB:>9.0f} {of_workers:>18}",
                flush=True,
            )


if __name__ == "__main__":
    main()
