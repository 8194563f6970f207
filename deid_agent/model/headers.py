"""Metadata of a record: which headers are copied to the output, the trace context in them, and the time.

Only headers that the policy lists are copied. Header values are not de-identified: ``traceparent``, ``tracestate`` and
``content-type`` are copied only if they follow their grammars, and any other listed header is copied unchanged.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Final

TRACEPARENT = "traceparent"
_FORM = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_FLAGS = 0x03
"""Sampled and random. The other flags are reserved, and a participant must clear them."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace, and the span in it that sent the record. Both are lower-case hex and not all zeros.

    Source: W3C Trace Context (Recommendation, level 1; the random flag of level 2).
    """

    id: str
    span: str
    flags: int

    def to_header(self) -> bytes:
        """The value of ``traceparent``."""
        return f"00-{self.id}-{self.span}-{self.flags:02x}".encode()

    def child(self, name: str) -> "Trace":
        """The same trace with a new span derived from ``name``, so that a retry of the same work has the same span."""
        made = hashlib.blake2b(f"{self.id}-{self.span}-{name}".encode(), person=b"deid-span", digest_size=8)
        return Trace(self.id, made.hexdigest(), self.flags)


def parse_traceparent(value: bytes) -> Trace | None:
    """The trace of a ``traceparent`` of version 00, or None if the value does not match the grammar exactly."""
    if (found := _FORM.fullmatch(value)) is None:
        return None
    trace, span, flags = found.groups()
    return Trace(trace.decode(), span.decode(), int(flags, 16) & _FLAGS)


def read_trace(headers: Iterable[tuple[str, bytes]]) -> Trace | None:
    """The trace in the headers of a record, or None if there is no ``traceparent`` or more than one."""
    values = [value for name, value in headers if len(name) == len(TRACEPARENT) and name.lower() == TRACEPARENT]
    return parse_traceparent(values[0]) if len(values) == 1 else None


Headers = tuple[tuple[str, bytes], ...]

_MEDIA = """
application/fhir+json application/fhir+ndjson application/fhir+xml application/hl7-sda+xml application/hl7-v2
application/hl7-v2+er7 application/hl7-v2+xml application/json application/json+fhir application/ndjson
application/octet-stream application/x-ndjson application/xml application/xml+fhir text/hl7v2 text/plain text/xml
x-application/hl7-v2+er7 x-application/hl7-v2+xml
"""
_MEDIA_TYPES = frozenset(_MEDIA.split())
"""Media types of the supported formats. Only a type of a closed list is certain not to be a value of a patient."""
_CHARSET = r"us-ascii|utf-8|utf-16(?:le|be)?|iso-8859-(?:[1-9]|1[0-6])|windows-125[0-8]|shift_jis|iso-2022-jp|gb18030"
_PARAMETER = re.compile(rf'charset="?(?:{_CHARSET})"?|fhirversion="?[0-9]\.[0-9]"?', re.IGNORECASE)

# W3C Trace Context, 3.3: at most 32 members, 512 characters; keys of a narrow alphabet, values of printable ASCII.
_KEY = r"[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13}"
_VALUE = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER = re.compile(rf"(?:{_KEY})={_VALUE}")


def filter_headers(headers: Headers, listed: frozenset[str]) -> Headers:
    """The headers to copy: those whose name is in ``listed`` (lower case).

    A header that has a grammar is dropped if its value is invalid or if it occurs twice.
    """
    candidates = [(name, value) for name, value in headers if name.lower() in listed]
    names = [name.lower() for name, _ in candidates]
    return tuple(
        (name, value)
        for name, value in candidates
        if (check := _CHECKS.get(name.lower())) is None or (names.count(name.lower()) == 1 and check(value))
    )


def _is_media_type(value: bytes) -> bool:
    kind, *parameters = value.decode("ascii", "replace").split(";")
    fine = all(_PARAMETER.fullmatch(parameter.strip(" \t")) for parameter in parameters)
    return kind.strip(" \t").lower() in _MEDIA_TYPES and len(parameters) <= 2 and fine


def _is_tracestate(value: bytes) -> bool:
    members = [member.strip(" \t") for member in value.decode("ascii", "replace").split(",")]
    named = [member.partition("=")[0] for member in members if member]
    fine = all(_MEMBER.fullmatch(member) for member in members if member)
    return 0 < len(named) <= 32 and len(set(named)) == len(named) and len(value) <= 512 and fine


_CHECKS: Mapping[str, Callable[[bytes], bool]] = {
    TRACEPARENT: lambda value: parse_traceparent(value) is not None,
    "tracestate": _is_tracestate,
    "content-type": _is_media_type,
}


class RecordTime(StrEnum):
    """The time that an output gets from its record: a record timestamp or a file time."""

    KEEP = "keep"
    DAY = "day"
    WEEK = "week"
    YEAR = "year"
    NONE = "none"

    @property
    def span_days(self) -> int:
        """The days by which the time may lie before that of the record."""
        return {RecordTime.DAY: 1, RecordTime.WEEK: 7, RecordTime.YEAR: 366}.get(self, 0)

    def coarsen(self, time_ms: int | None) -> int:
        """The start of the day, week (Monday) or year in UTC, in milliseconds since 1970.

        ``NO_TIME`` if there is no time, or one outside of the years 1 to 9999.
        """
        if time_ms is None or time_ms < 0 or self is RecordTime.NONE:
            return NO_TIME
        if self is RecordTime.KEEP:
            return time_ms
        days = time_ms // _DAY_MS
        if days > _LAST_DAY:
            return NO_TIME
        if self is RecordTime.WEEK:
            days = max(0, days - (days + _THURSDAY) % 7)
        elif self is RecordTime.YEAR:
            days = date.fromordinal(_EPOCH + days).replace(month=1, day=1).toordinal() - _EPOCH
        return days * _DAY_MS


NO_TIME: Final = -1
"""A record without a time: Kafka stores it as such if the topic has ``message.timestamp.type = CreateTime``."""
_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal() - _EPOCH
_THURSDAY = 3  # days since Monday of 1970-01-01
