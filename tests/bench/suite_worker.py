"""One tagger in a process of its own: CPU for notes that it has not read before, then for the same notes again.

    python tests/bench/suite_worker.py NAME GROUP REQUEST.json

Run by ``suite.py``. ``REQUEST.json`` holds rounds of notes, each a list; ``rivals.py`` has the names. Each round is
timed beside a fixed loop of pure Python in the same process, because only the ratio means something on a busy machine.
The answer is one line of JSON. Nothing of this project is imported for a rival.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.reference_loop import reference_loop

TagAll = Callable[[Sequence[str]], int]
"""Findings in these texts, counted."""


def load(name: str, group: int) -> TagAll:
    """A tagger that reads so many texts at once. A rival reads them one by one."""
    if not name.startswith("ours:"):
        tag = import_module("rivals").load(name)
        return lambda texts: sum(map(tag, texts))
    root = Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(root))
    import_module("deid_agent.config").limit_blas_threads()  # as the product does, before numpy is imported
    recognize, model = (import_module(f"deid_agent.{package}") for package in ("recognize", "model"))
    _, system, profile = name.split(":")
    rules = recognize.load_rules(root / "rules")
    tagger = recognize.load_tagger(rules, root / "models", system, recognize.Profile(profile))

    def tag_all(texts: Sequence[str]) -> int:
        found = 0
        for at in range(0, len(texts), group):
            found += sum(map(len, tagger.find_all([model.Document(text) for text in texts[at : at + group]])))
        return found

    return tag_all


def timed(tag_all: TagAll, rounds: Sequence[Sequence[str]]) -> tuple[list[float], list[float], int]:
    """Seconds for each round, seconds of the reference loop beside it, and all findings."""
    seconds, reference, found = [], [], 0
    for notes in rounds:
        before = reference_loop()
        begin = time.process_time()
        found += tag_all(notes)
        seconds.append(time.process_time() - begin)
        reference.append((before + reference_loop()) / 2)
    return seconds, reference, found


def main(name: str, group: str, file: str) -> None:
    rounds = json.loads(Path(file).read_text("utf-8"))
    begin = time.process_time()
    tag_all = load(name, int(group))
    loaded = time.process_time() - begin
    cold, beside_cold, found = timed(tag_all, rounds)
    warm, beside_warm, _ = timed(tag_all, rounds)
    answer = {
        "load_s": loaded,
        "found": found,
        "cold": {"seconds": cold, "reference": beside_cold},
        "warm": {"seconds": warm, "reference": beside_warm},
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
