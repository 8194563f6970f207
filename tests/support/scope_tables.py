"""Scope tables of made-up people, for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from support.keys import KEY
from support.tables import RULES, table

from deid_agent.batch import PersonColumns, ScopeBuilder
from deid_agent.batch.tables import Table
from deid_agent.config import SecretKey
from deid_agent.pipeline import Policy, ScopeCipher, ScopeTableFile, TableHead, digest_rule, load_policy, write_table

SECRET = SecretKey(KEY)
POLICY = load_policy("research", RULES)
HOSP = ("HOSP", "urn:oid:1.2.3.4", "http://hospital.example/mrn")


def notes(zeros: str = "padding", **identities: object) -> Table:
    """A table of notes, whose identities declare a hospital, a city and the ids of FHIR Patients."""
    return table(
        row={"document": "note_id", "patient": "person_id"},
        columns={"note_id": "id", "person_id": "id", "note_date": "date", "note_text": "text"},
        types={"person_id": "int64"},
        identities={
            "person": {"key": "person_id", "scope": "mrn", "family": "family"},
            "references": ["fhir_id"],
            "number": [
                {"columns": ["mrn", "former"], "assigners": HOSP, "zeros": zeros, "separator": ";"},
                {"columns": ["city_no"], "assigners": ["CITY"], "type": "PI"},
            ],
            **identities,
        },
    )


def person(key: object, mrn: object = None, **more: object) -> dict[str, object]:
    """A row of the identities."""
    return {"person_id": key, "mrn": mrn, "former": None, "fhir_id": None, "city_no": None, **more}


def builder(made: Table, cipher: ScopeCipher | None = None) -> ScopeBuilder:
    """An empty builder."""
    return ScopeBuilder.of(PersonColumns.of(made), POLICY.patient, cipher or ScopeCipher(KEY))


def build(
    path: Path, persons: Sequence[Mapping[str, object]], made: Table | None = None, policy: Policy = POLICY
) -> ScopeTableFile:
    """The file of a table of these persons."""
    cipher = ScopeCipher(KEY)
    columns = PersonColumns.of(made or notes())
    work = ScopeBuilder.of(columns, policy.patient, cipher)
    for number, row in enumerate(persons, 1):
        work.add_row(row, None, f"row {number}")
    sources = [source.as_json() for source in columns.sources]
    head = TableHead(SECRET.id, digest_rule(policy.patient, cipher), sources, work.persons)
    write_table(path, head, work.finish(), cipher)
    return ScopeTableFile.of(path, SECRET, policy)
