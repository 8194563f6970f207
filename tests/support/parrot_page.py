"""The tables of docs/parrot.md, from the results of tests/bench/parrot.py.

PYTHONPATH=tests python -m support.parrot_page
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "bench" / "parrot.json"
PAGE = ROOT / "docs" / "parrot.md"
PARTS = {"dev": "notes by unseen authors", "sites": "two unseen sites"}
FEEDS = {
    "surrogates": "surrogates",
    "marks": "marks (control)",
    "planted": "surrogates, planted leaks",
    "planted, marks": "marks, planted leaks (control)",
}
TYPES = ("all", "PATIENT", "DOCTOR", "DATE", "HOSPITAL", "ORGANIZATION", "CITY", "PROFESSION", "MEDICALRECORD", "PHONE")


def tables() -> dict[str, str]:
    """Each table by the name of its marker."""
    found = json.loads(RESULTS.read_text("utf-8"))
    return {
        "labels": "\n".join(attack_rows(found, "labels")),
        "software": "\n".join(attack_rows(found, "software")),
        "rehearsed": "\n".join(rehearsed_rows(found)),
        "recall": "\n".join(recall_rows(found)),
        "threats": "\n".join(threat_rows(found)),
    }


def attack_rows(found: dict[str, Any], strength: str) -> Iterator[str]:
    yield "| Notes | Feed | Leaks | Chance | Published rule: found, right | As many guesses as leaks: found | Ranking |"
    yield "|---|---|---|---|---|---|---|"
    for part, title in PARTS.items():
        for feed, name in FEEDS.items():
            result = found[part][f"{feed}, {strength}"]
            rule, best = result["published_rule"], result["signals"][0]
            yield (
                f"| {title} | {name} | {result['leaks']} of {result['candidates']:,} | {percent(result['chance'])} "
                f"| {percent(rule['share_of_leaks']['value'])}, {percent(rule['precision']['value'])} "
                f"| {percent(best['share_of_leaks']['value'])} ({interval(best['share_of_leaks'])}) "
                f"| {best['ranking']['value']:.2f} |"
            )


def rehearsed_rows(found: dict[str, Any]) -> Iterator[str]:
    yield "| Reader | Leaks | Chance | As many guesses as leaks: found | Without rehearsal | Ranking |"
    yield "|---|---|---|---|---|---|"
    for strength, name in {"labels": "with labels", "software": "with the software"}.items():
        result = found["rehearsed"][strength]
        signals = {each["signal"]: each for each in result["signals"]}
        own, other = signals["rehearsed"], signals["untagged"]
        yield (
            f"| {name} | {result['leaks']} of {result['candidates']:,} | {percent(result['chance'])} "
            f"| {percent(own['share_of_leaks']['value'])} ({interval(own['share_of_leaks'])}) "
            f"| {percent(other['share_of_leaks']['value'])} | {own['ranking']['value']:.2f} |"
        )


def recall_rows(found: dict[str, Any]) -> Iterator[str]:
    yield "| Type | Ranges | Learned finder: originals, surrogates | Difference | This tagger: originals, surrogates |"
    yield "|---|---|---|---|---|"
    own, learned = ({row["type"]: row for row in found["dev"]["recall"][name]} for name in ("tagger", "learned"))
    for kind in TYPES:
        row, other = learned[kind], own[kind]
        yield (
            f"| {kind} | {row['ranges']:,} | {percent(row['recall_on_originals']['value'])}, "
            f"{percent(row['recall_on_outputs']['value'])} | {points(row['difference'])} "
            f"| {percent(other['recall_on_originals']['value'])}, {percent(other['recall_on_outputs']['value'])} |"
        )


def threat_rows(found: dict[str, Any]) -> Iterator[str]:
    yield "| Attack | Line | Subjects | Success | Chance | Bound | Candidates |"
    yield "|---|---|---|---|---|---|---|"
    for row in found["dev"]["threats"]:
        success = "-" if row["success"] is None else f"{percent(row['success']['value'])} ({interval(row['success'])})"
        left = "" if row["smallest_candidates"] is None else f"{row['smallest_candidates']} at least"
        yield (
            f"| {row['attack']} ({row['attacker']}) | {row['threat_model_line']} | {row['subjects']:,} {row['unit']} "
            f"| {success} | {percent(row['chance'])} | {percent(row['bound'])} | {left} |"
        )


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def interval(share: dict[str, float]) -> str:
    return f"{100 * share['low']:.1f} to {100 * share['high']:.1f}"


def points(share: dict[str, float]) -> str:
    return f"{100 * share['value']:+.1f} ({100 * share['low']:+.1f} to {100 * share['high']:+.1f})"


def write() -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text("utf-8")
    for name, table in tables().items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}{table}\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
