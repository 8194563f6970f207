"""Third-party C-CDA files: unchanged by ``keep``; by default well-formed and without the people of the header."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from support.markup import RULES, cda, document, shape
from support.shared import shared

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Site, Subject
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy

SHORTEST = 4
NAMED = frozenset(PhiType) - {PhiType.STATE, PhiType.COUNTRY, PhiType.DATE, PhiType.AGE, PhiType.CITY, PhiType.ZIP}
COMPRESSED = "nonXMLBody_Example_with_Compressed_Content"
"""Its data are removed, together with the attribute that names their compression."""
STAYS = {
    "patient": "a word that these examples use as a name, in comments and headings",
    "primary": "the same: primary care physician",
    "nurse": "the same: Registered Nurse",
    "12345": "an arc of the OID that names the numbering authority",
}
"""Values of the structure that remain in the output of the same file, and why. An unnecessary line fails."""


@lru_cache(maxsize=2)
def deidentifier(name: str) -> Deidentifier:
    return WorkerFactory(RULES, SecretKey(b"k" * 32), load_policy(name, RULES)).deidentifier()


@pytest.fixture(scope="module")
def files() -> list[Path]:
    found = sorted(path for path in shared("messages", "ccda").rglob("*.xml"))
    assert len(found) >= 200
    return found


@pytest.fixture(scope="module")
def outputs(files: list[Path]) -> dict[Path, bytes]:
    return {path: deidentifier("pseudonymised").message(path.read_bytes()).payload for path in files}


def people(raw: bytes) -> Iterator[Site]:
    for site in document(raw).sites:
        if site.subject in {Subject.PATIENT, Subject.PROVIDER} and site.type in NAMED and len(site.value) >= SHORTEST:
            yield site


def test_every_file_is_a_document_and_parsing_changes_none(files: list[Path]) -> None:
    for path in files:
        raw = path.read_bytes()
        assert cda().detect(raw), path.name
        assert deidentifier("keep").message(raw).payload == raw, path.name


def test_outputs_are_well_formed_with_the_same_elements(outputs: dict[Path, bytes]) -> None:
    changed = 0
    for path, out in outputs.items():
        raw = path.read_bytes()
        before, after = shape(raw), shape(out)
        if COMPRESSED in path.name:
            before["@"] -= 1
        assert before == after, path.name
        changed += out != raw
    assert changed > 0.7 * len(outputs)


def test_no_person_of_a_structured_field_remains(outputs: dict[Path, bytes]) -> None:
    searched = 0
    stayed: dict[str, str] = {}
    for path, out in outputs.items():
        raw = path.read_bytes()
        texts = [leaf.mapped.text for leaf in cda().parse_leaves(out)]
        for site in people(raw):
            searched += 1
            pattern = re.compile(rf"(?<!\w){re.escape(site.value)}(?!\w)", re.IGNORECASE)
            if any(pattern.search(text) for text in texts):
                stayed[site.value.lower()] = f"{path.name}: {site.path}"
    assert searched > 500
    assert stayed.keys() == STAYS.keys(), stayed
