"""The whole loop at an invented site, with its figures before and after.

    python tests/bench/site_loop.py [--site ep] [--notes 50] [--random 20] [--keyboard 3] [--out FILE] [--keep FOLDER]

The patients of the site are in two halves. The site uses notes of one: so many are reviewed, a few of them by keyboard
in Chromium. The notes of the random sample are kept for the bound. The others give lists of staff and places, and
models go on with them. The other half is scored: with the shipped system, with the lists, with the models, with both,
and with ``complete`` lists of all staff and places of the site, as its staff office has them, which is the most that
lists can give. Then the other half is de-identified before and after, and ``evidence`` reports about both feeds.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deid_agent.config import limit_blas_threads

limit_blas_threads()

from support.browser import browsing  # noqa: E402 - after the threads are limited
from support.site_loop import (  # noqa: E402
    ANNA,
    ROOT,
    Reviewer,
    Site,
    SiteNotes,
    is_typeable,
    log_in,
    review_by_interface,
    review_by_keyboard,
    write_notes,
    write_staff,
)

from deid_agent import __version__  # noqa: E402
from deid_agent.eval import Pair, compare_pairs, score_notes  # noqa: E402
from deid_agent.eval.markup import Note  # noqa: E402
from deid_agent.model import Document  # noqa: E402
from deid_agent.recognize import Profile, load_rules, load_tagger  # noqa: E402

LISTS = ("--rules", "shipped", "--rules", "site")
ALPHAS = (0.02, 0.05, 0.1, 0.2)


def tag(notes: Sequence[Note], site: Path | None, models: Path | None) -> list[Pair]:
    """The notes with the findings under the profile ``recall``."""
    rules = load_rules(ROOT / "rules", () if site is None else (site,))
    tagger = load_tagger(rules, models or ROOT / "models", "default", Profile.RECALL)
    found = tagger.find_all([Document(note.annotated.text) for note in notes])
    return [Pair(note, tuple(spans)) for note, spans in zip(notes, found, strict=True)]


def figures(before: Sequence[Pair], after: Sequence[Pair]) -> dict[str, object]:
    """Strict F1, leaks and false alarms, with intervals, and the change against ``before``."""
    scores, change = score_notes(after), compare_pairs(before, after)
    gold = sum(len(pair.note.annotated.spans) for pair in after)
    leaked, strict = scores.leaked(), change.strict
    return {
        "gold": gold,
        "leaked": round(leaked.value * gold),
        "leaked_share": [round(leaked.value, 4), round(leaked.low, 4), round(leaked.high, 4)],
        "leaked_change": _change(change.leaked.after - change.leaked.before, change.leaked.low, change.leaked.high),
        "strict_f1": round(strict.after, 4),
        "strict_change": _change(strict.after - strict.before, strict.low, strict.high),
        "false_alarms": change.alarms[1],
    }


def _change(*values: float) -> list[float]:
    return [round(value, 4) for value in values]


async def review(site: Site, notes: Sequence[Note], keyboard: int, chromium: str | None) -> dict[str, object]:
    """All decisions: the first notes by keyboard, the others through the JSON interface."""
    gold, keys = {note.annotated.text: note for note in notes}, 0
    typed = 0
    with site.console() as base:
        if chromium is not None and keyboard:
            async with browsing(chromium) as seen:
                async with Reviewer.of(base, ANNA, site.tokens[ANNA]) as anna:
                    queue = [item["note"] for item in (await anna.get("queue"))["notes"]]
                    found = {name: await anna.get(f"notes/{name}") for name in queue}
                await log_in(seen.page, base, site.tokens[ANNA])
                for name in [name for name in queue if is_typeable(gold[found[name]["text"]])][:keyboard]:
                    note = gold[found[name]["text"]]
                    keys += await review_by_keyboard(seen.page, base, name, note, found[name]["spans"])
                    typed += 1
        states = await review_by_interface(base, site, gold)
    return {"by_keyboard": typed, "keys": keys, "states": states}


def split_gold(root: Path) -> tuple[int, int]:
    """Notes for models, and notes of the random sample, which no model reads: a bound over them holds."""
    random = {line["id"] for line in _lines(root / "gold-random")}
    rest = [line for line in _lines(root / "gold") if line["id"] not in random]
    (root / "learned.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rest), encoding="utf-8")
    return len(rest), len(random)


def _lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text("utf-8").splitlines()]


def report(site: Site, name: str, models: Path | None, lists: Sequence[str], attacks: str) -> dict[str, object]:
    """De-identify the scored half, and the leaks of its evidence."""
    outputs = site.run("text", "--jsonl", "--demo-key", *lists, "originals.jsonl", models=models)
    (site.root / f"{name}.jsonl").write_text(outputs, encoding="utf-8")
    printed = site.run(
        *("evidence", "originals.jsonl", f"{name}.jsonl", "--sample", "sample.jsonl", attacks, "--demo-key"),
        *("--out", f"evidence-{name}", *lists),
        models=models,
    )
    public = printed.rpartition("signed by ")[2].strip()
    verified = site.run("evidence", "verify", f"evidence-{name}", "--key", public).startswith("sound")
    return {"findings": printed.splitlines()[:-1], "verified": verified}


class Clock:
    """Seconds of each step, which are shown as it ends."""

    def __init__(self) -> None:
        self.took: dict[str, float] = {}
        self._begun = time.monotonic()

    def done(self, step: str) -> None:
        """End a step."""
        now = time.monotonic()
        self.took[step], self._begun = round(now - self._begun, 1), now
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {step}: {self.took[step]} s\n")
        sys.stderr.flush()


def export(site: Site, used: Sequence[Note], every: Sequence[Note]) -> dict[str, object]:
    """Export the gold, and make lists of the notes outside of the random sample, and of all notes of the site."""
    words = ("review", "export", "review", "--key-file", "review.key", "--format", "jsonl", "--out")
    site.run(*words, "gold")
    site.run(*words, "gold-random", "--random")
    learned, sampled = split_gold(site.root)
    texts = {json.loads(line)["text"] for line in (site.root / "learned.jsonl").read_text("utf-8").splitlines()}
    write_staff(site.root / "staff.csv", [note for note in used if note.annotated.text in texts])
    write_staff(site.root / "staff-complete.csv", every)
    lists = site.run("rules", "import", "staff.csv", "--out", "site")
    complete = site.run("rules", "import", "staff-complete.csv", "--out", "site-complete")
    gold = {"learned": learned, "kept_for_the_bound": sampled}
    return {"gold": gold, "lists": lists.splitlines(), "complete": complete.splitlines()}


def adapt(site: Site, given: argparse.Namespace) -> tuple[Path | None, dict[str, object]]:
    """Models that went on with the notes outside of the random sample; None if they are refused as worse."""
    adapted = site.root / "adapted"
    words = ("train", given.component, "--from", "shipped", "--corpus", "learned.jsonl", "--rehearsal", ROOT / "corpus")
    site.run(*words, "--out", adapted, "--json", "train.json", *given.train, allowed=(0, 1))
    found = json.loads((site.root / "train.json").read_text())
    return (adapted if adapted.is_dir() else None), found


def claim(site: Site, population: str, models: Path | None) -> list[str]:
    """The output of ``bound`` over the random sample, for the lists and the models."""
    alphas = [word for alpha in ALPHAS for word in ("--alpha", alpha)]
    review = ("--review", "review", "--review-key", "review.key", "--out", "bound.json")
    return site.run(
        "bound", *alphas, "--population", population, *review, *LISTS, models=models, allowed=(0, 1)
    ).splitlines()


def compare_systems(notes: Sequence[Note], root: Path, models: Path | None) -> dict[str, object]:
    """The figures of each system over the scored notes."""
    before = tag(notes, None, None)
    found = {"shipped": figures(before, before)}
    for name, folder in (("lists", root / "site"), ("complete", root / "site-complete")):
        found[name] = figures(before, tag(notes, folder, None))
        if models is not None:
            found[f"{name} and models"] = figures(before, tag(notes, folder, models))
    if models is not None:
        found["models"] = figures(before, tag(notes, None, models))
    return dict(found)


def parse() -> argparse.Namespace:
    """The options of the call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", default="ep", choices=["ep", "et"])
    parser.add_argument("--notes", type=int, default=50, help="Reviewed notes.")
    parser.add_argument("--random", type=int, default=20, help="How many of them are a random sample.")
    parser.add_argument("--keyboard", type=int, default=3, help="How many of them are reviewed by keyboard.")
    parser.add_argument("--component", default="all", help="The model that goes on, or all.")
    parser.add_argument("--train", action="append", default=[], help="More words for train, such as --epochs=1.")
    parser.add_argument("--out", type=Path, help="The figures as JSON.")
    parser.add_argument("--keep", type=Path, help="The folder of the loop, which is kept.")
    return parser.parse_args()


def main() -> None:
    """Run the loop and write its figures."""
    given, clock = parse(), Clock()
    root = given.keep or Path(tempfile.mkdtemp())
    root.mkdir(parents=True, exist_ok=True)
    notes, site = SiteNotes.of(given.site, given.notes), Site.make(root)
    write_notes(root / "used.jsonl", notes.used)
    draw = ("--random", given.random, "--chosen", given.notes - given.random, "--per-patient", 6, "--seed", "loop")
    added = site.run("review", "add", "review", "used.jsonl", "--key-file", "review.key", *draw)
    clock.done("queue")
    decided = asyncio.run(review(site, notes.used, given.keyboard, shutil.which("chromium")))
    agreement = json.loads(site.run("review", "figures", "review", "--key-file", "review.key", "--json"))
    clock.done("review")
    exported = export(site, notes.used, (*SiteNotes.of(given.site).used, *notes.scored))
    clock.done("lists")
    models, training = adapt(site, given)
    clock.done("warm start")
    claimed = claim(site, f"notes of the invented site {given.site}", models)
    clock.done("bound")
    systems = compare_systems(notes.scored, root, models)
    clock.done("figures")
    write_notes(root / "originals.jsonl", notes.scored)
    write_notes(root / "sample.jsonl", notes.scored, gold=True)
    evidence = {"before": report(site, "before", None, (), "--no-attacks")}
    evidence["after"] = report(site, "after", models, LISTS, "--attacks")
    clock.done("evidence")
    result = {
        "version": __version__,
        "site": given.site,
        "profile": "recall",
        "used": {"notes": len(notes.used), "patients": len({note.patient for note in notes.used})},
        "scored": {"notes": len(notes.scored), "patients": len({note.patient for note in notes.scored})},
        "queue": added.splitlines(),
        "review": {**decided, "agreement": agreement},
        **exported,
        "warm_start": training,
        "bound": claimed,
        "systems": systems,
        "evidence": evidence,
        "seconds": clock.took,
    }
    text = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(text)
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")
    if given.keep is None:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
