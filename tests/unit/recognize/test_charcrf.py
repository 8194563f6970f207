"""The character model: boundaries inside tokens, and windows."""

import pytest

from deid_agent.crf.bundle import Bundle
from deid_agent.crf.characters import CHARACTER_FAMILIES, Characters, examples, lines, windows
from deid_agent.crf.columns import View
from deid_agent.crf.features import Features, templates_of
from deid_agent.crf.labels import Schema, decode_edges
from deid_agent.crf.train import Settings, fit
from deid_agent.dictionary import Dictionaries
from deid_agent.phi import PhiType
from deid_agent.recognize.charcrf import SOURCE, CharacterCrf
from deid_agent.spans import Span
from deid_agent.text import Document

NO_LISTS = Dictionaries((), {}, {}, {})
SITES = ("Roper Hospital", "Mercy Hospital", "Ode Hospital", "Elm Hospital", "Vale Hospital", "Kerr Hospital")
AFTER = ("Problems:", "Plan:", "Meds:", " today", "\nnext", ". Then")


def noted() -> list[tuple[Document, list[Span]]]:
    made = []
    for at, site in enumerate(SITES * 6):
        text = f"seen at {site}{AFTER[at % 5 if at < 30 else at % 6]} well\nno other problems"
        made.append((Document(text), [Span(8, 8 + len(site), PhiType.HOSPITAL, "gold")]))
    return made


@pytest.fixture(scope="module")
def model() -> CharacterCrf:
    notes = [(View(doc, (), NO_LISTS), gold) for doc, gold in noted()]
    templates = templates_of(("character", "class"), CHARACTER_FAMILIES)
    features = Features.learn(templates, [Characters(view) for view, _ in notes], least=1)
    chain = fit(features, examples(notes, features, around=20, share=1), Settings(iterations=60, least=1))
    return CharacterCrf(Bundle("character", Schema.EDGES, features, chain), NO_LISTS)


def test_a_boundary_inside_a_token_is_found(model: CharacterCrf) -> None:
    text = "seen at Orme HospitalProblems: none\n"
    (found,) = model.propose(Document(text), ())
    assert text[found.start : found.end] == "Orme Hospital"
    assert (found.type, found.source) == (PhiType.HOSPITAL, SOURCE)


def test_whole_and_summed_by_token_agree(model: CharacterCrf) -> None:
    text = "seen at Orme HospitalProblems: none\n\n\tseen at Lee Hospital\nseen"
    doc = Document(text)
    view = View(doc, (), NO_LISTS)
    chain = model.bundle.chain
    emissions = chain.emissions(model.bundle.features.of(Characters(view)))
    expected: list[Span] = []
    for a, b in lines(doc):
        expected += decode_edges(chain.best(emissions[a:b]), [(c, c + 1) for c in range(a, b)], SOURCE)
    assert model.within(view, lines(doc)) == expected != []


def test_only_the_windows_are_read(model: CharacterCrf) -> None:
    text = "seen at Orme Hospital\nseen at Lee Hospital\n"
    doc = Document(text)
    chosen = windows(doc, [(30, 33)], 8)
    found = model.within(View(doc, (), NO_LISTS), chosen)
    assert [text[s.start : s.end] for s in found] == ["Lee Hospital"]
    assert model.within(View(doc, (), NO_LISTS), []) == []


@pytest.mark.parametrize("text", ["", "\n", " \t\r\n", "\ud800", "x" * 5000, "\n" * 300 + "a"])
def test_any_text_is_read(model: CharacterCrf, text: str) -> None:
    doc = Document(text)
    assert all(0 <= s.start < s.end <= len(text) for s in model.propose(doc, ()))


def test_many_windows_are_read_in_batches(model: CharacterCrf) -> None:
    line = "seen at Orme Hospital\n"
    found = list(model.propose(Document(line * 900), ()))
    assert [(s.start % len(line), len(s)) for s in found] == [(8, 13)] * 900
