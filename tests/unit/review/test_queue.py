"""Drawing notes: a uniform random sample, chosen notes by their score, nothing twice, all or nothing."""

import errno
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.review import Site, make_site

from deid_agent.model import Document, PhiType, Span, parse_source
from deid_agent.review import RANDOM, DrawResult, DrawSettings, NoteReading, SourceNote, add_notes
from deid_agent.review.queue import choose, list_reasons, score_note
from deid_agent.review.records import Proposal, QueueEntry

TOKEN = parse_source("crf:token")


def read(doc: Document) -> NoteReading:
    """A reading of which each question mark is an uncertain span, and each exclamation mark a missed place."""
    found = [at for at, char in enumerate(doc.text) if char == "?"]
    spans = tuple(Proposal(Span(at, at + 1, PhiType.DATE, TOKEN), True) for at in found)
    return NoteReading(spans, doc.text.count("!"))


def notes(count: int, mark: str = "") -> list[SourceNote]:
    return [SourceNote(f"{n}", f"Note {n:03} {mark}", f"p{n}") for n in range(count)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path, [])


def add(site: Site, given: Sequence[SourceNote], random: int = 0, chosen: int = 0, **more: object) -> DrawResult:
    return add_notes(site.folder, given, read, DrawSettings(random, chosen, **more))  # type: ignore[arg-type]


def entries(site: Site) -> tuple[QueueEntry, ...]:
    return site.folder.read_index().entries


def names(site: Site, reason: str) -> set[str]:
    return {site.folder.read_note(e.note).name for e in entries(site) if reason in e.reasons}


def test_each_note_is_in_the_random_sample_equally_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deid_agent.review.sealing.os.fsync", lambda _: None)
    drawn = Counter[str]()
    given = [*notes(4), *(SourceNote(f"hard {n}", f"Hard {n} ????", "p") for n in range(4))]
    for turn in range(60):
        one = make_site(tmp_path / str(turn), [])
        add(one, given, random=2, chosen=2)
        drawn.update(names(one, RANDOM))
    assert len(drawn) == 8
    # Each is drawn 15 times in the mean, with a standard deviation of 3.4.
    assert all(2 <= count <= 32 for count in drawn.values())


def test_a_second_draw_makes_the_random_sample_larger_and_counts_chosen_notes_as_any_other(site: Site) -> None:
    given = [*notes(6), *(SourceNote(f"hard {n}", f"Hard {n} ????", f"h{n}") for n in range(6))]
    first = add(site, given, chosen=6, seed="s")
    assert (first.chosen, first.known, names(site, RANDOM)) == (6, 0, set())
    queue = [entry.note for entry in entries(site)]
    second = add(site, given, random=6, seed="t")
    assert (second.random, second.known) == (6, 6)
    lucky = names(site, RANDOM)
    assert lucky & {f"hard {n}" for n in range(6)}, "chosen notes may come into the sample"
    assert [entry.note for entry in entries(site)][:6] == queue
    third = add(site, given, random=12)
    assert (third.random, len(names(site, RANDOM))) == (6, 12)
    assert len(entries(site)) == 12
    assert [(draw.notes, draw.random) for draw in site.folder.read_index().draws[1:]] == [(12, 0), (12, 6), (12, 6)]


def test_a_draw_is_repeated_by_its_seed_in_any_order(tmp_path: Path) -> None:
    one = make_site(tmp_path / "one", [])
    add(one, notes(20), random=5, seed="a")
    first = names(one, RANDOM)
    add(one, [*reversed(notes(20))], random=0, chosen=1)
    assert names(one, RANDOM) == first
    other = notes(20)
    add(one, [*reversed(other)], random=15, seed="a")
    assert len(names(one, RANDOM)) == 20


def test_patients_are_drawn_with_one_note_each_however_many_notes_they_have(tmp_path: Path, site: Site) -> None:
    given = [
        *notes(5),
        *(SourceNote(f"often {n}", f"Often {n}", "often") for n in range(40)),
        SourceNote("own", "Own."),
    ]
    assert add(site, given, random=3, patients=True, seed="s").random == 3
    assert add(site, given, random=9, patients=True).random == 4
    found = [site.folder.read_note(entry.note) for entry in entries(site)]
    assert len({note.patient for note in found}) == len(found) == 7
    assert site.folder.read_index().pools == 1
    assert add(site, given, random=1).pools == 2
    drawn = Counter[str]()
    for seed in range(40):
        one = make_site(tmp_path / str(seed), [])
        add(one, given, random=1, patients=True, seed=str(seed))
        drawn.update("often" if name.startswith("often") else name for name in names(one, RANDOM))
    # Of 7 patients each is drawn 6 times in the mean, with a standard deviation of 2.2; as notes it would be 35 times.
    assert 0 < drawn["often"] < 18


def test_random_draws_from_different_notes_are_counted(site: Site) -> None:
    assert add(site, notes(9), random=2).pools == 1
    assert add(site, [*reversed(notes(9))], random=2).pools == 1
    assert add(site, notes(20, "?"), chosen=2).pools == 1
    assert add(site, notes(12), random=2).pools == 2


def test_the_same_note_is_taken_once(site: Site) -> None:
    again = [SourceNote("x", "One text", "p"), SourceNote("y", "One text", "p"), SourceNote("z", "One text", "q")]
    result = add(site, again, random=5)
    assert (result.notes, result.patients, result.random, result.repeated) == (2, 2, 2, 1)
    result = add(site, again, random=5)
    assert (result.random, result.known, len(entries(site))) == (0, 2, 2)


def test_a_long_text_under_two_patients_is_one_note(tmp_path: Path, site: Site) -> None:
    text = "Seen today. " * 20
    given = [SourceNote("x", text), SourceNote("y", text, "p"), SourceNote("z", text, "q")]
    assert (add(site, given[2:], random=1).notes, add(site, given[1:], random=1).known) == (1, 1)
    assert len(entries(site)) == 1
    other = make_site(tmp_path / "other", [])
    result = add(other, given, random=3)
    assert (result.notes, result.random, result.repeated, names(other, RANDOM)) == (1, 1, 2, {"y"})


def test_ids_are_opaque_and_patients_are_kept(site: Site) -> None:
    add(site, [SourceNote("a", "One", "p"), SourceNote("b", "Two", "p"), SourceNote("c", "Three")], random=3)
    found = {site.folder.read_note(e.note).name: site.folder.read_note(e.note) for e in entries(site)}
    assert found["a"].patient == found["b"].patient != found["c"].patient
    assert all(len(note.id) == len(note.patient) == 20 for note in found.values())


def test_notes_are_chosen_by_their_score_with_a_limit_for_a_patient() -> None:
    scored = [(3.0, "a", "p"), (2.0, "b", "p"), (1.5, "c", "p"), (1.0, "d", "q"), (0.0, "e", "r"), (1.0, "f", "s")]
    assert choose(scored, 9, 2, {}) == ["a", "b", "d", "f"]
    assert choose(scored, 2, 1, {}) == ["a", "d"]
    assert choose(scored, 9, 2, {"p": 1, "q": 2}) == ["a", "f"]
    assert choose(scored, 0, 2, {}) == []


def test_a_score_is_points_for_the_time_of_reading() -> None:
    reading = read(Document("?? !"))
    assert score_note(reading, 0, 500) == pytest.approx(2.5)
    assert score_note(reading, 0, 2000) == pytest.approx(1.0)
    assert score_note(reading, 4, 500) == pytest.approx(3.0)
    assert score_note(reading, 99, 500) == pytest.approx(3.5)
    assert list_reasons(reading, 1) == ("uncertain", "disagreement", "unexamined")
    assert list_reasons(read(Document("sure")), 0) == ()


def test_chosen_notes_are_the_uncertain_ones_of_different_patients(site: Site) -> None:
    hard = [SourceNote(f"hard {n}", f"Hard {n} {'?' * n}", "one") for n in range(1, 5)]
    result = add(site, [*notes(5), *hard], chosen=5)
    assert result.chosen == 2
    assert names(site, "uncertain") == {"hard 3", "hard 4"}
    assert add(site, [*notes(5), *hard], chosen=5).chosen == 0


def test_only_so_many_candidates_are_read(site: Site) -> None:
    seen = []

    def count(doc: Document) -> NoteReading:
        seen.append(doc.text)
        return read(doc)

    add_notes(site.folder, notes(50, "?"), count, DrawSettings(2, 3, candidates=10))
    assert len(seen) == 12
    seen.clear()
    add_notes(site.folder, notes(50, "?"), count, DrawSettings(2))
    assert len(seen) <= 2


def test_random_and_chosen_notes_alternate_in_the_queue(site: Site) -> None:
    hard = [SourceNote(f"hard {n}", f"Hard {n} ????", f"h{n}") for n in range(30)]
    add(site, [*notes(30), *hard], random=4, chosen=8)
    marks = "".join("r" if RANDOM in entry.reasons else "c" for entry in entries(site))
    assert marks == "rcc" * 4


def test_a_draw_that_fails_changes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    add(site, notes(3), random=2)
    before, calls = entries(site), []

    def full(number: int) -> None:
        calls.append(number)
        if len(calls) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr("deid_agent.review.sealing.os.fsync", full)
        add(site, notes(20), random=10)
    assert entries(site) == before
    add(site, notes(20), random=1)
    assert len(entries(site)) == 3
    assert len(list((site.path / "notes").iterdir())) == 3, "what the failed draw had written is removed"


def test_the_order_in_which_notes_are_written_is_not_that_of_the_queue(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[str]()
    before = os.replace

    def replace(source: str, target: str) -> None:
        written.append(Path(target).name)
        before(source, target)

    monkeypatch.setattr(os, "replace", replace)
    add(site, notes(12), random=12, seed="s")
    queue = [entry.note for entry in entries(site)]
    assert written == [*sorted(queue), "index"]
    assert queue != sorted(queue)
