"""Bytes in, de-identified bytes out: the whole decision, synchronous and pure.

Structured values are replaced by their type, narratives are recognised and
replaced, attachments are opened and treated as documents of their own. All
edits are byte ranges of the message as it came; everything else stays.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from deid_agent import pdf, recordkey
from deid_agent.attachment import NOTICE, decode_text, reads_as_text
from deid_agent.case import Case, Notes, observed, remarks_of, scope_of
from deid_agent.changes import Cause, Observer
from deid_agent.codec.base import Codec
from deid_agent.codec.plain import PlainMessage, PlainText
from deid_agent.context import facts_of, reference_of
from deid_agent.errors import MessageError, Reason
from deid_agent.guard import SOURCE, Guard, Hit, searched
from deid_agent.headers import Headers, kept
from deid_agent.laps import Laps
from deid_agent.narratives import Narratives
from deid_agent.policy import AttachmentUrl, Method, Pdf, Policy, Unreadable
from deid_agent.replacer import Codes, Replacer
from deid_agent.rewrap import inside, siblings, written
from deid_agent.sites import ELSEWHERE, Attachment, Edit, Fact, Kind, Message, Remark, Site, place
from deid_agent.spans import Span, splice
from deid_agent.surrogate import Surrogates
from deid_agent.tagger import Tagger
from deid_agent.text import Document
from deid_agent.together import Asking, alone

_MAX_NESTING = 4
_REMOVE = Unreadable.REMOVE


@dataclass(frozen=True, slots=True)
class Deidentified:
    """A sanitized message: what may be published, and what was done to it. ``timings``: seconds by stage."""

    payload: bytes = field(repr=False)
    remarks: tuple[Remark, ...]
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    timings: tuple[tuple[str, float], ...] = field(default=(), compare=False)


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
        resources: frozenset[str] = frozenset(),
    ) -> None:
        """``inner`` are formats that come as attachments only; they are asked first.

        ``resources`` are the types of FHIR: a record key may be a reference to one.
        """
        self._codecs = tuple(codecs)
        self._keys = tagger.without_models()
        self._policy = policy
        self._replacer = Replacer(policy, surrogates)
        self._tagger = tagger
        self._narratives = Narratives(policy, self._replacer)
        self._guard = guard
        self._inner = tuple(inner)
        self._resources = resources

    def message(self, payload: bytes, *, key: bytes | None = None, seen: Observer | None = None) -> Deidentified:
        """One payload (a message, a batch, NDJSON) with its record key; ``seen`` is told each change.

        Raises ``MessageError`` where the payload cannot be understood; nothing of it may then be published.
        """
        return alone(self.asking(payload, key=key, seen=seen), self.read)

    def read(self, documents: Sequence[Document]) -> list[list[Span]]:
        """What stands in each of the documents, as whoever drives ``asking`` is to answer."""
        return self._tagger.find_all(documents)

    @property
    def gains(self) -> bool:
        """True where to read the texts of several messages together is less work: for models it is."""
        return bool(self._tagger.models)

    def asking(
        self, payload: bytes, *, key: bytes | None = None, headers: Headers = (), seen: Observer | None = None
    ) -> Asking[Deidentified]:
        """``message`` in steps, from one text to read to the next, with the record's headers; for ``together``."""
        notes: Notes = Counter()
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
                case = observed(case, seen, "")
                facts += case.facts
                parts.append((yield from self._message(case)))
            with laps.of("surrogate"):
                mapped = self._key(key, tuple(facts))
        return Deidentified(b"".join(parts), remarks_of(notes), mapped, self._kept(headers), laps.timings)

    def tombstone(self, *, key: bytes | None, headers: Headers = ()) -> Deidentified:
        """A record without a value, which deletes its key in a compacted topic: key and headers alone."""
        return Deidentified(b"", (), self._key(key, ()), self._kept(headers))

    def text(
        self,
        text: str,
        *,
        facts: tuple[Fact, ...] = (),
        document: str = "",
        patient: str | None = None,
        seen: Observer | None = None,
    ) -> DeidentifiedText:
        """One note. ``document`` names it (the scope of its date shift); a digest of its text where empty."""
        notes: Notes = Counter()
        scope = scope_of(document or recordkey.document_of(text), patient, facts)
        note, causes = Document(text, facts), list[Cause]()
        reading = self._narratives.of_text("text", note, scope, notes, Laps(), causes)
        spans, replacements = alone(reading, self.read)
        done = DeidentifiedText(splice(text, replacements), spans, remarks_of(notes))
        if seen is not None:
            page = seen.page("", note.utf8)
            page.spliced(note, causes, replacements)
            page.after = done.text.encode("utf-8", "surrogatepass")
        return done

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
        notes: Notes,
        codes: Codes,
        laps: Laps,
        outer: Case | None = None,
    ) -> Case:
        scope = scope_of(message.identity, message.patient, facts, reference_of(message.sites))
        changed = (site for site in message.sites if self._policy.method(site.type, site.path) is not Method.KEEP)
        own = facts_of(changed, "" if outer is None else str(len(outer.guarded)))
        guarded = [*(outer.guarded if outer else ()), *own]
        return Case(codec, message, facts, scope, notes, outer.nesting + 1 if outer else 0, guarded, codes, laps)

    def _message(self, case: Case) -> Asking[bytes]:
        if self._policy.changes_nothing:
            if case.page is not None:
                case.page.after = case.message.raw
            return case.message.raw
        edits: list[Edit] = []
        with case.laps.of("surrogate"):
            for site in case.message.sites:
                edits += self._site(site, case)
        for attachment in case.message.attachments:
            edits += yield from self._attachment(attachment, case)
        edits += yield from self._narratives.edits(case)
        return self._guarded(case, edits)

    def _guarded(self, case: Case, edits: Sequence[Edit]) -> bytes:
        """The edited message without what its own structure named, outside of the ranges that were decided on."""

        def surrogate(hit: Hit) -> str | None:
            return self._leaked(hit, hit.leaf.path, case)

        encode, leaves, page = case.message.encode, case.codec.leaves, case.page
        output, decided = place(case.message.raw, edits)
        if page is not None:
            page.placed(edits, decided)
        with case.laps.of("guard"):
            facts, moved = searched(case.guarded), None if page is None else page.moved
            clean = self._guard.clean
            output = clean(output, decided, facts, leaves=leaves, encode=encode, surrogate=surrogate, moved=moved)
        if page is not None:
            page.after = output
        return output

    def _leaked(self, hit: Hit, path: str, case: Case) -> str | None:
        """What stands in place of a hit of the leak guard; None where policy keeps it."""
        method = self._policy.method(hit.type, path)
        if method is Method.KEEP:
            return None
        case.notes[path, hit.type, method, SOURCE] += 1
        if case.page is not None:
            mapped = hit.leaf.mapped
            cause = Cause(path, hit.type, method, SOURCE)
            case.page.scrubbed(mapped.starts[hit.start], mapped.ends[hit.end - 1], cause)
        return self._replacer.finding(hit.type, hit.old, method, case.scope)

    def _site(self, site: Site, case: Case) -> Iterable[Edit]:
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
            if case.page is not None:
                case.page.because(site.start, site.end, Cause(site.path, site.type, method, site.source))
            yield Edit(site.start, site.end, case.message.encode(new))

    def _attachment(self, attachment: Attachment, case: Case) -> Asking[list[Edit]]:
        """A readable attachment is edited inside; any other is replaced by a notice, or the message refused."""
        if not attachment.data:
            return []
        if case.nesting >= _MAX_NESTING:
            raise MessageError(Reason.RESOURCE, attachment.path, "attachments nested too deep")
        places = ((attachment.start, attachment.end), *attachment.parts)
        if case.page is not None:
            cause = Cause(attachment.path, "ATTACHMENT", "", "attachment")
            for start, end in places:
                case.page.because(start, end, cause)
        data, media = yield from self._document(attachment, case)
        if data != attachment.data:
            return [*written(attachment, data, case.message), *siblings(attachment, data, media, case.message)]
        # searched inside: the leak guard leaves the encoded form
        return [Edit(start, end, case.message.raw[start:end]) for start, end in places]

    def _document(self, attachment: Attachment, case: Case) -> Asking[tuple[bytes, bytes]]:
        """The sanitized document, and its media type where that is another now."""
        if codec := next((c for c in (*self._inner, *self._codecs) if c.detect(attachment.data)), None):
            try:
                with case.laps.of("parse"):
                    messages = codec.parse(attachment.data)
            except MessageError as problem:
                if problem.reason is not Reason.RESOURCE and self._policy.unreadable is _REMOVE:
                    return self._removed(attachment, case)
                raise inside(attachment, problem) from None
            return (yield from self._nested(codec, messages, attachment, case)), b""
        if pdf.detect(attachment.data):
            return (yield from self._pdf(attachment, case))
        media = attachment.content_type
        if attachment.encoding == "text":  # its bytes are UTF-8, whatever it was once
            media = media.partition(";")[0]
        if reads_as_text(media, attachment.data) and (decoded := decode_text(attachment.data, media)):
            prose = yield from self._prose(decoded.text, attachment.path, case)
            return decoded.encode(prose), b""
        return self._removed(attachment, case)

    def _nested(self, codec: Codec, messages: Sequence[Message], attachment: Attachment, case: Case) -> Asking[bytes]:
        """The messages of an attachment. They know what the outer one knows, and share its scope: one date shift."""
        within = f"{attachment.path}/"
        own = (fact for n, message in enumerate(messages) for fact in facts_of(message.sites, f"{within}{n}"))
        facts = tuple(dict.fromkeys((*case.facts, *own)))
        notes: Notes = Counter()
        parts = []
        for message in messages:
            inner = self._case(codec, message, facts, notes, case.codes, case.laps, case)
            inner = observed(inner, case.seen, attachment.path)
            patient = case.scope.patient or message.patient
            scope = scope_of(case.scope.document, patient, facts, case.scope.reference or inner.scope.reference)
            try:
                parts.append((yield from self._message(replace(inner, scope=scope))))
            except MessageError as problem:
                raise inside(attachment, problem) from None
            case.guarded.extend(inner.guarded[len(case.guarded) :])
        for (path, type_, method, source), count in notes.items():
            case.notes[f"{attachment.path}/{path}", type_, method, source] += count
        return b"".join(parts)

    def _pdf(self, attachment: Attachment, case: Case) -> Asking[tuple[bytes, bytes]]:
        """A PDF with a text layer leaves as that text."""
        if self._policy.pdf is Pdf.REFUSE:
            raise MessageError(Reason.UNSUPPORTED, attachment.path, "PDF, which the policy refuses")
        with case.laps.of("parse"):
            found = pdf.text(attachment.data, attachment.path) if self._policy.pdf is Pdf.TEXT else None
        if found is None:
            return self._removed(attachment, case, always=self._policy.pdf is Pdf.REMOVE)
        case.notes[attachment.path, "ATTACHMENT", Method.REDACT, "pdf"] += 1
        prose = yield from self._prose(found, attachment.path, case)
        return prose.encode("utf-8", "replace"), attachment.plain

    def _prose(self, text: str, path: str, case: Case) -> Asking[str]:
        """The text of an attachment, sanitized and searched like a message: its bytes are UTF-8 for that while."""
        raw = text.encode("utf-8", "surrogatepass")
        document = Document(text, case.facts)
        causes: list[Cause] | None = None if case.page is None else []
        _, replacements = yield from self._narratives.of_text(path, document, case.scope, case.notes, case.laps, causes)
        edits = [Edit(document.byte(r.start), document.byte(r.end), r.text.encode("utf-8")) for r in replacements]
        plain = observed(replace(case, codec=PlainText(path), message=PlainMessage(raw)), case.seen, path)
        if plain.page is not None:
            for edit, cause in zip(edits, causes or (), strict=True):
                plain.page.because(edit.start, edit.end, cause)
        return self._guarded(plain, edits).decode("utf-8", "surrogatepass")

    def _removed(self, attachment: Attachment, case: Case, *, always: bool = False) -> tuple[bytes, bytes]:
        if self._policy.unreadable is not _REMOVE and not always:
            raise MessageError(Reason.UNSUPPORTED, attachment.path, "attachment cannot be read")
        case.notes[attachment.path, "ATTACHMENT", Method.REDACT, "attachment"] += 1
        return NOTICE, attachment.plain

    def _key(self, key: bytes | None, facts: tuple[Fact, ...]) -> bytes | None:
        name = "" if key is None else recordkey.document_of(key.decode("utf-8", "replace"))
        scope = scope_of(name, None, facts)
        return recordkey.sanitized(key, facts, scope, self._replacer, self._keys.find, self._resources)

    def _kept(self, headers: Headers) -> Headers:
        return kept(headers, self._policy.headers)
