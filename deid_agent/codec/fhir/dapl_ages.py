"""The ages that DAPL demands of patients and encounters, computed from a resource as it came.

The output cannot give them: of everyone over 89 it has one year of birth, which differs from message to message.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from datetime import date
from typing import NamedTuple

import orjson

OLDEST = 90
"""Ages from here on are one category (45 CFR 164.514(b)(2)(i)(C))."""
AGE = "http://hl7.org/fhir/us/dapl/StructureDefinition/dapl-age-extension"
Place = tuple[int, ...]
"""The indices of the entries that lead to a resource: () is the root, (2,) the third entry of a Bundle."""

_MONTHS, _DAYS = 12, 31
_DAY = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?(?=T|$)")


class Age(NamedTuple):
    """Whole years, 90 for everyone older; else the code of a reason for their absence."""

    years: int | None
    absent: str = "unknown"


UNKNOWN = Age(None)
MASKED = Age(None, "masked")


def find_ages(raw: bytes, day: date) -> Mapping[Place, Age]:
    """The age of each Patient on ``day``, and of each Encounter's patient when it began, by place.

    The age at an encounter is masked if the patient is over 89 on ``day``: with the year of the encounter it would
    reveal that age. ``raw`` is a resource that the codec has parsed.
    """
    tree = orjson.loads(raw.removeprefix(BOM_UTF8))
    resources = list(_list_resources(tree, "", ()))
    births: dict[str, _Birth] = {}
    ages: dict[Place, Age] = {}
    for place, url, node in resources:
        if node.get("resourceType") == "Patient":
            birth = _Birth.of(node)
            ages[place] = birth.age_on(day.isoformat())
            births |= dict.fromkeys((url, f"Patient/{node.get('id')}"), birth)
    at_encounters = {
        place: _age_at_encounter(node, births, day)
        for place, _, node in resources
        if node.get("resourceType") == "Encounter"
    }
    # A message may be older than its encounters: ages of 89 and 90 in two years would reveal the year of birth.
    old = {birth for birth, age in at_encounters.values() if birth is not None and age.years == OLDEST}
    return ages | {place: MASKED if birth in old else age for place, (birth, age) in at_encounters.items()}


class _Birth(NamedTuple):
    """A date of birth as written, or an age that was given in place of it."""

    written: str = ""
    given: Age = UNKNOWN

    @classmethod
    def of(cls, node: Mapping[str, object]) -> "_Birth":
        written = node.get("birthDate")
        return cls(written if isinstance(written, str) else "", _given_age(node))

    def age_on(self, written: str) -> Age:
        """The greatest age that both days allow: their months or days may be missing."""
        born, day = _DAY.match(self.written), _DAY.match(written)
        if born is None or day is None:
            return self.given
        month, day_of_month = int(born[2] or 1), int(born[3] or 1)
        if month > _MONTHS or day_of_month > _DAYS:  # a month that does not exist would make a person younger
            month = day_of_month = 1
        first = int(born[1]), month, day_of_month
        last = int(day[1]), int(day[2] or 12), int(day[3] or 31)
        years = last[0] - first[0] - (last[1:] < first[1:])
        return Age(min(max(years, 0), OLDEST))


def _age_at_encounter(node: Mapping[str, object], births: Mapping[str, _Birth], day: date) -> tuple[_Birth | None, Age]:
    subject, period = node.get("subject"), node.get("period")
    reference = subject.get("reference") if isinstance(subject, dict) else None
    birth = _find_birth(births, reference) if isinstance(reference, str) else None
    if birth is not None and birth.age_on(day.isoformat()).years == OLDEST:
        return birth, MASKED
    if birth is None or not birth.written:
        return None, _given_age(node)
    start = period.get("start", period.get("end")) if isinstance(period, dict) else None
    return birth, birth.age_on(start) if isinstance(start, str) else UNKNOWN


def _find_birth(births: Mapping[str, _Birth], reference: str) -> _Birth | None:
    return births.get(reference) or births.get(resource_key(reference))


def resource_key(reference: str) -> str:
    """``Patient/1`` of a reference in any form, without its version."""
    return "/".join(reference.partition("/_history/")[0].split("/")[-2:])


def _given_age(node: Mapping[str, object]) -> Age:
    """The age of a resource that is already of DAPL."""
    extensions = node.get("extension")
    for each in extensions if isinstance(extensions, list) else ():
        if isinstance(each, dict) and each.get("url") == AGE and isinstance(value := each.get("valueQuantity"), dict):
            years, code = value.get("value"), value.get("code")
            exact = value.get("comparator") is None
            if isinstance(years, int | float) and code == "a" and years >= (0 if exact else OLDEST):
                return Age(min(int(years), OLDEST))
    return UNKNOWN


def _list_resources(node: object, url: str, place: Place) -> Iterator[tuple[Place, str, Mapping[str, object]]]:
    """All resources of a Bundle, also of one inside it, with their addresses."""
    if not isinstance(node, dict):
        return
    yield place, url, node
    entries = node.get("entry") if node.get("resourceType") == "Bundle" else None
    objects = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    for number, entry in enumerate(objects):
        yield from _list_resources(entry.get("resource"), str(entry.get("fullUrl", "")), (*place, number))
