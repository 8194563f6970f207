"""Bytes in, de-identified bytes out: the whole decision, synchronous and pure.

Structured values are replaced by their type, narratives are recognised and
replaced, attachments are opened and treated as documents of their own. All
edits are byte ranges of the message as it came; everything else stays.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from deid_agent import pdf, recordkey
from deid_agent.attachment import NOTICE, decode_text, reads_as_text
from deid_agent.codec.base import Codec
from deid_agent.codec.plain import PlainMessage, PlainText
from deid_agent.context import days_of, facts_of, reference_of
from deid_agent.errors import MessageError, Reason
from deid_agent.guard import SOURCE, Guard, Hit, searched
from deid_agent.headers import Headers, kept
from deid_agent.laps import Laps
from deid_agent.policy import AttachmentUrl, Method, Pdf, Policy, Unreadable
from deid_agent.replacer import Codes, Replacer
from deid_agent.rewrap import inside, siblings, written
from deid_agent.sites import ELSEWHERE, Attachment, Edit, Fact, Kind, Message, Remark, Site, place
from deid_agent.spans import Replacement, Span, splice
from deid_agent.surrogate import Scope, Surrogates
from deid_agent.tagger import Tagger
from deid_agent.text import Document

_MAX_NESTING = 4
MAX_TEXT = 1_000_000
"""Characters of one narrative: 250 pages. Reading takes 200 bytes for each of prose, 900 where each sign is a token."""
_REMOVE = Unreadable.REMOVE


@dataclass(frozen=True, slots=True)
class Deidentified:
    """A sanitized message: what may be published, and what was done to it. ``timings``: seconds by stage."""

    payload: bytes = field(repr=False)
    remarks: tuple[Remark, ...]
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    timings: tuple[tuple[str, float], ...] = field(default=(), compare=False)


_Notes = Counter[tuple[str, str, str, str]]


@dataclass(frozen=True, slots=True)
class _Case:
    """One message on its way through: what is known of it, and the remarks so far.

    ``guarded`` are the facts that must not be in the output; those of its attachments join on the way.
    """

    codec: Codec
    message: Message
    facts: tuple[Fact, ...]
    scope: Scope
    notes: _Notes
    nesting: int
    guarded: list[Fact] = field(repr=False)
    codes: Codes
    laps: Laps


@dataclass(frozen=True, slots=True)
class DeidentifiedText:
    """A sanitized note. ``spans`` are the findings in the text as it came."""

    text: str = field(repr=False)
    spans: tuple[Span, ...]
    remarks: tuple[Remark, ...]


class Deidentifier:
    """Holds what is loaded once (rules, models, key); used per message, never changed by it."""

    def __init__(
        self,
        *,
        codecs: Sequence[Codec],
        tagger: Tagger,
        surrogates: Surrogates,
        policy: Policy,
        guard: Guard,
        inner: Sequence[Codec] = (),
    ) -> None:
        """``inner`` are formats that come as attachments only; they are asked first."""
        self._codecs = tuple(codecs)
        self._tagger = tagger
        self._keys = tagger.without_models()
        self._policy = policy
        self._replacer = Replacer(policy, surrogates)
        self._guard = guard
        self._inner = tuple(inner)

    def message(self, payload: bytes, *, key: bytes | None = None, headers: Headers = ()) -> Deidentified:
        """One payload (a message, a batch, NDJSON) with its record key and headers.

        Raises ``MessageError`` where the payload cannot be understood; nothing of it may then be published.
        """
        notes: _Notes = Counter()
        parts: list[bytes] = []
        facts: list[Fact] = []
        laps = Laps()
        with laps.of("edit"):
            with laps.of("parse"):
                codec = self._codec(payload)
                messages = codec.parse(payload)
            codes = Codes(self._replacer.surrogates, payload)
            for number, message in enumerate(messages):
                case = self._case(codec, message, facts_of(message.sites, str(number)), notes, codes, laps)
                facts += case.facts
                parts.append(self._message(case))
            with laps.of("surrogate"):
                mapped = self._key(key, tuple(facts))
        return Deidentified(b"".join(parts), _remarks(notes), mapped, self._kept(headers), laps.timings)

    def tombstone(self, *, key: bytes | None, headers: Headers = ()) -> Deidentified:
        """A record without a value, which deletes its key in a compacted topic: key and headers alone."""
        return Deidentified(b"", (), self._key(key, ()), self._kept(headers))

    def text(
        self, text: str, *, facts: tuple[Fact, ...] = (), document: str = "", patient: str | None = None
    ) -> DeidentifiedText:
        """One note. ``document`` names it (the scope of its date shift); a digest of its text where empty."""
        notes: _Notes = Counter()
        scope = _scope(document or recordkey.document_of(text), patient, facts)
        spans, replacements = self._narrative("text", Document(text, facts), scope, notes, Laps())
        return DeidentifiedText(splice(text, replacements), spans, _remarks(notes))

    def _codec(self, payload: bytes) -> Codec:
        for codec in self._codecs:
            if codec.detect(payload):
                return codec
        names = ", ".join(codec.name for codec in self._codecs)
        raise MessageError(Reason.UNSUPPORTED, "byte 0", f"no format recognised; known: {names}")

    def _case(
        self,
        codec: Codec,
        message: Message,
        facts: tuple[Fact, ...],
        notes: _Notes,
        codes: Codes,
        laps: Laps,
        outer: "_Case | None" = None,
    ) -> _Case:
        scope = _scope(message.identity, message.patient, facts, reference_of(message.sites))
        changed = (site for site in message.sites if self._policy.method(site.type, site.path) is not Method.KEEP)
        own = facts_of(changed, "" if outer is None else str(len(outer.guarded)))
        guarded = [*(outer.guarded if outer else ()), *own]
        return _Case(codec, message, facts, scope, notes, outer.nesting + 1 if outer else 0, guarded, codes, laps)

    def _message(self, case: _Case) -> bytes:
        if self._policy.changes_nothing:
            return case.message.raw
        edits: list[Edit] = []
        with case.laps.of("surrogate"):
            for site in case.message.sites:
                edits += self._site(site, case)
        for attachment in case.message.attachments:
            edits += self._attachment(attachment, case)
        edits += self._fragments(case)
        return self._guarded(case, *place(case.message.raw, edits))

    def _guarded(self, case: _Case, output: bytes, decided: list[tuple[int, int]]) -> bytes:
        """The output without what its own structure named, outside of the ranges that were decided on."""

        def surrogate(hit: Hit) -> str | None:
            return self._leaked(hit, hit.leaf.path, case)

        encode, leaves = case.message.encode, case.codec.leaves
        with case.laps.of("guard"):
            facts = searched(case.guarded)
            return self._guard.clean(output, decided, facts, leaves=leaves, encode=encode, surrogate=surrogate)

    def _leaked(self, hit: Hit, path: str, case: _Case) -> str | None:
        """What stands in place of a hit of the leak guard; None where policy keeps it."""
        method = self._policy.method(hit.type, path)
        if method is Method.KEEP:
            return None
        case.notes[path, hit.type, method, SOURCE] += 1
        return self._replacer.finding(hit.type, hit.old, method, case.scope)

    def _site(self, site: Site, case: _Case) -> Iterable[Edit]:
        method = self._policy.method(site.type, site.path)
        if site.source == ELSEWHERE and self._policy.attachment_url is AttachmentUrl.KEEP:
            method = Method.KEEP
        if method is Method.KEEP:  # decided: the leak guard leaves it
            yield Edit(site.start, site.end, case.message.raw[site.start : site.end])
        if method is Method.KEEP or not site.value:
            return
        if site.kind is Kind.REDACT:
            method = Method.REDACT
        link = method is Method.LINK
        new = case.codes.of(site.value) if link else self._replacer.value(site, method, case.scope)
        if new != site.value:
            case.notes[site.path, site.type, method, site.source] += 1
            yield Edit(site.start, site.end, case.message.encode(new))

    def _narrative(
        self, path: str, document: Document, scope: Scope, notes: "_Notes", laps: Laps
    ) -> tuple[tuple[Span, ...], list[Replacement]]:
        """The findings of one document and what to write in their places."""
        if not _worth_reading(path, document):
            return (), []
        with laps.of("recognize"):
            spans = tuple(self._tagger.find(document))
        with laps.of("surrogate"):
            return spans, self._replaced(path, document, spans, scope, notes)

    def _replaced(
        self, path: str, document: Document, spans: Sequence[Span], scope: Scope, notes: "_Notes"
    ) -> list[Replacement]:
        replacements: list[Replacement] = []
        methods = [self._policy.method(span.type, path) for span in spans]
        found = self._replacer.findings(document.text, spans, methods, scope)
        for span, method, new in zip(spans, methods, found, strict=True):
            if new != document.text[span.start : span.end]:
                notes[path, span.type, method, span.source] += 1
                replacements.append(Replacement(span.start, span.end, new))
        return replacements

    def _fragments(self, case: _Case) -> Iterable[Edit]:
        """The edits of all narratives of a message, which the tagger reads together."""
        documents = [(n, Document(n.mapped.text, case.facts)) for n in case.message.narratives]
        documents = [(n, document) for n, document in documents if _worth_reading(n.path, document)]
        with case.laps.of("recognize"):
            found = self._tagger.find_all([document for _, document in documents])
        for (narrative, document), spans in zip(documents, found, strict=True):
            with case.laps.of("surrogate"):
                replacements = self._replaced(narrative.path, document, spans, case.scope, case.notes)
            for start, end, text in narrative.mapped.place(replacements):
                yield Edit(start, end, case.message.encode(text))

    def _attachment(self, attachment: Attachment, case: _Case) -> Iterable[Edit]:
        """A readable attachment is edited inside; any other is replaced by a notice, or the message refused."""
        if not attachment.data:
            return
        if case.nesting >= _MAX_NESTING:
            raise MessageError(Reason.RESOURCE, attachment.path, "attachments nested too deep")
        data, media = self._document(attachment, case)
        if data != attachment.data:
            yield from written(attachment, data, case.message)
            yield from siblings(attachment, data, media, case.message)
        else:  # searched inside: the leak guard leaves the encoded form
            for start, end in ((attachment.start, attachment.end), *attachment.parts):
                yield Edit(start, end, case.message.raw[start:end])

    def _document(self, attachment: Attachment, case: _Case) -> tuple[bytes, bytes]:
        """The sanitized document, and its media type where that is another now."""
        if codec := next((c for c in (*self._inner, *self._codecs) if c.detect(attachment.data)), None):
            try:
                with case.laps.of("parse"):
                    messages = codec.parse(attachment.data)
            except MessageError as problem:
                if problem.reason is not Reason.RESOURCE and self._policy.unreadable is _REMOVE:
                    return self._removed(attachment, case)
                raise inside(attachment, problem) from None
            return self._nested(codec, messages, attachment, case), b""
        if pdf.detect(attachment.data):
            return self._pdf(attachment, case)
        media = attachment.content_type
        if attachment.encoding == "text":  # its bytes are UTF-8, whatever it was once
            media = media.partition(";")[0]
        if reads_as_text(media, attachment.data) and (decoded := decode_text(attachment.data, media)):
            return decoded.encode(self._prose(decoded.text, attachment.path, case)), b""
        return self._removed(attachment, case)

    def _nested(self, codec: Codec, messages: Sequence[Message], attachment: Attachment, case: _Case) -> bytes:
        """The messages of an attachment. They know what the outer one knows, and share its scope: one date shift."""
        within = f"{attachment.path}/"
        own = (fact for n, message in enumerate(messages) for fact in facts_of(message.sites, f"{within}{n}"))
        facts = tuple(dict.fromkeys((*case.facts, *own)))
        notes: _Notes = Counter()
        parts = []
        for message in messages:
            inner = self._case(codec, message, facts, notes, case.codes, case.laps, case)
            patient = case.scope.patient or message.patient
            scope = _scope(case.scope.document, patient, facts, case.scope.reference or inner.scope.reference)
            try:
                parts.append(self._message(replace(inner, scope=scope)))
            except MessageError as problem:
                raise inside(attachment, problem) from None
            case.guarded.extend(inner.guarded[len(case.guarded) :])
        for (path, type_, method, source), count in notes.items():
            case.notes[f"{attachment.path}/{path}", type_, method, source] += count
        return b"".join(parts)

    def _pdf(self, attachment: Attachment, case: _Case) -> tuple[bytes, bytes]:
        """A PDF with a text layer leaves as that text."""
        if self._policy.pdf is Pdf.REFUSE:
            raise MessageError(Reason.UNSUPPORTED, attachment.path, "PDF, which the policy refuses")
        with case.laps.of("parse"):
            found = pdf.text(attachment.data, attachment.path) if self._policy.pdf is Pdf.TEXT else None
        if found is None:
            return self._removed(attachment, case, always=self._policy.pdf is Pdf.REMOVE)
        case.notes[attachment.path, "ATTACHMENT", Method.REDACT, "pdf"] += 1
        return self._prose(found, attachment.path, case).encode("utf-8", "replace"), attachment.plain

    def _prose(self, text: str, path: str, case: _Case) -> str:
        """The text of an attachment, sanitized and searched like a message: its bytes are UTF-8 for that while."""
        raw = text.encode("utf-8", "surrogatepass")
        document = Document(text, case.facts)
        _, replacements = self._narrative(path, document, case.scope, case.notes, case.laps)
        edits = [Edit(document.byte(r.start), document.byte(r.end), r.text.encode("utf-8")) for r in replacements]
        plain = replace(case, codec=PlainText(path), message=PlainMessage(raw))
        return self._guarded(plain, *place(raw, edits)).decode("utf-8", "surrogatepass")

    def _removed(self, attachment: Attachment, case: _Case, *, always: bool = False) -> tuple[bytes, bytes]:
        if self._policy.unreadable is not _REMOVE and not always:
            raise MessageError(Reason.UNSUPPORTED, attachment.path, "attachment cannot be read")
        case.notes[attachment.path, "ATTACHMENT", Method.REDACT, "attachment"] += 1
        return NOTICE, attachment.plain

    def _key(self, key: bytes | None, facts: tuple[Fact, ...]) -> bytes | None:
        name = "" if key is None else recordkey.document_of(key.decode("utf-8", "replace"))
        return recordkey.sanitized(key, facts, _scope(name, None, facts), self._replacer, self._keys.find)

    def _kept(self, headers: Headers) -> Headers:
        return kept(headers, self._policy.headers)


def _worth_reading(path: str, document: Document) -> bool:
    """False for an empty text. Raises ``MessageError(RESOURCE)`` for one that is too long."""
    if len(document.text) > MAX_TEXT:
        raise MessageError(Reason.RESOURCE, path, f"a text of more than {MAX_TEXT} characters")
    return bool(document.text.strip())


def _remarks(notes: Mapping[tuple[str, str, str, str], int]) -> tuple[Remark, ...]:
    return tuple(Remark(*what, count=count) for what, count in notes.items())


def _scope(document: str, patient: str | None, facts: tuple[Fact, ...], reference: date | None = None) -> Scope:
    known = days_of(facts) + ((reference,) if reference else ())
    return Scope(document=document, patient=patient, reference=reference, people=_people(facts), known=known)


def _people(facts: Iterable[Fact]) -> tuple[tuple[str, str], ...]:
    """Given and family name of every person the structure names, so that initials can follow."""
    parts: dict[str, dict[Kind, str]] = {}
    for fact in facts:
        if fact.kind in {Kind.GIVEN, Kind.FAMILY}:
            parts.setdefault(fact.group, {}).setdefault(fact.kind, fact.value)
    return tuple((p.get(Kind.GIVEN, ""), p.get(Kind.FAMILY, "")) for p in parts.values())
