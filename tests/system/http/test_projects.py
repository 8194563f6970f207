"""One agent with three projects behind the HTTP interface, as processes and over sockets."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from support.attachments import NAMES as DOCUMENT_NAMES
from support.attachments import NOTE, pdf, pdf_text, rtf
from support.audits import verify
from support.http_process import PATIENCE_S, TOKEN, HttpProcess
from support.keys import KEY
from support.projects import adt

import deid_agent
from deid_agent.agent import Coordinates, OutputMarks
from deid_agent.config import SecretKey, derive_key

ER7 = "x-application/hl7-v2+er7"
NAMES = ("darts", "default", "registry", "scans")
ROUTES = "routes = [" + ", ".join(f'{{ from = "http", project = "{name}" }}' for name in NAMES) + "]\n"
PROJECTS = (
    '[projects.darts]\n[projects.registry]\npolicy = "safe-harbor"\n[projects.scans]\npolicy = "{folder}/scans.toml"\n'
)
SCANS = 'name = "scans"\ndefault = "surrogate"\n[attachments]\npdf = "refuse"\n'
LIMITED = 'permissions.lab = { projects = ["darts"] }\n'
NUMBER = re.compile(r"\d{6,}")
"""Shorter ones meet by chance."""
MESSAGES = [adt(number) for number in range(12)]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProcess]:
    folder = tmp_path_factory.mktemp("agent")
    (folder / "scans.toml").write_text(SCANS)
    service, sections = f'tokens_file = "{folder}/tokens"\n{LIMITED}', PROJECTS.replace("{folder}", str(folder))
    agent = HttpProcess(folder, service, top=ROUTES, sections=sections).start()
    yield agent
    assert agent.stop() == 0
    kept = agent.kept()
    assert not [word for word in ("Thistlewood", *DOCUMENT_NAMES) if word.encode() in kept]
    verify(folder / "audit")


def ask(
    agent: HttpProcess, path: str, body: bytes | None = None, token: str = f"{TOKEN}-ward", media: str = ER7
) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}", **({} if body is None else {"Content-Type": media})}
    method = "GET" if body is None else "POST"
    return requests.request(
        method, f"http://127.0.0.1:{agent.port}{path}", data=body, headers=headers, timeout=PATIENCE_S
    )


def answers(agent: HttpProcess, project: str) -> list[requests.Response]:
    found = [ask(agent, f"/v1/projects/{project}/messages", message) for message in MESSAGES]
    assert [each.status_code for each in found] == [200] * len(MESSAGES)
    return found


def test_default_gives_the_bytes_of_an_agent_without_projects(agent: HttpProcess, tmp_path: Path) -> None:
    alone = HttpProcess(tmp_path).start()
    try:
        before, after = answers(alone, "default"), answers(agent, "default")
        assert [each.content for each in before] == [each.content for each in after]
        assert [each.headers["Content-Type"] for each in before] == [each.headers["Content-Type"] for each in after]
        assert ask(alone, "/v1/projects/darts/messages", MESSAGES[0]).status_code == 404
    finally:
        assert alone.stop() == 0
    key = tmp_path / "deid.key"
    ours = deid_agent.load(key_file=key, system="rules", policy="pseudonymised")
    assert [ours.message(message).payload for message in MESSAGES] == [each.content for each in after]
    entries = alone.entries()
    assert {entry["topic"] for entry in entries} == {"http-default"}
    assert "project" not in entries[0]
    marks = OutputMarks(KEY)
    for entry in entries:
        at = Coordinates(str(entry["topic"]), int(str(entry["partition"])), int(str(entry["offset"])))
        assert marks.id_of(at, str(entry["topic_id"])) == entry["deid_id"]


def test_two_keys_have_no_surrogate_in_common(agent: HttpProcess) -> None:
    darts, default = answers(agent, "darts"), answers(agent, "default")
    numbers = [{word for each in found for word in NUMBER.findall(each.text)} for found in (darts, default)]
    assert min(map(len, numbers)) > 3 * len(MESSAGES)
    assert not numbers[0] & numbers[1]
    for one, other in zip(darts, default, strict=True):
        # Number, name, birth, address and phone of the patient; the record that the answer names.
        fields = zip(*(each.text.split("\r")[1].split("|") for each in (one, other)), strict=True)
        assert [number for number, (a, b) in enumerate(fields) if a != b] == [3, 5, 7, 11, 13]
        assert one.headers["Deid-Record"] != other.headers["Deid-Record"]


def test_audit_and_metrics_name_the_project_its_policy_and_its_key(agent: HttpProcess) -> None:
    record = ask(agent, "/v1/projects/registry/messages", MESSAGES[0]).headers["Deid-Record"]
    entry = next(each for each in agent.entries() if each["deid_id"] == record)
    assert (entry["project"], entry["topic"], entry["client"]) == ("registry", "http-registry", "ward")
    key = derive_key(SecretKey(KEY), "registry", 1)
    first = next(iter(sorted((agent.folder / "audit").glob("*.jsonl")))).read_text().split("\n")[0]
    built = json.loads(first)["build"]["projects"]["registry"]
    assert (built["key"], built["routes"]) == (key.id, {"http-registry": "http:registry"})
    at = Coordinates("http-registry", int(str(entry["partition"])), int(str(entry["offset"])))
    assert OutputMarks(key.secret).id_of(at, str(entry["topic_id"])) == record
    shown = requests.get(f"http://127.0.0.1:{agent.operator}/metrics", timeout=PATIENCE_S).text
    assert re.search(r'deid_project_messages_total\{outcome="published",project="registry"\} [1-9]', shown)
    assert f'key="{key.id}",policy="{built["policy"]}",project="registry"' in shown
    assert f'"{built["policy"].partition(":")[0]}"' in ask(agent, "/v1/projects").text


def test_a_limited_client_sees_its_project_only(agent: HttpProcess) -> None:
    assert [each["name"] for each in ask(agent, "/v1/projects", token=TOKEN).json()["projects"]] == ["darts"]
    assert [each["name"] for each in ask(agent, "/v1/projects").json()["projects"]] == [*NAMES]
    assert ask(agent, "/v1/projects/darts/messages", MESSAGES[0], TOKEN).status_code == 200
    hidden = ask(agent, "/v1/projects/registry/messages", MESSAGES[0], TOKEN)
    absent = ask(agent, "/v1/projects/none/messages", MESSAGES[0], TOKEN)
    assert (hidden.status_code, hidden.content) == (404, absent.content)
    assert ask(agent, "/v1/projects/registry/messages", MESSAGES[0]).status_code == 200


PAGE = f"<!DOCTYPE html>\n<body><p class='a'>{NOTE}</p><b>K 4.10&nbsp;mmol/L</b></body>\n".encode()
DOCUMENTS = {
    "text/html": PAGE,
    "application/rtf": rtf(NOTE),
    "text/rtf": rtf(NOTE),
    "text/plain": NOTE.encode(),
    "application/pdf": pdf([pdf_text(NOTE)], packed=True),
}


@pytest.mark.parametrize("media", DOCUMENTS)
def test_a_document_has_the_surrogates_of_its_project(agent: HttpProcess, media: str) -> None:
    ours = deid_agent.load(key_file=agent.folder / "deid.key", system="rules", policy="pseudonymised")
    data, found = DOCUMENTS[media], {}
    for name in ("darts", "default", "registry"):
        reply = ask(agent, f"/v1/projects/{name}/documents", data, media=media)
        assert reply.status_code == 200
        assert not [word for word in DOCUMENT_NAMES if word in reply.text]
        found[name] = reply
    done = ours.document(data, media)
    assert (found["default"].content, found["default"].headers["Content-Type"]) == (done.payload, done.media)
    assert len({reply.content for reply in found.values()}) == 3
    entry = next(each for each in agent.entries() if each["deid_id"] == found["darts"].headers["Deid-Record"])
    assert (entry["project"], entry["outcome"]) == ("darts", "published")


@pytest.mark.parametrize(
    ("project", "media", "data", "status", "code"),
    [
        ("scans", "application/pdf", DOCUMENTS["application/pdf"], 422, "REJECTED"),
        ("scans", "text/plain", DOCUMENTS["application/pdf"], 422, "REJECTED"),
        ("darts", "application/pdf", pdf([b"0 0 10 10 re f"]), 415, "UNSUPPORTED"),
        ("darts", "application/pdf", pdf([pdf_text(NOTE)])[:300], 415, "UNSUPPORTED"),
        ("darts", "text/plain", b"PK\x03\x04Zebulon Okafor", 415, "UNSUPPORTED"),
        ("darts", "image/png", b"Zebulon Okafor", 415, "MEDIA_TYPE"),
        ("darts", "text/plain", b"x" * (1 << 20) + b"Okafor", 413, "TOO_LARGE"),
    ],
)
def test_a_document_that_may_not_leave_is_refused_with_a_code(
    agent: HttpProcess, project: str, media: str, data: bytes, status: int, code: str
) -> None:
    reply = ask(agent, f"/v1/projects/{project}/documents", data, media=media)
    assert (reply.status_code, reply.json()["code"]) == (status, code)
    assert not [word for word in DOCUMENT_NAMES if word in reply.text]
    if "record" in reply.json():
        entry = next(each for each in agent.entries() if each["deid_id"] == reply.json()["record"])
        assert (entry["outcome"], entry["reason"], entry["where"]) == ("refused", code, "document")
