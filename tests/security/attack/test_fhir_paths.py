"""The attacker: reads the members of FHIR resources that an interface filled carelessly.

Each member of every type that holds a string gets an identifier of each kind. The agent must read it as a value or as
text, except in the members of definitions and of products that are kept by table.
"""

import json
import re
from collections import deque
from functools import cache

import pytest
from support.fhir import RULES, codec, ranges
from support.plants import PLANTS

STRINGS = frozenset({"code", "markdown", "string", "canonical", "url", "uri", "id", "oid", "uuid"})
IN_FHIR = {
    **PLANTS,
    "Okafor": "okafor",
    "1945-03-12": "19450312",
    "https://intra.klinik.example/x/ZK4471190?y=1": "zk4471190",
    "https://meet.klinik.example/j/1?who=okafor": "okafor",
    "file:///C:/okafor_anna.pdf": "okafor",
    "urn:mrn:44711903": "44711903",
}
KEPT = re.compile(
    r"StructureMap.*|ElementDefinition(?:Constraint)?\.(?:condition|key|contentReference)|Device\.model(?:Number)?"
    r"|(?:CodeSystemConcept|ConceptMapGroupElement(?:Target)?|ValueSetComposeIncludeConcept|ValueSetExpansionContains)\.code"
)
"""Members of definitions, and models of devices."""
ONE_WORD = {"Device.manufacturer", "Quantity.unit"}
"""A company and a unit may have the name of a person."""
ABSTRACT = {"Resource", "DomainResource", "CanonicalResource", "MetadataResource"}
NUMBERS = {"SampledData.data"}
DATED = re.compile(r"Coding\.version|.*\.fhirVersion")


@cache
def _elements() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((RULES / "fhir/elements.json").read_text("utf-8"))
    return found


def _members(name: str) -> dict[str, str]:
    row = _elements()[name]
    return {**(_members(row[""]) if row.get("") else {}), **{key: spec for key, spec in row.items() if key}}


def _is_resource(name: str) -> bool:
    while name and name != "Resource":
        name = _elements().get(name, {}).get("", "")
    return bool(name)


@cache
def _paths() -> dict[str, tuple[str, ...]]:
    """A resource and the members that lead to each type."""
    found: dict[str, tuple[str, ...]] = {
        name: (name,) for name in _elements() if _is_resource(name) and name not in ABSTRACT
    }
    todo = deque(found)
    while todo:
        name = todo.popleft()
        for member, spec in _members(name).items():
            for part in spec.split("|"):
                inner = part.partition("(")[0]
                if inner in _elements() and inner not in found and not _is_resource(inner):
                    found[inner] = (*found[name], member)
                    todo.append(inner)
    return found


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _resource(path: tuple[str, ...], member: str, value: str) -> bytes:
    inner: dict[str, object] = {member: value}
    for step in reversed(path[1:]):
        inner = {step: [inner]}
    return json.dumps({"resourceType": path[0], **inner}).encode()


def _survives(raw: bytes, plant: str) -> bool:
    (message,) = codec().parse(raw)
    masked = bytearray(message.raw)
    for start, end in ranges(message):
        masked[start:end] = b"*" * (end - start)
    return plant in _plain(masked.decode())


def _may_stay(member: str, value: str) -> bool:
    kept = KEPT.fullmatch(member) is not None or (member in ONE_WORD and " " not in value and "/" not in value)
    number = member in NUMBERS and not any(map(str.isalpha, value))
    return kept or number or (value[4:5] == "-" and DATED.fullmatch(member) is not None)


@pytest.mark.parametrize(("value", "plant"), IN_FHIR.items())
def test_no_member_publishes_an_identifier(value: str, plant: str) -> None:
    planted = 0
    found = []
    for name, path in _paths().items():
        for member, spec in _elements()[name].items():
            if member and STRINGS & {part.partition("(")[0] for part in spec.split("|")}:
                planted += 1
                if _survives(_resource(path, member, value), plant) and not _may_stay(f"{name}.{member}", value):
                    found.append(f"{name}.{member}")
    assert planted > 2000
    assert found == [], f"{len(found)} of {planted} members; bound: 0"
