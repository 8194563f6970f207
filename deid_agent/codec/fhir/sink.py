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
_BLANKS = {
    PhiType.IDNUM: "redacted",
    PhiType.URL: "http://redacted.invalid/",
    PhiType.EMAIL: "redacted@redacted.invalid",
    PhiType.IPADDRESS: "192.0.2.0",
}

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
    _parts: dict[str, list[uris.Part]] = field(default_factory=dict, repr=False)
    _types: dict[str, str] = field(default_factory=dict, repr=False)

    def parts(self, address: str) -> list[uris.Part]:
        """``uris.parts``, once for each address: a Bundle says ``Patient/1`` a thousand times."""
        found = self._parts.get(address)
        if found is None:
            found = self._parts[address] = uris.parts(address, self.table.resources)
        return found

    def type_of(self, address: str) -> str:
        """``uris.type_of``, once for each address."""
        found = self._types.get(address)
        if found is None:
            found = self._types[address] = uris.type_of(address, self.table.resources)
        return found

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
        value, frame = self.value[first:last], self.frame
        if not value or value.isspace():
            return
        start, end = (self.start, self.end)
        if len(value) != len(self.value):
            start, end = self.part(first, first + len(value))
        blank = _URNS.get(self.value[:first].lower()) or _blank_of(type_, value)
        if kind is Kind.REDACT and self.path.endswith(_BASE64):
            blank = "AA=="
        whose = subject or frame.subject
        self.sink.sites.append(Site(self.path, start, end, type_, kind, whose, frame.group, value, blank, source))

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
        value = self.value[first:last]
        if value and not value.isspace():
            start, end = (self.start, self.end)
            if len(value) != len(self.value):
                start, end = self.part(first, first + len(value))
            starts, ends = characters(self.sink.raw, start, end, len(value))
            self.sink.narratives.append(Narrative(self.path, MappedText(value, starts, ends)))


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


def _blank_of(type_: PhiType, value: str) -> str:
    """What FHIR still accepts in place of a redacted value: never an empty string, a date stays a date."""
    if type_ is PhiType.DATE:
        return (
            "1900-01-01T00:00:00Z"
            if "T" in value
            else "1900-01-01"[: 10 if len(value) >= 10 else len(value) // 7 * 3 + 4]
        )
    return _BLANKS.get(type_, "REDACTED")
