"""Settings that cannot work are refused when they are made; secrets show nowhere."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from deid_agent.errors import ConfigurationError
from deid_agent.transport.kafka import Delivery, KafkaSettings


def settings(**changes: object) -> KafkaSettings:
    options: Mapping[str, object] = {
        "bootstrap_servers": "a:9092",
        "group_id": "g",
        "routes": {"adt": "adt.out"},
        **changes,
    }
    return KafkaSettings(**options)  # type: ignore[arg-type]  # checked by the dataclass


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
        ({"bootstrap_servers": "broker"}, "bootstrap_servers"),
        ({"bootstrap_servers": "broker:http"}, "bootstrap_servers"),
        ({"bootstrap_servers": "broker:99999"}, "bootstrap_servers"),
        ({"bootstrap_servers": "a:1,,b:2"}, "bootstrap_servers"),
        ({"group_id": ""}, "group_id"),
        ({"routes": {}}, "routes"),
        ({"routes": {"adt": "adt"}}, "routes"),
        ({"routes": {"adt": "x", "x": "y"}}, "routes"),
        ({"routes": {"adt": "adt.dlq"}}, "routes"),
        ({"audit_topic": "adt"}, "audit.topic"),
        ({"audit_topic": "adt.out"}, "audit.topic"),
        ({"audit_topic": "adt.dlq"}, "audit.topic"),
        ({"dead_letter_suffix": ""}, "dead_letter_suffix"),
        ({"compression": "brotli"}, "compression"),
        ({"security_protocol": "TLS"}, "security_protocol"),
        ({"sasl_mechanism": "GSSAPI"}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_username": "u"}, "sasl_password"),
        ({"settle_timeout_ms": 60_000}, "settle_timeout_ms"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        settings(**changes)


def test_what_a_refused_compression_is_told_to_use_is_taken() -> None:
    with pytest.raises(ConfigurationError, match="compression") as refused:
        settings(compression="brotli")
    named = str(refused.value).partition(" use ")[2].partition(", or leave it out")[0]
    for codec in re.split(", | or ", named):
        assert settings(compression=codec).compression == codec


@pytest.mark.parametrize("servers", ["a:9092", "a:1, b:2", "10.0.0.1:9092", "[::1]:9092"])
def test_addresses_that_work(servers: str) -> None:
    assert settings(bootstrap_servers=servers).bootstrap_servers == servers


def test_defaults_promise_exactly_once_and_take_plain_words() -> None:
    assert settings().delivery is Delivery.EXACTLY_ONCE
    assert settings(delivery="at_least_once").delivery is Delivery.AT_LEAST_ONCE


def test_the_transactional_id_is_stable_and_tells_partitions_apart() -> None:
    """Another id after an upgrade would fence nobody: a member of the old version could still write."""
    assert settings().transactional_id("adt", 3) == "deid-g-/adt/3"


def test_no_two_groups_share_a_transactional_id() -> None:
    """Each would fence the other for ever."""
    ids = [
        settings(group_id="deid", routes={"test-adt": "out"}).transactional_id("test-adt", 0),
        settings(group_id="deid-test", routes={"adt": "out"}).transactional_id("adt", 0),
        settings(group_id="deid", routes={"test-adt": "out"}).replay_id("test-adt"),
        settings(group_id="deid-test", routes={"adt": "out"}).replay_id("adt"),
    ]
    assert len(set(ids)) == len(ids)


def test_passwords_are_in_no_repr() -> None:
    shown = repr(settings(sasl_password="s3cret", ssl_password="s3cret"))
    assert "s3cret" not in shown


def test_routes_cannot_be_changed_from_outside() -> None:
    routes = {"adt": "adt.out"}
    made = settings(routes=routes)
    routes["adt"] = "elsewhere"
    assert made.routes["adt"] == "adt.out"


def test_tls_files_that_cannot_be_loaded_are_named_but_not_shown(tmp_path: Path) -> None:
    broken = tmp_path / "ca.pem"
    broken.write_text("not a certificate: Okonkwo")
    for file in (tmp_path / "none.pem", broken):
        with pytest.raises(ConfigurationError, match="ssl_cafile") as caught:
            settings(security_protocol="SSL", ssl_cafile=file).connection()
        assert "Okonkwo" not in str(caught.value)


def test_sasl_goes_to_the_client() -> None:
    made = settings(security_protocol="SASL_PLAINTEXT", sasl_username="u", sasl_password="p")
    assert made.connection()["sasl_plain_password"] == "p"
    assert "sasl_plain_password" not in settings().connection()
