"""Precedence, errors that name the setting, and renamed settings."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from deid_agent.config import (
    RENAMED,
    DeadLetterSettings,
    Settings,
    ShownSetting,
    load_settings,
    shown_settings,
    variable_name,
)
from deid_agent.config.environment import TOP_LEVEL
from deid_agent.model.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[3]
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
    assert load_settings(file).policy == "keep"
    monkeypatch.setenv("DEID_POLICY", "safe-harbor")
    monkeypatch.setenv("DEID_AGENT__WORKERS", "5")
    loaded = load_settings(file)
    assert (loaded.policy, loaded.agent.workers, loaded.agent.batch) == ("safe-harbor", 5, 7)
    assert load_settings(file, {"policy": "limited-dataset", "log_level": None}).policy == "limited-dataset"


@pytest.mark.parametrize(
    ("text", "expected"),
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
            'transport = "kafka"\n[kafka]\nbootstrap_servers = "b:1"\n[kafka.routes]\na = "b"\nb = "c"\n'
            '[dead_letters]\nplain = true\n[audit]\npath = "x"\n',
            "an input and an output",
        ),
    ],
)
def test_a_wrong_setting_is_named(file: Path, text: str, expected: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=rf"agent.toml.*{expected}") as caught:
        load_settings(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("table", ["", "plain = false\n", 'plain = true\npublic_key = "k.pub"\n', "ratio = 0.1\n"])
@pytest.mark.parametrize("transport", ["directory", "kafka"])
def test_the_storage_of_dead_letters_must_be_configured(file: Path, table: str, transport: str) -> None:
    """Unsealed PHI must be an explicit decision and not a default; both settings together are ambiguous."""
    text = MINIMAL.replace("plain = true\n", table).replace('"directory"', f'"{transport}"', 1)
    file.write_text(text + '[kafka]\nbootstrap_servers = "b:1"\n[kafka.routes]\na = "b"\n')
    with pytest.raises(ConfigurationError, match="deid-agent dead-letters keygen") as caught:
        load_settings(file)
    assert "plain = true" in str(caught.value)


def test_the_environment_can_configure_dead_letters(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(MINIMAL.replace("[dead_letters]\nplain = true\n", ""))
    monkeypatch.setenv("DEID_DEAD_LETTERS__PUBLIC_KEY", "k.pub")
    monkeypatch.setenv("DEID_DEAD_LETTERS__RUN", "7")
    assert load_settings(file).dead_letters == DeadLetterSettings(public_key=Path("k.pub"), run=7)


def test_a_mistyped_variable_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_POLCY", "safe-harbor")
    with pytest.raises(ConfigurationError, match="DEID_POLCY"):
        load_settings(file)


def test_a_wrong_value_is_not_repeated(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_AGENT__WORKERS", "hunter2")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        ("DEID_AGENT__WORKERS", "two", "agent.workers: Input should be a valid integer"),
        ("deid_agent__workers", "two", "agent.workers: Input should be a valid integer"),
        ("DEID_AGENT", '{"workers": "two"}', "agent.workers: Input should be a valid integer"),
        ("DEID_AGENT__WORKRS", "2", "agent.workrs: unknown setting"),
        ("DEID_TRANSPORT", "pigeon", "transport: Input should be"),
        ("DEID_KAFKA__ROUTES", '{"in": 5}', "kafka.routes.in: Input should be a valid string"),
        ("DEID_KAFKA__ROUTES", '{"in" "out"}', "not JSON at character 7: "),
        ("DEID_AGENT", "{workers: 2}", "not JSON at character 2: "),
    ],
)
def test_a_wrong_variable_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, fault: str
) -> None:
    file.write_text(MINIMAL + '[kafka]\nbootstrap_servers = "b:1"\n[kafka.routes]\na = "b"\n')
    monkeypatch.setenv("DEID_AGENT__BATCH", "7")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert str(caught.value).startswith(f"environment variable {variable}: {fault}")


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("DEID_AGENT__BATCH", "7", "[agent]\nworkers = 'two'\n"),
        ("DEID_AGENT", '{"batch": 7}', "[agent]\nworkers = 'two'\n"),
        ("DEID_KAFKA__ROUTES", '{"a": "b"}', "[kafka]\n"),
    ],
)
def test_a_fault_of_the_file_is_not_attributed_to_another_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, text: str
) -> None:
    file.write_text(MINIMAL + text)
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert str(caught.value).startswith(f"configuration {file}: ")


@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        ("DEID_TRANSPORT", "kafka", "transport is 'kafka' but there is no [kafka] section"),
        ("DEID_KAFKA__ROUTES", '{"a": "b", "b": "c"}', "kafka.routes: topic 'b' is an input"),
    ],
)
def test_a_variable_in_a_wrong_combination_is_named_with_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, fault: str
) -> None:
    if variable != "DEID_TRANSPORT":
        file.write_text(MINIMAL + '[kafka]\nbootstrap_servers = "b:1"\n')
    monkeypatch.setenv("DEID_AGENT__BATCH", "7")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert str(caught.value).startswith(f"configuration {file} with {variable} from the environment: {fault}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        load_settings(tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["kafka.toml", "directory.toml"])
def test_the_shipped_configurations_load(name: str) -> None:
    assert load_settings(ROOT / "deploy" / name).policy == "pseudonymised"


@pytest.mark.parametrize(
    ("http", "expected"),
    [
        ('console = true\nhost = "0.0.0.0"', "listens on 0.0.0.0, where others can reach it, without a token"),
        ('console = true\nhost = "agent.hospital.example"', "without a token"),
        ("console = true\nconsole_write = true", "console_write needs a token"),
        ('console = true\nconsole_report = "report.html"', "console_report contains text of notes and needs a token"),
    ],
)
def test_a_console_that_is_remote_or_writable_needs_a_token(file: Path, http: str, expected: str) -> None:
    file.write_text(MINIMAL + f"[http]\n{http}\n")
    with pytest.raises(ConfigurationError, match=expected):
        load_settings(file)
    file.write_text(MINIMAL + f'[http]\n{http}\nconsole_token_file = "token"\n')
    assert load_settings(file).http.has_token


def test_a_read_only_local_console_needs_no_token(file: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        file.write_text(MINIMAL + f'[http]\nconsole = true\nhost = "{host}"\n')
        assert load_settings(file).http.loopback


def test_a_console_without_a_server_is_refused(file: Path) -> None:
    file.write_text(MINIMAL + "[http]\nconsole = true\nenabled = false\n")
    with pytest.raises(ConfigurationError, match="console needs enabled"):
        load_settings(file)


def test_the_console_is_off_unless_it_is_asked_for(file: Path) -> None:
    assert not load_settings(file).http.console


@pytest.mark.parametrize("token", ["short", "é" * 30, "x" * 600])
def test_a_token_that_can_be_guessed_is_refused_and_not_shown(file: Path, tmp_path: Path, token: str) -> None:
    secret = tmp_path / "token"
    secret.write_text(token)
    secret.chmod(0o600)
    file.write_text(MINIMAL + f'[http]\nconsole = true\nconsole_token_file = "{secret}"\n')
    with pytest.raises(ConfigurationError, match=r"http\.console_token: 20 to 512 characters") as refused:
        load_settings(file).http.token()
    assert token not in str(refused.value)


def test_the_tokens_file_is_for_its_owner_alone(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("a token that nobody guesses\n")
    secret.chmod(0o644)
    file.write_text(MINIMAL + f'[http]\nconsole = true\nconsole_token_file = "{secret}"\n')
    with pytest.raises(ConfigurationError, match="others may read it"):
        load_settings(file).http.token()
    secret.chmod(0o600)
    assert load_settings(file).http.token() == "a token that nobody guesses"


def test_no_secret_is_among_the_shown_settings(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEID_HTTP__CONSOLE_TOKEN", "a token that nobody guesses")
    shown = {one.name: one for one in shown_settings(load_settings(file))}
    assert shown["http.console_token"].value == "(set, not shown)"
    assert shown["agent.workers"] == ShownSetting("agent.workers", "2", True, shown["agent.workers"].meaning)
    assert "nobody guesses" not in str(shown)


def test_the_list_of_setting_names_is_complete() -> None:
    """``environment`` imports no pydantic, so it repeats the names."""
    assert set(Settings.model_fields) == TOP_LEVEL


def known_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        kinds = [info.annotation, *getattr(info.annotation, "__args__", ())]
        section = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if section is None or section is model:  # a section inside itself has the same names
            yield f"{prefix}{name}"
        else:
            yield from known_names(section, f"{prefix}{name}.")


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_the_old_name_of_a_setting_names_the_new_one(
    file: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    names = set(known_names(Settings))
    assert new in names and old not in names
    section, _, key = old.partition(".")
    text = file.read_text()
    file.write_text(text.replace(f"[{section}]\n", f"[{section}]\n{key} = 1\n"))
    with pytest.raises(ConfigurationError, match=rf"agent\.toml: {old}: renamed; write {new}"):
        load_settings(file)
    file.write_text(text)
    monkeypatch.setenv(variable_name(old), "1")
    with pytest.raises(ConfigurationError, match=f"{variable_name(old)}: renamed; set {variable_name(new)} instead"):
        load_settings(file)
