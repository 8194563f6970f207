"""Passwords from files: accepted and refused content, and no password in any output."""

import os
from pathlib import Path

import pytest

from deid_agent.config import load_settings
from deid_agent.config.secrets import read_password, read_secret_file
from deid_agent.model.errors import ConfigurationError
from deid_agent.transport.kafka import kafka_options

KAFKA = """
transport = "kafka"
[kafka]
bootstrap_servers = "b:9092"
security_protocol = "SASL_SSL"
sasl_username = "u"
{more}
[kafka.routes]
a = "b"
[dead_letters]
plain = true

[audit]
path = "audit"
"""
SETTING = "kafka.sasl_password"


def file(root: Path, content: bytes, mode: int = 0o600) -> Path:
    path = root / "password"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"hunter2", "hunter2"),
        (b"hunter2\n", "hunter2"),
        (b"hunter2\r\n", "hunter2"),
        (b" hunter2 \n", " hunter2 "),
        (b"hunter2\n\n", "hunter2\n"),
        ("h\u00fcnter".encode(), "h\u00fcnter"),
    ],
)
def test_one_trailing_line_end_is_removed(tmp_path: Path, content: bytes, found: str) -> None:
    assert read_password(None, file(tmp_path, content), SETTING) == found


@pytest.mark.parametrize(
    ("content", "expected"), [(b"", "is empty"), (b"\n", "is empty"), (b"hunter\xff", "not UTF-8")]
)
def test_an_invalid_password_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"kafka\.sasl_password_file .*{expected}") as caught:
        read_password(None, file(tmp_path, content), SETTING)
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o620])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigurationError, match=r"others may read it; run: chmod 600"):
        read_secret_file(file(tmp_path, b"hunter2", mode), "password")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
@pytest.mark.parametrize(("mode", "fine"), [(0o440, True), (0o640, True), (0o444, False), (0o660, False)])
def test_a_file_of_another_owner_may_be_readable_by_its_group(tmp_path: Path, mode: int, fine: bool) -> None:
    """As a secret is mounted in a container that does not run as root."""
    path = file(tmp_path, b"hunter2", mode)
    os.chown(path, 65534, -1)
    if fine:
        assert read_secret_file(path, "password") == b"hunter2"
    else:
        with pytest.raises(ConfigurationError, match="others may read it"):
            read_secret_file(path, "password")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.sasl_password_file .*nowhere: cannot be read"):
        read_password(None, tmp_path / "nowhere", SETTING)


def test_a_password_and_a_password_file_together_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"sasl_password and kafka\.sasl_password_file exclude each other"):
        read_password("x", file(tmp_path, b"hunter2"), SETTING)


@pytest.mark.parametrize("name", ["sasl_password", "ssl_password"])
def test_passwords_from_both_sources_reach_the_client_and_are_in_no_repr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DEID_KAFKA__SASL_PASSWORD", "other")
    toml = tmp_path / "kafka.toml"
    toml.write_text(KAFKA.format(more=""))
    monkeypatch.setenv(f"DEID_KAFKA__{name.upper()}", "hunter2")
    direct = load_settings(toml)
    monkeypatch.delenv(f"DEID_KAFKA__{name.upper()}")
    monkeypatch.setenv(f"DEID_KAFKA__{name.upper()}_FILE", str(file(tmp_path, b"hunter2\n")))
    by_file = load_settings(toml)
    for settings in (direct, by_file):
        made = kafka_options(settings)
        assert getattr(made, name).get_secret_value() == "hunter2"
        assert "hunter2" not in repr(settings) + repr(made) + str(settings)
    monkeypatch.setenv(f"DEID_KAFKA__{name.upper()}", "hunter2")
    with pytest.raises(ConfigurationError, match=f"kafka.{name} and kafka.{name}_file exclude each other"):
        kafka_options(load_settings(toml))


def test_http_settings_come_from_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml = tmp_path / "kafka.toml"
    toml.write_text(KAFKA.format(more='sasl_password = "x"'))
    assert (load_settings(toml).http.host, load_settings(toml).http.port) == ("127.0.0.1", 9464)
    monkeypatch.setenv("DEID_HTTP__PORT", "0")
    monkeypatch.setenv("DEID_HTTP__HOST", "::1")
    monkeypatch.setenv("DEID_HTTP__ENABLED", "false")
    http = load_settings(toml).http
    assert (http.host, http.port, http.enabled) == ("::1", 0, False)
    monkeypatch.setenv("DEID_HTTP__PROT", "1")
    with pytest.raises(ConfigurationError, match=r"http\.prot: unknown setting"):
        load_settings(toml)
