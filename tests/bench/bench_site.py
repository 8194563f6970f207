"""A site list of 100,000 names: the time to load it, and the cost of tagging, as ratios of one run.

    python tests/bench/bench_site.py [--names 100000] [--notes 60] [--rounds 5]

The names are invented from the name lists of the surrogates. Notes of the corpus's dev part are tagged without and with
the list in turns, in one process; the best round of processor time of each counts.
"""

import argparse
import json
import random
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deid_agent.config import limit_blas_threads

limit_blas_threads()

from deid_agent.eval.markup import CorpusPart, read_corpus, select_part  # noqa: E402 - after the threads are limited
from deid_agent.model import Document  # noqa: E402
from deid_agent.recognize import Profile, load_rules, load_tagger  # noqa: E402
from deid_agent.rules.site_folder import load_lists  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
_SOUNDS = ("ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "wa", "zel", "dor", "fin", "gar", "hol", "jun", "pel")


def invent_names(count: int) -> list[str]:
    """``Family, Given M``: a third of the family names are those of the dictionaries, the others of syllables."""
    chance = random.Random(7)
    lists = {
        name: (ROOT / "rules/dictionary" / f"{name}.txt").read_text().split() for name in ("family", "given-female")
    }
    known = [word for word in lists["family"] if word.isalpha()]
    given = [word for word in lists["given-female"] if word.isalpha()]
    found: dict[str, None] = {}
    while len(found) < count:
        made = "".join(chance.choices(_SOUNDS, k=chance.randint(2, 4)))
        family = chance.choice(known) if chance.random() < 0.33 else made
        found[f"{family.title()}, {chance.choice(given).title()} {chance.choice('ABCDEFGHJKLM')}"] = None
    return list(found)


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--notes", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        (site / "lists").mkdir()
        (site / "lists" / "DOCTOR.txt").write_text("\n".join(invent_names(asked.names)) + "\n", "utf-8")
        begun = time.perf_counter()
        load_lists([site], frozenset())
        load = time.perf_counter() - begun
        tracemalloc.start()
        kept = load_lists([site], frozenset())
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        plain, listed = (
            load_tagger(load_rules(ROOT / "rules", sites), ROOT / "models", "default", Profile.RECALL)
            for sites in ((), (site,))
        )
    notes = list(select_part(read_corpus(ROOT / "corpus"), CorpusPart.DEV))[: asked.notes]
    texts = [note.annotated.text for note in notes]
    best = {"without": 1e9, "with": 1e9}
    for _ in range(asked.rounds):
        for name, tagger in (("without", plain), ("with", listed)):
            begun = time.process_time()
            for text in texts:
                tagger.find(Document(text))
            best[name] = min(best[name], time.process_time() - begun)
    recognizer = next(each for each in listed.recognizers if each.name == "site")
    docs = [Document(text) for text in texts]
    for doc in docs:
        _ = doc.folded_tokens
    begun = time.process_time()
    for doc in docs:
        list(recognizer.recognize(doc))
    own = time.process_time() - begun
    sys.stdout.write(
        json.dumps(
            {
                "names": asked.names,
                "load_s": round(load, 3),
                "memory_mb": round(size / 1e6, 1),
                "starts": len(kept.starts),
                "notes": len(texts),
                "tagging_ratio": round(best["with"] / best["without"], 4),
                "recognizer_share": round(own / best["without"], 4),
            }
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
