from pathlib import Path

import pytest

from deid_agent import config
from deid_agent.config import DeadLetterSettings
from deid_agent.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]
MINIMAL = """
transport = "directory"
[directory]
input = "in"
output = "out"
dead_letters = "dead"
state = "state"
[dead_letters]
plain = true
[audit]
path = "audit"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DEID_POLICY", "DEID_KEY_FILE", "DEID_AGENT__WORKERS"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "agent.toml"
    path.write_text(MINIMAL)
    return path


def test_flags_over_environment_over_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('policy = "keep"\n' + MINIMAL + "[agent]\nworkers = 3\nbatch = 7\n")
    assert config.load(file).policy == "keep"
    monkeypatch.setenv("DEID_POLICY", "safe-harbor")
    monkeypatch.setenv("DEID_AGENT__WORKERS", "5")
    loaded = config.load(file)
    assert (loaded.policy, loaded.agent.workers, loaded.agent.batch) == ("safe-harbor", 5, 7)
    assert config.load(file, {"policy": "limited-dataset", "log_level": None}).policy == "limited-dataset"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MINIMAL.replace("[audit]", "[audits]"), "audit"),
        ("colour = 1\n" + MINIMAL, "colour: unknown setting"),
        (MINIMAL + "[agent]\nworkrs = 2\n", r"agent.workrs: unknown setting"),
        (MINIMAL + "[agent]\nworkers = 'two'\n", r"agent.workers"),
        (MINIMAL.replace('"directory"', '"kafka"', 1), r"no \[kafka\] section"),
        (MINIMAL.replace('"directory"', '"pigeon"', 1), "transport"),
        ("transport = ", "not TOML"),
        (MINIMAL + 'topic = "deid.audit"\n', "audit.topic is a topic of Kafka"),
        (MINIMAL + "segment_bytes = 1000\n", "audit.segment_bytes"),
        (MINIMAL + "checkpoint_s = 0\n", "audit.checkpoint_s"),
        (
            'transport = "kafka"\n[kafka]\nbootstrap_servers = "b"\n[kafka.routes]\na = "b"\nb = "c"\n'
            '[dead_letters]\nplain = true\n[audit]\npath = "x"\n',
            "an input and an output",
        ),
    ],
)
def test_a_wrong_setting_is_named(file: Path, text: str, told: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=rf"agent.toml.*{told}") as caught:
        config.load(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("said", ["", "plain = false\n", 'plain = true\npublic_key = "k.pub"\n', "ratio = 0.1\n"])
@pytest.mark.parametrize("transport", ["directory", "kafka"])
def test_how_letters_are_kept_must_be_said(file: Path, said: str, transport: str) -> None:
    """PHI in the clear is somebody's decision, not a default; both would be none."""
    text = MINIMAL.replace("plain = true\n", said).replace('"directory"', f'"{transport}"', 1)
    file.write_text(text + '[kafka]\nbootstrap_servers = "b:1"\n[kafka.routes]\na = "b"\n')
    with pytest.raises(ConfigurationError, match="deid-agent letters keygen") as caught:
        config.load(file)
    assert "plain = true" in str(caught.value)


def test_letters_can_be_decided_by_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(MINIMAL.replace("[dead_letters]\nplain = true\n", ""))
    monkeypatch.setenv("DEID_DEAD_LETTERS__PUBLIC_KEY", "k.pub")
    monkeypatch.setenv("DEID_DEAD_LETTERS__RUN", "7")
    assert config.load(file).dead_letters == DeadLetterSettings(public_key=Path("k.pub"), run=7)


def test_a_mistyped_variable_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_POLCY", "safe-harbor")
    with pytest.raises(ConfigurationError, match="DEID_POLCY"):
        config.load(file)


def test_a_wrong_value_is_not_repeated(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_AGENT__WORKERS", "hunter2")
    with pytest.raises(ConfigurationError) as caught:
        config.load(file)
    assert "hunter2" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        config.load(tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["kafka.toml", "directory.toml"])
def test_the_shipped_configurations_load(name: str) -> None:
    assert config.load(ROOT / "deploy" / name).policy == "pseudonymised"


@pytest.mark.parametrize(
    ("http", "told"),
    [
        ('console = true\nhost = "0.0.0.0"', "listens on 0.0.0.0, where others can reach it, without a token"),
        ('console = true\nhost = "agent.hospital.example"', "without a token"),
        ("console = true\nconsole_write = true", "console_write needs a token"),
        ('console = true\nconsole_report = "report.html"', "console_report holds text of notes and needs a token"),
    ],
)
def test_a_console_that_others_reach_or_that_writes_needs_a_token(file: Path, http: str, told: str) -> None:
    file.write_text(MINIMAL + f"[http]\n{http}\n")
    with pytest.raises(ConfigurationError, match=told):
        config.load(file)
    file.write_text(MINIMAL + f'[http]\n{http}\nconsole_token_file = "token"\n')
    assert config.load(file).http.has_token


def test_a_console_of_this_machine_alone_needs_none(file: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        file.write_text(MINIMAL + f'[http]\nconsole = true\nhost = "{host}"\n')
        assert config.load(file).http.loopback


def test_a_console_without_a_server_is_a_mistake(file: Path) -> None:
    file.write_text(MINIMAL + "[http]\nconsole = true\nenabled = false\n")
    with pytest.raises(ConfigurationError, match="console needs enabled"):
        config.load(file)


def test_the_console_is_off_unless_it_is_asked_for(file: Path) -> None:
    assert not config.load(file).http.console


@pytest.mark.parametrize("token", ["short", "é" * 30, "x" * 600])
def test_a_token_that_can_be_guessed_is_refused_and_not_shown(file: Path, tmp_path: Path, token: str) -> None:
    secret = tmp_path / "token"
    secret.write_text(token)
    secret.chmod(0o600)
    file.write_text(MINIMAL + f'[http]\nconsole = true\nconsole_token_file = "{secret}"\n')
    with pytest.raises(ConfigurationError, match=r"http\.console_token: 20 to 512 characters") as refused:
        config.load(file).http.token()
    assert token not in str(refused.value)


def test_the_tokens_file_is_for_its_owner_alone(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("a token that nobody guesses\n")
    secret.chmod(0o644)
    file.write_text(MINIMAL + f'[http]\nconsole = true\nconsole_token_file = "{secret}"\n')
    with pytest.raises(ConfigurationError, match="others may read it"):
        config.load(file).http.token()
    secret.chmod(0o600)
    assert config.load(file).http.token() == "a token that nobody guesses"


def test_no_secret_is_among_the_settings_that_are_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_HTTP__CONSOLE_TOKEN", "a token that nobody guesses")
    told = {one.name: one for one in config.told(config.load(file))}
    assert told["http.console_token"].value == "(set, not shown)"
    assert told["agent.workers"] == config.Told("agent.workers", "2", True, told["agent.workers"].meaning)
    assert "nobody guesses" not in str(told)
