"""Jobs of a whole agent: references over files, a kill, and a client that we did not write."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from fhirpy import SyncFHIRClient
from support.audits import verify
from support.fhir import bundle
from support.http_jobs import call
from support.http_process import PATIENCE_S, HttpProcess

CANARY = "Zyblorqvist"
NUMBER = "QX7719302"
PATIENTS = [
    {
        "resourceType": "Patient",
        "id": f"{NUMBER}-{n}",
        "name": [{"family": CANARY, "given": ["Quennifer"]}],
        "birthDate": "1957-04-22",
    }
    for n in range(12)
]
CONDITIONS = [
    {
        "resourceType": "Condition",
        "id": f"c{n}",
        "code": {"text": f"Seen as Mrs. {CANARY}"},
        "subject": {"reference": f"Patient/{NUMBER}-{n % 12}"},
    }
    for n in range(20)
]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProcess]:
    folder = tmp_path_factory.mktemp("agent")
    inbox = tmp_path_factory.mktemp("inbox")
    write(inbox / "Patient.ndjson", PATIENTS)
    write(inbox / "Condition.ndjson", [*CONDITIONS, {"resourceType": "Patient", "id": NUMBER}])
    jobs = f'[jobs]\nfolder = "{folder}/jobs"\ninbox = "{inbox}"\ncodes = "job"\nmax_jobs = 9'
    routes = ", ".join(f'{{ from = "http", project = "{name}" }}' for name in ("default", "darts", "closed"))
    projects = f'[projects.darts]\ninbox = "{inbox}"\n[projects.closed]\n'
    agent = HttpProcess(folder, jobs, "safe-harbor", top=f"routes = [{routes}]\n", sections=projects).start()
    yield agent
    assert agent.stop() == 0
    assert not list((folder / "jobs").glob("*/*")), "no output outlives the agent"
    kept = agent.kept()
    assert CANARY.encode() not in kept
    assert NUMBER.encode() not in kept
    verify(folder / "audit")


def write(file: Path, resources: Sequence[object]) -> None:
    file.write_text("".join(json.dumps(each) + "\n" for each in resources))


def base(agent: HttpProcess, project: str = "default") -> str:
    return f"http://127.0.0.1:{agent.port}/fhir/{project}"


INPUT = call("urn:deid:inbox:", ("Patient", "Patient.ndjson"), ("Condition", "Condition.ndjson"))
FHIR = {"Content-Type": "application/fhir+json", "Prefer": "respond-async"}


def run(client: httpx.Client, agent: HttpProcess, body: bytes = INPUT, project: str = "default") -> str:
    """The address of a job that is done."""
    started = client.post(f"{base(agent, project)}/$de-identify", content=body, headers=FHIR)
    assert (started.status_code, started.content) == (202, b"")
    status: str = started.headers["Content-Location"]
    until = time.monotonic() + PATIENCE_S
    while (reply := client.get(status)).status_code == 202:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert reply.status_code == 200
    return status


def read(client: httpx.Client, url: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in client.get(url).text.splitlines()]


def test_references_join_over_the_files_of_one_job_and_not_over_two(agent: HttpProcess) -> None:
    seen: list[set[str]] = []
    with httpx.Client(timeout=PATIENCE_S) as client:
        for _ in range(2):
            manifest = client.get(run(client, agent)).json()
            assert [(each["type"], each["count"]) for each in manifest["output"]] == [
                ("Patient", 12),
                ("Condition", 20),
            ]
            patients, conditions = (read(client, each["url"]) for each in manifest["output"])
            ids = {str(each["id"]) for each in patients}
            subjects = [each["subject"]["reference"] for each in conditions]  # type: ignore[index]
            assert len(ids) == 12
            assert {each.removeprefix("Patient/") for each in subjects} == ids
            assert subjects == [f"Patient/{patients[n % 12]['id']}" for n in range(20)], "the order is kept"
            assert all(re.fullmatch("[0-9A-V]{20}", each) for each in ids)
            assert CANARY not in str(patients) + str(conditions)
            ((error,),) = [read(client, each["url"]) for each in manifest["error"]]
            assert error["issue"][0]["diagnostics"] == "file 2, line 21, resourceType"  # type: ignore[index]
            audited = {entry["deid_id"]: entry["outcome"] for entry in agent.entries()}
            assert audited[str(error["id"])] == "refused"
            seen.append(ids | {str(each["id"]) for each in conditions})
    assert not seen[0] & seen[1]


def test_a_project_has_jobs_and_codes_of_its_own(agent: HttpProcess) -> None:
    with httpx.Client(timeout=PATIENCE_S) as client:
        status = run(client, agent, project="darts")
        assert status.startswith(base(agent, "darts"))
        patients, conditions = (read(client, each["url"]) for each in client.get(status).json()["output"])
        ids = {f"Patient/{each['id']}" for each in patients}
        assert not ids & {each["subject"]["reference"] for each in conditions}, "codes join within one record"  # type: ignore[index]
        assert client.get(status.replace("/darts/", "/default/")).status_code == 404
        refused = client.post(f"{base(agent, 'closed')}/$de-identify", content=INPUT, headers=FHIR)
        assert (refused.status_code, "ADDRESS" in refused.text) == (400, True)
        assert {str(entry["project"]) for entry in agent.entries()} == {"default", "darts"}


def test_a_bundle_as_a_job_with_fhirpy(agent: HttpProcess) -> None:
    with httpx.Client(timeout=PATIENCE_S) as client:
        status = run(client, agent, json.dumps(bundle(*PATIENTS[:2]), indent=1).encode())
        found = SyncFHIRClient(base(agent)).execute(status.removeprefix(base(agent) + "/"), method="get")
        (files,) = found["parameter"]
        assert files["name"] == "de-identifiedDataFileUrls"
        _, data = files["resource"]["parameter"]
        values = {part["name"]: part.get("valueCode") or part["valueUrl"] for part in data["part"]}
        assert values["resourceType"] == "Bundle"
        (got,) = read(client, values["resourceUrl"])
        assert len(got["entry"]) == 2  # type: ignore[arg-type]
        assert client.delete(status).status_code == 202
        assert client.get(status).status_code == 404


def test_a_job_does_not_survive_a_kill(agent: HttpProcess) -> None:
    with httpx.Client(timeout=PATIENCE_S) as client:
        path = httpx.URL(run(client, agent)).path
        folder = agent.folder / "jobs"
        assert list(folder.glob("*/1.ndjson"))
        agent.kill()
        assert list(folder.glob("*/1.ndjson"))
        agent.start()
        assert [each.name for each in folder.iterdir()] == ["lock"]
        assert client.get(f"http://127.0.0.1:{agent.port}{path}").status_code == 404
