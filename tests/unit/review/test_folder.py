"""The sealed folder: damaged, torn, foreign and exchanged files, other keys, full disks."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.review import NOTE, SPANS, Site, make_site

from deid_agent.eval import CorpusFormat
from deid_agent.model import ConfigurationError
from deid_agent.review import ReviewFolder, load_review_key, make_key_file, read_gold, write_notes
from deid_agent.review.records import Decision, NoteDecisions


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path, [NOTE])


def gold(site: Site) -> None:
    (note,) = site.notes
    with site.folder.locked():
        site.folder.write_decisions(note, NoteDecisions({r: Decision(SPANS, True) for r in ("anna", "ben")}))


def test_gold_are_the_annotations_on_which_two_reviewers_agree(site: Site) -> None:
    with pytest.raises(ConfigurationError, match="no note is agreed"):
        read_gold(site.path, site.key)
    gold(site)
    (note,) = read_gold(site.path, site.key)
    assert (note.annotated.text, note.annotated.spans, note.id) == (NOTE, SPANS, site.notes[0])
    with pytest.raises(ConfigurationError, match="no note of the random sample is agreed"):
        read_gold(site.path, site.key, random_only=True)


def test_no_file_shows_a_text_a_name_or_a_token(site: Site) -> None:
    gold(site)
    whole = b"".join(path.read_bytes() for path in site.path.rglob("*") if path.is_file())
    for value in (NOTE, "Quill", "anna", "PATIENT", "n0.txt", *site.tokens.values()):
        assert value.encode() not in whole
    assert {path.stat().st_mode & 0o777 for path in site.path.rglob("*") if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in site.path.rglob("*") if path.is_dir()} == {0o700}
    assert site.path.stat().st_mode & 0o777 == 0o700


def test_another_key_is_named_as_the_fault(site: Site, tmp_path: Path) -> None:
    make_key_file(tmp_path / "other")
    with pytest.raises(ConfigurationError, match=r"made with the key [0-9a-f]{8}, not with [0-9a-f]{8}"):
        ReviewFolder.open(site.path, load_review_key(tmp_path / "other"))
    for path in (tmp_path / "other", tmp_path / "none" / "key"):
        with pytest.raises(ConfigurationError, match="cannot be made"):
            make_key_file(path)
    (tmp_path / "other").chmod(0o644)
    with pytest.raises(ConfigurationError, match="others may read it"):
        load_review_key(tmp_path / "other")


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("change", [flip, lambda data: data[:-3], lambda data: b"", lambda data: b"x" * 100])
@pytest.mark.parametrize("name", ["index", "reviewers", "notes", "decisions"])
def test_a_changed_or_torn_file_is_refused(site: Site, name: str, change: Callable[[bytes], bytes]) -> None:
    gold(site)
    path = site.path / name
    path = path if path.is_file() else next(path.iterdir())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ConfigurationError, match="was changed, is torn or belongs to another folder"):
        ReviewFolder.open(site.path, site.key).reviewers()
        read_gold(site.path, site.key)


def test_a_file_of_another_folder_or_another_name_is_refused(site: Site, tmp_path: Path) -> None:
    gold(site)
    other = make_site(tmp_path / "other", [NOTE, "Seen by Dr. Vance."], key=site.key)
    (site.path / "index").write_bytes((other.path / "index").read_bytes())
    with pytest.raises(ConfigurationError, match="index was changed"):
        read_gold(site.path, site.key)
    first, second = (other.path / "notes" / note for note in other.notes)
    second.write_bytes(first.read_bytes())
    with pytest.raises(ConfigurationError, match=r"notes/[0-9a-f]{20} was changed"):
        other.folder.read_note(second.name)


@pytest.mark.parametrize(
    "head",
    [
        "",
        "{",
        "[]",
        '"x"',
        "{}",
        '{"format": "deid-review", "version": "1"}',
        '{"format": "deid-review", "version": 1}',
        "[" * 100_000,
        '{"format": "deid-review", "version": 1, "folder": "../../x", "key": "12345678"}',
        '{"format": "deid-review", "version": 1, "folder": "%s", "key": "\\u001b[2J"}' % ("0" * 32),
        '{"format": "deid-review", "version": 1, "folder": [], "key": 7}',
    ],
)
def test_a_bad_head_is_a_clear_error(site: Site, head: str) -> None:
    (site.path / "folder.json").write_text(head)
    with pytest.raises(ConfigurationError, match=r"folder.json was changed"):
        ReviewFolder.open(site.path, site.key)


def test_another_path_is_a_clear_error(site: Site, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", site.path / "folder.json"):
        with pytest.raises(ConfigurationError, match="deid-agent review make"):
            ReviewFolder.open(path, site.key)
    for path, why in ((site.path, "has files"), (site.path / "folder.json", "is a file")):
        with pytest.raises(ConfigurationError, match=why):
            ReviewFolder.make(path, site.key, ["anna"])
    (site.path / "folder.json").write_text('{"format": "deid-review", "version": 2, "folder": "a", "key": "b"}')
    with pytest.raises(ConfigurationError, match="has version 2"):
        ReviewFolder.open(site.path, site.key)


@pytest.mark.parametrize("names", [[], ["anna", "anna"], ["Anna"], ["a/b"], ["a" * 33], ["ann\n"], ["é"]])
def test_names_of_reviewers_are_checked(tmp_path: Path, site: Site, names: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="reviewers"):
        ReviewFolder.make(tmp_path / "new", site.key, names)
    assert not (tmp_path / "new").exists()


def test_a_token_belongs_to_one_reviewer_until_a_new_one(site: Site) -> None:
    token = site.tokens["anna"]
    assert site.folder.reviewer_of(token) == "anna"
    assert site.folder.reviewer_of(token + "x") is None
    assert site.folder.reviewer_of("") is None
    assert site.folder.reviewer_of("\ud800") is None
    new = site.folder.new_token("anna")
    assert (site.folder.reviewer_of(token), site.folder.reviewer_of(new)) == (None, "anna")
    assert site.folder.reviewer_of(site.folder.new_token("cara")) == "cara"
    assert site.folder.reviewers() == ["anna", "ben", "cara"]


def test_foreign_and_missing_files_are_found_and_leftovers_removed(site: Site) -> None:
    index = site.folder.read_index()
    left = [site.path / "notes" / ("0" * 20), site.path / "decisions" / f".{site.notes[0]}.part"]
    for path in left:
        path.write_bytes(b"of a killed program")
    site.folder.check_names(index)
    assert not any(path.exists() for path in left)
    (site.path / "decisions" / "notes.txt").write_text("x")
    with pytest.raises(ConfigurationError, match="decisions/ has a foreign file"):
        site.folder.check_names(index)
    (site.path / "decisions" / "notes.txt").unlink()
    (site.path / "notes" / site.notes[0]).unlink()
    with pytest.raises(ConfigurationError, match="1 of 1 notes are missing"):
        site.folder.check_names(index)
    with pytest.raises(ConfigurationError, match="is missing"):
        site.folder.read_note(site.notes[0])


def test_with_a_full_disk_the_old_file_remains(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    gold(site)
    (note,) = site.notes

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"), site.folder.locked():
        patch.setattr("deid_agent.review.sealing.os.fsync", full)
        site.folder.write_decisions(note, NoteDecisions())
    assert len(read_gold(site.path, site.key)) == 1
    assert [path.name for path in (site.path / "decisions").iterdir()] == [note]


@pytest.mark.parametrize("name", ["../index", "", "x", "A" * 20, "0" * 21])
def test_a_name_that_no_note_can_have_is_refused(site: Site, name: str) -> None:
    with pytest.raises(KeyError):
        site.folder.read_note(name)


def test_a_link_in_the_place_of_a_file_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "moved").write_bytes((site.path / "index").read_bytes())
    (site.path / "index").unlink()
    (site.path / "index").symlink_to(tmp_path / "moved")
    with pytest.raises(OSError, match="symbolic links"):
        ReviewFolder.open(site.path, site.key)


def test_a_folder_without_its_decisions_is_not_one_of_open_notes(site: Site) -> None:
    gold(site)
    (note,) = site.notes
    (site.path / "decisions").rename(site.path.parent / "moved")
    with pytest.raises(ConfigurationError, match="decisions/ is missing: restore it"):
        site.folder.read_decisions(note)
    (site.path.parent / "moved").rename(site.path / "decisions")
    (site.path / "decisions" / note).unlink()
    (site.path / "decisions" / note).symlink_to("nowhere")
    with pytest.raises(OSError, match="symbolic"):
        site.folder.read_decisions(note)


def test_a_pipe_in_place_of_a_file_is_a_damaged_file(site: Site) -> None:
    (note,) = site.notes
    path = site.path / "notes" / note
    path.unlink()
    os.mkfifo(path)
    number = os.open(path, os.O_RDWR)  # a writer that writes nothing
    try:
        with pytest.raises(ConfigurationError, match="was changed"):
            site.folder.read_note(note)
    finally:
        os.close(number)


def test_a_folder_id_that_no_program_wrote_is_a_damaged_head(site: Site) -> None:
    head = site.path / "folder.json"
    head.write_text(head.read_text().replace('"folder":"', '"folder":"\\ud800'))
    with pytest.raises(ConfigurationError, match=r"folder\.json was changed"):
        ReviewFolder.open(site.path, site.key)


def test_sizes_show_neither_a_short_note_nor_its_spans(tmp_path: Path) -> None:
    site = make_site(tmp_path, [NOTE, f"{NOTE} {NOTE}"])
    with site.folder.locked():
        site.folder.write_decisions(site.notes[0], NoteDecisions({"anna": Decision((), True)}))
        site.folder.write_decisions(site.notes[1], NoteDecisions({r: Decision(SPANS, True) for r in ("anna", "ben")}))
    sealed = [path for path in site.path.rglob("*") if path.is_file() and path.name not in {"folder.json", "lock"}]
    assert {path.stat().st_size for path in sealed} == {4096}


def test_with_a_full_disk_no_part_of_a_key_or_of_an_export_remains(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gold(site)
    notes = read_gold(site.path, site.key)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        make_key_file(tmp_path / "other")
    with pytest.raises(OSError, match="No space"):
        write_notes(notes, tmp_path / "out", CorpusFormat.BRAT)
    assert not (tmp_path / "other").exists()
    assert list((tmp_path / "out").iterdir()) == []
