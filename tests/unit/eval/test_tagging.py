"""Running a system over notes: notes of one patient share names."""

from collections.abc import Sequence
from dataclasses import dataclass

from deid_agent.eval.markup import Note
from deid_agent.eval.tagging import EvaluatedSystem, gather_patients, no_facts, run_system
from deid_agent.model import Annotated, Document, PhiType, Range, Source, SourceKind, Span
from deid_agent.recognize.registry import load_rules, load_tagger
from deid_agent.recognize.remembered_names import MEMORY_SOURCE
from deid_agent.recognize.resolve import Profile
from deid_agent.recognize.tagger import Tagger
from deid_agent.rules import data_folder

MODEL = Source(SourceKind.TOKEN_MODEL, "token")


@dataclass(frozen=True)
class LivesWith:
    """A model that finds the name after "Lives with", and is sure of it."""

    name: str = "lives-with"

    def propose_all(self, asked: Sequence[tuple[Document, Sequence[Span]]]) -> Sequence[Sequence[Span]]:
        return [spans for spans, _ in self.propose_with_names(asked)]

    def propose_with_names(
        self, asked: Sequence[tuple[Document, Sequence[Span]]]
    ) -> Sequence[tuple[Sequence[Span], Sequence[Range]]]:
        out: list[tuple[list[Span], list[Range]]] = []
        for doc, _ in asked:
            at = (11, 17) if doc.text.startswith("Lives with ") else None
            out.append(([Span(*at, PhiType.PATIENT, MODEL)], [at]) if at else ([], []))
        return out


def note(id_: str, patient: str, text: str) -> Note:
    return Note(id_, "", "", patient, Annotated(text, ()), {})


def system() -> EvaluatedSystem:
    loaded = load_tagger(load_rules(data_folder("rules")), data_folder("models"), "rules", Profile.RECALL)
    tagger = Tagger((), loaded.resolver, (LivesWith(),), loaded.consistency)
    return EvaluatedSystem(tagger, {"nothing": lambda _: ()})


def test_a_sure_name_of_one_note_is_found_in_the_others_of_its_patient() -> None:
    notes = [
        note("a", "p", "Keziah 3620 g."),
        note("b", "p", "Lives with Keziah."),
        note("c", "q", "Keziah 3620 g."),
    ]
    lookup, memory = gather_patients(system(), notes, notes, no_facts)
    done = run_system(system(), notes, lookup, memory=memory, ablate=True)
    remembered = Span(0, 6, PhiType.PATIENT, MEMORY_SOURCE)
    assert [pair.found for pair in done.pairs] == [(remembered,), (Span(11, 17, PhiType.PATIENT, MODEL),), ()]
    assert done.without["nothing"][0].found == (remembered,)
    assert all(not pair.found for pair in run_system(system(), notes, no_facts).pairs if pair.note.id != "b")
