"""The CPU of hostile and large messages, by format and size: a table of seconds at n, 2n and 4n.

    python tests/bench/bench_cost.py [--size BYTES] [NAME...]

One line for each case of ``support/costly.py``: the bytes and the CPU seconds at a quarter, half and all of the size
(640,000 bytes by default), the last ratio (2 if linear), and the outcome. Each runs in a fork with everything loaded.
"""

import argparse
import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.costly import CASES
from support.hostile import SAMPLES, deidentifier

from deid_agent.model.errors import MessageError
from deid_agent.pipeline.deidentify import Deidentifier

LONGEST_S = 60


def run(loaded: Deidentifier, payload: bytes) -> tuple[float, str]:
    """CPU seconds and outcome of one message, in a fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))
        begin, outcome = time.process_time(), "PUBLISHED"
        try:
            loaded.message(payload)
        except MessageError as problem:
            outcome = f"{problem.reason.value}: {problem.detail}"
        except Exception as problem:  # noqa: BLE001 - any exception is a finding
            outcome = type(problem).__name__
        os.write(writing, f"{time.process_time() - begin} {outcome}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    seconds, _, outcome = text.partition(" ")
    return (float(seconds), outcome) if text else (float(LONGEST_S), "ended")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--size", type=int, default=640_000)
    options.add_argument("names", nargs="*")
    chosen = options.parse_args()
    loaded = deidentifier()
    for sample in sorted(SAMPLES.glob("0[1-5]*")):  # tables that the first text or name of a process builds
        loaded.message(sample.read_bytes())
    for name, build in CASES.items():
        if chosen.names and not any(word in name for word in chosen.names):
            continue
        payloads = [build(chosen.size * part // 4) for part in (1, 2, 4)]
        found = [run(loaded, payload) for payload in payloads]
        seconds = "  ".join(f"{each:7.2f}" for each, _ in found)
        ratio = found[2][0] / max(found[1][0], 0.01)
        sys.stdout.write(f"{name:38} {len(payloads[2]):9,} {seconds}  x{ratio:4.1f}  {found[2][1][:60]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
