"""The parrot attack on invented notes: real leaks, planted leaks, and the control with marks.

    python tests/bench/parrot.py | tee tests/bench/parrot.json

The notes of a part of the corpus are de-identified as a feed would be: without facts about the patients. Leaks are the
annotations that the output has unchanged.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from deid_agent.config import limit_blas_threads  # noqa: E402

limit_blas_threads()

from deid_agent.app import make_factory  # noqa: E402 - after the threads are limited
from deid_agent.config.secrets import DEMO_KEY  # noqa: E402
from deid_agent.eval.markup import CorpusPart, Note, read_corpus, select_part  # noqa: E402
from deid_agent.evidence import (  # noqa: E402
    ParrotStrength,
    ParrotTools,
    TextPair,
    attack_feed,
    attack_threats,
    compare_learned_recall,
    compare_recall,
    find_leaks,
    mark_replaced,
    pair_from_trace,
    plant_leaks,
    rehearse,
)
from deid_agent.model import Document, PhiType, Range  # noqa: E402
from deid_agent.pipeline import RecordingTracer  # noqa: E402
from deid_agent.recognize import Profile, load_rules, load_tagger  # noqa: E402
from deid_agent.rules import Dictionaries  # noqa: E402
from deid_agent.surrogate import list_words, load_lists  # noqa: E402
from deid_agent.train import CrfSettings, train_crf  # noqa: E402

RULES = ROOT / "rules"
SETTINGS = CrfSettings(l1=0.3, l2=0.2, iterations=40)
PLANTED = 0.03
FEWEST = 20
"""Ranges of a type with a line of its own."""


KEPT = frozenset({PhiType.AGE, PhiType.STATE})
"""Types that the policy keeps."""


def make_feed(notes: Sequence[Note], profile: str) -> tuple[list[TextPair], dict[str, list[Range]]]:
    """The notes with their outputs under the default policy, and the annotations that were missed."""
    made = make_factory(
        DEMO_KEY, policy="pseudonymised", profile=profile, system="default", rules=RULES, models=ROOT / "models"
    ).deidentifier(notes_only=True)
    pairs, leaks = [], {}
    for note in notes:
        tracer = RecordingTracer()
        result = made.text(note.annotated.text, document=note.id, patient=note.patient, tracer=tracer)
        pair = pair_from_trace(note.id, note.patient, tracer.documents[0])
        gold = [(span.start, span.end) for span in note.annotated.spans if span.type not in KEPT]
        missed = [(a, b) for a, b in find_leaks(pair, gold) if not any(s.start < b and a < s.end for s in result.spans)]
        pairs.append(pair)
        if missed:
            leaks[note.id] = missed
    return pairs, leaks


Feed = tuple[list[TextPair], dict[str, list[Range]]]
"""Pairs with the leaks of each note."""


def make_tools(profile: str) -> ParrotTools:
    """The means of an attacker with this program."""
    tagger = load_tagger(load_rules(RULES), ROOT / "models", "default", Profile(profile))

    def find(texts: Sequence[str]) -> list[list[Range]]:
        found = tagger.find_all([Document(text) for text in texts])
        return [[(s.start, s.end) for s in spans if s.type not in KEPT] for spans in found]

    return ParrotTools(
        lambda extractor, chains: train_crf(extractor, chains, SETTINGS),
        Dictionaries.load(RULES),
        find,
        list_words(load_lists(RULES)),
    )


def attack_part(feed: Feed, tools: ParrotTools) -> dict[str, object]:
    """The results of all attacks on the feed."""
    pairs, leaks = feed
    planted, own = plant_leaks(pairs, PLANTED)
    feeds: dict[str, Feed] = {
        "surrogates": (pairs, leaks),
        "marks": (mark_replaced(pairs), leaks),
        "planted": (planted, own),
        "planted, marks": (mark_replaced(planted), own),
    }
    found: dict[str, object] = {"notes": len(pairs), "patients": len({pair.patient for pair in pairs})}
    for name, (attacked, known) in feeds.items():
        for strength in ParrotStrength:
            begin = time.perf_counter()
            found[f"{name}, {strength}"] = attack_feed(attacked, known, tools, strength).as_json()
            sys.stderr.write(f"{name}, {strength}: {time.perf_counter() - begin:.0f} s\n")
    assert tools.find is not None
    quality = [compare_recall(pairs, "tagger", tools.find), compare_learned_recall(pairs, tools)]
    found["recall"] = {q.finder: [r.as_json() for r in q.recalls if r.ranges >= FEWEST] for q in quality}
    found["threats"] = [each.as_json() for each in attack_threats(pairs)]
    return found


def attack_rehearsed(own: Feed, feed: Feed, tools: ParrotTools) -> dict[str, object]:
    """The attack on a feed by attackers who have rehearsed on their ``own``."""
    return {
        strength.value: attack_feed(*feed, tools, strength, rehearsal=rehearse(*own, tools, strength)).as_json()
        for strength in ParrotStrength
    }


def main() -> None:
    """Print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", type=Profile, choices=list(Profile), default=Profile.RECALL)
    parser.add_argument(
        "--rehearsed", action="store_true", help="only the rehearsed attacks, into the results on stdin"
    )
    asked = parser.parse_args()
    tools, notes = make_tools(asked.profile), list(read_corpus(ROOT / "corpus"))
    dev, sites = (make_feed(select_part(notes, part), asked.profile) for part in (CorpusPart.DEV, CorpusPart.SITES))
    if asked.rehearsed:
        found = json.load(sys.stdin)
    else:
        found = {"profile": asked.profile, "planted": PLANTED}
        found |= {"dev": attack_part(dev, tools), "sites": attack_part(sites, tools)}
    found["rehearsed"] = attack_rehearsed(dev, sites, tools)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
