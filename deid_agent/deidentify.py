"""Bytes in, de-identified bytes out: the whole decision, synchronous and pure.

Structured values are replaced by their type, narratives are recognised and
replaced, attachments are opened and treated as documents of their own. All
edits are byte ranges of the message as it came; everything else stays.
"""

import base64
import binascii
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deid_agent.attachment import NOTICE, decode_text, reads_as_text
from deid_agent.codec.base import Codec
from deid_agent.context import facts_of, reference_of
from deid_agent.errors import MessageError, Reason
from deid_agent.phi import PhiType
from deid_agent.policy import KeyMode, Method, Policy, Unreadable
from deid_agent.recognize.base import Recognizer
from deid_agent.resolve import Resolver
from deid_agent.sites import Attachment, Edit, Fact, Kind, Message, Narrative, Remark, Site, apply
from deid_agent.spans import Replacement, Span, splice
from deid_agent.surrogate import Scope, Surrogates
from deid_agent.surrogate.methods import generalize, mask
from deid_agent.text import Document

Headers = tuple[tuple[str, bytes], ...]
_MAX_NESTING = 4
_SEPARATOR = re.compile(r"[_\-/.]")
_REFERENCE = re.compile(r"([A-Z][A-Za-z]{2,40}/)([A-Za-z0-9.-]{1,64})")


@dataclass(frozen=True, slots=True)
class Deidentified:
    """A sanitized message: what may be published, and what was done to it."""

    payload: bytes = field(repr=False)
    remarks: tuple[Remark, ...]
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)


_Notes = Counter[tuple[str, str, str, str]]


@dataclass(frozen=True, slots=True)
class _Case:
    """One message on its way through: what is known of it, and the remarks so far."""

    message: Message
    facts: tuple[Fact, ...]
    scope: Scope
    notes: _Notes
    nesting: int


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
        recognizers: Sequence[Recognizer],
        resolver: Resolver,
        surrogates: Surrogates,
        policy: Policy,
    ) -> None:
        self._codecs = tuple(codecs)
        self._recognizers = tuple(recognizers)
        self._resolver = resolver
        self._surrogates = surrogates
        self._policy = policy

    def message(self, payload: bytes, *, key: bytes | None = None, headers: Headers = ()) -> Deidentified:
        """One payload (a message, a batch, NDJSON) with its record key and headers.

        Raises ``MessageError`` where the payload cannot be understood; nothing of it may then be published.
        """
        notes: _Notes = Counter()
        parts: list[bytes] = []
        facts: list[Fact] = []
        for message in self._parse(payload):
            case = self._case(message, facts_of(message.sites), notes)
            facts += case.facts
            parts.append(self._message(case))
        return Deidentified(b"".join(parts), _remarks(notes), self._key(key, tuple(facts)), self._kept(headers))

    def tombstone(self, *, key: bytes | None, headers: Headers = ()) -> Deidentified:
        """A record without a value, which deletes its key in a compacted topic: key and headers alone."""
        return Deidentified(b"", (), self._key(key, ()), self._kept(headers))

    def text(
        self, text: str, *, facts: tuple[Fact, ...] = (), document: str = "", patient: str | None = None
    ) -> DeidentifiedText:
        """One note. ``document`` names it (the scope of its date shift); a digest of its text where empty."""
        notes: _Notes = Counter()
        scope = _scope(document or _digest(text.encode("utf-8", "surrogatepass")), patient, facts)
        spans, replacements = self._narrative("text", Document(text, facts), scope, notes)
        return DeidentifiedText(splice(text, replacements), spans, _remarks(notes))

    def _parse(self, payload: bytes) -> Sequence[Message]:
        for codec in self._codecs:
            if codec.detect(payload):
                return codec.parse(payload)
        names = ", ".join(codec.name for codec in self._codecs)
        raise MessageError(Reason.UNSUPPORTED, "byte 0", f"no format recognised; known: {names}")

    def _case(self, message: Message, facts: tuple[Fact, ...], notes: _Notes, nesting: int = 0) -> _Case:
        scope = _scope(message.identity, message.patient, facts)
        return _Case(message, facts, scope, notes, nesting)

    def _message(self, case: _Case) -> bytes:
        if self._policy.changes_nothing:
            return case.message.raw
        edits: list[Edit] = []
        for site in case.message.sites:
            edits += self._site(site, case)
        for narrative in case.message.narratives:
            edits += self._fragments(narrative, case)
        for attachment in case.message.attachments:
            edits += self._attachment(attachment, case)
        return apply(case.message.raw, edits)

    def _site(self, site: Site, case: _Case) -> Iterable[Edit]:
        method = self._policy.method(site.type, site.path)
        if method is Method.KEEP or not site.value:
            return
        if site.kind is Kind.REDACT:
            method = Method.REDACT
        new = self._value(site, method, case.scope)
        if new != site.value:
            case.notes[site.path, site.type, method, site.source] += 1
            yield Edit(site.start, site.end, case.message.encode(new))

    def _value(self, site: Site, method: Method, scope: Scope) -> str:
        match method:
            case Method.SURROGATE:
                return self._surrogates.replace(site.type, site.value, kind=site.kind, scope=scope)
            case Method.GENERALIZE:
                return generalize(site.type, site.value, blank=site.blank)
            case Method.MASK | Method.REDACT:
                return site.blank
            case Method.KEEP:
                return site.value

    def _narrative(
        self, path: str, document: Document, scope: Scope, notes: "_Notes"
    ) -> tuple[tuple[Span, ...], list[Replacement]]:
        """The findings of one document and what to write in their places."""
        if not document.text.strip():
            return (), []
        found = [span for recognizer in self._recognizers for span in recognizer.recognize(document)]
        spans = tuple(self._resolver.resolve(found, document))
        replacements: list[Replacement] = []
        for span in spans:
            method = self._policy.method(span.type, path)
            old = document.text[span.start : span.end]
            new = self._finding(span.type, old, method, scope)
            if new != old:
                notes[path, span.type, method, span.source] += 1
                replacements.append(Replacement(span.start, span.end, new))
        return spans, replacements

    def _finding(self, type_: PhiType, old: str, method: Method, scope: Scope) -> str:
        match method:
            case Method.SURROGATE:
                kind = Kind.NAME if type_ in {PhiType.PATIENT, PhiType.DOCTOR} else Kind.VALUE
                return self._surrogates.replace(type_, old, kind=kind, scope=scope)
            case Method.GENERALIZE:
                return generalize(type_, old, blank=mask(type_))
            case Method.MASK:
                return mask(type_)
            case Method.REDACT:
                return ""
            case Method.KEEP:
                return old

    def _fragments(self, narrative: Narrative, case: _Case) -> Iterable[Edit]:
        document = Document(narrative.mapped.text, case.facts)
        _, replacements = self._narrative(narrative.path, document, case.scope, case.notes)
        for start, end, text in narrative.mapped.place(replacements):
            yield Edit(start, end, case.message.encode(text))

    def _attachment(self, attachment: Attachment, case: _Case) -> Iterable[Edit]:
        """A readable attachment is edited inside; any other is replaced by a notice, or the message refused."""
        if not attachment.data:
            return
        if case.nesting >= _MAX_NESTING:
            raise MessageError(Reason.RESOURCE, attachment.path, "attachments nested too deep")
        media = b""
        if codec := next((c for c in self._codecs if c.detect(attachment.data)), None):
            inner = codec.parse(attachment.data)
            facts = tuple(dict.fromkeys((*case.facts, *(f for m in inner for f in facts_of(m.sites)))))
            nested = (self._case(message, facts, case.notes, case.nesting + 1) for message in inner)
            data = b"".join(self._message(each) for each in nested)
        elif reads_as_text(attachment.content_type, attachment.data):
            text, charset = decode_text(attachment.data, attachment.content_type)
            _, replacements = self._narrative(attachment.path, Document(text, case.facts), case.scope, case.notes)
            data = splice(text, replacements).encode(charset, "replace")
        elif self._policy.unreadable is Unreadable.REFUSE:
            raise MessageError(Reason.UNSUPPORTED, attachment.path, "attachment cannot be read")
        else:
            data, media = NOTICE, attachment.plain
            case.notes[attachment.path, "ATTACHMENT", Method.REDACT, "attachment"] += 1
        if data == attachment.data:
            return
        yield Edit(attachment.start, attachment.end, case.message.encode(_encode(data, attachment)))
        yield from _siblings(attachment, data, media, case.message)

    def _key(self, key: bytes | None, facts: tuple[Fact, ...]) -> bytes | None:
        """The record key, sanitized; a null key stays null."""
        if key is None or self._policy.record_key is KeyMode.DROP:
            return None
        if self._policy.record_key is KeyMode.KEEP or not key:
            return key
        charset = "utf-8" if _is_utf8(key) else "latin-1"
        text = key.decode(charset)
        if self._policy.record_key is KeyMode.TEXT:
            return self._key_as_text(text, facts).encode(charset, "replace")
        # A FHIR key is often a reference: the id alone is mapped, so that it joins with Resource.id.
        reference = _REFERENCE.fullmatch(text)
        head, value = reference.groups() if reference else ("", text)
        new = self._surrogates.replace(PhiType.IDNUM, value, kind=Kind.VALUE, scope=Scope(document=""))
        return (head + new).encode(charset, "replace")

    def _kept(self, headers: Headers) -> Headers:
        return tuple((name, value) for name, value in headers if name.lower() in self._policy.headers)

    def _key_as_text(self, text: str, facts: tuple[Fact, ...]) -> str:
        """A file name: words joined by ``_``, ``-``, ``.`` and ``/`` are read apart."""
        document = Document(_SEPARATOR.sub(" ", text), facts)
        scope = _scope(_digest(text.encode()), None, facts)
        found = [span for recognizer in self._recognizers for span in recognizer.recognize(document)]
        replacements = []
        for span in self._resolver.resolve(found, document):
            old = slice(span.start, span.end)
            new = self._finding(span.type, document.text[old], Method.SURROGATE, scope)
            separator = _SEPARATOR.search(text[old])
            joined = new.replace(" ", separator[0]) if separator else new
            replacements.append(Replacement(span.start, span.end, joined))
        return splice(text, replacements)


def _remarks(notes: Mapping[tuple[str, str, str, str], int]) -> tuple[Remark, ...]:
    return tuple(Remark(*what, count=count) for what, count in notes.items())


def _scope(document: str, patient: str | None, facts: Sequence[Fact]) -> Scope:
    return Scope(document=document, patient=patient, reference=reference_of(facts), people=_people(facts))


def _people(facts: Iterable[Fact]) -> tuple[tuple[str, str], ...]:
    """Given and family name of every person the structure names, so that initials can follow."""
    parts: dict[str, dict[Kind, str]] = {}
    for fact in facts:
        if fact.kind in {Kind.GIVEN, Kind.FAMILY}:
            parts.setdefault(fact.group, {}).setdefault(fact.kind, fact.value)
    return tuple((p.get(Kind.GIVEN, ""), p.get(Kind.FAMILY, "")) for p in parts.values())


def _encode(data: bytes, attachment: Attachment) -> str:
    match attachment.encoding:
        case "hex":
            return data.hex().upper()
        case "text":
            return data.decode("utf-8", "replace")
        case _:
            return base64.b64encode(data).decode("ascii")


def _siblings(attachment: Attachment, data: bytes, media: bytes, message: Message) -> Iterable[Edit]:
    """Size, hash and media type follow the data (FHIR Attachment.hash is base64 of SHA-1)."""
    if attachment.size:
        yield Edit(*attachment.size, str(len(data)).encode())
    if attachment.digest:
        sha1 = hashlib.sha1(data, usedforsecurity=False).digest()
        yield Edit(*attachment.digest, message.encode(binascii.b2a_base64(sha1, newline=False).decode()))
    if media and attachment.media:
        yield Edit(*attachment.media, media)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
