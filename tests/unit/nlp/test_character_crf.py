"""The character model: boundaries inside tokens, and windows."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from deid_agent.model.phi import PhiType
from deid_agent.model.spans import ANNOTATION, Span
from deid_agent.model.text import Document
from deid_agent.nlp.character_features import (
    CHARACTER_FAMILIES,
    CharacterFeatures,
    build_character_examples,
    find_windows,
    line_windows,
)
from deid_agent.nlp.crf import CrfModel
from deid_agent.nlp.crf_taggers import CHARACTER_SOURCE, CharacterCrf, GatedCrf, TokenCrf
from deid_agent.nlp.labels import Schema, decode_edge_labels, encode_labels
from deid_agent.nlp.templates import FeatureExtractor, select_templates
from deid_agent.nlp.token_features import TokenFeatures
from deid_agent.rules.dictionaries import Dictionaries
from deid_agent.train.crf_trainer import CrfSettings, train_crf

NO_LISTS = Dictionaries((), {}, {}, {})
SITES = ("Roper Hospital", "Mercy Hospital", "Ode Hospital", "Elm Hospital", "Vale Hospital", "Kerr Hospital")
AFTER = ("Problems:", "Plan:", "Meds:", " today", "\nnext", ". Then")


def noted() -> list[tuple[Document, list[Span]]]:
    made = []
    for at, site in enumerate(SITES * 6):
        text = f"seen at {site}{AFTER[at % 5 if at < 30 else at % 6]} well\nno other problems"
        made.append((Document(text), [Span(8, 8 + len(site), PhiType.HOSPITAL, ANNOTATION)]))
    return made


@pytest.fixture(scope="module")
def model() -> CharacterCrf:
    notes = [(TokenFeatures(doc, (), NO_LISTS), gold) for doc, gold in noted()]
    templates = select_templates(("character", "class"), CHARACTER_FAMILIES)
    features = FeatureExtractor.learn(templates, [CharacterFeatures(view) for view, _ in notes], least=1)
    chain = train_crf(
        features, build_character_examples(notes, features, around=20, share=1), CrfSettings(iterations=60, least=1)
    )
    return CharacterCrf(CrfModel("character", Schema.EDGES, features, chain), NO_LISTS)


def test_a_boundary_inside_a_token_is_found(model: CharacterCrf) -> None:
    text = "seen at Orme HospitalProblems: none\n"
    (found,) = model.propose(Document(text), ())
    assert text[found.start : found.end] == "Orme Hospital"
    assert (found.type, found.source) == (PhiType.HOSPITAL, CHARACTER_SOURCE)


def test_whole_and_token_sums_agree(model: CharacterCrf) -> None:
    text = "seen at Orme HospitalProblems: none\n\n\tseen at Lee Hospital\nseen"
    doc = Document(text)
    view = TokenFeatures(doc, (), NO_LISTS)
    chain = model.model.crf
    emissions = chain.emissions(model.model.extractor.extract(CharacterFeatures(view)))
    expected: list[Span] = []
    for a, b in line_windows(doc):
        expected += decode_edge_labels(
            chain.decode(emissions[a:b]), [(c, c + 1) for c in range(a, b)], CHARACTER_SOURCE
        )
    assert model.find_in_windows(view, line_windows(doc)) == expected != []


def test_only_the_windows_are_read(model: CharacterCrf) -> None:
    text = "seen at Orme Hospital\nseen at Lee Hospital\n"
    doc = Document(text)
    chosen = find_windows(doc, [(30, 33)], 8)
    found = model.find_in_windows(TokenFeatures(doc, (), NO_LISTS), chosen)
    assert [text[s.start : s.end] for s in found] == ["Lee Hospital"]
    assert model.find_in_windows(TokenFeatures(doc, (), NO_LISTS), []) == []


@pytest.mark.parametrize("text", ["", "\n", " \t\r\n", "\ud800", "x" * 5000, "\n" * 300 + "a"])
def test_any_text_is_read(model: CharacterCrf, text: str) -> None:
    doc = Document(text)
    assert all(0 <= s.start < s.end <= len(text) for s in model.propose(doc, ()))


def test_many_windows_are_read_in_batches(model: CharacterCrf) -> None:
    line = "seen at Orme Hospital\n"
    found = list(model.propose(Document(line * 900), ()))
    assert [(s.start % len(line), len(s)) for s in found] == [(8, 13)] * 900


@pytest.fixture(scope="module")
def gated(model: CharacterCrf) -> GatedCrf:
    """Behind a token model that has seen the same notes."""
    notes = [(TokenFeatures(doc, (), NO_LISTS), gold) for doc, gold in noted()]
    features = FeatureExtractor.learn(("word[0]", "word[-1]", "shape[0]"), (view for view, _ in notes), least=1)
    labelled = ((features.extract(view), encode_labels(gold, view.doc.tokens, Schema.IO)) for view, gold in notes)
    chain = train_crf(features, labelled, CrfSettings(iterations=60, least=1))
    return GatedCrf(TokenCrf(CrfModel("token", Schema.IO, features, chain), NO_LISTS, 1.0), model)


def sourced(found: Iterable[Span], text: str) -> set[tuple[str, str]]:
    return {(str(s.source), text[s.start : s.end]) for s in found}


def test_the_character_model_decides_low_confidence_tokens(gated: GatedCrf) -> None:
    text = "seen at Orme HospitalProblems: none\nseen at Elm Hospital today"
    assert (str(CHARACTER_SOURCE), "Orme Hospital") in sourced(gated.propose(Document(text), ()), text)


def test_high_confidence_tokens_are_not_read_again(gated: GatedCrf) -> None:
    text = "seen at Elm Hospital today"
    nowhere, everywhere = replace(gated, low=1.0), replace(gated, low=-1.0, high=2.0)
    assert sourced(nowhere.propose(Document(text), ()), text) == {("crf:token", "Elm Hospital")}
    assert (str(CHARACTER_SOURCE), "Elm Hospital") in sourced(everywhere.propose(Document(text), ()), text)


def test_the_character_model_keeps_every_span_of_the_token_model(gated: GatedCrf) -> None:
    text = "seen at Orme HospitalProblems: none\nseen at Elm Hospital today\n"
    token = replace(gated.token, lean=8.0)
    alone = list(token.propose(Document(text), ()))
    both = list(replace(gated, token=token).propose(Document(text), ()))
    assert both[: len(alone)] == alone


@pytest.mark.parametrize("text", ["", "\n", "aB", "x" * 3000])
def test_any_text_passes_the_filter(gated: GatedCrf, text: str) -> None:
    assert all(0 <= s.start < s.end <= len(text) for s in gated.propose(Document(text), ()))
