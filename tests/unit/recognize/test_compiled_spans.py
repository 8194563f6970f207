"""With the compiled core the default system finds the same spans in notes of every author as without it."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import chain, islice, zip_longest
from pathlib import Path

import pytest
from support.growth import growth

from deid_agent import core
from deid_agent.eval.markup import CorpusPart, read_corpus, select_part
from deid_agent.model.text import Document
from deid_agent.recognize.registry import load_rules, load_tagger
from deid_agent.recognize.resolve import Profile
from deid_agent.recognize.tagger import Tagger

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not core.is_installed(), reason="deid_agent_core is not installed: make core")


@cache
def tagger(system: str, profile: Profile) -> Tagger:
    return load_tagger(load_rules(ROOT / "rules"), ROOT / "models", system, profile)


def texts(part: CorpusPart) -> list[str]:
    return [note.annotated.text for note in select_part(read_corpus(ROOT / "corpus"), part)]


def texts_by_author(most: int) -> list[str]:
    """Notes of all parts: the first of each author, then the second of each, and so on."""
    notes: dict[str, list[str]] = defaultdict(list)
    for note in read_corpus(ROOT / "corpus"):
        notes[note.author].append(note.annotated.text)
    turns = chain.from_iterable(zip_longest(*notes.values()))
    return list(islice((text for text in turns if text is not None), most))


def compare(tagger: Tagger, notes: Sequence[str]) -> None:
    with core.without_core():
        expected = [tagger.read_all([Document(text)])[0] for text in notes]
    assert [tagger.read_all([Document(text)])[0] for text in notes] == expected
    groups = (notes[at : at + 16] for at in range(0, len(notes), 16))
    assert [found for group in groups for found in tagger.read_all([Document(text) for text in group])] == expected


def test_spans_of_sixty_notes() -> None:
    compare(tagger("default", Profile.RECALL), texts(CorpusPart.DEV)[::4][:60])


@pytest.mark.parametrize("instructions", ["avx2", "portable"])
def test_spans_with_fewer_instructions(instructions: str) -> None:
    with core.core_limited_to(instructions):
        compare(tagger("default", Profile.RECALL), texts(CorpusPart.DEV)[1::4][:15])


@pytest.mark.full
@pytest.mark.parametrize("profile", [Profile.RECALL, Profile.BALANCED])
def test_spans_of_notes_of_every_author(profile: Profile) -> None:
    compare(tagger("default", profile), texts_by_author(400 if profile is Profile.RECALL else 50))


@pytest.mark.full
@pytest.mark.parametrize("system", ["liu2015", "dehghan2015", "dernoncourt2016"])
def test_spans_of_published_systems(system: str) -> None:
    compare(tagger(system, Profile.BALANCED), texts(CorpusPart.DEV)[::20])


def test_time_is_linear_in_one_long_text() -> None:
    models = tagger("default", Profile.RECALL).models

    def read(size: int) -> object:
        return [model.propose_all([(Document("a1 " * size), ())]) for model in models]

    assert growth(read, 2_000, 8_000) < 8
