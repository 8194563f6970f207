"""Kafka settings that cannot work are refused when they are loaded; secrets are not shown."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from deid_agent.config import Delivery, load_settings
from deid_agent.model.errors import ConfigurationError
from deid_agent.transport.kafka.consumer import make_consumer
from deid_agent.transport.kafka.options import KafkaOptions, kafka_options


def settings(**changes: object) -> KafkaOptions:
    values = {"bootstrap_servers": "a:9092", "group_id": "g", "routes": {"adt": "adt.out"}, **changes}
    return KafkaOptions.model_validate(values)


@pytest.mark.parametrize(
    ("lines", "routes", "named"),
    [
        ('bootstrap_servers = ""', '"adt" = "out"', r"kafka\.bootstrap_servers: write host:port"),
        ('bootstrap_servers = "broker"', '"adt" = "out"', r"kafka\.bootstrap_servers"),
        ('bootstrap_servers = "broker:http"', '"adt" = "out"', r"kafka\.bootstrap_servers"),
        ('bootstrap_servers = "broker:99999"', '"adt" = "out"', r"kafka\.bootstrap_servers"),
        ('bootstrap_servers = "a:1,,b:2"', '"adt" = "out"', r"kafka\.bootstrap_servers"),
        ('group_id = ""', '"adt" = "out"', r"kafka\.group_id: name the consumer group"),
        ("", "", r"kafka\.routes"),
        ("", '"adt" = "adt"', r"kafka\.routes: topic 'adt' is an input and an output"),
        ("", '"adt" = "x"\n"x" = "y"', r"kafka\.routes: topic 'x'"),
        ("", '"adt" = "adt.dlq"', r"kafka\.routes: topic 'adt\.dlq' is a topic of dead letters"),
        ('dead_letter_suffix = ""', '"adt" = "out"', r"kafka\.dead_letter_suffix"),
        ('compression = "brotli"', '"adt" = "out"', r"kafka\.compression: use gzip"),
        ('security_protocol = "TLS"', '"adt" = "out"', r"kafka\.security_protocol: use one of PLAINTEXT"),
        ('sasl_mechanism = "GSSAPI"', '"adt" = "out"', r"kafka\.sasl_mechanism: use one of PLAIN"),
        (
            'security_protocol = "SASL_SSL"\nsasl_username = "u"',
            '"adt" = "out"',
            r"kafka\.sasl_username, kafka\.sasl_password: set both",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, lines: str, routes: str, named: str) -> None:
    file = tmp_path / "agent.toml"
    servers = "" if "bootstrap_servers" in lines else 'bootstrap_servers = "a:9092"\n'
    file.write_text(
        f'transport = "kafka"\n[kafka]\n{servers}{lines}\n[kafka.routes]\n{routes}\n'
        '[dead_letters]\nplain = true\n[audit]\npath = "audit"\n'
    )
    with pytest.raises(
        ConfigurationError, match=f"configuration .*agent.toml: {'.*' if 'set both' in named else ''}{named}"
    ):
        load_settings(file)


@pytest.mark.parametrize("topic", ["adt", "adt.out", "adt.dlq"])
def test_the_audit_topic_takes_no_messages(tmp_path: Path, topic: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        'transport = "kafka"\n[kafka]\nbootstrap_servers = "a:9092"\n[kafka.routes]\nadt = "adt.out"\n'
        f'[dead_letters]\nplain = true\n[audit]\npath = "audit"\ntopic = "{topic}"\n'
    )
    with pytest.raises(ConfigurationError, match=r"audit\.topic: kafka\.routes use this topic"):
        load_settings(file)


def test_a_commit_ends_before_its_transaction() -> None:
    with pytest.raises(ValidationError, match="commit_timeout_ms"):
        settings(commit_timeout_ms=60_000)


def test_every_compression_that_the_error_names_is_accepted() -> None:
    with pytest.raises(ValidationError, match="compression") as refused:
        settings(compression="brotli")
    named = str(refused.value).partition(" use ")[2].partition(", or leave it out")[0]
    for codec in re.split(", | or ", named):
        assert settings(compression=codec).compression == codec


def test_password_files_are_read_once(tmp_path: Path) -> None:
    """A file that is replaced or removed later must not stop a running agent."""
    secret, file = tmp_path / "secret", tmp_path / "agent.toml"
    secret.write_text("p\n")
    secret.chmod(0o600)
    file.write_text(
        'transport = "kafka"\n[kafka]\nbootstrap_servers = "a:9092"\nsecurity_protocol = "SASL_PLAINTEXT"\n'
        f'sasl_username = "u"\nsasl_password_file = "{secret}"\n[kafka.routes]\nadt = "adt.out"\n'
        '[dead_letters]\nplain = true\n[audit]\npath = "audit"\n'
    )
    made = kafka_options(load_settings(file))
    secret.unlink()
    assert made.connection()["sasl_plain_password"] == "p"


@pytest.mark.parametrize("servers", ["a:9092", "a:1, b:2", "10.0.0.1:9092", "[::1]:9092"])
def test_valid_addresses_are_accepted(servers: str) -> None:
    assert settings(bootstrap_servers=servers).bootstrap_servers == servers


def test_defaults_are_exactly_once_and_accept_plain_names() -> None:
    assert settings().delivery is Delivery.EXACTLY_ONCE
    assert settings(delivery="at_least_once").delivery is Delivery.AT_LEAST_ONCE


def test_the_transactional_id_is_stable_and_distinct_per_partition() -> None:
    """Another id after an upgrade would not fence a member of the old version, which could still write."""
    assert settings().transactional_id("adt", 3) == "deid-g-/adt/3"


def test_no_two_groups_share_a_transactional_id() -> None:
    """They would fence each other repeatedly."""
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


def test_routes_are_immutable() -> None:
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


def test_an_idle_partition_does_not_hold_up_the_fetch_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiokafka has one fetch at a time for each broker, which waits this long if its partitions have nothing new."""
    given: dict[str, object] = {}
    monkeypatch.setattr("deid_agent.transport.kafka.consumer.Consumer", lambda **options: given.update(options))
    make_consumer(settings())
    assert given["fetch_max_wait_ms"] == 100
