"""Stage 1, plan: parse a payload and the documents inside it, and list the texts that recognizers have to read.

A plan holds everything that the apply stage needs, so that texts of several messages can be read in between. Planning
raises all errors that the form of a message causes: an unknown format, a malformed part, a text or a nesting over its
limit, an attachment that the policy refuses.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deid_agent.codec import (
    Codec,
    Envelope,
    EnvelopeCodec,
    FramedRecord,
    is_pdf,
    open_record,
    read_pdf_text,
    read_root,
)
from deid_agent.model import (
    Attachment,
    DroppedRanges,
    Fact,
    Headers,
    LeafRole,
    Message,
    MessageError,
    Narrative,
    PatientIdentifier,
    PhiType,
    Reason,
    Timings,
)
from deid_agent.pipeline.attachments import decode_text, is_fragment, is_html_section, is_readable_text, prefix_error
from deid_agent.pipeline.budget import TextBudget
from deid_agent.pipeline.facts import collect_facts, collect_known, find_message_date, find_written_date, make_scope
from deid_agent.pipeline.plans import (
    AttachmentPlan,
    FindKnown,
    KnownMessages,
    MessagePlan,
    NestedContent,
    PartPlan,
    TextContent,
)
from deid_agent.pipeline.policy import Method, Pdf, Policy, Unreadable
from deid_agent.pipeline.recognition import PlannedText

MAX_NESTING = 4
"""Levels of attachments in attachments."""
MAX_TEXT = 1_000_000
"""Characters of one text: 250 pages. Reading prose takes 200 bytes a character; 900 if every character is a token."""
_NUL_SHARE = 4
"""A text of which a quarter is NUL is no text; a few are an accident of an export."""
_FEW_NULS = 3


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes the plan of one message. ``attachment_codecs`` are formats that come as attachments only; tried first."""

    policy: Policy
    codecs: Sequence[Codec]
    attachment_codecs: Sequence[Codec]
    timings: Timings = field(default_factory=Timings)
    _texts: list[PlannedText] = field(default_factory=list)
    _budget: TextBudget = field(default_factory=TextBudget)
    _listings: Counter[str] = field(default_factory=Counter)

    def plan_message(
        self,
        payload: bytes,
        key: bytes | None,
        headers: Headers,
        envelope: Envelope | None = None,
        find_known: FindKnown | None = None,
    ) -> MessagePlan:
        """Plan a payload: one message, a batch, or NDJSON; with an ``envelope`` a record around such payloads.

        ``find_known`` gives the known messages about each; not with an envelope.

        Raises ``MessageError`` if the payload cannot be understood or the policy refuses it, and ``TransientError`` if
        a schema registry does not answer.
        """
        if envelope is not None:
            with self.timings.measure("edit"), self.timings.measure("parse"):
                record = open_record(envelope, payload)
            parts = (self._plan_envelope(record.codec, record.text),)
            return self.make_plan(payload, key, headers, parts, record)
        with self.timings.measure("edit"):
            with self.timings.measure("parse"):
                codec = self._detect_codec(payload)
                messages = codec.parse(payload)
            planned = tuple(
                self._plan_document(codec, each, str(number), known=find_known and find_known(each))
                for number, each in enumerate(messages)
            )
        return self.make_plan(payload, key, headers, planned)

    def make_plan(
        self,
        payload: bytes,
        key: bytes | None,
        headers: Headers,
        parts: tuple[PartPlan, ...],
        record: FramedRecord | None = None,
    ) -> MessagePlan:
        """The plan of a payload with these parts, and with all texts that were planned."""
        listings = tuple(sorted(self._listings.items()))
        return MessagePlan(payload, key, headers, parts, tuple(self._texts), self.timings, record, listings)

    def _find_patient(self, identifiers: Iterable[PatientIdentifier]) -> str | None:
        """The scope of a patient; counts what a scope table has of the patient."""
        found = self.policy.patient.find(identifiers)
        if found.listing is not None:
            self._listings[found.listing] += 1
        return found.scope

    def _plan_document(
        self,
        codec: Codec,
        message: Message,
        group: str,
        outer: Sequence[Fact] = (),
        known: KnownMessages | None = None,
    ) -> PartPlan:
        """A message with a scope of its own. ``outer`` are facts of its envelope."""
        known = known or KnownMessages()
        facts = (*collect_facts(message.sites, group), *outer, *collect_known(known.messages))
        patient = self._find_patient(known.patients or message.patients)
        # A document without a date, such as a Binary, has that of the message that refers to it, which is the last.
        dated = [message.sites, *(each.sites for each in reversed(known.messages))]
        reference = next(filter(None, map(find_message_date, dated)), None)
        today = next(filter(None, map(find_written_date, dated)), None)
        scope = make_scope(message.identity, patient, facts, reference, today)
        return self.plan_part(PartPlan(codec, message, facts, scope, known=known.messages), nesting=0)

    def _plan_envelope(self, codec: EnvelopeCodec, payload: bytes, outer: Sequence[Fact] = ()) -> PartPlan:
        """A record around messages. A field has the scope of the nearest message, or of the record without one.

        ``outer`` are the facts of the record that it is inside.
        """
        with self.timings.measure("edit"):
            with self.timings.measure("parse"):
                (message,) = codec.parse(payload)
            facts = (*outer, *collect_facts(message.sites, str(len(outer)) if outer else ""))
            inside = codec.envelope.inside
            attachments = [self._plan_payload(each, facts, inside) for each in message.attachments]
            own = make_scope(message.identity, None, facts)
            contents = [each.content for each in attachments]
            scopes = [
                each.parts[0].scope if isinstance(each, NestedContent) and each.parts else own for each in contents
            ]
            dropped = DroppedRanges.of(message.dropped)
            scope = (*scopes, own)[0]
            near = {start: scopes[n] for start, n in message.nearest.items() if scopes[n] != scope}
            part = PartPlan(codec, message, facts, scope, tuple(attachments), dropped=dropped, scopes=near)
            if self.policy.changes_nothing:
                return part
            texts = [self._plan_text(each.path, each.mapped.text, facts) for each in message.narratives]
            return replace(part, texts=tuple(texts))

    def _plan_payload(self, attachment: Attachment, facts: Sequence[Fact], inside: Envelope | None) -> AttachmentPlan:
        """The messages at one place of an envelope: planned as if they had come without it; or a record ``inside``."""
        try:
            if inside is not None:
                part = self._plan_envelope(EnvelopeCodec(inside), attachment.data, facts)
                return AttachmentPlan(attachment, NestedContent((part,), apart=True))
            with self.timings.measure("parse"):
                codec = self._detect_codec(attachment.data)
                messages = codec.parse(attachment.data)
            parts = [
                self._plan_document(codec, each, f"{attachment.path}/{number}", facts)
                for number, each in enumerate(messages)
            ]
        except MessageError as problem:
            raise prefix_error(attachment, problem) from None
        return AttachmentPlan(attachment, NestedContent(tuple(parts), apart=True))

    def _detect_codec(self, payload: bytes) -> Codec:
        for codec in self.codecs:
            if codec.detect(payload):
                return codec
        names = ", ".join(codec.name for codec in self.codecs)
        if read_root(payload) is not None:
            raise MessageError(Reason.UNSUPPORTED, "byte 0", f"XML with another root element; known: {names}")
        raise MessageError(Reason.UNSUPPORTED, "byte 0", f"no format recognised; known: {names}")

    def plan_part(self, part: PartPlan, nesting: int) -> PartPlan:
        """The part with its attachments and texts."""
        if self.policy.changes_nothing:
            return part
        message = part.message
        dropped = self._find_dropped(part)
        attachments = [
            self._plan_attachment(each, part, nesting)
            for each in message.attachments
            if each.data and not dropped.cover(each.start, each.end)
        ]
        texts = [
            self._plan_text(
                each.path,
                "" if _is_dropped(each, dropped) else each.mapped.text,
                part.facts,
                label=each.role is LeafRole.LABEL,
            )
            for each in message.narratives
        ]
        kept = self._plan_professions(part, dropped)
        return replace(part, attachments=tuple(attachments), texts=tuple(texts), dropped=dropped, kept=kept)

    def _plan_professions(self, part: PartPlan, dropped: DroppedRanges) -> Mapping[int, PlannedText]:
        """The texts of the professions that the policy keeps. A profession is no evidence for itself."""
        kept = [
            site
            for site in part.message.sites
            if site.type is PhiType.PROFESSION
            and self.policy.method(site.type, site.path) is Method.KEEP
            and not dropped.cover(site.start, site.end)
        ]
        if not kept:
            return {}
        facts = tuple(fact for fact in part.facts if fact.type is not PhiType.PROFESSION)
        return {site.start: self._plan_text(site.path, site.value, facts) for site in kept}

    def _find_dropped(self, part: PartPlan) -> DroppedRanges:
        published = self.policy.published
        if published is None:
            return DroppedRanges()
        with self.timings.measure("parse"):
            return DroppedRanges.of(part.codec.find_unlisted(part.message.raw, published))

    def _plan_text(self, path: str, text: str, facts: tuple[Fact, ...], *, label: bool = False) -> PlannedText:
        check_length(path, text)
        check_decoded(path, text)
        if not label:
            self._budget.add(path, text, facts)
            self.policy.languages.check(path, text)
        self._texts.append(PlannedText(len(self._texts), text, facts, label))
        return self._texts[-1]

    def _plan_attachment(self, attachment: Attachment, outer: PartPlan, nesting: int) -> AttachmentPlan:
        """Decide by its content how an attachment is read. Its label (a media type) can only make that stricter."""
        if nesting >= MAX_NESTING:
            raise MessageError(Reason.RESOURCE, attachment.path, "attachments nested too deep")
        codec = self.find_attachment_codec(attachment.data, attachment.content_type)
        content: NestedContent | TextContent | None
        if codec is not None:
            content = self._plan_nested(codec, attachment, outer, nesting)
        elif is_pdf(attachment.data):
            content = self._plan_pdf(attachment, outer)
        else:
            content = self._plan_plain_text(attachment, outer)
        return AttachmentPlan(attachment, content)

    def find_attachment_codec(self, data: bytes, media: str) -> Codec | None:
        """The codec of an attachment; None for a PDF, for plain text, and for whatever cannot be read."""
        found = next((codec for codec in (*self.attachment_codecs, *self.codecs) if codec.detect(data)), None)
        if (found is None or (found.name == "cda" and is_html_section(data))) and is_fragment(media, data):
            return next((codec for codec in self.attachment_codecs if codec.name == "html"), None)
        return found

    def _plan_nested(self, codec: Codec, attachment: Attachment, outer: PartPlan, nesting: int) -> NestedContent | None:
        """The messages of an attachment. They know the facts of the outer one and share its scope: one date shift."""
        try:
            with self.timings.measure("parse"):
                messages = codec.parse(attachment.data)
        except MessageError as problem:
            if problem.reason is not Reason.RESOURCE and self.policy.unreadable is Unreadable.REMOVE:
                return None
            raise prefix_error(attachment, problem) from None
        own = (
            fact
            for n, message in enumerate(messages)
            for fact in collect_facts(message.sites, f"{attachment.path}/{n}")
        )
        facts = tuple(dict.fromkeys((*outer.facts, *own)))
        parts = []
        for message in messages:
            patient = outer.scope.patient or self._find_patient(message.patients)
            reference = outer.scope.reference or find_message_date(message.sites)
            today = outer.scope.today or find_written_date(message.sites)
            scope = make_scope(outer.scope.document, patient, facts, reference, today)
            try:
                parts.append(self.plan_part(PartPlan(codec, message, facts, scope), nesting + 1))
            except MessageError as problem:
                raise prefix_error(attachment, problem) from None
        return NestedContent(tuple(parts))

    def _plan_pdf(self, attachment: Attachment, outer: PartPlan) -> TextContent | None:
        """The text layer of a PDF; None if there is none or the policy removes PDFs."""
        if self.policy.pdf is Pdf.REFUSE:
            raise MessageError(Reason.UNSUPPORTED, attachment.path, "PDF, which the policy refuses")
        if self.policy.pdf is Pdf.REMOVE:
            return None
        with self.timings.measure("parse"):
            text = read_pdf_text(attachment.data, attachment.path)
        if text is None:
            self._check_removable(attachment)
            return None
        return TextContent(self._plan_text(attachment.path, text, outer.facts))

    def _plan_plain_text(self, attachment: Attachment, outer: PartPlan) -> TextContent | None:
        media = attachment.content_type
        if attachment.encoding == "text":  # the bytes are UTF-8 here, whatever charset the sender declares
            media = media.partition(";")[0]
        if is_readable_text(media, attachment.data) and (decoded := decode_text(attachment.data, media)):
            return TextContent(self._plan_text(attachment.path, decoded.text, outer.facts), decoded)
        self._check_removable(attachment)
        return None

    def _check_removable(self, attachment: Attachment) -> None:
        """Raises ``MessageError(UNSUPPORTED)`` if the policy refuses unreadable attachments."""
        if self.policy.unreadable is not Unreadable.REMOVE:
            raise MessageError(Reason.UNSUPPORTED, attachment.path, "attachment cannot be read")


def _is_dropped(narrative: Narrative, dropped: DroppedRanges) -> bool:
    """True if no character of a narrative is published."""
    mapped = narrative.mapped
    return bool(dropped.ranges) and all(map(dropped.cover, mapped.starts, mapped.ends))


def check_length(path: str, text: str) -> None:
    """Raises ``MessageError(RESOURCE)`` for a text of more than ``MAX_TEXT`` characters."""
    if len(text) > MAX_TEXT:
        raise MessageError(Reason.RESOURCE, path, f"a text of more than {MAX_TEXT} characters")


def check_decoded(path: str, text: str) -> None:
    """Raises ``MessageError(UNSUPPORTED)`` for UTF-16 or UTF-32 that was decoded as bytes: no word can be read."""
    length = len(text.rstrip("\0"))
    found = text.count("\0", 0, length)
    if found > _FEW_NULS and found * _NUL_SHARE >= length:
        raise MessageError(Reason.UNSUPPORTED, path, "many NUL characters: UTF-16 that was decoded in another encoding")
