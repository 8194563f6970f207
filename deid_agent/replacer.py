"""What a policy's method makes of one value: the one place where old text becomes new text."""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from uuid import UUID

from deid_agent.phi import PhiType
from deid_agent.policy import Method, Policy
from deid_agent.sites import Kind, Site
from deid_agent.spans import Span
from deid_agent.surrogate import Scope, Surrogates
from deid_agent.surrogate.methods import generalize, mask
from deid_agent.surrogate.numeric_dates import day_first
from deid_agent.surrogate.series import connects

_WORD = r"[^\W\d_]{2,30}(?:['’-][^\W\d_]{2,30})?"
_WHOLE_NAME = re.compile(
    rf"(?P<family>{_WORD}), ?(?P<given>{_WORD})(?: \w\.?)?|(?P<first>{_WORD})(?: \w\.?)? (?P<last>{_WORD})"
)
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OID = re.compile(r"[0-2](?:\.(?:0|[1-9][0-9]*)){2,}")


@dataclass(slots=True)
class Codes:
    """Codes of one record (``Method.LINK``): one for each identifier, by the order in which they first come.

    A code is made from the key, the digest of the whole record and that order, never from the identifier, so no two
    records share one, the same record again gets the same ones, and nobody can lead a code back (45 CFR 164.514(c)).
    A UUID becomes a UUID, an OID one under 2.25 (ITU-T X.667), anything else 20 letters and digits: what an HL7
    control id (ST, 20 characters up to version 2.6) and a FHIR id both hold.
    """

    surrogates: Surrogates
    payload: bytes = field(repr=False)
    _given: dict[str, str] = field(default_factory=dict, repr=False)
    _record: str = field(default="", repr=False)

    def of(self, value: str) -> str:
        """The code of ``value``: for the same value the same, for another another."""
        code = self._given.get(value)
        if code is None:
            self._record = self._record or hashlib.sha256(self.payload).hexdigest()
            code = self._given[value] = _code(value, self.surrogates.fresh(self._record, len(self._given)))
        return code


def _code(value: str, random: bytes) -> str:
    uuid = UUID(bytes=random[:16], version=4)
    if _UUID.fullmatch(value):
        return str(uuid)
    if _OID.fullmatch(value):
        return f"2.25.{uuid.int}"
    return base64.b32hexencode(random).decode("ascii")[:20]


@dataclass(frozen=True, slots=True)
class Replacer:
    """A policy and its surrogates. ``year`` stands for a message that tells no time of its own: today's."""

    policy: Policy
    surrogates: Surrogates
    year: int = field(default_factory=lambda: date.today().year)

    def value(self, site: Site, method: Method, scope: Scope) -> str:
        """What a structured value becomes; ``site.blank`` where nothing of it may stay (``Codes`` are for links)."""
        match method:
            case Method.SURROGATE:
                new = self.surrogates.replace(site.type, site.value, kind=site.kind, scope=scope)
                if site.type is PhiType.DATE and new.strip() == mask(site.type):
                    return site.blank  # words stand for no date in a typed field
                return new[: site.limit].rstrip() if site.limit else new
            case Method.GENERALIZE:
                new = generalize(site.type, site.value, blank=site.blank, now=self._now(scope))
                return f"{new}-01-01T00:00:00Z" if site.kind is Kind.INSTANT and len(new) == 4 else new
            case Method.MASK | Method.REDACT | Method.LINK:
                return site.blank
            case Method.KEEP:
                return site.value

    def findings(self, text: str, spans: Sequence[Span], methods: Sequence[Method], scope: Scope) -> list[str]:
        """What each finding of one text becomes, in order; days of one expression (March 4-9, 2019) together.

        3/4/2019 is the third of April where the other dates of the text, or the days that the structure tells, say so;
        where they say nothing, where ``scope`` does.
        """
        old = [text[span.start : span.end] for span in spans]
        own = day_first_of([(text, spans)], scope)
        if own is not None:
            scope = replace(scope, day_first=own)
        if not scope.people:
            scope = replace(scope, people=_people(spans, old), told=False)
        out: list[str] = []
        start = 0
        for end in range(1, len(spans) + 1):
            days = end < len(spans) and _is_day(spans, methods, end - 1) and _is_day(spans, methods, end)
            if days and connects(text[spans[end - 1].end : spans[end].start]):
                continue
            if end - start > 1:
                gaps = [text[spans[n].end : spans[n + 1].start] for n in range(start, end - 1)]
                out += self.surrogates.days(old[start:end], gaps, scope)
            else:
                out.append(self.finding(spans[start].type, old[start], methods[start], scope))
            start = end
        return out

    def finding(self, type_: PhiType, old: str, method: Method, scope: Scope) -> str:
        """What a finding in text becomes."""
        match method:
            case Method.SURROGATE:
                kind = Kind.NAME if type_ in {PhiType.PATIENT, PhiType.DOCTOR} else Kind.VALUE
                return self.surrogates.replace(type_, old, kind=kind, scope=scope)
            case Method.GENERALIZE:
                return generalize(type_, old, blank=mask(type_), now=self._now(scope))
            case Method.MASK | Method.LINK:
                return mask(type_)
            case Method.REDACT:
                return ""
            case Method.KEEP:
                return old

    def _now(self, scope: Scope) -> int:
        return scope.reference.year if scope.reference else self.year


def day_first_of(texts: Iterable[tuple[str, Sequence[Span]]], scope: Scope) -> bool | None:
    """Whether the dates found in these texts put the day before the month; None where nothing says it."""
    days = (text[s.start : s.end] for text, spans in texts for s in spans if s.type is PhiType.DATE)
    return day_first(days, scope.known)


def _people(spans: Sequence[Span], old: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Given and family names as whole names of the text tell them, so that a lone one of them is known by its part."""
    found: dict[tuple[str, str], None] = {}
    for span, name in zip(spans, old, strict=True):
        if span.type in {PhiType.PATIENT, PhiType.DOCTOR} and (whole := _WHOLE_NAME.fullmatch(name)):
            found[(whole["given"] or whole["first"], whole["family"] or whole["last"])] = None
    return tuple(found)


def _is_day(spans: Sequence[Span], methods: Sequence[Method], n: int) -> bool:
    return spans[n].type is PhiType.DATE and methods[n] is Method.SURROGATE
