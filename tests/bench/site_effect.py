"""The effect of lists at the two held-out sites of the corpus: leaks and false alarms.

    python tests/bench/site_effect.py [--profile recall]

``half`` has lists of the annotations in one half of the patients; the other half is scored, both ways round. ``all``
has lists of every annotation, also of the scored notes: the most that a complete list could give. Only lists that a
site has are made: staff, sites and wards, organizations, streets. Patients are never listed.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deid_agent.config import limit_blas_threads

limit_blas_threads()

from deid_agent.eval import Pair, score_notes  # noqa: E402 - after the threads are limited
from deid_agent.eval.markup import CorpusPart, Note, read_corpus, select_part  # noqa: E402
from deid_agent.model import Document, PhiType  # noqa: E402
from deid_agent.recognize import Profile, Tagger, load_rules, load_tagger  # noqa: E402
from deid_agent.rules import fits, merge_values  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
LISTED = (PhiType.DOCTOR, PhiType.HOSPITAL, PhiType.ORGANIZATION, PhiType.STREET)


def load(profile: Profile, folder: Path | None = None, known: Iterable[Note] = ()) -> Tagger:
    """The tagger with lists of the annotations in the ``known`` notes, as a site would have them."""
    values: dict[PhiType, list[str]] = {}
    for note in known:
        for span in note.annotated.spans:
            value = " ".join(note.annotated.text[span.start : span.end].split())
            # A site has names, and no initials or generic words.
            if span.type in LISTED and fits(value, span.type) and sum(map(str.isalpha, value)) > 3:
                values.setdefault(span.type, []).append(value)
    for kind, each in values.items():
        merge_values((folder or Path()) / "lists" / f"{kind}.txt", each)
    sites = () if folder is None else (folder,)
    return load_tagger(load_rules(ROOT / "rules", sites), ROOT / "models", "default", profile)


def tag(tagger: Tagger, notes: Sequence[Note]) -> list[Pair]:
    """The notes with the findings of ``tagger``."""
    found = tagger.find_all([Document(note.annotated.text) for note in notes])
    return [Pair(note, tuple(spans)) for note, spans in zip(notes, found, strict=True)]


def figures(pairs: Sequence[Pair]) -> dict[str, float]:
    """Leaked annotations, and findings that touch no annotation."""
    scores = score_notes(pairs, resamples=200)
    gold = sum(len(pair.note.annotated.spans) for pair in pairs)
    alarms = sum(
        not any(span.start < other.end and other.start < span.end for other in pair.note.annotated.spans)
        for pair in pairs
        for span in pair.found
    )
    leaked = scores.leaked()
    return {
        "gold": gold,
        "leaked": round(leaked.value * gold),
        "leaked_share": round(leaked.value, 4),
        "alarms": alarms,
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", type=Profile, choices=list(Profile), default=Profile.RECALL)
    profile = parser.parse_args().profile
    notes = select_part(read_corpus(ROOT / "corpus"), CorpusPart.SITES)
    patients = sorted({note.patient for note in notes})
    first = set(patients[::2])
    pairs: dict[str, list[Pair]] = {"without": tag(load(profile), notes), "half": [], "all": []}
    for prefix in sorted({patient.partition("-")[0] for patient in patients}):
        here = [note for note in notes if note.patient.startswith(f"{prefix}-")]
        halves = [[note for note in here if (note.patient in first) is side] for side in (True, False)]
        with tempfile.TemporaryDirectory() as folder:
            for number, (known, scored) in enumerate((halves, halves[::-1])):
                pairs["half"] += tag(load(profile, Path(folder) / str(number), known), scored)
            pairs["all"] += tag(load(profile, Path(folder) / "all", here), here)
    sys.stdout.write(json.dumps({"notes": len(notes), **{name: figures(each) for name, each in pairs.items()}}) + "\n")


if __name__ == "__main__":
    main()
