"""The section ``[service.smart]``: each mode has settings of its own, and addresses are https."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from deid_agent.config import ServiceSettings, SmartSettings, load_settings
from deid_agent.model import ConfigurationError

SELF = {"mode": "self", "url": "https://deid.example", "clients": {"lab": {"jwks_file": "lab.json"}}}
ISSUER = {
    "mode": "issuer",
    "url": "https://deid.example",
    "issuer": "https://login.example",
    "token_url": "https://login.example/token",
    "jwks_url": "https://login.example/jwks",
}


def test_the_addresses_of_tokens() -> None:
    assert SmartSettings.model_validate(SELF).token_endpoint == "https://deid.example/token"
    assert SmartSettings.model_validate(ISSUER).token_endpoint == "https://login.example/token"
    assert SmartSettings.model_validate({**SELF, "url": "http://127.0.0.1:9466"}).algorithms == ("ES384", "RS384")


@pytest.mark.parametrize(
    ("base", "changes", "fault"),
    [
        (SELF, {"mode": "other"}, "mode"),
        (SELF, {"clients": {}}, "needs a client"),
        (SELF, {"clients": {"-lab": {"jwks_file": "lab.json"}}}, "pattern"),
        (SELF, {"clients": {"lab": {}}}, "jwks_file or jwks_url"),
        (SELF, {"clients": {"lab": {"jwks_file": "a", "jwks_url": "https://a.example"}}}, "jwks_file or jwks_url"),
        (SELF, {"clients": {"lab": {"jwks_url": "http://localhost/jwks"}}}, "write https://"),
        (SELF, {"clients": {"lab": {"jwks_url": "https://user@a.example"}}}, "without user"),
        (SELF, {"issuer": "https://login.example"}, "of mode issuer"),
        (SELF, {"jwks_file": "keys.json"}, "of mode issuer"),
        (SELF, {"algorithms": ["RS256"]}, "for mode issuer only"),
        (SELF, {"algorithms": ["none"]}, "algorithms"),
        (SELF, {"algorithms": []}, "algorithms"),
        (SELF, {"jwks_cafile": "ca.pem"}, "no jwks_url"),
        (SELF, {"url": "http://deid.example"}, "write https://"),
        (SELF, {"url": "https://deid.example/"}, "without / at its end"),
        (SELF, {"url": "https://deid.example?a"}, "query"),
        (SELF, {"url": "https://"}, "HOST"),
        (SELF, {"url": "https://a:port"}, "is no address"),
        (ISSUER, {"clients": {"lab": {"jwks_file": "a"}}}, "of mode self"),
        (ISSUER, {"issuer": None}, "needs issuer"),
        (ISSUER, {"token_url": None}, "needs token_url"),
        (ISSUER, {"jwks_url": None}, "jwks_file or jwks_url"),
        (ISSUER, {"jwks_file": "keys.json"}, "jwks_file or jwks_url"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    base: dict[str, object], changes: dict[str, object], fault: str
) -> None:
    with pytest.raises(ValidationError, match=fault):
        SmartSettings.model_validate({**base, **changes})


def test_smart_is_a_login_for_other_machines() -> None:
    tls = {"tls_certfile": "cert.pem", "tls_keyfile": "key.pem"}
    section = ServiceSettings.model_validate({"host": "0.0.0.0", **tls, "smart": SELF})  # noqa: S104
    assert section.smart is not None
    with pytest.raises(ValidationError, match="without logins"):
        ServiceSettings.model_validate({"host": "0.0.0.0", **tls})  # noqa: S104


def test_clients_with_keys_may_be_limited_to_projects() -> None:
    section = ServiceSettings.model_validate({"smart": SELF, "permissions": {"lab": {"projects": ["darts"]}}})
    assert section.permitted_projects(()) == {"lab": frozenset({"darts"})}
    section = ServiceSettings.model_validate({"smart": SELF, "permissions": {"ward": {"projects": ["darts"]}}})
    with pytest.raises(ConfigurationError, match="'ward' is no client; the clients are: lab"):
        section.permitted_projects(())


def test_the_section_is_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "http.toml"
    file.write_text(
        'transport = "http"\n[service.smart]\nmode = "self"\nurl = "https://deid.example"\n'
        '[service.smart.clients.lab]\njwks_url = "https://lab.example/jwks.json"\n[audit]\npath = "audit"\n'
    )
    monkeypatch.setenv("DEID_SERVICE__SMART__URL", "https://other.example")
    service = load_settings(file).service
    assert service is not None
    assert service.smart is not None
    assert service.smart.url == "https://other.example"
    assert service.smart.fetches
