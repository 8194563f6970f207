"""HL7's examples of DARTS and DAPL through ``$de-identify`` over HTTP, with the validator and the client of HAPI FHIR.

The examples are inputs, never gold. They come from ``$DEID_SHARED/conformance``; the validator runs offline.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import requests
from support.dapl import BUNDLE, PROFILE, dangling, find_faults, resources, walk
from support.hapi import hapi_or_skip, run_hapi, validate
from support.http_process import PATIENCE_S, HttpProcess
from support.shared import shared

pytestmark = pytest.mark.full

WAIVERS: Mapping[str, str] = {
    "adverse-event-category#medication-mishap": "a code of DAPL's own example that FHIR R4 does not have",
    "us-core-organization": "DAPL wants an Organization of US Core, which has a name, and forbids the name",
    "Found Organization, but expected one of ([])": "the same",
}
"""Parts of errors that no output of ours can avoid, with the reason."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProcess]:
    with hapi_or_skip():
        agent = HttpProcess(
            tmp_path_factory.mktemp("agent"),
            top='routes = [{ from = "http", project = "darts" }]',
            sections='[projects.darts]\npolicy = "safe-harbor"\nshape = "dapl"',
        ).start()
    yield agent
    assert agent.stop() == 0


def examples() -> dict[str, str]:
    """The resources of HL7's examples by name; one for each line of NDJSON."""
    found = {}
    for path in sorted((*shared("conformance", "darts").glob("*.json"), *shared("conformance", "dapl").glob("*.json"))):
        found[f"{path.parent.name}-{path.stem}.json"] = path.read_text("utf-8")
    for path in sorted(shared("conformance", "dapl", "ndjson").glob("*.ndjson")):
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
        found |= {f"{path.stem}-{number}.json": line for number, line in enumerate(lines)}
    return found


def called(agent: HttpProcess, resource: str) -> requests.Response:
    """``$de-identify`` with Parameters around a resource."""
    code = '{"name":"policy","valueString":"HHS_SAFE_HARBOR_DETERMINISTIC_METHOD"}'
    body = f'{{"resourceType":"Parameters","parameter":[{{"name":"identifiableData","resource":{resource}}},{code}]}}'
    return requests.post(
        f"http://127.0.0.1:{agent.port}/fhir/darts/$de-identify",
        body.encode(),
        headers={"Content-Type": "application/fhir+json"},
        timeout=PATIENCE_S,
    )


def identifying(tree: object) -> set[str]:
    """Names, numbers, lines and cities of addresses, and full dates of an input."""
    found = set()
    for path, value in walk(tree):
        last, text = path.rpartition(".")[2], str(value).strip()
        if isinstance(value, str) and (
            last in {"family", "given", "line", "city", "birthDate"}
            or path.endswith(("identifier.value", "telecom.value", "subject.display", "asserter.display"))
            or (".name" in path and last == "text")
            or re.fullmatch(r"\d{4}-\d\d-\d\d(?:T.*)?", text)
        ):
            found.add(text)
    return {each for each in found if len(each) > 2}


def test_outputs_are_valid_and_have_no_originals(agent: HttpProcess, tmp_path: Path) -> None:
    given = {**examples(), "own.json": BUNDLE.read_text("utf-8")}
    made, refused = dict[str, str](), dict[str, str]()
    for name, text in given.items():
        reply = called(agent, text)
        if reply.status_code == 200:
            made[name] = json.dumps(reply.json()["parameter"][0]["resource"])
        else:
            refused[name] = reply.json()["issue"][0]["details"]["coding"][0]["code"]
    assert refused == {
        "darts-Deidentify-data-operation-urls-example.json": "UNSUPPORTED",  # addresses of files
        "dapl-dapl-anonymized-dataset-example.json": "UNSUPPORTED",  # counts of persons
    }
    assert len(made) > 35

    for name, text in made.items():
        tree, original = json.loads(text), json.loads(given[name])
        assert find_faults(tree) == [], name
        if original["resourceType"] == "Bundle":
            assert all(each.startswith("Substance/") for each in dangling(tree)), name
        for value in identifying(original):
            assert not re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", text), name
    claimed = [each for text in made.values() for each in resources(json.loads(text)) if "meta" in each]
    assert len(claimed) > 60

    broken = {
        "resourceType": "Patient",
        "birthDate": "1957",
        "meta": {"profile": [f"{PROFILE}dapl-deidentified-patient"]},
    }
    definitions = sorted(shared("conformance", "dapl", "profiles").glob("*.xml"))
    issues = validate(definitions, {**made, "broken.json": json.dumps(broken)}, tmp_path)
    errors = [each for each in issues if each.severity in {"error", "fatal"}]
    assert sum(each.file == "broken.json" for each in errors) >= 3, "the validator does not know the profiles"
    left = [each for each in errors if each.file != "broken.json" and not any(part in each.text for part in WAIVERS)]
    assert left == []


def test_the_client_of_hapi(agent: HttpProcess, tmp_path: Path) -> None:
    file = tmp_path / "bundle.json"
    file.write_text(BUNDLE.read_text("utf-8"))
    lines = run_hapi("client", f"http://127.0.0.1:{agent.port}/fhir/darts", file)
    (parameter,) = json.loads(lines[0])["parameter"]
    assert parameter["name"] == "de-identifiedData"
    assert len(list(resources(parameter["resource"]))) == 23
    assert '"value":13.20' in lines[0]
    assert "Quixwell" not in "".join(lines)
    assert lines[1:] == [
        "UnclassifiedServerFailureException 415 UNSUPPORTED",
        "ResourceNotFoundException 404 NOT_FOUND",
    ]
