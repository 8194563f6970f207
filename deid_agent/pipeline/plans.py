"""The plan of a record: its messages, their attachments and the texts to read, between the stages plan and apply."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from deid_agent.codec import Codec, FramedRecord
from deid_agent.model import (
    Attachment,
    DroppedRanges,
    Fact,
    Headers,
    Message,
    PatientIdentifier,
    Timings,
)
from deid_agent.pipeline.attachments import DecodedText
from deid_agent.pipeline.recognition import PlannedText
from deid_agent.surrogate import Scope


@dataclass(frozen=True, slots=True)
class KnownMessages:
    """Messages about the persons of another one, such as the Patient to whom a FHIR document of its own line refers.

    Their facts and persons count as those of that message, as if all came in one Bundle. ``patients`` are the
    identifiers of its patient; without them its own references decide.
    """

    messages: tuple[Message, ...] = field(default=(), repr=False)
    patients: tuple[PatientIdentifier, ...] = field(default=(), repr=False)


FindKnown = Callable[[Message], KnownMessages]
"""Returns the known messages about a parsed one. It may raise ``MessageError``, which refuses the message."""


@dataclass(frozen=True, slots=True)
class MessagePlan:
    """One record: its parsed messages (a batch has several) and their texts in one list, attachments included.

    ``record`` is the form of a record with an envelope; its text is the message of the only part. ``media`` is the
    media type of the output, if the payload is a document without a message.
    """

    payload: bytes = field(repr=False)
    key: bytes | None = field(repr=False)
    headers: Headers = field(repr=False)
    parts: tuple["PartPlan", ...]
    texts: tuple[PlannedText, ...]
    timings: Timings
    record: FramedRecord | None = None
    listings: tuple[tuple[str, int], ...] = ()
    media: str = ""


@dataclass(frozen=True, slots=True)
class PartPlan:
    """One parsed message: of the payload, or inside an attachment. ``texts`` belong to ``message.narratives``.

    ``kept`` are the professions that the policy keeps, by the first byte of their site: they may name a person.
    ``dropped`` are the values that the policy does not publish. Narratives in them are planned as empty texts.
    ``scopes`` are those of single sites and narratives, by their first byte, where it is not ``scope``.
    ``known`` are messages that are not part of it, whose persons are its persons. ``stated`` are those of its facts
    that its sender states beside it.
    """

    codec: Codec
    message: Message
    facts: tuple[Fact, ...]
    scope: Scope
    attachments: tuple["AttachmentPlan", ...] = ()
    texts: tuple[PlannedText, ...] = ()
    dropped: DroppedRanges = field(default_factory=DroppedRanges)
    kept: Mapping[int, PlannedText] = field(default_factory=dict)
    scopes: Mapping[int, Scope] = field(default_factory=dict)
    known: tuple[Message, ...] = field(default=(), repr=False)
    stated: tuple[Fact, ...] = field(default=(), repr=False)

    def scope_at(self, start: int, scope: Scope) -> Scope:
        """``scope`` with the dates and the patient of the site or narrative at a byte."""
        own = self.scopes.get(start, scope)
        return replace(
            scope,
            document=own.document,
            patient=own.patient,
            reference=own.reference,
            today=own.today,
            births=own.births | scope.births,
        )

    def all_texts(self) -> Iterable[PlannedText]:
        """The texts of the message and of its attachments."""
        yield from self.texts
        yield from self.kept.values()
        for attachment in self.attachments:
            if isinstance(attachment.content, TextContent):
                yield attachment.content.text
            elif attachment.content is not None:
                for part in attachment.content.parts:
                    yield from part.all_texts()

    def all_parts(self) -> Iterable["PartPlan"]:
        """The message and those inside its attachments, as plans."""
        yield self
        for attachment in self.attachments:
            if isinstance(attachment.content, NestedContent):
                for part in attachment.content.parts:
                    yield from part.all_parts()

    def own_texts(self) -> Iterable[tuple[str | None, PlannedText]]:
        """The texts of the message and of those of its attachments that are plain text, each with its patient."""
        # If the policy changes nothing, no text is planned.
        for narrative, text in zip(self.message.narratives, self.texts, strict=bool(self.texts)):
            starts = narrative.mapped.starts
            yield self.scopes.get(starts[0], self.scope).patient if starts else self.scope.patient, text
        for text in self.kept.values():
            yield self.scope.patient, text
        for attachment in self.attachments:
            if isinstance(attachment.content, TextContent):
                yield self.scope.patient, attachment.content.text

    def all_messages(self) -> Iterable[Message]:
        """The message and those inside its attachments."""
        for part in self.all_parts():
            yield part.message


@dataclass(frozen=True, slots=True)
class NestedContent:
    """An attachment that is a message (or a batch) of its own.

    ``apart`` messages only lie in one record: each is edited without the persons and the facts of the others.
    """

    parts: tuple[PartPlan, ...]
    apart: bool = False


@dataclass(frozen=True, slots=True)
class TextContent:
    """An attachment that is plain text; ``decoded`` is None for the text layer of a PDF."""

    text: PlannedText
    decoded: DecodedText | None = None


@dataclass(frozen=True, slots=True)
class AttachmentPlan:
    """An attachment and its content; the content is None if a notice replaces the attachment."""

    attachment: Attachment
    content: NestedContent | TextContent | None
