"""The operation ``$anonymize``: the number of patients by age group and gender, in groups of at least ``k``.

Nothing else leaves: no resource, no total, and no sign of a group that is smaller. The report has the form of the
anonymized dataset of DAPL (MeasureReport).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

import orjson

from deid_agent import __version__
from deid_agent.codec import DATA_ABSENT_REASON, list_resources
from deid_agent.model import MessageError, Reason
from deid_agent.pipeline.requests import read_call, wrap_output

_GENDERS: Final = {"male": "Male", "female": "Female", "other": "Other", "unknown": "Unknown"}
_GENDER_SYSTEM: Final = "http://hl7.org/fhir/administrative-gender"
_VALUE: Final = "http://hl7.org/fhir/us/dapl/StructureDefinition/dapl-measure-stratifier-component-value-extension"
_PROFILE: Final = "http://hl7.org/fhir/us/dapl/StructureDefinition/dapl-anonymized-dataset"
_ABSENT_SYSTEM: Final = "http://terminology.hl7.org/CodeSystem/data-absent-reason"
_MEASURE: Final = "urn:deid-agent:measure:patients-by-age-and-gender"
_BORN: Final = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?")
_DECADE, _OLDEST = 10, 90


@dataclass(frozen=True, slots=True, order=True)
class Stratum:
    """A group of patients. ``decade`` is the lowest age, 90 for all from there on, -1 if the age is not known."""

    decade: int
    gender: str


def anonymize(payload: bytes, k: int, today: date) -> bytes:
    """The report of a Bundle, or of the Bundle in Parameters, in the same form.

    Raises ``MessageError``: MALFORMED for another form, UNSUPPORTED for another parameter.
    """
    call = read_call(payload, ())
    raw, output = (payload, "") if call is None else (call.resource, "anonymizedData")
    found = list_resources(raw)
    if not found or found[0].type != "Bundle":
        raise MessageError(Reason.UNSUPPORTED, "resourceType", "not a Bundle")
    patients = (orjson.loads(raw[slice(*each.span)]) for each in found if each.type == "Patient")
    report = write_report(suppress(count_persons(patients, today), k))
    bundle = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": report}]}
    return wrap_output(orjson.dumps(bundle), output)


def count_persons(patients: Iterable[Mapping[str, object]], today: date) -> Counter[Stratum]:
    """The number of persons in each stratum.

    A person who comes twice counts once: counted twice, few persons would look like many. One whose Patients
    contradict each other is of unknown age and gender.
    """
    parents, strata, owners = list[int](), list[Stratum](), dict[tuple[str, ...], int]()

    def find(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    for number, patient in enumerate(patients):
        parents.append(number)
        strata.append(_stratum(patient, today))
        for key in _keys(patient):
            parents[find(number)] = find(owners.setdefault(key, number))
    persons: dict[int, set[Stratum]] = {}
    for number, stratum in enumerate(strata):
        persons.setdefault(find(number), set()).add(stratum)
    return Counter(min(found) if len(found) == 1 else Stratum(-1, "unknown") for found in persons.values())


def _keys(patient: Mapping[str, object]) -> Iterator[tuple[str, ...]]:
    """The values by which two Patients are one person."""
    if isinstance(id_ := patient.get("id"), str) and id_:
        yield "id", id_
    for identifier in _objects(patient.get("identifier")):
        if isinstance(value := identifier.get("value"), str) and value:
            yield "identifier", str(identifier.get("system")), value
    for name in _objects(patient.get("name")):
        givens = name.get("given")
        given = givens[0] if isinstance(givens, list) and givens else givens
        parts = (name.get("family"), given, patient.get("birthDate"))
        for each in (parts, (name.get("text"), patient.get("birthDate"))):
            if all(isinstance(part, str) and part for part in each):
                yield "name", *(_spell(str(part)) for part in each)


def _spell(text: str) -> str:
    """A name without the differences of two systems that write it: case, spaces, the form of accents."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    """The objects of a list; one that is in no list is one too."""
    yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))


def _stratum(patient: Mapping[str, object], today: date) -> Stratum:
    gender = str(patient.get("gender"))
    return Stratum(_decade(patient.get("birthDate"), today), gender if gender in _GENDERS else "unknown")


def _decade(born: object, today: date) -> int:
    parts = _BORN.fullmatch(born) if isinstance(born, str) else None
    try:
        day = date(*(int(part or 1) for part in parts.groups())) if parts else None
    except ValueError:
        day = None
    if day is None or day > today:
        return -1
    age = today.year - day.year - ((today.month, today.day) < (day.month, day.day))
    return min(age // _DECADE * _DECADE, _OLDEST)


def suppress(counts: Mapping[Stratum, int], k: int) -> dict[Stratum, int]:
    """The strata that may be published, in order: those with at least ``k`` persons.

    If fewer than ``k`` persons are left out in all, the smallest of the others are left out too. Somebody who knows the
    total would else know the rest, which is fewer than ``k`` persons.
    """
    kept = {stratum: count for stratum, count in sorted(counts.items()) if count >= k}
    hidden = sum(counts.values()) - sum(kept.values())
    while 0 < hidden < k and kept:
        smallest = min(kept, key=lambda each: (kept[each], each))
        hidden += kept.pop(smallest)
    return kept


def write_report(strata: Mapping[Stratum, int]) -> Mapping[str, object]:
    """The MeasureReport. It has no total, and no stratifier if no stratum may be published."""
    listed = [
        {"component": [_age(each.decade), _gender(each.gender)], "measureScore": {"value": count}}
        for each, count in strata.items()
    ]
    groups = {"group": [{"stratifier": [{"stratum": listed}]}]} if listed else {}
    return {
        "resourceType": "MeasureReport",
        "meta": {"profile": [_PROFILE]},
        "status": "complete",
        "type": "summary",
        "measure": _MEASURE,
        "reporter": {"display": f"deid-agent {__version__}"},
        "period": {"extension": [{"url": DATA_ABSENT_REASON, "valueCode": "not-applicable"}]},
        **groups,
    }


def _age(decade: int) -> Mapping[str, object]:
    if decade < 0:
        value: Mapping[str, object] = {"coding": [{"system": _ABSENT_SYSTEM, "code": "unknown"}]}
    else:
        high = {} if decade == _OLDEST else {"high": {"value": decade + _DECADE - 1}}
        text = f"{decade} and over" if decade == _OLDEST else f"{decade} to {decade + _DECADE - 1}"
        extension = {"url": _VALUE, "valueRange": {"low": {"value": decade}, **high}}
        value = {"extension": [extension], "text": text}
    return {"code": {"text": "Age in years"}, "value": value}


def _gender(gender: str) -> Mapping[str, object]:
    coding = {"system": _GENDER_SYSTEM, "code": gender, "display": _GENDERS[gender]}
    return {"code": {"text": "Gender"}, "value": {"coding": [coding]}}
