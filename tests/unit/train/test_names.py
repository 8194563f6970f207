"""The filter of names learns from invented notes and finds their names; training is reproducible."""

from pathlib import Path

import numpy as np
import pytest

from deid_agent.eval.markup import Note
from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.model.spans import ANNOTATION, Span, parse_annotated, parse_source
from deid_agent.model.text import Document
from deid_agent.nlp.name_filter import (
    LOW_CONFIDENCE_NAME,
    NAME_SOURCE,
    FilteredNames,
    NameFilter,
    ScoredCandidate,
    choose_best,
)
from deid_agent.nlp.svm import SvmModel, load_svm, save_svm
from deid_agent.nlp.token_features import TokenFeatures
from deid_agent.rules.dictionaries import Dictionaries
from deid_agent.train.examples import Example
from deid_agent.train.name_filter_trainer import FilterSettings, match_candidates, score_names, train_filter

GIVEN = ("jennifer", "robert", "ann", "william", "karen", "harold")
FAMILY = ("garcia", "okafor", "jansen", "nowak", "miller", "tanaka")
SMALL = FilterSettings(least=2, features=400, max_candidates=2000)


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Dictionaries:
    rules = tmp_path_factory.mktemp("rules")
    folder = rules / "dictionary"
    folder.mkdir()
    (rules / "senses.txt").write_text("0/0/0 sister brother\n", "utf-8")
    for name, terms in (
        ("given-female", GIVEN),
        ("family", (*FAMILY, "foley", "walker")),
        ("eponym", ("foley",)),
        ("name-cue", ("dr", "sister")),
    ):
        (folder / f"{name}.txt").write_text("# made\n" + "\n".join(sorted(terms)) + "\n", "utf-8")
    return Dictionaries.load(rules)


def examples(lists: Dictionaries) -> list[Example]:
    out = []
    for at in range(24):
        given, family = GIVEN[at % 6].title(), FAMILY[at // 2 % 6].title()
        other = GIVEN[(at + 3) % 6].title()
        text = (
            f"Seen by Dr. [[DOCTOR|{given} {family}]] for follow-up.\nA Foley was placed and a Walker given.\n"
            f"His sister [[PATIENT|{other}]] drove. Foley out, Walker used.\n"
        )
        annotated = parse_annotated(text)
        note = Note(f"{'xyz'[at % 3]}-{at}", "made", "2014-01-01", f"{'xyz'[at % 3]}-{at}", annotated, {})
        out.append(Example(note, TokenFeatures(Document(annotated.text), (), lists)))
    return out


@pytest.fixture(scope="module")
def model(lists: Dictionaries) -> SvmModel:
    return train_filter(examples(lists), settings=SMALL, card={"about": "made"})


def test_it_keeps_names_and_drops_the_rest(lists: Dictionaries, model: SvmModel) -> None:
    doc = Document(
        "Seen by Dr. Karen Nowak for follow-up.\nA Foley was placed and a Walker given.\n"
        "His sister Ann drove. Foley out, Walker used.\n"
    )
    found = NameFilter(model, lists).propose(doc, ())
    assert [(doc.text[s.start : s.end], s.type) for s in found] == [
        ("Karen Nowak", PhiType.DOCTOR),
        ("Ann", PhiType.PATIENT),
    ]
    assert {s.source for s in found} <= {NAME_SOURCE, LOW_CONFIDENCE_NAME}


def test_offsets_are_characters_of_the_text(lists: Dictionaries, model: SvmModel) -> None:
    doc = Document("é… 😀\nSeen by Dr. Karen Nowak for follow-up.\n")
    assert [doc.text[s.start : s.end] for s in NameFilter(model, lists).propose(doc, ())] == ["Karen Nowak"]


def test_an_empty_text_has_no_names(lists: Dictionaries, model: SvmModel) -> None:
    assert NameFilter(model, lists).propose(Document(""), ()) == []


def test_the_system_of_the_paper_finds_names_only(lists: Dictionaries, model: SvmModel) -> None:
    doc = Document("Seen by Dr. Karen Nowak for follow-up.\n")
    system = FilteredNames(lambda _doc: [Span(0, 4, PhiType.CITY, parse_source("rule"))], NameFilter(model, lists))
    assert [s.type for s in system.recognize(doc)] == [PhiType.DOCTOR]


def test_the_same_notes_give_the_same_filter(lists: Dictionaries, model: SvmModel, tmp_path: Path) -> None:
    save_svm(model, tmp_path / "a")
    save_svm(train_filter(examples(lists), settings=SMALL, card={"about": "made"}), tmp_path / "b")
    for ending in ("json", "npz"):
        assert (tmp_path / "a" / f"names.{ending}").read_bytes() == (tmp_path / "b" / f"names.{ending}").read_bytes()


def test_a_stored_filter_decides_alike(lists: Dictionaries, model: SvmModel, tmp_path: Path) -> None:
    save_svm(model, tmp_path)
    doc = examples(lists)[0].tokens.doc
    again = NameFilter(load_svm(tmp_path, "names"), lists).score_candidates(doc, ())
    np.testing.assert_allclose(
        [j.score for j in again], [j.score for j in NameFilter(model, lists).score_candidates(doc, ())]
    )


def test_too_few_names_are_reported(lists: Dictionaries) -> None:
    with pytest.raises(ConfigurationError, match="give more annotated notes"):
        train_filter(examples(lists)[:1], settings=SMALL)


def test_the_right_candidate_is_the_exact_one_else_the_shortest_cover() -> None:
    name = Span(5, 10, PhiType.PATIENT, ANNOTATION)
    assert match_candidates([(5, 10), (4, 10), (5, 8)], [name]) == [PhiType.PATIENT, None, None]
    assert match_candidates([(0, 20), (4, 10), (5, 8)], [name]) == [None, PhiType.PATIENT, None]
    assert match_candidates([(0, 6), (5, 8), (11, 12)], [name]) == [None, PhiType.PATIENT, None]


def test_of_overlapping_candidates_the_best_counts() -> None:
    row = np.array([0], np.int64)
    long, short, other = (
        ScoredCandidate(0, 10, 0.2, row),
        ScoredCandidate(0, 4, 0.9, row),
        ScoredCandidate(5, 10, 0.1, row),
    )
    assert choose_best([long, short, other], 0.0) == [short, other]
    assert choose_best([long, short, other], 0.15) == [short]


def test_figures_count_a_name_that_a_finding_covers() -> None:
    gold = [Span(0, 5, PhiType.PATIENT, ANNOTATION), Span(10, 15, PhiType.PATIENT, ANNOTATION)]
    figures = score_names([(gold, [(0, 6), (11, 15)])])
    assert figures == {"precision": 0.5, "recall": 0.5, "f2": 0.5, "exact_f1": 0.0}
