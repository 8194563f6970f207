"""Projects over HTTP: their topics, marks and lists, and the clients that may use them."""

import json

import pytest
from support.http_agent import Start, code_of, digest_of, read_reply, request, until

from deid_agent.config import ClientToken
from deid_agent.http.service_access import ServiceLogins

LAB, WARD = "a" * 40, "b" * 40
LOGINS = ServiceLogins((ClientToken("lab", digest_of(LAB)), ClientToken("ward", digest_of(WARD))))
PROJECTS = ("darts", "default", "registry")
PERMITTED = {"lab": frozenset({"darts"})}


def login(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_each_request_belongs_to_the_project_of_its_address(start: Start) -> None:
    agent = await start(projects=PROJECTS)
    for path, media in (
        ("/v1/projects/{}/messages", "application/json"),
        ("/v1/projects/{}/text", "text/plain"),
        ("/v1/projects/{}/stream", "application/x-ndjson"),
        ("/fhir/{}/$de-identify", "application/fhir+json"),
    ):
        for name in PROJECTS:
            assert (await agent.ask(path.format(name), b"x", media)).status == 200
    assert agent.executor.projects == ["darts", "", "registry"] * 4
    entries = [(each.project, each.coordinates.topic) for each in agent.audit.entries]
    assert entries == [("darts", "http-darts"), ("", "http-default"), ("registry", "http-registry")] * 4
    # Each project has the one slot in turn, so the coordinates differ only in the topic.
    assert len({each.id for each in agent.audit.entries}) == len(entries)
    shown = agent.telemetry.registry.exposition().decode()
    assert 'deid_project_messages_total{outcome="published",project="darts"} 4.0' in shown
    described = json.loads((await agent.ask("/fhir/darts/metadata")).body)
    assert described["implementation"]["description"].endswith("project darts")


@pytest.mark.parametrize("name", ["registry", "default", "none", "DARTS", "darts%20"])
async def test_the_project_of_another_client_does_not_exist(start: Start, name: str) -> None:
    """The answer is the same for a project of others and for one that nobody has, byte for byte."""
    agent = await start(LOGINS, projects=PROJECTS, permitted=PERMITTED)
    for path, body, media in (
        ("/v1/projects/{}/messages", b"x", "application/json"),
        ("/v1/projects/{}/text", b"x", "text/plain"),
        ("/v1/projects/{}/stream", b"x", "application/x-ndjson"),
        ("/fhir/{}/$de-identify", b"x", "application/fhir+json"),
        ("/fhir/{}/metadata", None, ""),
    ):
        reply = await agent.ask(path.format(name), body, media, **login(LAB))
        other = await agent.ask(path.format("nobody"), body, media, **login(LAB))
        assert reply.status == 404
        assert (reply.body, reply.headers | {"date": ""}) == (other.body, other.headers | {"date": ""})
    assert agent.audit.entries == []


async def test_no_body_is_asked_for_in_a_project_of_another_client(start: Start) -> None:
    agent = await start(LOGINS, projects=PROJECTS, permitted=PERMITTED)
    for name in ("registry", "nobody"):
        reader, writer = await agent.open()
        headers = {**login(LAB), "Expect": "100-continue"}
        writer.write(request(f"/v1/projects/{name}/messages", b"", **headers).replace(b"Length: 0", b"Length: 9"))
        reply = await read_reply(reader)
        assert (reply.status, code_of(reply.body)) == (404, "NOT_FOUND")
        writer.close()


async def test_a_client_lists_and_uses_its_projects(start: Start) -> None:
    agent = await start(LOGINS, projects=PROJECTS, permitted=PERMITTED)
    for token, names in ((LAB, ["darts"]), (WARD, [*PROJECTS])):
        listed = json.loads((await agent.ask("/v1/projects", None, **login(token))).body)["projects"]
        assert [each["name"] for each in listed] == names
        for name in names:
            assert (await agent.ask(f"/v1/projects/{name}/messages", b"x", **login(token))).status == 200
    assert {(each.client, each.project) for each in agent.audit.entries} == {
        ("lab", "darts"),
        ("ward", "darts"),
        ("ward", ""),
        ("ward", "registry"),
    }


async def test_the_requests_in_flight_and_the_rate_count_for_all_projects(start: Start) -> None:
    agent = await start(LOGINS, projects=PROJECTS, max_requests=2, rate=1.5)
    opened = []
    for name in ("darts", "registry"):
        reader, writer = await agent.open()
        writer.write(request(f"/v1/projects/{name}/messages", b"hold", **login(LAB)))
        opened.append((reader, writer))
    await until(lambda: len(agent.executor.pending) == 2)
    busy = await agent.ask("/v1/projects/default/messages", b"x", **login(WARD))
    assert (busy.status, code_of(busy.body)) == (429, "BUSY")
    agent.executor.release()
    for reader, writer in opened:
        assert (await read_reply(reader)).status == 200
        writer.close()
    late = [await agent.ask(f"/v1/projects/{name}/messages", b"x", **login(LAB)) for name in ("default", "darts")]
    assert [each.status for each in late] == [200, 429]
    assert code_of(late[1].body) == "RATE"
