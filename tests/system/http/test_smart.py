"""Clients that we did not write get tokens for their signatures: authlib, and httpx with tokens made without PyJWT."""

import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
import requests
import trustme
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from cryptography.hazmat.primitives import serialization
from joserfc.jwk import ECKey
from support.http_process import PATIENCE_S, TOKEN, HttpProcess
from support.kafka_broker import free_port
from support.openapi_fuzz import fuzz_described
from support.smart_clients import SmartClient

ROUTES = 'routes = [{ from = "http" }, { from = "http", project = "darts" }]\n'
FHIR = {"Content-Type": "application/fhir+json"}
PATIENT = b'{"resourceType":"Patient","id":"p1","name":[{"family":"Zyblorqvist"}]}'


@dataclass
class SmartProcess:
    """An agent with TLS, the client ``lab`` of authlib, and ``ward``, which may use ``darts`` only."""

    process: HttpProcess
    url: str
    authority: str
    lab: SmartClient
    ward: SmartClient


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmartProcess]:
    folder, authority, port = tmp_path_factory.mktemp("agent"), trustme.CA(), free_port()
    keys, url = tmp_path_factory.mktemp("keys"), f"https://localhost:{port}"
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    (keys / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    (keys / "key.pem").touch(mode=0o600)
    (keys / "key.pem").write_bytes(certificate.private_key_pem.bytes())
    authority.cert_pem.write_to_path(str(keys / "ca.pem"))
    lab, ward = SmartClient("lab", url=url), SmartClient("ward", url=url)
    clients = "".join(
        f'[service.smart.clients.{each.name}]\njwks_file = "{each.write(keys)}"\n' for each in (lab, ward)
    )
    process = HttpProcess(
        folder,
        f'tls_certfile = "{keys}/cert.pem"\ntls_keyfile = "{keys}/key.pem"\ntokens_file = "{folder}/tokens"\n'
        f'permissions.ward = {{ projects = ["darts"] }}\n'
        f'[service.smart]\nmode = "self"\nurl = "{url}"\nattempts_per_s = 1000\n{clients}',
        top=ROUTES,
        sections="[projects.darts]\n",
        listen=port,
    ).start()
    yield SmartProcess(process, url, str(keys / "ca.pem"), lab, ward)
    assert process.stop() == 0
    kept = process.kept()
    for secret in (b"Zyblorqvist", b"eyJ", TOKEN.encode()):
        assert secret not in kept


def session_of(agent: SmartProcess, client: SmartClient, scope: str) -> tuple[OAuth2Session, str]:
    """A session of authlib for a client, and the address of tokens from the discovery document."""
    known = f"{agent.url}/fhir/darts/.well-known/smart-configuration"
    document = requests.get(known, verify=agent.authority, timeout=PATIENCE_S).json()
    assert "private_key_jwt" in document["token_endpoint_auth_methods_supported"]
    assert "ES384" in document["token_endpoint_auth_signing_alg_values_supported"]
    endpoint = document["token_endpoint"]
    key = client.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    session = OAuth2Session(client.name, ECKey.import_key(key), scope=scope)
    session.trust_env, session.verify = False, agent.authority
    # Its assertions would be valid for an hour, and a second one would have the id of the first.
    method = PrivateKeyJWT(endpoint, alg="ES384", headers={"kid": "k1"}, claims={"exp": int(time.time()) + 240})
    session.register_client_auth_method(method)
    session.token_endpoint_auth_method = method.name
    return session, endpoint


def test_authlib_gets_a_token_and_calls_the_operation(agent: SmartProcess) -> None:
    session, endpoint = session_of(agent, agent.lab, "deid/default.deidentify")
    token = session.fetch_token(endpoint, grant_type="client_credentials")
    assert token["scope"] == "deid/default.deidentify"
    reply = session.post(f"{agent.url}/fhir/default/$de-identify", PATIENT, headers=FHIR, timeout=PATIENCE_S)
    assert (reply.status_code, reply.json()["resourceType"]) == (200, "Patient")
    assert "Zyblorqvist" not in reply.text
    assert agent.process.entries()[-1]["client"] == "lab"
    other = session.post(f"{agent.url}/fhir/darts/$de-identify", PATIENT, headers=FHIR, timeout=PATIENCE_S)
    assert other.status_code == 404, "the token is for another project"
    with pytest.raises(OAuthError, match="invalid_client"):
        session.fetch_token(endpoint, grant_type="client_credentials")


def test_authlib_gets_no_token_for_a_project_of_others(agent: SmartProcess) -> None:
    for scope in ("deid/default.deidentify", "system/*.rs"):
        session, endpoint = session_of(agent, agent.ward, scope)
        with pytest.raises(OAuthError, match="invalid_scope"):
            session.fetch_token(endpoint, grant_type="client_credentials")
    session, endpoint = session_of(agent, agent.ward, "deid/*.deidentify")
    assert session.fetch_token(endpoint, grant_type="client_credentials")["scope"] == "deid/darts.deidentify"


async def test_httpx_gets_a_token(agent: SmartProcess) -> None:
    context = ssl.create_default_context(cafile=agent.authority)
    async with httpx.AsyncClient(verify=context, base_url=agent.url) as client:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        given_token = (await client.post("/token", content=agent.lab.form(), headers=form)).json()["access_token"]
        reply = await client.post(
            "/v1/projects/default/text",
            content="Seen by Dr. Alan Brown.",
            headers={"Authorization": f"Bearer {given_token}", "Content-Type": "text/plain"},
        )
    assert (reply.status_code, "Brown" in reply.text) == (200, False)
    assert given_token.encode() not in agent.process.kept()


def test_the_addresses_of_tokens_are_described_and_fuzzed(agent: SmartProcess) -> None:
    ours = ("token", "configuration", "openapi.json")
    assert fuzz_described(agent.url, lambda path: path.endswith(ours), agent.authority) == 4


def test_a_kill_ends_all_tokens_and_no_assertion_is_used_again(agent: SmartProcess) -> None:
    assertion = agent.lab.assertion()

    def ask() -> requests.Response:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        body = agent.lab.form(assertion)
        return requests.post(f"{agent.url}/token", body, headers=form, verify=agent.authority, timeout=PATIENCE_S)

    login = {"Authorization": f"Bearer {ask().json()['access_token']}"}
    projects = f"{agent.url}/v1/projects"
    assert requests.get(projects, headers=login, verify=agent.authority, timeout=PATIENCE_S).status_code == 200
    agent.process.kill()
    agent.process.start()
    assert requests.get(projects, headers=login, verify=agent.authority, timeout=PATIENCE_S).status_code == 401
    reply = ask()
    assert (reply.status_code, json.loads(reply.content)["error"]) == (401, "invalid_client")
    why = [each["why"] for each in agent.process.events() if each["event"] == "ServiceDenied"]
    assert why == ["SMART_TOKEN", "SMART_EARLIER_START"]
