"""Settings of MLLP: valid combinations, and the errors for invalid ones."""

from pathlib import Path

import pytest

from deid_agent.agent.runner_context import RunnerSettings
from deid_agent.cli import service as wire
from deid_agent.cli.service_mllp import listener_section
from deid_agent.cli.service_parts import check_folders
from deid_agent.config import FailureReply, Settings, TransportKind, load_settings
from deid_agent.model.errors import ConfigurationError
from deid_agent.transport.kafka import kafka_options

ROOT = Path(__file__).resolve().parents[3]
REST = '[dead_letters]\nplain = true\n[audit]\npath = "audit"\n'
MLLP = '[mllp]\ndead_letters = "dead"\n'
OUT = '[mllp_out]\nhost = "localhost"\nport = 2576\n'
KAFKA = '[kafka]\nbootstrap_servers = "localhost:9092"\n[kafka.routes]\n'


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "agent.toml"
    path.write_text(text + REST)
    return load_settings(path)


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        (f'transport = "mllp"\n{MLLP}{OUT}', TransportKind.MLLP),
        (f'transport = "mllp"\noutput = "kafka"\n{MLLP}{KAFKA}"mllp" = "hl7.deid"\n', TransportKind.KAFKA),
        (f'transport = "mllp"\noutput = "directory"\n{MLLP}output = "out"\n', TransportKind.DIRECTORY),
        (f'transport = "kafka"\noutput = "mllp"\n{OUT}{KAFKA}"hl7.raw" = ""\n', TransportKind.MLLP),
    ],
)
def test_every_combination_of_transports_loads(tmp_path: Path, text: str, destination: TransportKind) -> None:
    settings = load(tmp_path, text)
    assert settings.destination is destination
    if settings.kafka is not None:
        assert kafka_options(settings).routes == settings.kafka.routes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'transport = "mllp"\nshape = "dapl"\n{MLLP}{OUT}', "shape: messages over MLLP are HL7 v2"),
        (f'transport = "mllp"\n{MLLP}{OUT}[projects.a]\nshape = "dapl"\n', "shape: messages over MLLP are HL7 v2"),
        (f'transport = "mllp"\n{OUT}', r"transport is 'mllp' but there is no \[mllp\] section"),
        (f'transport = "mllp"\n{MLLP}', r"there is no \[mllp_out\] section: name the receiver there"),
        (f'transport = "mllp"\noutput = "kafka"\n{MLLP}', r'kafka\.routes: write "mllp" = "output topic"'),
        (f'transport = "mllp"\noutput = "kafka"\n{MLLP}{KAFKA}"a" = "b"\n', r'kafka\.routes: write "mllp" ='),
        (f'transport = "mllp"\noutput = "directory"\n{MLLP}', r"name it in mllp\.output"),
        (f'transport = "kafka"\noutput = "mllp"\n{OUT}{KAFKA}"a" = "b"\n', r'write "input topic" = "" for each'),
        (f'transport = "kafka"\n{KAFKA}"a" = ""\n', r"name the output topic of each input topic"),
        (f'transport = "kafka"\noutput = "directory"\n{KAFKA}"a" = "b"\n', r"from kafka to directory is not supported"),
        (f'transport = "mllp"\n{OUT}{MLLP}tls_certfile = "c.pem"\n', r"tls_certfile and tls_keyfile go together"),
        (f'transport = "mllp"\n{OUT}{MLLP}tls_client_cafile = "c.pem"\n', r"certificates need TLS"),
        (f'transport = "mllp"\n{MLLP}{OUT}tls_cafile = "c.pem"\n', r"tls is false: nothing would be encrypted"),
        (f'transport = "mllp"\n{OUT}{MLLP}refused = "OK"\n', r"mllp\.refused"),
    ],
)
def test_contradictory_settings_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        load(tmp_path, text)


def test_settings_reach_the_listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_MLLP__PORT", "6661")
    text = f'transport = "mllp"\n{OUT}{MLLP}refused = "AE"\ntrouble = "close"\nmax_message_bytes = 200000000\n'
    listening = listener_section(load(tmp_path, text))
    assert (listening.port, listening.refused, listening.trouble) == (6661, "AE", FailureReply.CLOSE)
    assert listening.max_message_bytes == 64 << 20, "no more than the workers accept"
    assert listening.host == "127.0.0.1"


def test_a_slow_receiver_is_not_a_configuration_error(tmp_path: Path) -> None:
    """A batch may wait the receiver's full time limit for each of its messages; this must not stop the agent."""
    settings = load(tmp_path, f'transport = "mllp"\n{MLLP}{OUT}ack_timeout_s = 100\n')
    limits = wire._runner_settings(settings)
    assert limits.commit_timeout_s >= settings.agent.batch * 100
    assert limits.linger_s == 0.0
    kafka = load(tmp_path, f'transport = "kafka"\n{KAFKA}"a" = "b"\n')
    assert wire._runner_settings(kafka).commit_timeout_s == RunnerSettings().commit_timeout_s


def test_the_sample_loads() -> None:
    settings = load_settings(ROOT / "deploy" / "mllp.toml")
    assert (settings.transport, settings.destination) == ("mllp", "mllp")


def test_dead_letters_and_outputs_need_separate_folders(tmp_path: Path) -> None:
    text = f'transport = "mllp"\noutput = "directory"\n[mllp]\ndead_letters = "{tmp_path}/out/dead"\n'
    with pytest.raises(ConfigurationError, match=r"mllp\.dead_letters: they hold PHI and must not be inside"):
        check_folders(load(tmp_path, f'{text}output = "{tmp_path}/out"\n'))
