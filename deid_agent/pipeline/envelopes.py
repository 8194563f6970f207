"""Envelopes and the client of a schema registry from their settings, and the validation of messages inside records."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from deid_agent.codec import Envelope, list_messages
from deid_agent.config import EnvelopeSettings, RegistrySettings
from deid_agent.model import ConfigurationError, parse_pointer
from deid_agent.pipeline.validation import Validator

if TYPE_CHECKING:
    from deid_agent.schemas import RegistryOptions


def make_envelope(settings: EnvelopeSettings) -> Envelope:
    """The envelope of a section of the settings. ``add_registry`` gives it the client that it needs."""
    fields = {parse_pointer(place): action for place, action in settings.fields.items()}
    return Envelope(
        tuple(map(parse_pointer, settings.payload)),
        settings.encoding,
        fields,
        None if settings.inside is None else make_envelope(settings.inside),
        settings.schema_registry,
        settings.output_subject or "",
    )


def make_registry_options(settings: RegistrySettings) -> "RegistryOptions":
    """The options of the client of a schema registry. Raises ``ConfigurationError`` if the password cannot be read."""
    from deid_agent.schemas import RegistryOptions  # noqa: PLC0415 - most agents have no registry

    return RegistryOptions(
        urls=settings.urls,
        username=settings.username,
        password=settings.secret(),
        ca_file=settings.ca_file,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        timeout_s=settings.timeout_s,
        cache=settings.cache,
    )


def add_registry(
    envelopes: Iterable[tuple[str, Envelope]], options: "RegistryOptions | None", patience_s: float | None = None
) -> dict[str, Envelope]:
    """The envelopes with one client of the registry. ``patience_s`` is the longest wait for an answer.

    Raises ``ConfigurationError`` if there is no registry or its files cannot be used.
    """
    made = dict(envelopes)
    if not any(each.registered for each in made.values()):
        return made
    from deid_agent.schemas import RecordFormats, SchemaRegistry  # noqa: PLC0415

    if options is None:
        raise ConfigurationError("an envelope has schema_registry = true, but there is no [registry] section")
    formats = RecordFormats(SchemaRegistry(options, patience_s))
    return {name: replace(each, formats=formats) if each.registered else each for name, each in made.items()}


def check_payloads(
    validator: Validator, envelope: Envelope | None, before: bytes, after: bytes, *, moved: bool = False
) -> None:
    """Validate a record, or each message in its envelope. Raises ``MessageError`` as ``Validator.check``."""
    if envelope is None:
        validator.check(before, after, moved=moved)
        return
    messages = list_messages(envelope, before), list_messages(envelope, after, is_output=True)
    for one, two in zip(*messages, strict=True):
        validator.check(one.data, two.data, moved=moved)
