"""References and full URLs remain addresses, and ordinary FHIR is never refused for its own naming systems."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.hl7 import RULES
from support.shared import shared

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import MessageError, Reason
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy

_TAIL = r"(?:/[A-Za-z0-9\-._~%@$]+)*/?(?:\?[^\s#:<>\"]*)?(?:#[A-Za-z0-9\-.]+)?(?:\|\S+)?"
ADDRESS = re.compile(
    rf"[a-z][a-z0-9+.-]*://[A-Za-z0-9.\-]+(?::[0-9]{{1,5}})?{_TAIL}"
    rf"|urn:[a-z0-9-]+:[A-Za-z0-9\-.:]+|#[A-Za-z0-9.\-]*|[A-Z][A-Za-z]+/[A-Za-z0-9\-.]+{_TAIL}"
)
MOST_REFUSALS = 0.005
"""The share of ordinary FHIR files that the leak guard may refuse (docs/threat-model.md)."""


@lru_cache(maxsize=2)
def deidentifier(system: str = "none") -> Deidentifier:
    return WorkerFactory(RULES, DEMO_KEY, load_policy("pseudonymised", RULES), system=system).deidentifier()


def addresses(node: object, path: str = "") -> Iterator[tuple[str, str]]:
    """The references and full URLs of a tree, by path."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in {"reference", "fullUrl"} and isinstance(value, str):
                yield f"{path}.{key}", value
            yield from addresses(value, f"{path}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from addresses(value, f"{path}[{index}]")


def broken(before: bytes, after: bytes) -> list[str]:
    """The paths of addresses that were valid before and are not after, or are no longer absolute."""
    new = dict(addresses(json.loads(after)))
    return [
        path
        for path, old in addresses(json.loads(before))
        if ADDRESS.fullmatch(old)
        and (not ADDRESS.fullmatch(new[path]) or old.partition("://")[1] != new[path].partition("://")[1])
    ]


PIECES = (
    *("http://abernathy.test/fhir", "https://10.1.2.3:8443", "Patient/88123456", "Practitioner/abernathy", "urn:uuid:"),
    *("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "urn:oid:", "1.2.88123456", "#", "p1", "/_history/1", "/Abernathy"),
    *("Prudence", "?name=", "zo@quay.test", "Questionnaire/88123456", "Measure/m1", "/", "%20", "Observation/", "-"),
    *("mailto:", "http://home.test/p", "NORTHGATE", "urn:abernathy:Prudence", "1957-04-22", "12-Quay-Street"),
)
PATIENT = {
    "resourceType": "Patient",
    "id": "88123456",
    "name": [{"family": "Abernathy", "given": ["Prudence"]}],
    "identifier": [{"system": "http://home.test/p/mrn", "value": "88123456"}],
    "birthDate": "1957-04-22",
    "address": [{"line": ["12 Quay Street"], "city": "Quay"}],
    "telecom": [{"system": "url", "value": "http://home.test/p"}, {"system": "email", "value": "zo@quay.test"}],
    "managingOrganization": {"display": "NORTHGATE"},
}


@settings(max_examples=150)
@example(["urn:uuid:urn:uuid:", "?name=urn:uuid:"])
@given(st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join), min_size=1, max_size=3))
def test_every_address_remains_an_address(found: list[str]) -> None:
    entries: list[object] = [{"fullUrl": each, "resource": {"resourceType": "Basic"}} for each in found]
    entries += [{"resource": {"resourceType": "Basic", "subject": {"reference": each}}} for each in found]
    raw = json.dumps({"resourceType": "Bundle", "entry": [{"resource": PATIENT}, *entries]}).encode()
    try:
        done = deidentifier().message(raw)
    except MessageError as refused:
        assert refused.reason is Reason.LEAK
        return
    assert broken(raw, done.payload) == []


@pytest.mark.parametrize("page", ["http://home.test", "http://home.test/p", "http://home.test/p/mrn"])
@pytest.mark.parametrize("at", ["identifier", "fullUrl", "reference"])
def test_a_url_that_the_message_names_may_begin_a_system(page: str, at: str) -> None:
    patient = {"resourceType": "Patient", "telecom": [{"system": "url", "value": page}]}
    system = "http://home.test/p/mrn/x"
    entry: dict[str, object] = {"resource": patient}
    if at == "identifier":
        patient["identifier"] = [{"system": system, "value": "7"}]
    elif at == "fullUrl":
        entry["fullUrl"] = "http://home.test/p/mrn/x/Patient/7"
    else:
        patient["generalPractitioner"] = [{"reference": "http://home.test/p/mrn/x/Practitioner/7"}]
    done = deidentifier().message(json.dumps({"resourceType": "Bundle", "entry": [entry]}).encode()).payload.decode()
    assert "http://home.test/p/mrn/x" in done
    assert f'"value":"{page}"' not in done.replace(" ", "")


DEFINED = ("Measure", "Questionnaire", "PlanDefinition", "Library", "CodeSystem", "ValueSet", "ActivityDefinition")


@pytest.mark.parametrize("kind", [*DEFINED, "StructureDefinition"])
def test_references_to_definitions_are_kept(kind: str) -> None:
    raw = {
        "resourceType": "Bundle",
        "entry": [
            {"fullUrl": f"http://h.test/{kind}/bb7", "resource": {"resourceType": kind, "id": "bb7"}},
            {"resource": {"resourceType": "Basic", "subject": {"reference": f"{kind}/bb7"}}},
            {"resource": {"resourceType": "MeasureReport", "measure": f"{kind}/bb7"}},
            {"resource": {"resourceType": "Basic", "subject": {"reference": "Patient/88123456/Questionnaire/5"}}},
            {"resource": {"resourceType": "Basic", "subject": {"reference": "#bb7"}, "contained": [
                {"resourceType": kind, "id": "bb7"}]}},
        ],
    }  # fmt: skip
    done = json.loads(deidentifier().message(json.dumps(raw).encode()).payload)
    first, second, third, fourth, fifth = done["entry"]
    assert first["fullUrl"] == f"http://h.test/{kind}/bb7"
    assert first["resource"]["id"] == "bb7"
    assert second["resource"]["subject"]["reference"] == f"{kind}/bb7"
    assert third["resource"]["measure"] == f"{kind}/bb7"
    assert "88123456" not in fourth["resource"]["subject"]["reference"]
    assert fifth["resource"]["subject"]["reference"] == f"#{fifth['resource']['contained'][0]['id']}"


@pytest.mark.full
def test_ordinary_fhir_is_not_refused_by_the_guard() -> None:
    outcomes: Counter[str] = Counter()
    paths: list[str] = []
    for file in sorted(shared("messages", "fhir").rglob("*.json")):
        raw = file.read_bytes()
        try:
            done = deidentifier().message(raw)
        except MessageError as refused:
            outcomes[refused.reason] += 1
            assert refused.where
            continue
        outcomes["published"] += 1
        paths += broken(raw, done.payload)
    share = outcomes[Reason.LEAK] / outcomes.total()
    assert share < MOST_REFUSALS, f"{share:.2%} of {outcomes.total()} files, bound {MOST_REFUSALS:.1%}"
    assert paths == []
