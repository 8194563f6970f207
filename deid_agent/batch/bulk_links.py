"""Links between Patients of a FHIR bulk export: all records of one person have one scope, as merges in a scope table.

``Patient.link`` (of any type) and ``Person.link`` join Patients into groups. Links to Patients that the export lacks
join nothing, and cycles are groups like others. A group above the bound is not followed by any of its members: a
Patient has the same scope from whichever line it is found.
"""

import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deid_agent.model import Message, PatientField, PatientIdentifier

MOST_LINKED = 32
"""Records of one group. More are no person but an error, such as a placeholder to which all refer."""
_UNSURE = "level1"  # FHIR: little or no confidence
_FORMER = "replaced-by"
LINK_TABLES = (
    "CREATE TABLE link (source BLOB, number INTEGER, target BLOB);"
    "CREATE TABLE node (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, patient INTEGER, joined INTEGER);"
)


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """Links between records, those of them to Patients that the export lacks, and the groups that they make.

    ``patients`` are those in groups of several, ``left`` those in groups that are too large to be followed.
    """

    links: int = 0
    absent: int = 0
    groups: int = 0
    patients: int = 0
    left: int = 0


def list_links(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The references to other records of the same person."""
    name = {"Patient": "other", "Person": "target"}.get(str(tree.get("resourceType")))
    links = tree.get("link") if name else None
    for each in links if isinstance(links, list) else ():
        if isinstance(each, dict) and isinstance(found := each.get(name), dict) and each.get("assurance") != _UNSURE:
            yield found


def list_identifiers(records: Iterable[tuple[Message, Mapping[str, Any]]]) -> tuple[PatientIdentifier, ...]:
    """The identifiers of the Patients among some records. Those of a replaced one count as former numbers."""
    found: dict[PatientIdentifier, None] = {}
    for message, tree in records:
        if tree.get("resourceType") == "Patient":
            replaced = _is_replaced(tree)
            found |= dict.fromkeys(_demote(each) if replaced else each for each in message.patients)
    return tuple(sorted(found, key=lambda each: (each.field, each.value, each.type, each.assigners)))


def _is_replaced(tree: Mapping[str, Any]) -> bool:
    links = tree.get("link")
    return isinstance(links, list) and any(isinstance(each, dict) and each.get("type") == _FORMER for each in links)


def _demote(found: PatientIdentifier) -> PatientIdentifier:
    return replace(found, field=PatientField.OTHER) if found.field is PatientField.MAIN else found


def join_links(store: sqlite3.Connection) -> LinkCounts:
    """Number the groups of the records in ``node.joined``. Memory is a few bytes for each linked record."""
    ((links,),) = store.execute("SELECT count(DISTINCT number) FROM link")
    if not links:
        return LinkCounts()
    store.execute(
        "CREATE TABLE edge AS SELECT link.number, link.source, line.own FROM link JOIN alias ON alias.alias = "
        "link.target JOIN line ON line.id = alias.line WHERE line.own IS NOT NULL"
    )
    ((followed,),) = store.execute("SELECT count(DISTINCT number) FROM edge")
    store.execute(
        "INSERT INTO node (digest, patient) SELECT own, max(patient) FROM line "
        "WHERE own IN (SELECT source FROM edge UNION SELECT own FROM edge) GROUP BY own"
    )
    ((size,),) = store.execute("SELECT coalesce(max(id), 0) + 1 FROM node")
    parents = array("q", range(size))
    for one, two in store.execute(
        "SELECT a.id, b.id FROM edge JOIN node AS a ON a.digest = edge.source JOIN node AS b ON b.digest = edge.own"
    ):
        first, second = _find_root(parents, one), _find_root(parents, two)
        parents[max(first, second)] = min(first, second)
    members, patients = Counter[int](), Counter[int]()
    for number, patient in store.execute("SELECT id, patient FROM node"):
        root = _find_root(parents, number)
        members[root] += 1
        patients[root] += patient
    kept = {root for root, count in members.items() if 1 < count <= MOST_LINKED}
    store.executemany(
        "UPDATE node SET joined = ? WHERE id = ?",
        ((root, number) for number in range(1, size) if (root := _find_root(parents, number)) in kept),
    )
    store.execute("CREATE INDEX joined ON node (joined)")
    several = [root for root in kept if patients[root] > 1]
    left = sum(patients[root] for root, count in members.items() if count > MOST_LINKED)
    return LinkCounts(links, links - followed, len(several), sum(patients[root] for root in several), left)


def _find_root(parents: "array[int]", number: int) -> int:
    while parents[number] != number:
        parents[number] = parents[parents[number]]
        number = parents[number]
    return number


def find_joined(store: sqlite3.Connection, digest: bytes) -> list[bytes]:
    """The other records of a person, by the digest of one."""
    rows = store.execute(
        "SELECT other.digest FROM node JOIN node AS other ON other.joined = node.joined"
        " WHERE node.digest = ? AND other.digest != node.digest",
        (digest,),
    )
    return [found for (found,) in rows]
