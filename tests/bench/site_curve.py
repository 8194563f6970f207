"""The gain from lists, a warm start and both at the two held-out sites of the corpus, by the number of reviewed notes.

    python tests/bench/site_curve.py --work DIR --out FILE

The two sites count as one system. Its patients are divided into halves; notes of one half are reviewed, all notes of
the other are scored, both ways round, so that every note is scored once and never reviewed. A smaller number of notes
is a part of each larger one. Each cell is a file of findings in DIR, so that a killed run can go on. No setting of
the warm start was chosen by these notes.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from deid_agent.config import limit_blas_threads

limit_blas_threads()

import numpy as np  # noqa: E402 - after the threads are limited
from bench import site_effect  # noqa: E402

from deid_agent.eval import Criterion, Pair, RatioChange, compare_pairs, count_alarms, score_notes  # noqa: E402
from deid_agent.eval.markup import CorpusPart, Note, read_corpus, select_part  # noqa: E402
from deid_agent.model import PhiType, Source, SourceKind, Span  # noqa: E402
from deid_agent.nlp import CrfModel, NetworkModel, NetworkTagger, TokenCrf  # noqa: E402
from deid_agent.recognize import Profile, Tagger  # noqa: E402
from deid_agent.train import (  # noqa: E402
    SHARES,
    SHIPPED,
    Adaptation,
    Base,
    ExampleReader,
    Models,
    SiteNotes,
    adapt_models,
    blend_models,
    draw_share,
    judge,
    read_rehearsal,
)

ROOT = Path(__file__).resolve().parents[2]
COUNTS = (10, 25, 50, 100)
PROFILES = (Profile.RECALL, Profile.BALANCED)
_SOURCE = Source(SourceKind.CUSTOM, "curve")


@dataclass(frozen=True, slots=True)
class Half:
    """Notes to review, in the order in which they are drawn, and notes of other patients to score."""

    name: str
    reviewed: list[Note]
    scored: list[Note]


def halves(notes: Sequence[Note]) -> list[Half]:
    """Both ways to review one half of the patients and score the other."""
    patients = sorted({note.patient for note in notes})
    first = set(patients[::2])
    parts = [[note for note in notes if (note.patient in first) is side] for side in (True, False)]
    drawn = [sorted(part, key=lambda note: draw_share("review", note.patient + note.id)) for part in parts]
    return [Half("first", drawn[0], parts[1]), Half("second", drawn[1], parts[0])]


def with_models(tagger: Tagger, models: Mapping[str, CrfModel | NetworkModel]) -> Tagger:
    """The default system with other models in place of its own."""
    (token,) = tagger.models
    assert isinstance(token, TokenCrf)
    (network,) = token.ensemble
    assert isinstance(network, NetworkTagger)
    crf, net = models["token"], models["network"]
    assert isinstance(crf, CrfModel)
    assert isinstance(net, NetworkModel)
    return replace(tagger, models=(replace(token, model=crf, ensemble=(replace(network, model=net),)),))


def stored(path: Path, notes: Sequence[Note], tagger: Tagger) -> list[Pair]:
    """The findings in ``notes``, from the file of an earlier run if there is one."""
    if not path.exists():
        found = {
            pair.note.id: [(s.start, s.end, s.type.value) for s in pair.found]
            for pair in site_effect.tag(tagger, notes)
        }
        path.with_suffix(".new").write_text(json.dumps(found), "utf-8")
        path.with_suffix(".new").replace(path)
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {path.name}\n")
    found = json.loads(path.read_text("utf-8"))
    return [Pair(note, tuple(Span(a, b, PhiType(kind), _SOURCE) for a, b, kind in found[note.id])) for note in notes]


def run(work: Path, counts: Sequence[int], settings: Adaptation) -> None:
    """Fill ``work`` with the findings of every cell that it lacks."""
    notes = list(read_corpus(ROOT / "corpus"))
    sites = select_part(notes, CorpusPart.SITES)
    dev = select_part(notes, CorpusPart.DEV)
    base = Base.load(ROOT / "models", ROOT / "rules")
    reader = ExampleReader.load(ROOT / "rules", "default")
    plain = {profile: site_effect.load(profile) for profile in PROFILES}
    for half in halves(sites):
        for profile in PROFILES:
            stored(work / f"site-{half.name}-0-none-{profile}.json", half.scored, plain[profile])
    for profile in PROFILES:
        stored(work / f"dev-first-0-none-{profile}.json", dev, plain[profile])
    for count in counts:
        for half in halves(sites):
            cells = [work / f"site-{half.name}-{count}-{way}-{p}.json" for way in ("warm", "both") for p in PROFILES]
            cells += [work / f"dev-{half.name}-{count}-warm-{p}.json" for p in PROFILES]
            if all(cell.exists() for cell in cells):
                continue
            known = half.reviewed[:count]
            lists = work / f"lists-{half.name}-{count}"
            listed = {profile: site_effect.load(profile, lists, known) for profile in PROFILES}
            for profile in PROFILES:
                stored(work / f"site-{half.name}-{count}-lists-{profile}.json", half.scored, listed[profile])
            start = time.process_time()
            rehearsal = read_rehearsal(ROOT / "corpus", SiteNotes(tuple(known))).learned
            own, again = ([reader.example(note) for note in part] for part in (known, rehearsal))
            models = adapt_models(base, SHIPPED, own, again, settings)
            taken = time.process_time() - start
            models, share = not_worse(base, models, work, dev, plain[Profile.RECALL])
            about = {"cpu_seconds": round(taken), "share": share, "notes": len(known)}
            (work / f"about-{half.name}-{count}.json").write_text(json.dumps(about), "utf-8")
            for profile in PROFILES:
                warm, both = (with_models(each[profile], models) for each in (plain, listed))
                stored(work / f"site-{half.name}-{count}-warm-{profile}.json", half.scored, warm)
                stored(work / f"site-{half.name}-{count}-both-{profile}.json", half.scored, both)
                stored(work / f"dev-{half.name}-{count}-warm-{profile}.json", dev, warm)


def not_worse(base: Base, models: Models, work: Path, dev: Sequence[Note], plain: Tagger) -> tuple[Models, float]:
    """The models at the share that the command would choose; 0 and the models of ``base`` if it would refuse all."""
    old = stored(work / f"dev-first-0-none-{Profile.RECALL}.json", dev, plain)
    for share in SHARES:
        blended = blend_models(base, models, share)
        if not judge("dev", old, site_effect.tag(with_models(plain, blended), dev)).faults:
            return blended, share
    return base.models, 0.0


def collect(work: Path) -> dict[str, object]:
    """The figures of all complete cells."""
    notes = list(read_corpus(ROOT / "corpus"))
    sites, dev = (select_part(notes, part) for part in (CorpusPart.SITES, CorpusPart.DEV))
    both = halves(sites)

    def pairs(count: int, way: str, profile: Profile) -> list[Pair]:
        found = []
        for half in both:
            path = work / f"site-{half.name}-{count}-{way}-{profile}.json"
            if not path.exists():
                return []
            found += read(path, half.scored)
        return found

    def read(path: Path, of: Sequence[Note]) -> list[Pair]:
        found = json.loads(path.read_text("utf-8"))
        return [Pair(n, tuple(Span(a, b, PhiType(kind), _SOURCE) for a, b, kind in found[n.id])) for n in of]

    rows: list[object] = []
    for profile in PROFILES:
        plain = pairs(0, "none", profile)
        for count in (0, *COUNTS):
            for way in ("none",) if count == 0 else ("lists", "warm", "both"):
                found = pairs(count, way, profile)
                if found:
                    rows.append(
                        {"profile": profile.value, "notes": count, "way": way, **figures(found)}
                        | ({} if way == "none" else {"change": changes(plain, found)})
                    )
                for half in both if way == "warm" else ():
                    path = work / f"dev-{half.name}-{count}-warm-{profile}.json"
                    if path.exists():
                        old = read(work / f"dev-first-0-none-{profile}.json", dev)
                        new = read(path, dev)
                        name = {"profile": profile.value, "notes": count, "way": "dev", "half": half.name}
                        rows.append({**name, **figures(new), "change": changes(old, new)})
    about = {path.stem.removeprefix("about-"): json.loads(path.read_text()) for path in sorted(work.glob("about-*"))}
    sizes = {half.name: {"reviewed": len(half.reviewed), "scored": len(half.scored)} for half in both}
    return {"halves": sizes, "adaptations": about, "rows": rows}


def figures(pairs: Sequence[Pair]) -> dict[str, object]:
    """Strict F1, leaks and false alarms, with intervals from resampling patients."""
    scores = score_notes(pairs)
    gold = sum(len(pair.note.annotated.spans) for pair in pairs)
    strict, leaked = scores.prf(Criterion.STRICT).f, scores.leaked()
    return {
        "strict": [round(x, 4) for x in (strict.value, strict.low, strict.high)],
        "leaked": round(leaked.value * gold),
        "leaked_share": [round(x, 5) for x in (leaked.value, leaked.low, leaked.high)],
        "gold": gold,
        "alarms": count_alarms(pairs),
        "alarms_interval": alarms_interval(pairs),
    }


def alarms_interval(pairs: Sequence[Pair]) -> list[int]:
    """The 95 % interval of the number of false alarms from resampling patients."""
    by_patient: dict[str, int] = {}
    for pair in pairs:
        by_patient[pair.note.patient] = by_patient.get(pair.note.patient, 0) + count_alarms([pair])
    values = np.array(list(by_patient.values()))
    draws = np.random.default_rng(20140).integers(0, len(values), (1000, len(values)))
    low, high = np.percentile(values[draws].sum(axis=1), [2.5, 97.5])
    return [round(low), round(high)]


def changes(before: Sequence[Pair], after: Sequence[Pair]) -> dict[str, object]:
    """The change against no adaptation, by paired resampling of patients."""
    one = compare_pairs(before, after)

    def numbers(change: RatioChange) -> list[float]:
        return [round(x, 5) for x in (change.value, change.low, change.high)]

    return {"strict": numbers(one.strict), "leaked": numbers(one.leaked), "alarms": one.alarms[1] - one.alarms[0]}


def main() -> None:
    """Run the missing cells, and write the figures of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--counts", default=",".join(map(str, COUNTS)), help="Numbers of reviewed notes.")
    parser.add_argument("--collect", action="store_true", help="Run nothing.")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    if not given.collect:
        run(given.work, [int(count) for count in given.counts.split(",")], Adaptation())
    given.out.write_text(json.dumps(collect(given.work), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
