"""Clients that we did not write use the HTTP interface: curl, requests, httpx, fhirpy, schemathesis."""

import asyncio
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hl7
import httpx
import pytest
import requests
import trustme
from fhirpy import AsyncFHIRClient, SyncFHIRClient
from fhirpy.base.exceptions import OperationOutcome as FhirFault
from support.audits import verify
from support.http_process import PATIENCE_S, TOKEN, HttpProcess
from support.openapi_fuzz import fuzz_described

CANARY = "Zyblorqvist"
PHONE = "740-555-0177"
ER7 = "x-application/hl7-v2+er7"
HL7 = (
    "MSH|^~\\&|LAB|MERCY|EHR|DEID|20240318143012||ORU^R01^ORU_R01|7|P|2.5.1\r"
    f"PID|1||QX7719302^^^B^MR||{CANARY}^Quennifer||19570422|F|||2 Quay Street^^Ord^OH^45601||{PHONE}\r"
    f"OBX|1|NM|718-7^Hemoglobin^LN||13.20|g/dL|||||F\r"
    f"OBX|2|TX|1^Note^L||Mrs. {CANARY} was seen by Dr. Alan Brown.||||||F\r"
)
BUNDLE = (
    '{"resourceType":"Bundle","type":"collection","entry":[{"fullUrl":"urn:uuid:0b7e2c3a-9c5b-4d0e-8a57-3a1c5d1d2f10",'
    '"resource":{"resourceType":"Patient","id":"p1","name":[{"family":"' + CANARY + '"}]}},{"resource":'
    '{"resourceType":"Observation","status":"final","code":{"text":"K"},"subject":{"reference":"Patient/p1"},'
    '"valueQuantity":{"value":1.10,"unit":"mmol/L"}}}]}'
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProcess]:
    folder = tmp_path_factory.mktemp("agent")
    agent = HttpProcess(folder, f'[jobs]\nfolder = "{folder}/jobs"').start()
    yield agent
    assert agent.stop() == 0
    kept = agent.kept()
    assert CANARY.encode() not in kept
    assert PHONE.encode() not in kept
    verify(agent.folder / "audit")


def base(agent: HttpProcess) -> str:
    return f"http://127.0.0.1:{agent.port}"


def messages(agent: HttpProcess) -> str:
    return f"{base(agent)}/v1/projects/default/messages"


def test_a_message_of_python_hl7_with_requests(agent: HttpProcess) -> None:
    sent = hl7.parse(HL7)
    with requests.Session() as session:
        replies = [session.post(messages(agent), str(sent).encode(), headers={"Content-Type": ER7}) for _ in range(2)]
    first, second = replies
    assert (first.status_code, first.headers["Content-Type"]) == (200, ER7)
    assert first.content == second.content, "a request may be repeated"
    got = hl7.parse(first.content.decode())
    assert str(got["OBX"][0][5]) == "13.20"
    assert CANARY not in first.text
    ids = {entry["deid_id"]: entry for entry in agent.entries()}
    assert all(ids[reply.headers["Deid-Record"]]["outcome"] == "published" for reply in replies)


@pytest.mark.parametrize("method", ["--data-binary", "-T"])
def test_a_stream_with_curl(agent: HttpProcess, tmp_path: Path, method: str) -> None:
    file = tmp_path / "in.ndjson"
    line = f'{{"resourceType":"Patient","id":"%d","name":[{{"family":"{CANARY}"}}],"multipleBirthInteger":3}}\n'
    file.write_text("".join(line % number if number != 7 else "{\n" for number in range(300)))
    given = f"@{file}" if method == "--data-binary" else str(file)
    url = f"{base(agent)}/v1/projects/default/stream"
    command = ["curl", "-sSf", "-X", "POST", "-H", "Content-Type: application/fhir+ndjson", method, given, url]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True)
    lines = [json.loads(each) for each in done.stdout.splitlines()]
    assert [each["resourceType"] for each in lines] == ["Patient"] * 7 + ["OperationOutcome"] + ["Patient"] * 292
    assert "line 8" in lines[7]["issue"][0]["diagnostics"]
    assert CANARY.encode() not in done.stdout


async def test_notes_with_httpx(agent: HttpProcess) -> None:
    note = f"Seen by Dr. {CANARY}, phone {PHONE}."
    url = f"{base(agent)}/v1/projects/default/text"
    async with httpx.AsyncClient() as client:
        plain = await client.post(url, content=note, headers={"Content-Type": "text/plain"})
        found = await client.post(url, params={"spans": "only"}, content=note, headers={"Content-Type": "text/plain"})
        several = "".join(json.dumps({"id": str(n), "text": note}) + "\n" for n in range(20))
        lines = await client.post(url, content=several, headers={"Content-Type": "application/x-ndjson"})
        many = await asyncio.gather(*(client.post(url, json={"id": "n", "text": note}) for _ in range(12)))
    assert PHONE not in plain.text
    assert [span["type"] for span in found.json()["spans"]] == ["DOCTOR", "PHONE"]
    assert [json.loads(line)["id"] for line in lines.text.splitlines()] == [str(n) for n in range(20)]
    assert {reply.json()["text"] for reply in many} == {many[0].json()["text"]}


def test_the_operation_with_fhirpy(agent: HttpProcess) -> None:
    client = SyncFHIRClient(f"{base(agent)}/fhir/default")
    given = {"resourceType": "Parameters", "parameter": [{"name": "identifiableData", "resource": json.loads(BUNDLE)}]}
    got = client.execute("$de-identify", method="post", data=given)
    patient, observation = (entry["resource"] for entry in got["parameter"][0]["resource"]["entry"])
    assert observation["subject"]["reference"] == f"Patient/{patient['id']}"
    assert patient["name"][0]["family"] != CANARY
    assert client.execute("metadata", method="get")["fhirVersion"] == "4.0.1"
    with pytest.raises(FhirFault) as caught:
        client.execute("$de-identify", method="post", data={"name": CANARY})
    assert CANARY not in str(caught.value)


def test_a_resource_in_xml(agent: HttpProcess) -> None:
    url, media = f"{base(agent)}/fhir/default/$de-identify", "application/fhir+xml"
    given = (
        f'<Patient xmlns="http://hl7.org/fhir"><id value="p1"/><name><family value="{CANARY}"/></name>'
        '<multipleBirthInteger value="3"/></Patient>'
    )
    got = httpx.post(url, content=given, headers={"Content-Type": media, "Accept": media, "Prefer": "respond-async"})
    assert (got.status_code, got.headers["content-type"]) == (200, media)
    assert CANARY not in got.text
    assert got.text.endswith('</name><multipleBirthInteger value="3"/></Patient>')
    refused = httpx.post(url, content=given, headers={"Content-Type": "application/fhir+json"})
    assert (refused.status_code, refused.json()["resourceType"]) == (400, "OperationOutcome")
    assert (
        httpx.post(url, content=given, headers={"Content-Type": media, "Accept": "application/json"}).status_code == 406
    )


def test_pseudonyms_with_fhirpy(agent: HttpProcess) -> None:
    """A key of the caller needs a setting; without one the surrogates are those of every message."""
    client = SyncFHIRClient(f"{base(agent)}/fhir/default")
    items: list[dict[str, object]] = [{"name": "identifiableData", "resource": json.loads(BUNDLE)}]
    got = client.execute("$psuedonymize", method="post", data={"resourceType": "Parameters", "parameter": items})
    (output,) = got["parameter"]
    assert output["name"] == "psuedonymizedData"
    assert output["resource"] == client.execute("$de-identify", method="post", data=json.loads(BUNDLE))
    items += [{"name": "key", "valueString": CANARY * 4}, {"name": "algorithm", "valueString": "SHA256"}]
    with pytest.raises(FhirFault, match="not-supported") as caught:
        client.execute("$pseudonymize", method="post", data={"resourceType": "Parameters", "parameter": items})
    assert CANARY not in str(caught.value)


async def test_a_bundle_with_fhirpy(agent: HttpProcess) -> None:
    client = AsyncFHIRClient(f"{base(agent)}/fhir/default")
    got = await client.execute("$de-identify", method="post", data=json.loads(BUNDLE))
    assert got["resourceType"] == "Bundle"


def test_the_digits_of_a_decimal_stay(agent: HttpProcess) -> None:
    envelope = '{"resourceType":"Parameters","parameter":[{"name":"identifiableData","resource":' + BUNDLE + "}]}"
    for body in (BUNDLE, envelope):
        url, headers = f"{base(agent)}/fhir/default/$de-identify", {"Content-Type": "application/fhir+json"}
        reply = requests.post(url, body.encode(), headers=headers, timeout=PATIENCE_S)
        assert '"value":1.10,' in reply.text


def test_the_description_is_valid_and_fuzzed_requests_find_no_fault(agent: HttpProcess) -> None:
    # Schemathesis has no serializer for the media types of streams.
    assert fuzz_described(base(agent), lambda path: not path.endswith("/stream"), project="default") == 13


def test_a_crowd_of_idle_and_slow_clients_keeps_no_probe_out(agent: HttpProcess) -> None:
    crowd = [socket.create_connection(("127.0.0.1", agent.port)) for _ in range(128)]
    try:
        for number, each in enumerate(crowd):
            if number % 2:
                each.sendall(
                    b"POST /v1/projects/default/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
                )
        for path in ("healthz", "readyz", "metrics"):
            assert requests.get(f"http://127.0.0.1:{agent.operator}/{path}", timeout=PATIENCE_S).status_code == 200
        reply = requests.post(messages(agent), HL7.encode(), headers={"Content-Type": ER7}, timeout=PATIENCE_S)
        assert reply.status_code == 200
    finally:
        for each in crowd:
            each.close()


def test_canaries_are_in_no_answer_log_metric_or_audit(agent: HttpProcess) -> None:
    """The fixture searches the folder of the agent at its end."""
    url = base(agent)
    answers = [
        requests.post(messages(agent), f"PID|1||{CANARY}".encode(), headers={"Content-Type": ER7}, timeout=PATIENCE_S),
        requests.post(messages(agent), b"{}", headers={"Content-Type": CANARY, "X": CANARY}, timeout=PATIENCE_S),
        requests.get(f"{url}/v1/projects/{CANARY}/{PHONE}", timeout=PATIENCE_S),
        requests.get(
            f"{url}/{CANARY}?{CANARY}={PHONE}", headers={"Authorization": f"Bearer {CANARY}"}, timeout=PATIENCE_S
        ),
        requests.request(CANARY, f"{url}/v1/projects", timeout=PATIENCE_S),
        requests.post(
            f"{url}/fhir/default/$de-identify",
            f'{{"resourceType":"Patient","{CANARY}":{{"a":}}}}'.encode(),
            headers={"Content-Type": "application/json"},
            timeout=PATIENCE_S,
        ),
        requests.get(f"http://127.0.0.1:{agent.operator}/metrics", timeout=PATIENCE_S),
    ]
    assert [each.status_code for each in answers] == [415, 415, 404, 404, 400, 400, 200]
    for each in answers:
        assert CANARY not in each.text + str(each.headers)
        assert PHONE not in each.text


def test_each_answer_of_a_killed_agent_is_in_its_audit(tmp_path: Path) -> None:
    """Two kills under load: no client has a result that the trail lacks, and equal bytes give equal bytes."""
    agent = HttpProcess(tmp_path)
    got: list[tuple[str, bytes]] = []
    for _ in range(2):
        agent.start()
        threads = [threading.Thread(target=_send_until_it_ends, args=(messages(agent), got)) for _ in range(4)]
        before = len(got)
        for thread in threads:
            thread.start()
        until = time.monotonic() + PATIENCE_S
        while len(got) < before + 40:
            assert time.monotonic() < until
            time.sleep(0.01)
        agent.kill()
        for thread in threads:
            thread.join(PATIENCE_S)
    audited = {entry["deid_id"] for entry in agent.entries() if entry["outcome"] == "published"}
    assert len({record for record, _ in got}) == len(got) >= 80
    assert {record for record, _ in got} <= audited
    assert len({body for _, body in got}) == 1


def _send_until_it_ends(url: str, got: list[tuple[str, bytes]]) -> None:
    with requests.Session() as session:
        while True:
            try:
                reply = session.post(url, HL7.encode(), headers={"Content-Type": ER7}, timeout=PATIENCE_S)
            except requests.RequestException:
                return
            if reply.status_code == 200:
                got.append((reply.headers["Deid-Record"], reply.content))


def test_certificates_and_tokens(tmp_path: Path) -> None:
    """Both are needed: a certificate of the authority with a permitted name, and the token of the client."""
    ours, other = trustme.CA(), trustme.CA()
    server = ours.issue_cert("localhost", "127.0.0.1")
    (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
    (tmp_path / "key.pem").touch(mode=0o600)
    (tmp_path / "key.pem").write_bytes(server.private_key_pem.bytes())
    ours.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    agent = HttpProcess(
        tmp_path,
        f'host = "0.0.0.0"\ntokens_file = "{tmp_path}/tokens"\ntls_certfile = "{tmp_path}/cert.pem"\n'
        f'tls_keyfile = "{tmp_path}/key.pem"\ntls_client_cafile = "{tmp_path}/ca.pem"\nclients = ["lab.example"]\n'
        "max_connections = 8\n",
    ).start()
    try:
        answers = []
        for authority, name in ((ours, "lab.example"), (ours, "ward.example"), (other, "lab.example")):
            for token in (TOKEN, "wrong"):
                context = ssl.create_default_context()
                ours.configure_trust(context)
                authority.issue_cert(name).configure_cert(context)
                with httpx.Client(verify=context, headers={"Authorization": f"Bearer {token}"}) as client:
                    try:
                        answers.append(client.get(f"https://localhost:{agent.port}/v1/projects").status_code)
                    except httpx.TransportError:
                        answers.append(0)
        assert answers == [200, 401, 403, 403, 0, 0]
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://localhost:{agent.port}/v1/projects")
        silent = [socket.create_connection(("127.0.0.1", agent.port)) for _ in range(12)]
        assert silent[0].recv(1) == b"", "no more handshakes than connections"
        context = ssl.create_default_context()
        ours.configure_trust(context)
        ours.issue_cert("lab.example").configure_cert(context)
        with httpx.Client(verify=context, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            assert client.get(f"https://localhost:{agent.port}/v1/projects").status_code == 200
            url = f"https://localhost:{agent.port}/v1/projects/default/text"
            big = "The wound is clean and dry.\n" * 10_000
            reply = client.post(url, content=big, headers={"Content-Type": "text/plain"}, timeout=PATIENCE_S)
            assert reply.text == big
        for each in silent:
            each.close()
    finally:
        assert agent.stop() == 0
    assert TOKEN.encode() not in agent.kept()
