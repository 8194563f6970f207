"""Settings of MLLP: what goes together, and what is told where it does not."""

from pathlib import Path

import pytest

from deid_agent import config
from deid_agent.agent.flow import RunnerSettings
from deid_agent.cli import wire, wire_mllp
from deid_agent.errors import ConfigurationError
from deid_agent.transport.mllp_ack import Verdict
from deid_agent.transport.mllp_settings import Trouble

ROOT = Path(__file__).resolve().parents[2]
REST = '[dead_letters]\nplain = true\n[audit]\npath = "audit"\n'
MLLP = '[mllp]\ndead_letters = "dead"\n'
OUT = '[mllp_out]\nhost = "localhost"\nport = 2576\n'
KAFKA = '[kafka]\nbootstrap_servers = "localhost:9092"\n[kafka.routes]\n'


def load(tmp_path: Path, text: str) -> config.Settings:
    path = tmp_path / "agent.toml"
    path.write_text(text + REST)
    return config.load(path)


@pytest.mark.parametrize(
    ("text", "goes_to"),
    [
        (f'transport = "mllp"\n{MLLP}{OUT}', config.TransportKind.MLLP),
        (f'transport = "mllp"\noutput = "kafka"\n{MLLP}{KAFKA}"mllp" = "hl7.deid"\n', config.TransportKind.KAFKA),
        (f'transport = "mllp"\noutput = "directory"\n{MLLP}output = "out"\n', config.TransportKind.DIRECTORY),
        (f'transport = "kafka"\noutput = "mllp"\n{OUT}{KAFKA}"hl7.raw" = ""\n', config.TransportKind.MLLP),
    ],
)
def test_every_way_there_is_loads(tmp_path: Path, text: str, goes_to: config.TransportKind) -> None:
    settings = load(tmp_path, text)
    assert settings.goes_to is goes_to
    if settings.kafka is not None:
        assert wire.kafka_settings(settings).routes == settings.kafka.routes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'transport = "mllp"\n{OUT}', r"transport is 'mllp' but there is no \[mllp\] section"),
        (f'transport = "mllp"\n{MLLP}', r"there is no \[mllp_out\] section: name the receiver there"),
        (f'transport = "mllp"\noutput = "kafka"\n{MLLP}', r'kafka\.routes: write "mllp" = "output topic"'),
        (f'transport = "mllp"\noutput = "kafka"\n{MLLP}{KAFKA}"a" = "b"\n', r'kafka\.routes: write "mllp" ='),
        (f'transport = "mllp"\noutput = "directory"\n{MLLP}', r"name it in mllp\.output"),
        (f'transport = "kafka"\noutput = "mllp"\n{OUT}{KAFKA}"a" = "b"\n', r'write "input topic" = "" for each'),
        (f'transport = "kafka"\n{KAFKA}"a" = ""\n', r"name the output topic of each input topic"),
        (f'transport = "kafka"\noutput = "directory"\n{KAFKA}"a" = "b"\n', r"from kafka to directory is not supported"),
        (f'transport = "mllp"\n{OUT}{MLLP}tls_certfile = "c.pem"\n', r"tls_certfile and tls_keyfile go together"),
        (f'transport = "mllp"\n{OUT}{MLLP}tls_client_cafile = "c.pem"\n', r"without TLS nobody is asked"),
        (f'transport = "mllp"\n{MLLP}{OUT}tls_cafile = "c.pem"\n', r"tls is false: nothing would be encrypted"),
        (f'transport = "mllp"\n{OUT}{MLLP}refused = "OK"\n', r"mllp\.refused"),
    ],
)
def test_what_does_not_go_together_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        load(tmp_path, text)


def test_what_an_operator_says_reaches_the_listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_MLLP__PORT", "6661")
    text = f'transport = "mllp"\n{OUT}{MLLP}refused = "AE"\ntrouble = "close"\nmax_message_bytes = 200000000\n'
    _, listening = wire_mllp.listener(load(tmp_path, text))
    assert (listening.port, listening.refused, listening.trouble) == (6661, Verdict.ERROR, Trouble.CLOSE)
    assert listening.max_message_bytes == 64 << 20, "no more than the workers take"
    assert listening.host == "127.0.0.1"


def test_a_slow_receiver_is_no_fault_of_ours(tmp_path: Path) -> None:
    """A batch may wait for each of its messages as long as the receiver may take: the agent must not stop for that."""
    settings = load(tmp_path, f'transport = "mllp"\n{MLLP}{OUT}ack_timeout_s = 100\n')
    limits = wire._runner_settings(settings)
    assert limits.settle_timeout_s >= settings.agent.batch * 100
    assert limits.linger_s == 0.0
    kafka = load(tmp_path, f'transport = "kafka"\n{KAFKA}"a" = "b"\n')
    assert wire._runner_settings(kafka).settle_timeout_s == RunnerSettings().settle_timeout_s


def test_the_sample_loads() -> None:
    settings = config.load(ROOT / "deploy" / "mllp.toml")
    assert (settings.transport, settings.goes_to) == ("mllp", "mllp")


def test_letters_and_outputs_lie_apart(tmp_path: Path) -> None:
    text = f'transport = "mllp"\noutput = "directory"\n[mllp]\ndead_letters = "{tmp_path}/out/dead"\n'
    with pytest.raises(ConfigurationError, match=r"mllp\.dead_letters: they hold PHI and must lie apart"):
        wire.check_folders(load(tmp_path, f'{text}output = "{tmp_path}/out"\n'))
