"""Settings from flags, environment and a TOML file, in that order of precedence; errors that name the setting."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, TomlConfigSettingsSource

from deid_agent.config.settings import PREFIX, Settings
from deid_agent.errors import ConfigurationError

_OTHER_VARIABLES = frozenset({"DEID_KEY", "DEID_SHARED", "DEID_REQUIRE_BROKER", "DEID_REQUIRE_BROWSER"})


def load(path: Path, overrides: Mapping[str, object] | None = None) -> Settings:
    """The settings of the file at ``path`` under the environment and ``overrides`` (flags; ``None`` means unset).

    Raises ``ConfigurationError``: one line per call that names the file, the setting and what is wrong. It never
    shows a value.
    """
    if not path.is_file():
        raise ConfigurationError(f"configuration {path}: no such file")
    refuse_unknown_variables()
    flags = {key: value for key, value in (overrides or {}).items() if value is not None}

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (pydantic-settings names the four)
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, path)

    try:
        return FromFile(**flags)  # type: ignore[arg-type]  # the model checks the flags
    except ValidationError as problem:
        raise ConfigurationError(f"configuration {path}: {_first(problem)}") from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigurationError(f"configuration {path}: not TOML: {problem}") from None
    except OSError as problem:
        raise ConfigurationError(f"configuration {path}: cannot be read ({type(problem).__name__})") from None


def _first(problem: ValidationError) -> str:
    """The first fault as ``section.key: what is wrong``, and how many more there are."""
    errors = problem.errors(include_input=False, include_url=False, include_context=False)
    first = errors[0]
    name = ".".join(str(part) for part in first["loc"])
    text = {"extra_forbidden": "unknown setting", "missing": "is required"}.get(first["type"], first["msg"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return (f"{name}: {text}" if name else text.removeprefix("Value error, ")) + more


def refuse_unknown_variables() -> None:
    """``ConfigurationError`` for a ``DEID_`` variable of the environment that no setting has."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | _OTHER_VARIABLES
    for variable in sorted(os.environ):
        if not variable.startswith(PREFIX) or variable.startswith("DEID_TEST_"):
            continue
        if variable.split("__")[0] not in known:
            raise ConfigurationError(f"environment variable {variable}: unknown setting; unset it or correct its name")
