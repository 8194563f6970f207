"""The results of a FHIR walk (sites, narratives and attachments of one message), and the handlers of whole values.

A handler reads one string. The handlers here treat a value as a whole, which is nearly all of a message, so they build
no object for it. ``treatments`` has the handlers that search for parts in a value, and the map of all handlers.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deid_agent.codec.codes import is_long_number
from deid_agent.codec.dates import is_typed_date
from deid_agent.codec.fhir.shapes import FhirTable, FhirTreatment
from deid_agent.codec.fhir.uris import AddressReader
from deid_agent.codec.json_ranges import character_ranges
from deid_agent.codec.labels import is_reading
from deid_agent.model import (
    HOST_SOURCE,
    Attachment,
    DateKind,
    EncodingLayout,
    MappedText,
    MessageError,
    Narrative,
    PhiType,
    Reason,
    Site,
    Subject,
    TooLongError,
    ValueKind,
    decode_base64,
)

Object = dict[str, object]

_BASE64 = (".data", ".blob", ".query", "AIDC", "Base64Binary")
_DATE, _IDNUM, _REDACT, _EVENT = (
    PhiType.DATE,
    PhiType.IDNUM,
    ValueKind.REDACT,
    DateKind.EVENT,
)  # a member lookup would take longer than the rest of the function
_BLANKS = {
    PhiType.IDNUM: "redacted",
    PhiType.URL: "http://redacted.invalid/",
    PhiType.EMAIL: "redacted@redacted.invalid",
    PhiType.IPADDRESS: "192.0.2.0",
}
"""Valid replacements of redacted values; FHIR accepts no empty string."""

_URNS = {"urn:uuid:": "00000000-0000-0000-0000-000000000000", "urn:oid:": "2.999"}
"""The nil UUID (RFC 9562, 5.9), and the arc for examples (ITU-T X.660)."""
PEOPLE = {PhiType.PATIENT: Subject.PATIENT, PhiType.DOCTOR: Subject.PROVIDER}
DATE = re.compile(  # all quantifiers are possessive: no part of a date is ambiguous, so backtracking is useless
    r"[0-9]{4}(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12][0-9]|3[01])"
    r"(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9}+)?+)?+(?:Z|[+-][0-9]{2}:[0-9]{2})?+)?+)?+)?+"
)
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?")
_SAMPLES = re.compile(r"[-+0-9.eEUL\s]+")
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(\.[0-9]{1,18})?([eE][-+]?[0-9]{1,3})?|true|false")
# In Python 3.11 a member lookup takes as long as a call.
_PATIENT, _DOCTOR = PhiType.PATIENT, PhiType.DOCTOR
_MOST_PARTS = 32
_VALUE, _INSTANT, _NAME = ValueKind.VALUE, ValueKind.INSTANT, ValueKind.NAME
_DATE_KINDS = {"birth": DateKind.BIRTH, "stamp": DateKind.TECHNICAL, "public": DateKind.PUBLIC}
_WITH_TIME = frozenset({"instant", "stamp"})


@dataclass(slots=True)
class FhirFrame:
    """The object that is being walked.

    ``role`` is the PHI type of the display of a Reference, ``default`` the PHI type of identifiers. ``data`` and
    ``siblings`` hold an attachment, and the byte ranges of its sibling values by name, until the object ends.
    """

    path: str
    owner: Object = field(repr=False)
    subject: Subject
    group: str = ""
    role: PhiType | None = None
    default: PhiType = PhiType.IDNUM
    siblings: dict[str, tuple[int, int]] | None = None
    data: Attachment | None = field(default=None, repr=False)


@dataclass(slots=True)
class FhirSink:
    """Collects the sites, narratives and attachments of one message; offsets are bytes of ``raw``."""

    raw: bytes = field(repr=False)
    table: FhirTable = field(repr=False)
    sites: list[Site] = field(default_factory=list, repr=False)
    narratives: list[Narrative] = field(default_factory=list, repr=False)
    attachments: list[Attachment] = field(default_factory=list, repr=False)
    sexes: dict[str, str] = field(default_factory=dict)
    addresses: AddressReader = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.addresses = AddressReader(
            self.table.resources, self.table.definitions, self.table.site_host, self.table.addresses.find_persons
        )

    def site(
        self,
        path: str,
        start: int,
        end: int,
        value: str,
        type_: PhiType,
        frame: FhirFrame,
        kind: ValueKind = ValueKind.VALUE,
        subject: Subject | None = None,
        blank: str = "",
        source: str = "structure",
        date_kind: DateKind = _EVENT,
    ) -> None:
        """Add ``value`` as one value of ``type_``, unless it is blank."""
        if not value or value.isspace():
            return
        if not blank:
            blank = _date_placeholder(value) if type_ is _DATE else _BLANKS.get(type_, "REDACTED")
        if kind is _REDACT and path.endswith(_BASE64):
            blank = "AA=="
        owner = subject or frame.subject
        self.sites.append(  # takes two thirds of the time of Site(...); no other object is built as often
            tuple.__new__(Site, (path, start, end, type_, kind, owner, frame.group, value, blank, source, 0, date_kind))
        )

    def host(self, path: str, start: int, end: int, value: str, frame: FhirFrame) -> None:
        """Add the host of an address as a value of its own, if it names the site."""
        if "://" in value and (found := self.table.site_host(value)) is not None:
            first, last = found
            starts, ends = character_ranges(self.raw, start, end, len(value))
            if not self.has_site(starts[first], ends[last - 1]):  # the name of a person
                self.site_of_host(path, starts[first], ends[last - 1], value[first:last], frame)

    def has_site(self, start: int, end: int) -> bool:
        """True if one of the last sites covers a byte of ``[start, end)``."""
        return any(site.start < end and start < site.end for site in self.sites[-_MOST_PARTS:])

    def persons(self, path: str, start: int, end: int, value: str, frame: FhirFrame) -> None:
        """Add the parts of an address that identify a person, each as an identifier."""
        for first, last in self.table.addresses.find_persons(value):
            starts, ends = character_ranges(self.raw, start, end, len(value))
            self.site(path, starts[first], ends[last - 1], value[first:last], _IDNUM, frame)

    def site_of_host(self, path: str, start: int, end: int, host: str, frame: FhirFrame) -> None:
        """Add a host as a value of its own."""
        self.site(path, start, end, host, PhiType.URL, frame, blank="redacted.invalid", source=HOST_SOURCE)

    def text(self, path: str, start: int, end: int, value: str) -> None:
        """Add ``value`` as a narrative, unless it is blank."""
        if value and not value.isspace():
            if end - start == len(value):
                mapped = MappedText(value, range(start, end), range(start + 1, end + 1))
            else:
                mapped = MappedText(value, *character_ranges(self.raw, start, end, len(value)))
            self.narratives.append(Narrative(path, mapped))

    def attachment(self, frame: FhirFrame) -> None:
        """Add the attachment of an object that has ended."""
        if frame.data is None:
            return
        siblings = frame.siblings or {}
        media = frame.owner.get("contentType")
        self.attachments.append(
            replace(
                frame.data,
                content_type=media if isinstance(media, str) else "",
                size=siblings.get("size"),
                digest=siblings.get("hash"),
                media=siblings.get("contentType"),
            )
        )


@dataclass(slots=True)
class Scalar:
    """One scalar: ``raw[start:end]`` is the content of the string, without its quotes, or the number."""

    sink: FhirSink
    treatment: FhirTreatment
    value: str = field(repr=False)
    start: int
    end: int
    path: str
    frame: FhirFrame
    offsets: tuple[Sequence[int], Sequence[int]] | None = field(default=None, repr=False)

    @property
    def table(self) -> FhirTable:
        return self.sink.table

    def byte_range(self, first: int, last: int) -> tuple[int, int]:
        """The byte range of characters ``[first, last)`` of the value."""
        if self.end - self.start == len(self.value):
            return self.start + first, self.start + last
        if self.offsets is None:
            self.offsets = character_ranges(self.sink.raw, self.start, self.end, len(self.value))
        return self.offsets[0][first], self.offsets[1][last - 1]

    def site(
        self,
        type_: PhiType,
        first: int = 0,
        last: int | None = None,
        *,
        kind: ValueKind = ValueKind.VALUE,
        subject: Subject | None = None,
        source: str = "structure",
        date_kind: DateKind = _EVENT,
    ) -> None:
        """Add characters ``[first, last)`` as one value of ``type_``, unless they are blank."""
        value, (start, end) = self._slice(first, last)
        blank = _URNS.get(self.value[:first].lower(), "")
        self.sink.site(self.path, start, end, value, type_, self.frame, kind, subject, blank, source, date_kind)

    def persons(self) -> None:
        """Add the parts of an address that identify a person and that no site covers yet."""
        for first, last in self.table.addresses.find_persons(self.value):
            start, end = self.byte_range(first, last)
            if not self.sink.has_site(start, end):
                self.site(PhiType.IDNUM, first, last)

    def number(self, type_: PhiType, blank: str) -> None:
        """Add a bare number as a redacted value: a surrogate need not be a number."""
        site = Site(
            self.path,
            self.start,
            self.end,
            type_,
            ValueKind.REDACT,
            self.frame.subject,
            self.frame.group,
            self.value,
            blank,
        )
        self.sink.sites.append(site)

    def text(self, first: int = 0, last: int | None = None) -> None:
        """Add characters ``[first, last)`` as a narrative, unless they are blank."""
        value, (start, end) = self._slice(first, last)
        self.sink.text(self.path, start, end, value)

    def _slice(self, first: int, last: int | None) -> tuple[str, tuple[int, int]]:
        value = self.value[first:last]
        if value and len(value) != len(self.value):
            return value, self.byte_range(first, first + len(value))
        return value, (self.start, self.end)


def date_kind_of(treatment: FhirTreatment) -> DateKind:
    """The kind of a date that is read by ``treatment``."""
    return _DATE_KINDS.get(treatment.name, _EVENT)


def decode_attachment(value: str, path: str) -> tuple[bytes, EncodingLayout]:
    """The bytes of a base64 string and its layout. White space is allowed: STU3 wraps lines.

    Raises ``MessageError``: MALFORMED if it is not base64, RESOURCE if it is too long.
    """
    try:
        return decode_base64(value)
    except TooLongError:
        raise MessageError(Reason.RESOURCE, path, "attachment too long") from None
    except ValueError:
        raise MessageError(Reason.MALFORMED, path, "not base64") from None


def _date_placeholder(value: str) -> str:
    """A valid replacement of a redacted date, with the same precision."""
    if "T" in value:
        return "1900-01-01T00:00:00Z"
    return "1900-01-01" if len(value) >= 10 else "1900-01-01"[: len(value) // 7 * 3 + 4]


Handler = Callable[[FhirSink, FhirTreatment, str, int, int, str, FhirFrame], None]
"""Takes a value, its first byte and its end, its path and its object."""


def _handle_site(
    sink: FhirSink, treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    sink.site(path, start, end, value, treatment.type, frame, treatment.kind, PEOPLE.get(treatment.type))


def _handle_text(
    sink: FhirSink, _treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    if is_long_number(value) and "xtension[" in path:
        sink.site(path, start, end, value, _IDNUM, frame)
        return
    if not (is_reading(value) and _is_result(sink.table, path, frame.owner)):
        sink.text(path, start, end, value)


def _is_result(table: FhirTable, path: str, owner: Object) -> bool:
    """True for the value or the reference range of an observation that is not a point in time."""
    if path.endswith(".valueString"):
        return isinstance(owner.get("code"), dict) and not table.names_time(owner["code"])
    return path.endswith(".text") and (".referenceRange[" in path or path.endswith(".valueCodeableConcept.text"))


def _text_unless(pattern: re.Pattern[str]) -> Handler:
    def check(
        sink: FhirSink, _treatment: FhirTreatment, value: str, start: int, end: int, path: str, _frame: FhirFrame
    ) -> None:
        if not pattern.fullmatch(value):
            sink.text(path, start, end, value)

    return check


def _handle_date(
    sink: FhirSink, treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    name = treatment.name
    if not DATE.fullmatch(value) and not is_typed_date(value.strip()):
        # Without a use in this element, and no policy keeps it as a date.
        sink.site(path, start, end, value, _IDNUM, frame, _REDACT, blank=_date_placeholder(value))
        return
    kind = _INSTANT if name in _WITH_TIME and "T" in value else _VALUE
    sink.site(path, start, end, value, _DATE, frame, kind, None, "", "structure", _DATE_KINDS.get(name, _EVENT))


def _handle_display_of_code(
    sink: FhirSink, _treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    if not (sink.table.keeps_coding(frame.owner.get("system"), value) or is_reading(value)):
        sink.text(path, start, end, value)


def _handle_display(
    sink: FhirSink, _treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    role = frame.role
    if role is None:
        sink.text(path, start, end, value)
    else:
        subject = PEOPLE.get(role)
        sink.site(path, start, end, value, role, frame, _VALUE if subject is None else _NAME, subject)


def _handle_name(
    sink: FhirSink, treatment: FhirTreatment, value: str, start: int, end: int, path: str, frame: FhirFrame
) -> None:
    type_ = _PATIENT if frame.subject is Subject.PATIENT else _DOCTOR
    sink.site(path, start, end, value, type_, frame, ValueKind(treatment.name), PEOPLE[type_])


WHOLE_VALUE_HANDLERS: Mapping[str, Handler] = {
    "site": _handle_site,
    "text": _handle_text,
    "number": _text_unless(_NUMBER),
    "samples": _text_unless(_SAMPLES),
    "time": _text_unless(_TIME),
    "date": _handle_date,
    "instant": _handle_date,
    **dict.fromkeys(_DATE_KINDS, _handle_date),
    "display": _handle_display,
    "display-of-code": _handle_display_of_code,
    "family": _handle_name,
    "given": _handle_name,
    "name": _handle_name,
    "age": _handle_text,
}

KEEPS: Mapping[str, Callable[[str], object]] = {
    "number": _NUMBER.fullmatch,
    "time": _TIME.fullmatch,
}
"""Fast checks for the strings that these treatments keep."""
