"""Replacement of values by the method that the policy names, and of record keys."""

import hashlib
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from deid_agent.model import (
    DateKind,
    Document,
    Fact,
    PhiType,
    Replacement,
    Site,
    SourceKind,
    Span,
    ValueKind,
    normalize_writing,
    splice,
)
from deid_agent.pipeline.facts import NAME_TYPES, parse_day
from deid_agent.pipeline.policy import KeyMode, Method, Policy
from deid_agent.pipeline.policy_dates import Technical
from deid_agent.recognize import MEMORY_SOURCE
from deid_agent.surrogate import (
    ADULT_DAYS,
    NamedPerson,
    Period,
    Scope,
    Surrogates,
    coarsen_date,
    connects_days,
    detect_day_first,
    generalize,
    mask,
)

_CODED = re.compile(r"\d|%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, slots=True)
class SpanChange:
    """A span of a narrative with the text that replaces it."""

    span: Span
    method: Method
    text: str = field(repr=False)

    @property
    def replacement(self) -> Replacement:
        """The change without its span's type and method."""
        return Replacement(self.span.start, self.span.end, self.text)


@dataclass(frozen=True, slots=True)
class Replacer:
    """Replaces values with one policy and one set of surrogates.

    ``year`` is the current year. Ages are generalized by it if a message has no date of its own.
    """

    policy: Policy
    surrogates: Surrogates
    year: int = field(default_factory=lambda: date.today().year)

    def of_document(self, content: bytes) -> "Replacer":
        """The replacer for a document of this content: of its own if the policy unlinks documents, else the same."""
        if not self.policy.unlinked:
            return self
        return replace(self, surrogates=self.surrogates.of_document(hashlib.sha256(content).hexdigest()))

    def replace_site(self, site: Site, method: Method, scope: Scope, person: NamedPerson | None = None) -> str:
        """The replacement of a structured value; ``site.blank`` if no part of the value may remain.

        ``person`` is the person of the scope whose name it is, if known.

        ``LinkCodes`` replaces values with ``Method.LINK``.
        """
        match method:
            case Method.SURROGATE:
                if site.type is PhiType.DATE and site.date_kind is DateKind.TECHNICAL:
                    return self._replace_technical(site, scope)
                kind = _date_kind(site, scope)
                new = self.surrogates.replace(
                    site.type, _decode_name(site), kind=site.kind, scope=scope, date_kind=kind, person=person
                )
                if site.type is PhiType.DATE and new.strip() == mask(site.type):
                    return site.blank  # a typed date field may not hold the words of a mask
                return new[: site.limit].rstrip() if site.limit else new
            case Method.GENERALIZE:
                new = generalize(site.type, site.value, blank=site.blank, now=self._current_year(scope))
                return f"{new}-01-01T00:00:00Z" if site.kind is ValueKind.INSTANT and len(new) == 4 else new
            case Method.MASK | Method.REDACT | Method.LINK:
                return site.blank
            case Method.KEEP:
                return site.value

    def _replace_technical(self, site: Site, scope: Scope) -> str:
        """A technical time, by ``[dates] technical``: moved like an event, the true time made coarse, or blank."""
        new: str | None = None
        match self.policy.technical:
            case Technical.SHIFT:
                new = self.surrogates.replace(
                    site.type, site.value, kind=site.kind, scope=scope, date_kind=DateKind.TECHNICAL
                )
            case Technical.DAY | Technical.WEEK | Technical.YEAR:
                new = coarsen_date(site.value, Period(self.policy.technical))
            case Technical.DROP:
                return site.blank
        return site.blank if new is None or new.strip() == mask(site.type) else new

    def find_latest_day(self, text: str, spans: Sequence[Span]) -> date | None:
        """The latest day of a text that is no birth: the day on which it was written, for the ages in it."""
        days = (
            self.surrogates.read_day(text[span.start : span.end])
            for span in spans
            if span.type is PhiType.DATE and not self.surrogates.is_birth(text, span.start, span.end)
        )
        return max((day for day in days if day is not None), default=None)

    def learn_births(self, texts: Iterable[tuple[str, Sequence[Span]]], scope: Scope) -> Scope:
        """The scope with the births that labels in these texts state, so that their other mentions move with them."""
        born = {
            day
            for text, spans in texts
            for span in spans
            if span.type is PhiType.DATE and self.surrogates.is_birth(text, span.start, span.end)
            if (day := self.surrogates.read_day(text[span.start : span.end], scope.day_first, whole=True))
            if scope.today is None or day <= scope.today
        }
        return scope if born <= scope.births else replace(scope, births=scope.births | born)

    def replace_spans(self, text: str, path: str, spans: Sequence[Span], scope: Scope) -> list[SpanChange]:
        """The changes of a narrative at ``path``, by the policy; spans whose text does not change are left out."""
        methods = [self.policy.method(span.type, path) for span in spans]
        changes = []
        for span, method, new in zip(spans, methods, self.replace_findings(text, spans, methods, scope), strict=True):
            if new != text[span.start : span.end]:
                changes.append(SpanChange(span, method, new))
        return changes

    def replace_findings(self, text: str, spans: Sequence[Span], methods: Sequence[Method], scope: Scope) -> list[str]:
        """The replacement of each span of one text, in order.

        Days of one expression (March 4-9, 2019) are replaced together. 3/4/2019 is the third of April if the other
        dates of the text, or the days that the structure names, are in that order. If they leave it open, the order
        of ``scope`` applies.
        """
        old = [_read(text, span) for span in spans]
        own = detect_day_order([(text, spans)], scope)
        if own is not None:
            scope = replace(scope, day_first=own)
        if not scope.people:
            scope = replace(scope, people=tuple(self.find_people(text, spans)))
        scope = self.learn_births([(text, spans)], scope)
        births = [
            _is_day(spans, methods, n) and self.surrogates.is_birth(text, span.start, span.end)
            for n, span in enumerate(spans)
        ]
        out: list[str] = []
        start = 0
        for end in range(1, len(spans) + 1):
            days = end < len(spans) and _is_day(spans, methods, end - 1) and _is_day(spans, methods, end)
            if days and births[end - 1] == births[end] and connects_days(text[spans[end - 1].end : spans[end].start]):
                continue
            kind = DateKind.BIRTH if births[start] else None
            if end - start > 1:
                gaps = [text[spans[n].end : spans[n + 1].start] for n in range(start, end - 1)]
                out += self.surrogates.replace_days(old[start:end], gaps, scope, kind)
            else:
                out.append(self.replace_value(spans[start].type, old[start], methods[start], scope, kind))
            start = end
        return out

    def find_people(self, text: str, spans: Sequence[Span]) -> Iterator[NamedPerson]:
        """The persons whom a text names with given and family name, or with a word of kinship beside a given name.

        Another part of the document that names them by a part of the name means the same person. A name that only the
        memory of the patient found introduces nobody: other names have the same surrogates with the memory and without.
        """
        for span in spans:
            if span.type in {PhiType.PATIENT, PhiType.DOCTOR} and span.source != MEMORY_SOURCE:
                person = self.surrogates.read_person(span.type, text[span.start : span.end])
                if not person.sex and not person.staff:
                    person = replace(person, sex=self.surrogates.find_sex_beside(text, span.start, span.end))
                if person.given and not person.family and self.surrogates.follows_title(text, span.start):
                    continue
                if person.given and (person.family or person.sex):
                    yield person

    def replace_value(
        self, type_: PhiType, old: str, method: Method, scope: Scope, date_kind: DateKind | None = None
    ) -> str:
        """The replacement of one value in text. A date without a ``date_kind`` is a birth if its message names it."""
        match method:
            case Method.SURROGATE:
                kind = ValueKind.NAME if type_ in {PhiType.PATIENT, PhiType.DOCTOR} else ValueKind.VALUE
                return self.surrogates.replace(type_, old, kind=kind, scope=scope, date_kind=date_kind)
            case Method.GENERALIZE:
                return generalize(type_, old, blank=mask(type_), now=self._current_year(scope))
            case Method.MASK | Method.LINK:
                return mask(type_)
            case Method.REDACT:
                return ""
            case Method.KEEP:
                return old

    def _current_year(self, scope: Scope) -> int:
        return scope.reference.year if scope.reference else self.year


def _decode_name(site: Site) -> str:
    """The value of a site; of a name with digits or codes of characters in its normal form: ``&#1488;`` is a letter."""
    if site.type not in NAME_TYPES or not _CODED.search(site.value):
        return site.value
    plain = normalize_writing(site.value)
    return site.value if plain is None or not plain.text.strip() else plain.text


def _date_kind(site: Site, scope: Scope) -> DateKind:
    """The kind of a typed date. A field of events that repeats the birth date of an adult is a birth, too."""
    if site.date_kind is DateKind.EVENT and scope.births and site.type is PhiType.DATE:
        day = parse_day(site.value)
        if day in scope.births and day and (scope.today is None or (scope.today - day).days >= ADULT_DAYS):
            return DateKind.BIRTH
    return site.date_kind


def _read(text: str, span: Span) -> str:
    """The characters of a span; those of known PHI in their normal form, so that all writings have one surrogate."""
    old = text[span.start : span.end]
    plain = normalize_writing(old) if span.source.kind is SourceKind.KNOWN else None
    return old if plain is None or not plain.text.strip() else plain.text


def detect_day_order(texts: Iterable[tuple[str, Sequence[Span]]], scope: Scope) -> bool | None:
    """True if the dates in these texts put the day before the month; None if no date decides it."""
    days = (text[s.start : s.end] for text, spans in texts for s in spans if s.type is PhiType.DATE)
    return detect_day_first(days, scope.known)


def _is_day(spans: Sequence[Span], methods: Sequence[Method], n: int) -> bool:
    return spans[n].type is PhiType.DATE and methods[n] is Method.SURROGATE


# Record keys. An identifier is mapped by the key alone, a file name by key and message.

Find = Callable[[Document], Iterable[Span]]
"""Returns the resolved findings of a document."""

_SEPARATOR = re.compile(r"[_\-/.]")
_REFERENCE = re.compile(r"([A-Z][A-Za-z]{2,40})/[A-Za-z0-9.-]{1,64}")


def sanitize_key(
    key: bytes | None,
    facts: tuple[Fact, ...],
    scope: Scope,
    replacer: Replacer,
    find: Find,
    fhir_types: Container[str] = frozenset(),
) -> bytes | None:
    """The record key, sanitized by the policy's ``record.key``; a null key stays null.

    ``facts`` and ``scope`` are those of the message; only file names use them. ``fhir_types`` are the resource types
    of FHIR. A prefix before a slash is kept only if it is one of them: in OAH/90217 it is a part of the number, in
    Okafor/90217 it is a name.
    """
    mode = replacer.policy.record_key
    if key is None or mode is KeyMode.DROP:
        return None
    if mode is KeyMode.KEEP or not key:
        return key
    charset = "utf-8" if _is_utf8(key) else "latin-1"
    text = key.decode(charset)
    if mode is KeyMode.TEXT:
        return _sanitize_file_name(text, facts, scope, replacer, find).encode(charset, "replace")
    # A FHIR key is often a reference: only its id is mapped, so that it joins with Resource.id.
    reference = _REFERENCE.fullmatch(text)
    head = f"{reference[1]}/" if reference and reference[1] in fhir_types else ""
    new = replacer.surrogates.replace(PhiType.IDNUM, text[len(head) :], kind=ValueKind.VALUE, scope=Scope(document=""))
    return (head + new).encode(charset, "replace")


def name_document(text: str) -> str:
    """A name for a text without one: the scope of its date shift."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _sanitize_file_name(text: str, facts: tuple[Fact, ...], scope: Scope, replacer: Replacer, find: Find) -> str:
    """A file name without the PHI in it. Words joined by ``_``, ``-``, ``.`` and ``/`` are read as separate words."""
    document = Document(_SEPARATOR.sub(" ", text), facts)
    replacements = []
    for span in find(document):
        old = slice(span.start, span.end)
        new = replacer.replace_value(span.type, document.text[old], Method.SURROGATE, scope)
        separator = _SEPARATOR.search(text[old])
        joined = new.replace(" ", separator[0]) if separator else new
        replacements.append(Replacement(span.start, span.end, joined))
    return splice(text, replacements)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
