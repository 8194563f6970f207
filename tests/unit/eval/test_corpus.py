"""``corpus/`` is sound, is the one that is written down, and its split is what its README says."""

from collections import Counter
from pathlib import Path

import pytest
from support.corpus_list import LISTED, listing

from deid_agent.context import facts_of_context
from deid_agent.eval.markup import Note, read_corpus, read_file
from deid_agent.eval.split import DEV_AUTHORS, FIRST_AUTHORS, Part, in_dev, part

ROOT = Path(__file__).resolve().parents[3]
CORPUS = ROOT / "corpus"
FILES = sorted(CORPUS.glob("*-*.txt"))


@pytest.fixture(scope="module")
def notes() -> list[Note]:
    return list(read_corpus(CORPUS))


def test_every_file_is_sound() -> None:
    faults = []
    for path in FILES:
        for note in read_file(path):
            text = note.annotated.text
            if note.patient != path.stem or not note.id.startswith(f"{path.stem}-"):
                faults.append(f"{note.id}: not an id of {path.name}")
            if not (note.kind and note.date):
                faults.append(f"{note.id}: no type= or no date=")
            if "[[" in text or "]]" in text or "@@" in text:
                faults.append(f"{note.id}: markup is left in the text")
            for span in note.annotated.spans:
                inside = text[span.start : span.end]
                if inside != inside.strip() or not inside:
                    faults.append(f"{note.id}: {span.type} at {span.start} begins or ends with white space")
                if not any(c.isalnum() for c in inside):
                    faults.append(f"{note.id}: {span.type} at {span.start} holds no letter and no digit")
    assert not faults, "\n".join(faults)


def test_profiles_are_contexts_that_the_commands_take(notes: list[Note]) -> None:
    for note in notes:
        assert facts_of_context(note.profile), note.id


def test_ids_are_unique(notes: list[Note]) -> None:
    assert [i for i, n in Counter(note.id for note in notes).items() if n > 1] == []


def test_the_corpus_is_the_listed_one(notes: list[Note]) -> None:
    made, listed = listing(notes, FILES), LISTED.read_text("utf-8")
    assert made == listed, f"corpus/ changed; if that is meant: PYTHONPATH=tests python -m support.corpus_list\n{made}"


def test_the_split_divides_no_patient_and_loses_no_note(notes: list[Note]) -> None:
    dev, train = part(notes, Part.DEV), part(notes, Part.TRAIN)
    assert sorted(n.id for n in (*dev, *train)) == sorted(n.id for n in part(notes, Part.ALL))
    assert {n.patient for n in dev} & {n.patient for n in train} == set()


def test_the_split_is_what_the_readme_says(notes: list[Note]) -> None:
    dev = {n.patient for n in part(notes, Part.DEV)}
    first = {n.patient for n in notes if n.author in FIRST_AUTHORS - DEV_AUTHORS}
    assert dev == {n.patient for n in notes if n.author in DEV_AUTHORS} | (dev & first)
    assert (len(first), len(dev & first)) == (240, 27)
    assert (len(dev), sum(in_dev(n.patient) for n in notes)) == (73, 267)
    assert not any(in_dev(f"{author}-{n:02}") for author in ("dm", "dn", "dz", "ea") for n in range(1, 400))
