"""The notes of a site: patients are never on both sides."""

import pytest

from deid_agent.eval import Note
from deid_agent.model import Annotated, Document
from deid_agent.nlp import TokenFeatures
from deid_agent.rules import Dictionaries, data_folder
from deid_agent.train import Example, plan_folds


@pytest.mark.parametrize(("patients", "folds", "judged"), [(8, 3, 8), (39, 3, 39), (40, 1, 10), (100, 1, 25)])
def test_no_patient_is_learned_from_and_judged(patients: int, folds: int, judged: int) -> None:
    lists = Dictionaries.load(data_folder("rules"))
    notes = [Note(f"n{at}", "", "", f"p{at % patients}", Annotated("All well.", ()), {}) for at in range(2 * patients)]
    examples = [Example(note, TokenFeatures(Document("All well."), [], lists)) for note in notes]
    planned = plan_folds(examples)
    assert len(planned) == folds
    for fold in planned:
        sides = [{example.note.patient for example in side} for side in (fold.learned, fold.judged)]
        assert not sides[0] & sides[1]
        assert len(fold.learned) + len(fold.judged) == len(notes)
    assert sum(len({e.note.patient for e in fold.judged}) for fold in planned) == judged
