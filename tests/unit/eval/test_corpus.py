"""``corpus/`` has no faults, matches its listed digests, and is split as its README describes."""

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from support.corpus_list import LISTED, listing

from deid_agent.eval.markup import (
    DEV_AUTHORS,
    FIRST_AUTHORS,
    HELD_OUT_SITES,
    CorpusPart,
    Note,
    is_dev_patient,
    read_corpus,
    read_file,
    select_part,
)
from deid_agent.pipeline.facts import facts_from_context

ROOT = Path(__file__).resolve().parents[3]
CORPUS = ROOT / "corpus"
FILES = sorted(CORPUS.glob("*-*.txt"))


@pytest.fixture(scope="module")
def notes() -> list[Note]:
    return list(read_corpus(CORPUS))


def test_every_file_is_free_of_faults() -> None:
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


def test_profiles_are_valid_contexts(notes: list[Note]) -> None:
    for note in notes:
        assert facts_from_context(note.profile), note.id


def test_ids_are_unique(notes: list[Note]) -> None:
    assert [i for i, n in Counter(note.id for note in notes).items() if n > 1] == []


def test_the_corpus_matches_its_list(notes: list[Note]) -> None:
    made, listed = listing(notes, FILES), LISTED.read_text("utf-8")
    assert made == listed, (
        f"corpus/ changed; if this is intended, run: PYTHONPATH=tests python -m support.corpus_list\n{made}"
    )


def test_the_split_divides_no_patient_and_loses_no_note(notes: list[Note]) -> None:
    parts = [select_part(notes, part) for part in (CorpusPart.DEV, CorpusPart.TRAIN, CorpusPart.SITES)]
    assert sorted(n.id for part in parts for n in part) == sorted(n.id for n in select_part(notes, CorpusPart.ALL))
    patients = [{n.patient for n in part} for part in parts]
    assert not any(a & b for a, b in combinations(patients, 2))


def test_no_note_of_a_held_out_site_is_for_training(notes: list[Note]) -> None:
    held_out = select_part(notes, CorpusPart.SITES)
    assert {n.author for n in held_out} == HELD_OUT_SITES
    assert {n.author for n in select_part(notes, CorpusPart.TRAIN)}.isdisjoint(HELD_OUT_SITES)


def test_the_split_matches_the_readme(notes: list[Note]) -> None:
    dev = {n.patient for n in select_part(notes, CorpusPart.DEV)}
    first = {n.patient for n in notes if n.author in FIRST_AUTHORS - DEV_AUTHORS}
    assert dev == {n.patient for n in notes if n.author in DEV_AUTHORS} | (dev & first)
    assert (len(first), len(dev & first)) == (240, 27)
    assert (len(dev), sum(is_dev_patient(n.patient) for n in notes)) == (73, 267)
    assert not any(is_dev_patient(f"{author}-{n:02}") for author in ("dm", "dn", "dz", "ea") for n in range(1, 400))
