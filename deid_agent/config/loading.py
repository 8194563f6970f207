"""Loads the settings of a file under the environment, and names the place of a fault without its value."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsError,
    TomlConfigSettingsSource,
)

from deid_agent.config.environment import PREFIX, RENAMED, refuse_unknown_variables, variable_at, variables_below
from deid_agent.config.settings import Settings
from deid_agent.model import ConfigurationError


def load_settings(path: Path, overrides: Mapping[str, object] | None = None) -> Settings:
    """The settings of the TOML file at ``path``, under the environment, under ``overrides``.

    ``overrides`` are command line options; ``None`` means unset. Raises ``ConfigurationError`` with one line that names
    the file or the environment variable, the setting and the fault. It never shows a value.
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
        raise ConfigurationError(_first_fault(problem, path)) from None
    except SettingsError as problem:
        raise ConfigurationError(_undecoded_variable(problem)) from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigurationError(f"configuration {path}: not TOML: {problem}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"configuration {path}: cannot be read ({type(problem).__name__})") from None


def _first_fault(problem: ValidationError, path: Path) -> str:
    """The first fault as ``origin: section.key: fault``, and the number of further ones."""
    errors = problem.errors(include_input=False, include_url=False, include_context=False)
    first = errors[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        text = f"renamed; write {RENAMED[name]}" if name in RENAMED else "unknown setting"
    elif first["type"] == "missing":
        text = "is required"
    else:
        text = first["msg"].removeprefix("Value error, ")
    if name and not text.startswith(f"{name}."):
        text = f"{name}: {text}"
    return f"{_origin(first['loc'], text, path)}: {text}" + (
        f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    )


def _origin(place: tuple[str | int, ...], text: str, path: Path) -> str:
    """The variable that holds the wrong value; else the file, with the variables that take part in a wrong combination.

    A fault of the whole settings has no place of its own: its text names the settings.
    """
    if (variable := variable_at(place, EnvSettingsSource(Settings)())) is not None:
        return f"environment variable {variable}"
    below = variables_below(place)
    if not place:
        below = [name for name in below if name.removeprefix(PREFIX).lower().replace("__", ".") in text]
    return f"configuration {path}" + (f" with {', '.join(below)} from the environment" if below else "")


def _undecoded_variable(problem: SettingsError) -> str:
    """The fault of a variable that must hold JSON and does not."""
    fault = problem.__cause__
    if not isinstance(fault, json.JSONDecodeError):
        return "environment: a variable that begins with DEID_ cannot be read; write the setting in the file instead"
    # The error of pydantic-settings names the section only. Its cause holds the text that is no JSON.
    names = [name for name in variables_below(()) if os.environ[name] == fault.doc]
    return f"environment variable {' or '.join(names)}: not JSON at character {fault.pos + 1}: {fault.msg}"
