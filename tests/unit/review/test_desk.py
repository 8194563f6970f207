"""The desk over a folder: states, two reviewers, adjudication, bad spans, several writers at once."""

import errno
import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.review import NOTE, SPANS, Site, make_site

from deid_agent.http import DeskError, DeskSpan, NoteState, ReviewDesk
from deid_agent.model import ConfigurationError
from deid_agent.review import RANDOM, FolderDesk, make_key_file, open_desk, read_gold, read_status

GOOD = [DeskSpan(each.start, each.end, each.type.value) for each in SPANS]
OTHER = [DeskSpan(4, 9, "DOCTOR")]
PAIR = ("anna", "ben")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path, [NOTE, "Seen by Dr. Vance.", ""])


@pytest.fixture
def desk(site: Site) -> ReviewDesk:
    return open_desk(site.path, site.path.parent / "key")


def states(desk: ReviewDesk, reviewer: str) -> list[tuple[str, NoteState]]:
    return [(item.note, item.state) for item in desk.queue(reviewer)]


def refusal(desk: ReviewDesk, reviewer: str, note: str, spans: Sequence[DeskSpan], *, finished: bool = True) -> str:
    with pytest.raises(DeskError) as problem:
        desk.save(reviewer, note, spans, finished=finished)
    return problem.value.code


def test_a_note_goes_from_open_to_agreed(site: Site, desk: ReviewDesk) -> None:
    one, two, three = site.notes
    assert states(desk, "anna") == [(each, NoteState.OPEN) for each in site.notes]
    assert desk.open("anna", one).spans == (DeskSpan(0, 3, "DATE", "crf:token", True),)
    assert desk.save("anna", one, GOOD[:1], finished=False) is NoteState.DRAFT
    assert desk.open("anna", one).spans == tuple(GOOD[:1])
    assert desk.open("ben", one).spans == (DeskSpan(0, 3, "DATE", "crf:token", True),)
    assert desk.save("anna", one, GOOD, finished=True) is NoteState.FINISHED
    assert states(desk, "anna") == [(two, NoteState.OPEN), (three, NoteState.OPEN), (one, NoteState.FINISHED)]
    assert states(desk, "ben")[0] == (one, NoteState.OPEN)
    assert desk.save("ben", one, [*reversed(GOOD)], finished=True) is NoteState.AGREED
    assert [note.annotated.spans for note in read_gold(site.path, site.key)] == [SPANS]
    assert states(desk, "anna")[-1] == (one, NoteState.AGREED)
    assert refusal(desk, "anna", one, OTHER) == "agreed"


def test_nobody_sees_the_other_decision_before_both_have_finished(site: Site, desk: ReviewDesk) -> None:
    note = site.notes[0]
    desk.save("anna", note, GOOD, finished=True)
    found = desk.open("ben", note)
    assert (found.state, found.others) == (NoteState.OPEN, ())
    assert found.spans == (DeskSpan(0, 3, "DATE", "crf:token", True),)
    assert refusal(desk, "anna", note, OTHER) == "finished"
    assert refusal(desk, "anna", note, OTHER, finished=False) == "finished"


def test_of_two_reviewers_one_adjudicates(site: Site, desk: ReviewDesk) -> None:
    note = site.notes[0]
    desk.save("anna", note, GOOD, finished=True)
    assert desk.save("ben", note, OTHER, finished=True) is NoteState.DISPUTED
    assert states(desk, "anna")[0] == states(desk, "ben")[0] == (note, NoteState.DISPUTED)
    assert desk.open("ben", note).others == (("anna", tuple(GOOD)), ("ben", tuple(OTHER)))
    with pytest.raises(ConfigurationError, match="no note is agreed"):
        read_gold(site.path, site.key)
    with pytest.raises(ConfigurationError, match="no note is agreed"):
        read_gold(site.path, site.key, single=True)
    assert desk.save("ben", note, GOOD[1:], finished=False, adjudicates=True) is NoteState.DRAFT
    assert desk.open("ben", note).spans == tuple(GOOD[1:])
    assert (states(desk, "anna")[0][1], states(desk, "ben")[0][1]) == (NoteState.DISPUTED, NoteState.DRAFT)
    assert (desk.figures().disputed, desk.figures().agreed) == (1, 0)
    assert desk.save("anna", note, GOOD, finished=True, adjudicates=True) is NoteState.AGREED
    assert refusal(desk, "ben", note, OTHER) == "agreed"
    assert read_gold(site.path, site.key)[0].annotated.spans == SPANS
    figures = desk.figures()
    assert (figures.agreed, figures.disputed, figures.strict_f1) == (1, 0, 0.0)


def test_a_decision_made_without_a_look_at_both_others_adjudicates_nothing(tmp_path: Path) -> None:
    pair = make_site(tmp_path / "a", [NOTE])
    desk, (note,) = FolderDesk(pair.folder), pair.notes
    desk.save("anna", note, GOOD, finished=True)
    desk.save("ben", note, OTHER, finished=True)
    # The same request once more, since its answer was lost.
    assert refusal(desk, "anna", note, GOOD) == "finished"
    assert refusal(desk, "ben", note, GOOD, finished=False) == "finished"
    site = make_site(tmp_path / "b", [NOTE], reviewers=["anna", "ben", "cara"])
    desk, (note,) = FolderDesk(site.folder), site.notes
    desk.open("cara", note)  # a page that shows no other decision, because there is none
    desk.save("anna", note, GOOD, finished=True)
    desk.save("ben", note, OTHER, finished=True)
    assert refusal(desk, "cara", note, []) == "disputed"
    assert desk.open("cara", note).state is NoteState.DISPUTED


def test_of_three_reviewers_the_third_adjudicates(tmp_path: Path) -> None:
    site = make_site(tmp_path, [NOTE], reviewers=["anna", "ben", "cara"])
    desk, (note,) = FolderDesk(site.folder), site.notes
    desk.save("cara", note, [], finished=False)
    desk.save("anna", note, GOOD, finished=True)
    desk.save("ben", note, OTHER, finished=True)
    assert desk.open("anna", note).others == ()
    assert refusal(desk, "anna", note, OTHER) == "finished"
    assert [item.state for item in desk.queue("cara")] == [NoteState.DISPUTED]
    assert len(desk.open("cara", note).others) == 2
    assert desk.save("cara", note, OTHER, finished=True, adjudicates=True) is NoteState.AGREED
    assert read_status(site.folder).by_reviewer == {"anna": 1, "ben": 1, "cara": 0}


@pytest.mark.parametrize(
    ("spans", "code"),
    [
        ([(20, 28, "DATE")], "span-outside"),
        ([(-1, 3, "DATE")], "span-outside"),
        ([(5, 4, "DATE")], "span-outside"),
        ([(4, 4, "DATE")], "span-empty"),
        ([(3, 4, "DATE")], "span-empty"),
        ([(4, 9, "PATIENT"), (8, 12, "DATE")], "span-overlap"),
        ([(0, 12, "PATIENT"), (4, 9, "DATE")], "span-overlap"),
        ([(4, 9, "PATIENT"), (4, 9, "DOCTOR")], "span-overlap"),
        ([(4, 9, "NAME")], "span-type"),
        ([(4, 9, "")], "span-type"),
        ([(True, 9, "DATE")], "span-outside"),
        ([(4.0, 9, "DATE")], "span-outside"),
    ],
)
def test_invalid_spans_are_refused(site: Site, desk: ReviewDesk, spans: list[tuple[int, int, str]], code: str) -> None:
    assert refusal(desk, "anna", site.notes[0], list(itertools.starmap(DeskSpan, spans))) == code
    assert states(desk, "anna")[0] == (site.notes[0], NoteState.OPEN)


def test_white_space_at_the_ends_makes_no_difference(site: Site, desk: ReviewDesk) -> None:
    note = site.notes[0]
    desk.save("anna", note, GOOD, finished=True)
    wide = [DeskSpan(3, 10, "PATIENT"), DeskSpan(17, 26, "DATE"), DeskSpan(17, 26, "DATE")]
    assert desk.save("ben", note, wide, finished=True) is NoteState.AGREED


def test_an_unknown_note_or_reviewer_is_refused(site: Site, desk: ReviewDesk) -> None:
    for note in ("0" * 20, "../index", "", "\ud800"):
        assert refusal(desk, "anna", note, []) == "unknown-note"
    assert refusal(desk, "cara", site.notes[0], []) == "unknown-reviewer"
    with pytest.raises(DeskError, match="unknown-reviewer"):
        desk.queue("cara")


def test_figures_are_those_of_the_first_two_decisions(tmp_path: Path) -> None:
    site = make_site(tmp_path, [NOTE, "Seen by Dr. Vance."], reasons=[RANDOM])
    desk, (one, two) = FolderDesk(site.folder), site.notes
    none = desk.figures()
    assert (none.notes, none.finished, none.strict_f1, none.kappa) == (2, 0, None, None)
    desk.save("anna", one, GOOD, finished=True)
    desk.save("ben", one, [*GOOD[:1], DeskSpan(18, 26, "AGE")], finished=True)
    desk.save("anna", two, [], finished=True)
    desk.save("ben", two, [], finished=True)
    figures = desk.figures()
    assert (figures.finished, figures.disputed, figures.agreed, figures.random_agreed) == (2, 1, 1, 1)
    assert figures.strict_f1 == pytest.approx(0.5)
    assert figures.kappa is not None
    assert 0 < figures.kappa < 1
    assert desk.figures() == figures


def test_several_threads_and_processes_lose_no_decision(site: Site, desk: ReviewDesk) -> None:
    texts = ["Seen on 3/4/2019."] * 3
    many = make_site(site.path.parent / "many", texts, reviewers=["anna", "ben", "cara"])
    desk = FolderDesk(many.folder)
    code = (
        "import sys; from pathlib import Path; from deid_agent.review import open_desk\n"
        "desk = open_desk(*map(Path, sys.argv[1:3]))\n"
        "for note in sys.argv[3:] * 5: desk.save('cara', note, [], finished=False)"
    )
    key = many.path.parent / "key"
    with subprocess.Popen([sys.executable, "-c", code, many.path, key, *many.notes]) as other:
        with ThreadPoolExecutor(4) as pool:
            drafts = [pool.submit(desk.save, who, note, [], finished=False) for note in many.notes * 5 for who in PAIR]
        assert {draft.result() for draft in drafts} == {NoteState.DRAFT}
        assert other.wait() == 0
    assert [set(many.folder.read_decisions(note).own) for note in many.notes] == [{*PAIR, "cara"}] * 3
    with ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(desk.save, who, note, [], finished=True) for note in many.notes for who in PAIR]
    assert sorted(end.result() for end in ends) == [NoteState.AGREED] * 3 + [NoteState.FINISHED] * 3
    assert len(read_gold(many.path, many.key)) == 3


def test_a_full_disk_changes_nothing(site: Site, desk: ReviewDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    note = site.notes[0]
    desk.save("anna", note, GOOD[:1], finished=False)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr("deid_agent.review.sealing.os.fsync", full)
        desk.save("anna", note, GOOD, finished=True)
    assert desk.open("anna", note).spans == tuple(GOOD[:1])
    assert desk.save("anna", note, GOOD, finished=True) is NoteState.FINISHED


def test_a_damaged_file_and_a_held_folder_have_codes(
    site: Site, desk: ReviewDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = site.notes[0]
    with monkeypatch.context() as patch, site.folder.locked():
        patch.setattr("deid_agent.review.folder.PATIENCE_S", 0.0)
        assert refusal(desk, "anna", note, GOOD) == "busy"
    (site.path / "notes" / note).write_bytes(b"torn")
    with pytest.raises(DeskError, match="damaged"):
        desk.open("anna", note)


def test_nothing_shows_a_text_or_a_token(site: Site, desk: ReviewDesk) -> None:
    desk.save("anna", site.notes[0], GOOD, finished=True)
    shown = repr((desk, desk.open("anna", site.notes[0]), site.folder.read_decisions(site.notes[0])))
    shown += repr(site.folder.read_note(site.notes[0]))
    assert "Quill" not in shown
    assert "PATIENT" not in shown
    with pytest.raises(ConfigurationError, match="cannot be read"):
        open_desk(site.path, site.path / "no-key")
    make_key_file(site.path.parent / "another")
    with pytest.raises(ConfigurationError, match="made with the key"):
        open_desk(site.path, site.path.parent / "another")
