"""Resources in the form of DAPL, and searches for the faults that none of them may have."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import lru_cache
from pathlib import Path

from support.fhir import codec

from deid_agent.codec.fhir import DaplForm, DaplOptions, find_ages
from deid_agent.surrogate import RESTRICTED_ZIP3

BUNDLE = Path(__file__).parents[1] / "cases" / "dapl" / "bundle.json"
DAY = date(2024, 5, 6)
PROFILE = "http://hl7.org/fhir/us/dapl/StructureDefinition/"
ABSENT = "http://hl7.org/fhir/StructureDefinition/data-absent-reason"
PATIENT = {"resourceType": "Patient", "id": "p", "birthDate": "1957-04-22"}
OBSERVATION = {"resourceType": "Observation", "id": "o", "status": "final", "subject": {"reference": "Patient/p"}}
AGE = f"{PROFILE}dapl-age-extension"
RACE = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-race"
_DAY = re.compile(r"(?<!\d)(?:18|19|20)\d\d-\d\d(?:-\d\d)?(?!\d)")


@lru_cache(maxsize=2)
def form(*, drops: bool = False) -> DaplForm:
    return codec().make_dapl_form(DaplOptions(RESTRICTED_ZIP3, drops))


def shaped(resource: object, day: date = DAY, *, drops: bool = False) -> dict[str, object]:
    """A resource, as JSON or as an object, in the form of DAPL."""
    raw = resource if isinstance(resource, bytes) else json.dumps(resource).encode()
    written, _ = form(drops=drops).write(raw, find_ages(raw, day))
    tree = json.loads(written)
    assert isinstance(tree, dict)
    return tree


def resources(tree: object) -> Iterator[Mapping[str, object]]:
    """The resource, or those of a Bundle."""
    assert isinstance(tree, dict)
    if tree["resourceType"] == "Bundle":
        for entry in tree.get("entry", ()):
            yield from resources(entry["resource"])
    else:
        yield tree


def walk(node: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each value with its path, without indices."""
    yield path, node
    if isinstance(node, dict):
        for key, value in node.items():
            yield from walk(value, f"{path}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from walk(value, path)


def find_faults(tree: object) -> list[str]:
    """The places of full dates, texts, names of references, elements that a profile forbids."""
    forbidden = {
        "text.div",
        "contained",
        "name.given",
        "line",
        "city",
        "birthDate",
        "telecom",
        "photo",
        "contact",
        "note",
    }
    found = []
    for path, value in walk(tree):
        last = path.rpartition(".")[2]
        if last in forbidden or path.endswith(("subject.display", "individual.display", "lastUpdated", "versionId")):
            found.append(path)
        if isinstance(value, str) and last not in {"version", "url", "system", "profile"} and _DAY.search(value):
            found.append(f"{path}: a date")
    return found


def dangling(tree: object) -> list[str]:
    """Relative references of a Bundle that lead to none of its resources."""
    known = {f"{each['resourceType']}/{each.get('id')}" for each in resources(tree)}
    targets = (str(value) for path, value in walk(tree) if path.endswith(".reference"))
    return [each for each in targets if "/".join(each.split("/")[-2:]) not in known]


def absent(reason: str) -> dict[str, object]:
    """An element that is absent for this reason."""
    return {"extension": [{"url": ABSENT, "valueCode": reason}]}


def by_id(tree: object) -> dict[str, dict[str, object]]:
    """The resources of a Bundle by their ids."""
    return {str(each["id"]): dict(each) for each in resources(tree)}


def listed(tree: dict[str, object], name: str) -> list[dict[str, object]]:
    """A repeating element."""
    found = tree[name]
    assert isinstance(found, list)
    return found


def extension(resource: object, url: str) -> dict[str, object]:
    """The only extension with this address."""
    assert isinstance(resource, dict)
    (found,) = (each for each in resource["extension"] if each["url"] == url)
    assert isinstance(found, dict)
    return found
