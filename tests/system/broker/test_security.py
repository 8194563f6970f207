"""Encrypted and authenticated connections to a real broker: working settings, and the message for each mistake."""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.kafka_broker import KafkaBroker, broker_or_skip, find_classpath
from support.kafka_tls import KEY_PASSWORD, MECHANISMS, PASSWORD, USER, Certificates
from support.kafka_world import KafkaWorld, copied, read
from support.keys import KEY
from support.transport_contract import Given, Member, numbered

from deid_agent.agent.ports import Record
from deid_agent.model.errors import ConfigurationError

SAMPLE = Path(__file__).resolve().parents[3] / "deid_agent" / "samples" / "01-adt-a01.hl7"
PATIENCE_S = 20

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[KafkaBroker]:
    """A broker with a plain listener for the tests, one for certificates and one for passwords."""
    with broker_or_skip():
        broker = KafkaBroker(tmp_path_factory.mktemp("kafka"), find_classpath(), security=certificates)
        broker.start()
    yield broker
    broker.kill()


@pytest.fixture
async def world(secure: KafkaBroker) -> AsyncIterator[KafkaWorld]:
    world = await KafkaWorld(secure).create()
    yield world
    await world.close()


def by_certificate(certificates: Certificates, **changes: object) -> dict[str, object]:
    return {
        "bootstrap_servers": f"localhost:{certificates.tls_port}",
        "security_protocol": "SSL",
        "ssl_cafile": certificates.authority,
        "ssl_certfile": certificates.client,
        "ssl_keyfile": certificates.client_key,
        "ssl_password": KEY_PASSWORD,
        **changes,
    }


def by_password(certificates: Certificates, mechanism: str, **changes: object) -> dict[str, object]:
    return {
        "bootstrap_servers": f"localhost:{certificates.sasl_port}",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": certificates.authority,
        "sasl_mechanism": mechanism,
        "sasl_username": USER,
        "sasl_password": PASSWORD,
        **changes,
    }


@pytest.mark.parametrize("mechanism", ["certificate", *MECHANISMS])
async def test_messages_pass(world: KafkaWorld, certificates: Certificates, mechanism: str) -> None:
    await world.fill(numbered(3))
    secured = by_password(certificates, mechanism) if mechanism in MECHANISMS else by_certificate(certificates)
    transport = world.transport(**secured)
    await transport.start(Member())
    records: list[Record] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(records) < 3:
            records += await transport.poll(3)
        await transport.commit(world.stream, [copied(record) for record in records], 3)
    assert [output.payload for output in await world.outputs()] == [given.payload for given in numbered(3)]


def mistakes(certificates: Certificates) -> dict[str, tuple[dict[str, object], str]]:
    """Settings with one mistake each, and the message expected for it."""
    c = certificates
    nothing: dict[str, object] = {"ssl_certfile": None, "ssl_keyfile": None, "ssl_password": None}
    stranger = nothing | {"ssl_certfile": c.stranger}
    wrong_user = r"rejected the connection: SaslAuthenticationFailed; check .* kafka\.sasl_ settings"
    not_trusted = r"certificate is not trusted: set kafka\.ssl_cafile"
    other_host = r"certificate is for another host: use its host name in kafka\.bootstrap_servers"
    not_taken = r"rejects our certificate, or requires one: set kafka\.ssl_certfile and kafka\.ssl_keyfile"
    return {
        **{f"password {m}": (by_password(c, m, sasl_password=PASSWORD + "x"), wrong_user) for m in MECHANISMS},
        "user": (by_password(c, "SCRAM-SHA-512", sasl_username="nobody"), wrong_user),
        "authority": (by_certificate(c, ssl_cafile=c.other_authority), not_trusted),
        "authority with password": (by_password(c, "PLAIN", ssl_cafile=c.other_authority), not_trusted),
        "no authority": (by_password(c, "PLAIN", ssl_cafile=None), not_trusted),
        "host name": (by_certificate(c, bootstrap_servers=f"127.0.0.1:{c.tls_port}"), other_host),
        "no certificate": (by_certificate(c, **nothing), not_taken),
        "certificate of another authority": (by_certificate(c, **stranger), not_taken),
        "password of the key": (by_certificate(c, ssl_password=KEY_PASSWORD + "x"), r"kafka\.ssl_.*cannot be loaded"),
        "plain": (
            {"bootstrap_servers": f"localhost:{c.tls_port}", "security_protocol": "PLAINTEXT"},
            r"no bootstrap server answers.*check .*kafka\.security_protocol",
        ),
    }


async def test_every_configuration_error_is_reported_at_once_without_secrets(
    world: KafkaWorld, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for name, (changes, expected) in mistakes(certificates).items():
            settings = world.changed(**changes)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(ConfigurationError) as caught:
                    await world.transport(**changes).start(Member())
            assert re.search(expected, str(caught.value)), (name, str(caught.value))
            shown = f"{caught.value}{caught.value!r}{settings}"
            assert not any(secret in shown for secret in (PASSWORD, KEY_PASSWORD)), name
    assert caplog.text
    assert not any(secret in caplog.text for secret in (PASSWORD, KEY_PASSWORD))


async def test_the_service_runs_with_secrets_from_files(
    world: KafkaWorld, certificates: Certificates, tmp_path: Path
) -> None:
    """As an operator starts it: SCRAM over TLS, the password in a file with a line end, the log at its loudest."""
    await world.fill([Given(SAMPLE.read_bytes(), b"key")])
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    config = tmp_path / "kafka.toml"
    config.write_text(
        f'transport = "kafka"\nlog_level = "debug"\n[http]\nport = 0\n[agent]\nworkers = 1\n[kafka]\n'
        f'bootstrap_servers = "localhost:{certificates.sasl_port}"\ngroup_id = "g-{world.name}"\n'
        f'security_protocol = "SASL_SSL"\nssl_cafile = "{certificates.authority}"\nsasl_mechanism = "SCRAM-SHA-512"\n'
        f'sasl_username = "{USER}"\nsasl_password_file = "{password}"\n[kafka.routes]\n"{world.name}" = "{world.out}"\n'
        f'[dead_letters]\nplain = true\n[audit]\npath = "{tmp_path / "audit"}"\n'
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DEID_")}
    command = [sys.executable, "-m", "deid_agent", "run", "--config", str(config)]
    agent = await asyncio.create_subprocess_exec(
        *command, env={**environ, "DEID_KEY": KEY.hex()}, stderr=asyncio.subprocess.PIPE
    )
    assert agent.stderr is not None
    log: list[bytes] = []
    async with asyncio.timeout(3 * PATIENCE_S):
        while not any(b'"RecordFinished"' in line for line in log):
            log.append(await agent.stderr.readline())
            assert log[-1], log
        agent.send_signal(signal.SIGTERM)
        log.append(await agent.stderr.read())
        assert await agent.wait() == 0
    (found,) = await read(world.cluster.bootstrap, world.out)
    assert found.value.startswith(b"MSH|")
    assert PASSWORD.encode() not in b"".join(log)
