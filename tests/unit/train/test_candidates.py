"""The token models whose spans a name filter sees in its training notes."""

from pathlib import Path

import pytest
from support import tiny_corpus

from deid_agent.eval.markup import read_corpus
from deid_agent.model.phi import PhiType
from deid_agent.train.components import CandidateModels
from deid_agent.train.examples import Example, ExampleReader
from deid_agent.train.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[3]
NAMES = {"da-02": "Zyblorq", "db-01": "Vantongeren", "dc-01": "Orlanova", "df-01": "Pekkarinen"}


@pytest.fixture(scope="module")
def reader() -> ExampleReader:
    return ExampleReader.load(ROOT / "rules", "")


@pytest.fixture(scope="module")
def examples(reader: ExampleReader, tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    folder = tiny_corpus.write(tmp_path_factory.mktemp("candidates") / "corpus", NAMES)
    return [reader.example(note) for note in read_corpus(folder)]


@pytest.fixture(scope="module")
def candidates(reader: ExampleReader, examples: list[Example]) -> CandidateModels:
    recipe = RECIPES["ferrandez-token"]
    return CandidateModels.train("ferrandez-token", recipe, reader, examples)


def test_each_model_learned_from_one_half_of_the_patients(candidates: CandidateModels) -> None:
    words = [
        set(one.model.extractor.vocabulary["word"]) & {name.lower() for name in NAMES.values()}
        for one in candidates.models
    ]
    assert words == [
        {name.lower() for patient, name in NAMES.items() if (patient in candidates.first) is half}
        for half in (True, False)
    ]
    assert all(words)


def test_a_note_has_the_spans_of_the_model_of_the_other_half(
    candidates: CandidateModels, examples: list[Example]
) -> None:
    read = candidates.add_spans(examples)
    assert [each.note for each in read] == [each.note for each in examples]
    for each in read:
        model = candidates.models[each.note.patient in candidates.first]
        assert {(span.start, span.end) for span in each.tokens.first_pass} == {
            (span.start, span.end)
            for span in candidates.reader.resolver.resolve(model.propose(each.tokens.doc, ()), each.tokens.doc)
        }
    assert {span.type for each in read for span in each.tokens.first_pass} == {PhiType.PATIENT, PhiType.DOCTOR}
