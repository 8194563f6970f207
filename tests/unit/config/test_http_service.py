"""The section ``[service]``: off by default, and reachable by others only with TLS and logins."""

import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from deid_agent.config import ServiceSettings, Settings, load_settings
from deid_agent.model import ConfigurationError

TLS = {"tls_certfile": "cert.pem", "tls_keyfile": "key.pem"}


def test_the_interface_is_off_by_default() -> None:
    assert Settings.model_fields["service"].default is None
    assert ServiceSettings().loopback


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"host": "0.0.0.0"}, "without TLS"),  # noqa: S104
        ({"host": "::"}, "without TLS"),
        ({"host": "gateway.example"}, "without TLS"),
        ({"host": "0.0.0.0", "tokens_file": "tokens"}, "without TLS"),  # noqa: S104
        ({"host": "0.0.0.0", **TLS}, "without logins"),  # noqa: S104
        ({"tls_certfile": "cert.pem"}, "go together"),
        ({"tls_client_cafile": "ca.pem"}, "certificates need TLS"),
        ({"clients": ["lab"]}, "set tls_client_cafile"),
    ],
)
def test_others_reach_it_only_with_tls_and_logins(values: dict[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        ServiceSettings.model_validate(values)


@pytest.mark.parametrize("logins", [{"tokens_file": "tokens"}, {"tls_client_cafile": "ca.pem"}])
def test_tls_and_logins_open_it(logins: dict[str, object]) -> None:
    assert not ServiceSettings.model_validate({"host": "0.0.0.0", **TLS, **logins}).loopback  # noqa: S104


def tokens(folder: Path, text: str, mode: int = 0o600) -> ServiceSettings:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return ServiceSettings(tokens_file=path)


def test_a_file_of_tokens_holds_digests(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"token").hexdigest()
    found = tokens(tmp_path, f"# clients\n\nlab {digest}\n").tokens()
    assert [(each.client, each.digest) for each in found] == [("lab", digest)]


@pytest.mark.parametrize("text", ["", "# none\n", "lab Zyblorqvist\n", "lab\n", "-lab " + "0" * 64, "a b " + "0" * 64])
def test_a_faulty_file_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        tokens(tmp_path, text).tokens()
    assert "Zyblorqvist" not in str(caught.value)


def test_a_token_of_two_clients_or_for_everybody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="two lines"):
        tokens(tmp_path, "lab " + "0" * 64 + "\nward " + "0" * 64 + "\n").tokens()
    with pytest.raises(ConfigurationError, match="others may read it"):
        tokens(tmp_path, "lab " + "0" * 64 + "\n", 0o644).tokens()


def test_the_transport_needs_no_dead_letters_and_no_destination(tmp_path: Path) -> None:
    file = tmp_path / "http.toml"
    file.write_text('transport = "http"\n[service]\n[audit]\npath = "audit"\n')
    assert load_settings(file).transport.section == "service"
    file.write_text('transport = "http"\n[audit]\npath = "audit"\n')
    with pytest.raises(ConfigurationError, match=r"no \[service\] section"):
        load_settings(file)
    file.write_text('transport = "http"\noutput = "kafka"\n[service]\n[audit]\npath = "audit"\n')
    with pytest.raises(ConfigurationError, match="from http to kafka is not supported"):
        load_settings(file)


def test_a_permission_of_no_client_stops_the_start(tmp_path: Path) -> None:
    """A mistyped name would leave the client that was meant with every right."""
    digest, limited = hashlib.sha256(b"token").hexdigest(), {"projects": ["darts"]}
    path = tokens(tmp_path, f"lab {digest}\n").tokens_file
    certificates = {**TLS, "tls_client_cafile": "ca.pem", "clients": ["lab.example"]}
    for name, values in (
        ("lab", {"tokens_file": path}),
        ("lab", {**certificates, "tokens_file": path}),
        ("lab.example", certificates),
        ("local", {}),
    ):
        settings = ServiceSettings.model_validate({**values, "permissions": {name: limited}})
        assert settings.permitted_projects(settings.tokens()) == {name: frozenset({"darts"})}
        wrong = ServiceSettings.model_validate({**values, "permissions": {f"{name}s": limited}})
        with pytest.raises(ConfigurationError, match=rf"service\.permissions: '{name}s' is no client; .*: {name}$"):
            wrong.permitted_projects(wrong.tokens())
