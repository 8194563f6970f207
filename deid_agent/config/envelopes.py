"""The sections ``[envelopes."TOPIC"]``: where a record carries its messages, and what becomes of its other fields."""

import tomllib
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, field_validator, model_validator

from deid_agent.config.registry import RegistrySettings
from deid_agent.config.service import Section
from deid_agent.model import ConfigurationError, FieldAction, PayloadEncoding, parse_pointer

Places = tuple[str, ...] | dict[str, FieldAction]


class EnvelopeSettings(Section):
    """The envelope of the records of one topic. Places are JSON pointers; ``*`` is any member or item."""

    payload: tuple[str, ...] = Field(min_length=1, description='places of the messages: "/payload" or a list of places')
    encoding: PayloadEncoding = Field(
        default=PayloadEncoding.TEXT, description="text, base64 (compressed or not) or gzip (the record itself)"
    )
    fields: dict[str, FieldAction] = Field(
        default={}, description="place = keep, drop, identifier, date or text; other fields refuse the record"
    )
    inside: "EnvelopeSettings | None" = Field(
        default=None, description="section with these keys, if the message is itself a record in JSON"
    )
    schema_registry: bool = Field(
        default=False, description="records begin with the id of a schema: Avro, JSON Schema or Protobuf"
    )
    output_subject: str | None = Field(
        default=None, min_length=1, description="subject whose id of the same schema the outputs get"
    )

    @field_validator("payload", mode="before")
    @classmethod
    def _one_place(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("payload", "fields")
    @classmethod
    def _check_pointers(cls, value: Places) -> Places:
        for pointer in value:
            parse_pointer(pointer)
        return value

    @model_validator(mode="after")
    def _check_places(self) -> Self:
        for number, place in enumerate(self.payload):
            others = (*self.payload[:number], *self.payload[number + 1 :], *self.fields)
            inside = next((each for each in others if f"{each}/".startswith(f"{place}/")), None)
            if inside is not None and self.encoding is not PayloadEncoding.GZIP:
                raise ValueError(f'"{inside}" is a part of the message "{place}": an envelope names what is around it')
        return self

    @model_validator(mode="after")
    def _check_gzip(self) -> Self:
        if self.encoding is PayloadEncoding.GZIP and (self.payload != ("",) or self.fields):
            raise ValueError('gzip is the record itself: write payload = "" and no fields')
        return self

    @model_validator(mode="after")
    def _check_registry(self) -> Self:
        if self.schema_registry and self.encoding is PayloadEncoding.GZIP:
            raise ValueError("a compressed record has no schema: remove schema_registry or the encoding")
        if self.output_subject is not None and not self.schema_registry:
            raise ValueError("output_subject needs schema_registry = true")
        if self.inside is not None and self.inside.schema_registry:
            raise ValueError("inside: only the record itself may have a schema of the registry")
        return self


class EnvelopeFile(EnvelopeSettings):
    """An envelope in a file of its own, with the registry that it needs."""

    registry: RegistrySettings | None = Field(default=None, description="the schema registry")


def load_envelope(path: Path) -> EnvelopeFile:
    """The envelope in a TOML file with the keys of a section. Raises ``ConfigurationError``."""
    try:
        return EnvelopeFile.model_validate(tomllib.loads(path.read_text("utf-8")))
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_url=False, include_context=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        fault = "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"envelope {path}: {f'{name}: ' if name else ''}{fault}") from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigurationError(f"envelope {path}: not TOML: {problem}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"envelope {path}: cannot be read ({type(problem).__name__})") from None
