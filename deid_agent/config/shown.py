"""The settings as they may be shown to a person."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, SecretStr


@dataclass(frozen=True, slots=True)
class Told:
    """A setting as it may be shown: ``value`` says of a secret only whether it is set."""

    name: str
    value: str
    default: bool
    meaning: str


def told(model: BaseModel, prefix: str = "") -> Iterator[Told]:
    """Every setting by its dotted name, sections in their place."""
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from told(value, f"{prefix}{name}.")
        else:
            yield Told(prefix + name, _shown(value), value == info.default, info.description or "")


def _shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return "(set, not shown)"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {item}" for key, item in value.items())
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
