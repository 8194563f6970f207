"""The identifiers of the patient in PID and MRG."""

from deid_agent.codec.hl7v2.charset import Hl7View, unescape_text
from deid_agent.codec.hl7v2.structure import NULL, Separators, split_text
from deid_agent.codec.hl7v2.table import CodeTable, Hl7Kind
from deid_agent.codec.hl7v2.values import hinted_type
from deid_agent.model import PatientField, PatientIdentifier, PhiType


def read_first_component(view: Hl7View, text: str, at: int, marks: Separators) -> str:
    """The first component of ``text``, which begins at character ``at`` of ``view``; empty for the HL7 null."""
    for mark in (marks.component, marks.subcomponent):
        text = split_text(text, mark)[0]
    value = unescape_text(view, at, at + len(text), marks).strip()
    return "" if value == NULL else value


def read_patient_identifiers(
    view: Hl7View, text: str, at: int, marks: Separators, codes: CodeTable, rank: PatientField
) -> list[PatientIdentifier]:
    """The identifiers in the repetitions of a field that names the patient; it begins at character ``at``.

    The layout is that of CX in all versions: value, check digit, its scheme, assigner, type (chapter 2A.2.14; the
    composite of version 2.2 has the same first components).
    """
    found = []
    for repetition in split_text(text, marks.repetition):
        parts = split_text(repetition, marks.component)
        if parts[0] and (value := read_first_component(view, parts[0], at, marks)):
            assigners = split_text(parts[3], marks.subcomponent) if len(parts) > 3 and parts[3] else ()
            code = parts[4].strip().upper() if len(parts) > 4 else ""
            kind = codes.idtype.get(code) or (hinted_type(Hl7Kind.AUTHORITY, assigners, codes) if assigners else None)
            code, kind = "" if code == NULL else code, kind or PhiType.MEDICALRECORD
            found.append(PatientIdentifier(value, code, tuple(assigners), kind, rank))
        at += len(repetition) + 1
    return found
