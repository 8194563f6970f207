"""The recognizer of known PHI, the facts of one person, and the texts that it finds."""

from pathlib import Path

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact, Subject, ValueKind
from deid_agent.model.text import Document
from deid_agent.recognize.registry import assemble_recognizers, load_rules

(KNOWN,) = assemble_recognizers(load_rules(Path(__file__).resolve().parents[2] / "rules"), "known")


def fact(
    kind: str, value: str, how: ValueKind = ValueKind.VALUE, subject: Subject = Subject.PATIENT, group: str = "g"
) -> Fact:
    return Fact(PhiType(kind), how, subject, group, value)


def person(family: str, given: str) -> tuple[Fact, ...]:
    return (fact("PATIENT", family, ValueKind.FAMILY), fact("PATIENT", given, ValueKind.GIVEN))


def found(text: str, *facts: Fact) -> list[str]:
    return [text[s.start : s.end] for s in sorted(KNOWN.recognize(Document(text, facts)), key=lambda s: s.start)]
