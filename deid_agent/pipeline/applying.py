"""Stage 3, apply: write the replacements into a planned message, search it for leaks, and assemble the bytes.

All edits are byte ranges of the original message; all other bytes are left unchanged.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deid_agent.codec import Codec, PlainMessage, PlainText
from deid_agent.model import (
    ATTACHMENT_URL_SOURCE,
    Attachment,
    DateKind,
    Document,
    Edit,
    Fact,
    LeftOutError,
    Message,
    MessageError,
    Site,
    Span,
    Timings,
    ValueKind,
    apply_edits,
    splice,
)
from deid_agent.pipeline.attachments import (
    NOTICE,
    check_attributes,
    prefix_error,
    update_siblings,
    write_attachment,
)
from deid_agent.pipeline.changes import DROP, POLICY, SHAPE, UNLISTED, ChangeCounts
from deid_agent.pipeline.facts import NAME_TYPES, collect_facts, collect_people
from deid_agent.pipeline.leak_guard import GUARD_SOURCE, LeakGuard, LeakHit, select_searched_facts
from deid_agent.pipeline.link_codes import LinkCodes, LinkPairs
from deid_agent.pipeline.marking import Marker
from deid_agent.pipeline.output_shape import OutputShape
from deid_agent.pipeline.plans import AttachmentPlan, MessagePlan, NestedContent, PartPlan, TextContent
from deid_agent.pipeline.policy import AttachmentUrl, Method, Policy, strip_numbers
from deid_agent.pipeline.recognition import PlannedText
from deid_agent.pipeline.replacement import Replacer, SpanChange, detect_day_order
from deid_agent.pipeline.tracing import Cause, DocumentTracer, Tracer
from deid_agent.surrogate import NamedPerson, Scope


@dataclass(frozen=True, slots=True)
class _Part:
    """One message, or one text of an attachment, while it is edited.

    ``guarded`` are the facts that must not be in the output. The facts of its attachments join them. ``prefix`` is the
    path of the attachment that holds it; remarks begin with it. ``own`` is the number of guarded facts without those of
    its attachments. ``named`` are the persons of its fields, by group.
    """

    codec: Codec
    message: Message
    scope: Scope
    prefix: str
    guarded: list[Fact] = field(repr=False)
    trace: DocumentTracer
    own: int = 0
    named: Mapping[str, NamedPerson] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Applier:
    """Applies the plan of one message. ``found`` has the findings of each of its texts, by ``PlannedText.index``."""

    policy: Policy
    replacer: Replacer
    guard: LeakGuard
    found: Sequence[Sequence[Span]] = field(repr=False)
    codes: LinkCodes
    timings: Timings
    tracer: Tracer
    shape: OutputShape | None = None
    counts: ChangeCounts = field(default_factory=Counter)
    named: dict[int, Mapping[str, NamedPerson]] = field(default_factory=dict, repr=False)
    """The persons in the fields of each message of the part that is applied, by ``id`` of the message."""
    marker: Marker | None = None
    """Adds to the outputs of messages; None if they leave as they are."""
    links: LinkPairs | None = field(default=None, repr=False)
    """Gets path, original and code of each link code, for a crosswalk."""

    def apply_plan(self, plan: MessagePlan) -> bytes:
        """The sanitized payload.

        Raises ``MessageError(LEAK)`` if an identifier remains that may not be written over, and ``LeftOutError`` if
        every message of it is left out.
        """
        written, left_out = list[bytes](), list[LeftOutError]()
        for part in plan.parts:
            document = replace(self, replacer=self.replacer.of_document(part.message.raw))  # of attachments too
            try:
                written.append(document._apply_document(part))
            except LeftOutError as error:
                left_out.append(error)
        if left_out and not written:
            raise left_out[0]
        return b"".join(written)

    def _apply_document(self, plan: PartPlan) -> bytes:
        known = [
            fact for n, each in enumerate(plan.known) for fact in collect_facts(self._list_changed(each), f"known{n}")
        ]
        guarded = (*known, *plan.stated)
        return self._apply_message(plan, self._open_part(plan, guarded, "", "", self._find_people(plan)))

    def _apply_message(self, plan: PartPlan, part: _Part) -> bytes:
        """The sanitized bytes of a message that is published as it is, and not inside another one."""
        own = replace(self, counts=Counter())
        output = own._apply_part(plan, part)
        self.counts.update(own.counts)
        if self.marker is not None:  # before the shape, which moves resources: paths are those of the message
            output = self.marker.label(plan, output, own.counts, part.prefix)
        if self.shape is not None:
            with self.timings.measure("shape"):
                output, dropped = self.shape.write(plan, output)
            for path, count in dropped.items():
                self.counts[part.prefix + path, UNLISTED, DROP, SHAPE] += count
        return output if self.marker is None else self.marker.add_provenance(plan, output, own.counts)

    def _list_found(self, plan: PartPlan) -> set[tuple[bool, str]]:
        """The values in the texts of a message that the policy does not keep; true for names."""
        found = (
            (text.text[span.start : span.end], span.type) for text in plan.texts for span in self.found[text.index]
        )
        return {(t in NAME_TYPES, value) for value, t in found if self.policy.method(t, "text") is not Method.KEEP}

    def _list_changed(self, message: Message) -> Iterable[Site]:
        """The sites whose values the policy does not keep."""
        return (site for site in message.sites if self.policy.method(site.type, site.path) is not Method.KEEP)

    def _find_people(self, plan: PartPlan) -> tuple[NamedPerson, ...]:
        """Everyone whom a message names, in fields, narratives and attachments."""
        if self.policy.changes_nothing:
            return ()
        with self.timings.measure("surrogate"):
            self.named.clear()
            read = self.replacer.surrogates.read_person
            for message in (*plan.known, *plan.all_messages()):
                self.named[id(message)] = collect_people(message, read)
            people = [person for named in self.named.values() for person in named.values()]
            people += plan.scope.people if plan.stated else ()
            for text in plan.all_texts():
                people += self.replacer.find_people(text.text, self.found[text.index])
            return tuple(dict.fromkeys(people))

    def _open_part(
        self, plan: PartPlan, outer: Sequence[Fact], prefix: str, trace_path: str, people: tuple[NamedPerson, ...]
    ) -> _Part:
        """Start to edit a message. ``outer`` are the guarded facts of the message that holds it."""
        message = plan.message
        # The number of facts so far keeps persons of two messages apart.
        own = collect_facts(self._list_changed(message), str(len(outer)) if prefix else "")
        trace = self.tracer.open_document(trace_path, message.raw)
        named = self.named.get(id(message), {})
        guarded = [*outer, *own]
        scope = replace(plan.scope, people=people)
        return _Part(plan.codec, message, scope, prefix, guarded, trace, len(guarded), named)

    def _apply_part(self, plan: PartPlan, part: _Part) -> bytes:
        """The sanitized bytes of one message."""
        if self.policy.changes_nothing:
            part.trace.finish(part.message.raw)
            return part.message.raw
        edits: list[Edit] = []
        with self.timings.measure("surrogate"):
            dropped = plan.dropped if plan.dropped.ranges else None
            for site in part.message.sites:
                if dropped is not None and dropped.cover(site.start, site.end):
                    continue
                text = plan.kept.get(site.start)
                own = replace(part, scope=plan.scope_at(site.start, part.scope)) if plan.scopes else part
                edits += self._edit_site(site, own) if text is None else self._edit_kept(site, text, own)
        for attachment in plan.attachments:
            edits += self._edit_attachment(attachment, part)
        with self.timings.measure("surrogate"):
            edits += self._edit_narratives(plan, part)
        if part.codec.name == "html" and (found := self._list_found(plan)):
            check_attributes(part.codec.parse_leaves(part.message.raw), found)
        if plan.dropped.ranges:
            edits = plan.dropped.apply_to(edits)
        for each in plan.dropped.ranges:
            self._count(part, each.path, UNLISTED, DROP, POLICY)
            part.trace.explain(each.start, each.end, Cause(each.path, UNLISTED, DROP, POLICY))
        return self._write(part, edits)

    def _count(self, part: _Part, path: str, type_: str, method: str, source: str) -> None:
        self.counts[part.prefix + path, type_, method, source] += 1

    def _edit_site(self, site: Site, part: _Part) -> Iterable[Edit]:
        method = self.policy.method(site.type, site.path)
        if site.source == ATTACHMENT_URL_SOURCE and self.policy.attachment_url is AttachmentUrl.KEEP:
            method = Method.KEEP
        if site.date_kind is DateKind.PUBLIC and method is Method.SURROGATE:
            method = Method.KEEP  # of no person; a policy that allows only the year of a date coarsens it too
        if method is Method.KEEP:  # an edit without a change: the leak guard does not search an edited range
            yield Edit(site.start, site.end, part.message.raw[site.start : site.end])
        if method is Method.KEEP or not site.value:
            return
        if site.kind is ValueKind.REDACT:
            method = Method.REDACT
        linked = method is Method.LINK
        person = part.named.get(site.group or site.path) if site.type in NAME_TYPES else None
        new = (
            self.codes.code_for(site.value) if linked else self.replacer.replace_site(site, method, part.scope, person)
        )
        if new != site.value:
            if linked and self.links is not None:
                self.links[part.prefix + strip_numbers(site.path), site.value, new] = None
            self._count(part, site.path, site.type, method, site.source)
            part.trace.explain(site.start, site.end, Cause(site.path, site.type, method, site.source))
            yield Edit(site.start, site.end, part.message.encode(new))

    def _edit_kept(self, site: Site, text: PlannedText, part: _Part) -> Iterable[Edit]:
        """A value that the policy keeps, without the persons and numbers that are found in it."""
        changes = self.replacer.replace_spans(text.text, site.path, self.found[text.index], part.scope)
        replacements = []
        for change, cause in self._count_changes(part, site.path, text.text, changes):
            part.trace.explain(site.start, site.end, cause)
            replacements.append(change.replacement)
        new = part.message.encode(splice(text.text, replacements)) if replacements else None
        yield Edit(site.start, site.end, part.message.raw[site.start : site.end] if new is None else new)

    def _edit_narratives(self, plan: PartPlan, part: _Part) -> Iterable[Edit]:
        """The edits of all narratives of a message. They agree on the order of day and month."""
        texts = [(text.text, self.found[text.index]) for text in plan.texts]
        # A short comment has only 03/05; another narrative of the message shows which of the two is the month.
        scope = replace(part.scope, day_first=detect_day_order(texts, part.scope))
        scope = self.replacer.learn_births(texts, scope)
        for narrative, (text, spans) in zip(part.message.narratives, texts, strict=True):
            mapped = narrative.mapped
            own = plan.scope_at(mapped.starts[0], scope) if plan.scopes else scope
            changes = self.replacer.replace_spans(text, narrative.path, spans, own)
            for change, cause in self._count_changes(part, narrative.path, text, changes):
                part.trace.explain(mapped.starts[change.span.start], mapped.ends[change.span.end - 1], cause)
            for start, end, new in mapped.place(change.replacement for change in changes):
                yield Edit(start, end, part.message.encode(new))

    def _count_changes(
        self, part: _Part, path: str, text: str, changes: Iterable[SpanChange]
    ) -> Iterable[tuple[SpanChange, Cause]]:
        for change in changes:
            span, source = change.span, str(change.span.source)
            self._count(part, path, span.type, change.method, source)
            yield change, Cause(path, span.type, change.method, source, text, span)

    def _edit_attachment(self, plan: AttachmentPlan, part: _Part) -> Iterable[Edit]:
        """The edits that write a sanitized attachment back, with its size, hash and media type."""
        attachment = plan.attachment
        ranges = ((attachment.start, attachment.end), *attachment.parts)
        for start, end in ranges:
            part.trace.explain(start, end, Cause(attachment.path, "ATTACHMENT", "", "attachment"))
        data, media = self._sanitize_attachment(plan, part)
        if data != attachment.data or attachment.labelled:
            yield from write_attachment(attachment, data, part.message)
            yield from update_siblings(attachment, data, media, part.message)
        else:  # its content has been searched: the leak guard does not search the encoded form
            yield from (Edit(start, end, part.message.raw[start:end]) for start, end in ranges)

    def _sanitize_attachment(self, plan: AttachmentPlan, part: _Part) -> tuple[bytes, bytes]:
        """The new data, and the new media type (empty if it does not change)."""
        attachment, content = plan.attachment, plan.content
        if content is None:
            self._count(part, attachment.path, "ATTACHMENT", Method.REDACT, "attachment")
            return NOTICE, attachment.plain
        if isinstance(content, NestedContent):
            return self._sanitize_nested(content, attachment, part), b""
        if content.decoded is not None:
            return content.decoded.encode(self._sanitize_text(content, attachment.path, part)), b""
        self._count(part, attachment.path, "ATTACHMENT", Method.REDACT, "pdf")
        return self._sanitize_text(content, attachment.path, part).encode("utf-8", "replace"), attachment.plain

    def _sanitize_nested(self, content: NestedContent, attachment: Attachment, outer: _Part) -> bytes:
        sanitized = []
        for plan in content.parts:
            prefix = f"{outer.prefix}{attachment.path}/"
            guarded = outer.guarded[: outer.own] if content.apart else tuple(outer.guarded)
            people = self._find_people(plan) if content.apart else outer.scope.people
            part = self._open_part(plan, guarded, prefix, attachment.path, people)
            try:
                sanitized.append((self._apply_message if content.apart else self._apply_part)(plan, part))
            except MessageError as problem:
                raise prefix_error(attachment, problem) from None
            outer.guarded.extend(part.guarded[len(guarded) :])
        return b"".join(sanitized)

    def _sanitize_text(self, content: TextContent, path: str, outer: _Part) -> str:
        """The text of an attachment, sanitized and searched for leaks like a message of UTF-8 bytes."""
        raw = content.text.text.encode("utf-8", "surrogatepass")
        part = replace(
            outer, codec=PlainText(path), message=PlainMessage(raw), trace=self.tracer.open_document(path, raw)
        )
        return self._apply_plain(content.text, path, part)

    def apply_note(self, planned: PlannedText, path: str, scope: Scope) -> str:
        """The sanitized text of a note that comes without a message, searched for the facts about its patient.

        Raises ``MessageError(LEAK)`` if one remains that may not be written over.
        """
        raw = planned.text.encode("utf-8", "surrogatepass")
        trace = self.tracer.open_document("", raw)
        return self._apply_plain(
            planned, path, _Part(PlainText(path), PlainMessage(raw), scope, "", list(planned.facts), trace)
        )

    def _apply_plain(self, planned: PlannedText, path: str, part: _Part) -> str:
        text, document = planned.text, Document(planned.text)
        edits = []
        with self.timings.measure("surrogate"):
            changes = self.replacer.replace_spans(text, path, self.found[planned.index], part.scope)
            for change, cause in self._count_changes(part, path, text, changes):
                start, end = document.byte(change.span.start), document.byte(change.span.end)
                part.trace.explain(start, end, cause)
                edits.append(Edit(start, end, change.text.encode("utf-8", "surrogatepass")))
        return self._write(part, edits).decode("utf-8", "surrogatepass")

    def _write(self, part: _Part, edits: Sequence[Edit]) -> bytes:
        """The edited message without the identifiers of its structured part, outside of the edited ranges."""
        output, edited = apply_edits(part.message.raw, edits)
        part.trace.record_edits(edits, edited)
        with self.timings.measure("guard"):
            output = self.guard.clean(
                output,
                edited,
                select_searched_facts(part.guarded),
                leaves=part.codec.parse_leaves,
                encode=part.message.encode,
                surrogate=lambda hit: self._replace_leak(hit, part),
                trace=part.trace,
            )
        part.trace.finish(output)
        return output

    def _replace_leak(self, hit: LeakHit, part: _Part) -> str | None:
        """The text that replaces a hit of the leak guard; None if the policy keeps it."""
        path, mapped = hit.leaf.path, hit.leaf.mapped
        method = self.policy.method(hit.type, path)
        if method is Method.KEEP:
            return None
        self._count(part, path, hit.type, method, GUARD_SOURCE)
        cause = Cause(path, hit.type, method, GUARD_SOURCE)
        part.trace.explain_scrub(mapped.starts[hit.start], mapped.ends[hit.end - 1], cause)
        return self.replacer.replace_value(hit.type, hit.text, method, part.scope)
