"""The loop of an invented site in a real browser: lists, reviewed notes, gold, a bound, outputs, evidence.

Models are not adapted here, which takes minutes: ``tests/bench/site_loop.py`` runs the whole loop with its figures.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.browser import browsing
from support.site_loop import (
    ANNA,
    BEN,
    CARA,
    Reviewer,
    Site,
    SiteNotes,
    adjudicate_by_keyboard,
    decide,
    is_typeable,
    log_in,
    review_by_interface,
    review_by_keyboard,
    write_notes,
    write_staff,
)

from deid_agent.eval.markup import Note

NOTES = 9


async def review_all(site: Site, gold: Mapping[str, Note], base: str, chromium: str) -> None:
    """A note is reviewed and adjudicated by keyboard, the others through the interface of the pages."""
    async with browsing(chromium) as seen:
        async with Reviewer.of(base, ANNA, site.tokens[ANNA]) as anna:
            queue = [item["note"] for item in (await anna.get("queue"))["notes"]]
            found = {name: await anna.get(f"notes/{name}") for name in queue}
        first = min((name for name in queue if is_typeable(gold[found[name]["text"]])), key=lambda n: found[n]["text"])
        await log_in(seen.page, base, site.tokens[ANNA])
        note = gold[found[first]["text"]]
        await review_by_keyboard(seen.page, base, first, note, found[first]["spans"])
        async with Reviewer.of(base, BEN, site.tokens[BEN]) as ben:
            assert await ben.finish(first, decide(note.annotated.spans, 0)) == "disputed", "the last span is missing"
        states = await review_by_interface(base, site, gold, adjudicate=False)
        assert sum(states.values()) == 2 * (NOTES - 1)
        await seen.page.context.clear_cookies()
        await log_in(seen.page, base, site.tokens[CARA])
        await adjudicate_by_keyboard(seen.page, base, first, 1)
        await review_by_interface(base, site, gold)
        assert [text for text in seen.messages if text.startswith("error")] == []


@pytest.mark.smoke
async def test_a_site_corrects_its_notes_and_reports_about_its_feed(chromium: str, tmp_path: Path) -> None:
    notes = SiteNotes.of("ep", NOTES, NOTES)
    gold = {note.annotated.text: note for note in notes.used}
    site = Site.make(tmp_path)
    lists = ("--rules", "shipped", "--rules", "site")
    write_staff(tmp_path / "staff.csv", notes.used)
    assert "DOCTOR: " in site.run("rules", "import", "staff.csv", "--out", "site")

    write_notes(tmp_path / "used.jsonl", notes.used)
    added = site.run("review", "add", "review", "used.jsonl", "--key-file", "review.key", "--random", NOTES, *lists)
    assert added.startswith(f"{NOTES} notes of ")
    with site.console() as base:
        await review_all(site, gold, base, chromium)

    status = json.loads(site.run("review", "status", "review", "--key-file", "review.key", "--json"))
    assert (status["agreed"], status["random_agreed"], status["disputed"]) == (NOTES, NOTES, 0)
    site.run("review", "export", "review", "--key-file", "review.key", "--format", "jsonl", "--out", "gold")
    exported = [json.loads(line) for path in (tmp_path / "gold").iterdir() for line in path.read_text().splitlines()]
    for line in exported:
        spans = [(s["start"], s["end"], s["type"]) for s in line["spans"]]
        assert spans == [(s.start, s.end, s.type) for s in gold[line["text"]].annotated.spans]

    bound = ("--population", "notes of the test", "--review", "review", "--review-key", "review.key")
    shown = site.run("bound", "--alpha", 0.01, *bound, "--out", "bound.json", *lists, allowed=(1,))
    assert "certify nothing under" in shown and not (tmp_path / "bound.json").exists()

    write_notes(tmp_path / "originals.jsonl", notes.scored)
    write_notes(tmp_path / "sample.jsonl", notes.scored, gold=True)
    outputs = site.run("text", "--jsonl", "--demo-key", *lists, "originals.jsonl")
    (tmp_path / "outputs.jsonl").write_text(outputs, encoding="utf-8")
    printed = site.run(
        "evidence", "originals.jsonl", "outputs.jsonl", "--sample", "sample.jsonl", "--no-attacks", "--demo-key",
        "--out", "evidence", *lists,
    )  # fmt: skip
    public = printed.rpartition("signed by ")[2].strip()
    assert site.run("evidence", "verify", "evidence", "--key", public).startswith("sound")
    report = (tmp_path / "evidence" / "evidence.html").read_text()
    names = {
        note.annotated.text[s.start : s.end]
        for note in notes.scored
        for s in note.annotated.spans
        if s.type == "PATIENT"
    }
    assert names and not [name for name in names if len(name) > 5 and name in report]
