"""Where a walk puts what it finds: sites, narratives and attachments of one message."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from deid_agent import armor
from deid_agent.codec.fhir import uris
from deid_agent.codec.fhir.shapes import Leaf, Table
from deid_agent.codec.fhir.tokens import characters
from deid_agent.errors import MessageError, Reason
from deid_agent.mapped import MappedText
from deid_agent.phi import PhiType
from deid_agent.sites import Attachment, Kind, Narrative, Site, Subject

Object = dict[str, object]

_BASE64 = (".data", ".blob", ".query", "AIDC", "Base64Binary")
_DATE, _REDACT = PhiType.DATE, Kind.REDACT  # to look a member up in its class takes longer than all else here
_BLANKS = {
    PhiType.IDNUM: "redacted",
    PhiType.URL: "http://redacted.invalid/",
    PhiType.EMAIL: "redacted@redacted.invalid",
    PhiType.IPADDRESS: "192.0.2.0",
}
"""What FHIR still accepts in place of a redacted value: never an empty string."""

_URNS = {"urn:uuid:": "00000000-0000-0000-0000-000000000000", "urn:oid:": "2.999"}
"""The nil UUID (RFC 9562, 5.9), and the arc for examples (ITU-T X.660)."""


@dataclass(slots=True)
class Frame:
    """The object being walked. ``role`` is what a Reference names, ``default`` the type of its identifiers;
    ``data`` and ``marks`` hold an attachment until the object ends."""

    path: str
    owner: Object = field(repr=False)
    subject: Subject
    group: str = ""
    role: PhiType | None = None
    default: PhiType = PhiType.IDNUM
    marks: dict[str, tuple[int, int]] | None = None
    data: Attachment | None = field(default=None, repr=False)


@dataclass(slots=True)
class Sink:
    """Collects what one message holds; offsets are bytes of ``raw``."""

    raw: bytes = field(repr=False)
    table: Table = field(repr=False)
    sites: list[Site] = field(default_factory=list, repr=False)
    narratives: list[Narrative] = field(default_factory=list, repr=False)
    attachments: list[Attachment] = field(default_factory=list, repr=False)
    addresses: uris.Addresses = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.addresses = uris.Addresses(self.table.resources)

    def site(
        self,
        path: str,
        start: int,
        end: int,
        value: str,
        type_: PhiType,
        frame: Frame,
        kind: Kind = Kind.VALUE,
        subject: Subject | None = None,
        blank: str = "",
        source: str = "structure",
    ) -> None:
        """``value`` is one value of ``type_``; white space alone is none."""
        if not value or value.isspace():
            return
        if not blank:
            blank = _date(value) if type_ is _DATE else _BLANKS.get(type_, "REDACTED")
        if kind is _REDACT and path.endswith(_BASE64):
            blank = "AA=="
        whose = subject or frame.subject
        self.sites.append(  # as Site(...) does it, in two thirds of the time: nothing is built as often
            tuple.__new__(Site, (path, start, end, type_, kind, whose, frame.group, value, blank, source, 0))
        )

    def text(self, path: str, start: int, end: int, value: str) -> None:
        """``value`` is a narrative of its own."""
        if value and not value.isspace():
            if end - start == len(value):
                mapped = MappedText(value, range(start, end), range(start + 1, end + 1))
            else:
                mapped = MappedText(value, *characters(self.raw, start, end, len(value)))
            self.narratives.append(Narrative(path, mapped))

    def attachment(self, frame: Frame) -> None:
        """The attachment of an object that has been walked to its end."""
        if frame.data is None:
            return
        marks = frame.marks or {}
        media = frame.owner.get("contentType")
        self.attachments.append(
            replace(
                frame.data,
                content_type=media if isinstance(media, str) else "",
                size=marks.get("size"),
                digest=marks.get("hash"),
                media=marks.get("contentType"),
            )
        )


@dataclass(slots=True)
class Scalar:
    """One scalar where it stands: ``raw[start:end]`` is the inside of the string, or the bare number."""

    sink: Sink
    leaf: Leaf
    value: str = field(repr=False)
    start: int
    end: int
    path: str
    frame: Frame
    places: tuple[Sequence[int], Sequence[int]] | None = field(default=None, repr=False)

    @property
    def table(self) -> Table:
        return self.sink.table

    def part(self, first: int, last: int) -> tuple[int, int]:
        """The bytes of characters ``[first, last)`` of the value."""
        if self.end - self.start == len(self.value):
            return self.start + first, self.start + last
        if self.places is None:
            self.places = characters(self.sink.raw, self.start, self.end, len(self.value))
        return self.places[0][first], self.places[1][last - 1]

    def site(
        self,
        type_: PhiType,
        first: int = 0,
        last: int | None = None,
        *,
        kind: Kind = Kind.VALUE,
        subject: Subject | None = None,
        source: str = "structure",
    ) -> None:
        """Characters ``[first, last)`` are one value of ``type_``; white space alone is none."""
        value, (start, end) = self._cut(first, last)
        blank = _URNS.get(self.value[:first].lower(), "")
        self.sink.site(self.path, start, end, value, type_, self.frame, kind, subject, blank, source)

    def number(self, type_: PhiType, blank: str) -> None:
        """A bare number, redacted: no surrogate could promise to be a number again."""
        site = Site(
            self.path,
            self.start,
            self.end,
            type_,
            Kind.REDACT,
            self.frame.subject,
            self.frame.group,
            self.value,
            blank,
        )
        self.sink.sites.append(site)

    def text(self, first: int = 0, last: int | None = None) -> None:
        """Characters ``[first, last)`` are a narrative of their own."""
        value, (start, end) = self._cut(first, last)
        self.sink.text(self.path, start, end, value)

    def _cut(self, first: int, last: int | None) -> tuple[str, tuple[int, int]]:
        value = self.value[first:last]
        if value and len(value) != len(self.value):
            return value, self.part(first, first + len(value))
        return value, (self.start, self.end)


def decoded(value: str, path: str) -> tuple[bytes, armor.Armor]:
    """The bytes of a base64 string and how they are laid out; white space in it is allowed, as STU3 wraps lines.

    Raises ``MessageError(MALFORMED)``, or RESOURCE where it is too long.
    """
    try:
        return armor.read(value)
    except armor.TooLongError:
        raise MessageError(Reason.RESOURCE, path, "attachment too long") from None
    except ValueError:
        raise MessageError(Reason.MALFORMED, path, "not base64") from None


def _date(value: str) -> str:
    """What FHIR still accepts in place of a redacted date: a date as precise."""
    if "T" in value:
        return "1900-01-01T00:00:00Z"
    return "1900-01-01" if len(value) >= 10 else "1900-01-01"[: len(value) // 7 * 3 + 4]
