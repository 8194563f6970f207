"""What every section of the settings shares."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from deid_agent import secret

Seconds = Annotated[float, Field(gt=0, le=3600)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Section(BaseModel):
    """Base: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def password(value: SecretStr | None, path: Path | None, setting: str) -> str | None:
    """The secret of ``setting``, from wherever it comes. Raises ``ConfigurationError``, as ``secret.password``."""
    return secret.password(None if value is None else value.get_secret_value(), path, setting)
