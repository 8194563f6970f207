"""The handlers of codes, units, titles and names of systems: values that are kept unless they identify a person."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from deid_agent.codec.codes import NameReader, has_form_of_identifier, is_snomed_id
from deid_agent.codec.fhir.shapes import FhirTreatment
from deid_agent.codec.fhir.sink import PEOPLE, FhirFrame, FhirSink, Handler
from deid_agent.codec.labels import has_identity_cue, is_reading
from deid_agent.model import PhiType, Subject, ValueKind

_WORD = re.compile(
    r"(?!.*[0-9]{3}[-.][0-9]{2,4}[-.])(?!\+?[0-9]{7})(?:[a-z0-9.:_/+|-]+|[a-z]+(?:[A-Z][a-z0-9]*)+|[A-Z0-9.:_+/-]{1,4}|(?=.*[0-9_:])[A-Z0-9.:_+/-]+)"
)
"""A code in small letters, an abbreviation, or a code with figures; not a word that may be a name or a number."""
_FEW_DIGITS = 3
"""Digits of a prefix or suffix of a name that is a number."""
_LONGEST_TITLE, _LONGEST_UNIT = 40, 80
_EMAIL, _IDNUM = PhiType.EMAIL, PhiType.IDNUM


@lru_cache(maxsize=4096)
def _is_plain_word(value: str) -> bool:
    """As a plain code; a word in capitals or mixed case may be a name."""
    return (_WORD.fullmatch(value) is not None and not has_form_of_identifier(value)) or is_snomed_id(value)


@lru_cache(maxsize=1024)
def _is_plain_unit(value: str) -> bool:
    """True for a unit, in any writing; not for what has the form of an identifier."""
    return (
        "://" not in value
        and not has_identity_cue(value)
        and len(value) <= _LONGEST_UNIT
        and not (value[-1:].isdigit() and has_form_of_identifier(value))
    )


def _handle_code(
    sink: FhirSink, _treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    if len(value.split(None, 1)) > 1:
        sink.text(path, start, end, value)
    elif "://" in value and sink.table.addresses.find_persons(value):
        sink.persons(path, start, end, value, frame)
    elif not sink.table.addresses.is_standard(value) and not sink.table.addresses.people.is_plain_code(value):
        sink.site(path, start, end, value, _EMAIL if "@" in value else _IDNUM, frame)


def _handle_label(
    sink: FhirSink, treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    people = sink.table.addresses.people
    if sink.table.addresses.is_standard(value) or (treatment.name == "caption" and people.is_plain_label(value)):
        return
    if people.is_plain_code(value):
        sink.text(path, start, end, value)
    else:
        _handle_code(sink, treatment, value, start, end, path, frame)


def _handle_word(
    sink: FhirSink, treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    if _is_plain_word(value) or has_form_of_identifier(value):
        _handle_code(sink, treatment, value, start, end, path, frame)
    else:
        sink.text(path, start, end, value)


def _handle_local_code(
    sink: FhirSink, _treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    if len(value.split(None, 1)) > 1:
        if not sink.table.is_public_system(frame.owner.get("system")) and not is_reading(value):
            sink.text(path, start, end, value)
    elif sink.table.keeps_code(frame.owner.get("system"), value):
        return
    elif "://" in value and sink.table.addresses.find_persons(value):
        sink.persons(path, start, end, value, frame)
    else:
        sink.site(path, start, end, value, _EMAIL if "@" in value else _IDNUM, frame)


def _handle_unit(
    sink: FhirSink, _treatment: FhirTreatment, value: str, start: int, end: int, path: str, _frame: FhirFrame
) -> None:
    named = " " in value and sink.table.addresses.people.is_person(value)  # one word may be Newton
    if named or not _is_plain_unit(value):
        sink.text(path, start, end, value)


def _handle_title(
    sink: FhirSink, _treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    """A prefix or suffix of a name: a number is an identifier, a listed name is one."""
    if sum(map(str.isdigit, value)) >= _FEW_DIGITS:
        sink.site(path, start, end, value, _IDNUM, frame)
    elif has_identity_cue(value) or len(value) > _LONGEST_TITLE or "/" in value:
        sink.text(path, start, end, value)
    elif sink.table.addresses.people.is_person(value):
        type_ = PhiType.PATIENT if frame.subject is Subject.PATIENT else PhiType.DOCTOR
        sink.site(path, start, end, value, type_, frame, ValueKind.NAME, PEOPLE[type_])


def _handle_system(
    sink: FhirSink, treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    _handle_vocabulary(sink, treatment, value, start, end, path, frame)
    sink.host(path, start, end, value, frame)


def _handle_vocabulary(
    sink: FhirSink, _treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    if "://" not in value and len(value.split(None, 1)) > 1:
        sink.text(path, start, end, value)
    else:
        sink.persons(path, start, end, value, frame)


CODE_HANDLERS: Mapping[str, Handler] = {
    "code": _handle_code,
    "local-code": _handle_local_code,
    "unit-code": _handle_local_code,
    "word": _handle_word,
    "label": _handle_label,
    "caption": _handle_label,
    "unit": _handle_unit,
    "title": _handle_title,
    "system": _handle_system,
    "vocabulary": _handle_vocabulary,
}


def keeps_of_codes(people: NameReader) -> Mapping[str, Callable[[str], object]]:
    """Fast checks for the strings that these treatments keep."""
    return {
        "code": (is_plain_code := lru_cache(8192)(people.is_plain_code)),
        "unit-code": is_plain_code,
        "caption": people.is_plain_label,
        "label": lambda value: " " not in value and people.is_plain_label(value),
        "word": lambda value: _is_plain_word(value) and people.is_plain_code(value),
    }
