"""The cost of the recurrent network: tokens per second and memory with and without it, in one run on one core.

    python tests/bench/bench_network.py [--notes 150] [--systems NAME,NAME] [--profiles NAME]

Notes of the corpus's dev part, tagged one by one by ``rivals.py`` in a process of its own for each system: best of
three rounds of processor time, models loaded before. ``MiB`` is the growth of the process, loading included.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deid_agent.config import limit_blas_threads
from deid_agent.eval.markup import CorpusPart, read_corpus, select_part
from deid_agent.model.text import Document

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("rivals.py")
SYSTEMS = ("rules", "features", "network", "hybrid")
PROFILES = ("balanced", "recall")


def measured(name: str, texts: Path) -> dict[str, float]:
    """The report of ``rivals.py``. Raises ``CalledProcessError`` if the system cannot run."""
    command = [sys.executable, str(WORKER), name, str(texts)]
    limit_blas_threads()  # as the agent does
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1200)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--notes", type=int, default=150)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--profiles", default=",".join(PROFILES))
    args = parser.parse_args()
    notes = [note.annotated.text for note in select_part(list(read_corpus(ROOT / "corpus")), CorpusPart.DEV)]
    spread = notes[:: max(1, len(notes) // args.notes)][: args.notes]
    tokens = sum(len(Document(text).tokens) for text in spread)
    write = sys.stdout.write
    write("| system | profile | tokens/s | found | loads in s | MiB |\n|---|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.json"
        texts.write_text(json.dumps({"notes": spread, "pages": "\n\n".join(spread)[:60_000]}), "utf-8")
        for system in args.systems.split(","):
            for profile in args.profiles.split(","):
                figures = measured(f"ours:{system}:{profile}", texts)
                speed = tokens / figures["seconds"]
                write(
                    f"| {system} | {profile} | {speed:,.0f} | {figures['found']:.0f} | {figures['load']:.2f} "
                    f"| {figures['grown']:.0f} |\n"
                )
    write(f"\n{len(spread)} notes, {tokens:,} tokens. Python {platform.python_version()}, numpy {np.__version__}, ")
    write(f"{platform.machine()}, one core.\n")


if __name__ == "__main__":
    main()
