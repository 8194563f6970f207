"""Files of ``rules/fhir`` as checked values; every fault is one ``ConfigurationError`` that says where."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from deid_agent.errors import ConfigurationError
from deid_agent.phi import PhiType

Toml = Mapping[str, object]


def read_json(path: Path) -> Mapping[str, Mapping[str, str]]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise ConfigurationError(f"{path}: {type(problem).__name__}; build it with build_table") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: not a table; build it with build_table")
    return {name: words(row, name) for name, row in found.items()}


def read_toml(path: Path) -> Toml:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise ConfigurationError(
            f"{path}: {problem if isinstance(problem, ValueError) else 'cannot be read'}"
        ) from None


def section(conf: Toml, name: str) -> Toml:
    found = conf.get(name, {})
    if not isinstance(found, dict):
        raise ConfigurationError(f"types.toml: {name} must be a table")
    return found


def words(row: object, where: str) -> dict[str, str]:
    if not isinstance(row, dict) or not all(isinstance(v, str) for v in row.values()):
        raise ConfigurationError(f"rules/fhir: {where} must be a table of words")
    return row


def phi(row: object, where: str) -> dict[str, PhiType]:
    try:
        return {name: PhiType(word) for name, word in words(row, where).items()}
    except ValueError as problem:
        raise ConfigurationError(f"types.toml: {where}: {problem}; name a PHI type") from None


def listed(row: Toml, name: str) -> tuple[str, ...]:
    found = row.get(name, [])
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ConfigurationError(f"types.toml: {name} must be a list of words")
    return tuple(found)
