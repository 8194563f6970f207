"""Where a walk puts what it finds: sites, narratives and attachments of one message."""

import base64
import binascii
import re
from dataclasses import dataclass, field

from deid_agent.codec.fhir.shapes import Table
from deid_agent.codec.fhir.tokens import characters
from deid_agent.errors import MessageError, Reason
from deid_agent.mapped import MappedText
from deid_agent.phi import PhiType
from deid_agent.sites import Attachment, Kind, Narrative, Site, Subject

Object = dict[str, object]

_SPACE = re.compile(r"[ \t\r\n]+")
_BLANKS = {
    PhiType.IDNUM: "redacted",
    PhiType.URL: "http://redacted.invalid/",
    PhiType.EMAIL: "redacted@redacted.invalid",
    PhiType.IPADDRESS: "0.0.0.0",
}


@dataclass(slots=True)
class Frame:
    """The object being walked. ``marks`` are the byte ranges that follow an attachment's data."""

    path: str
    owner: Object = field(repr=False)
    subject: Subject
    group: str = ""
    role: PhiType | None = None
    default: PhiType = PhiType.IDNUM
    marks: dict[str, tuple[int, int]] | None = None
    data: tuple[str, int, int, bytes] | None = field(default=None, repr=False)


@dataclass(slots=True)
class Sink:
    """Collects; offsets are bytes of ``raw``, ranges of strings without their quotes."""

    raw: bytes = field(repr=False)
    table: Table = field(repr=False)
    sites: list[Site] = field(default_factory=list, repr=False)
    narratives: list[Narrative] = field(default_factory=list, repr=False)
    attachments: list[Attachment] = field(default_factory=list, repr=False)

    def site(
        self,
        path: str,
        span: tuple[int, int],
        type_: PhiType,
        value: str,
        frame: Frame,
        *,
        kind: Kind = Kind.VALUE,
        subject: Subject | None = None,
        blank: str = "",
    ) -> None:
        """One site. A name's site says whose it is by its type."""
        if not value.strip():
            return
        if subject is None:
            subject = frame.subject
        blank = blank or blank_of(type_, value)
        self.sites.append(Site(path, *span, type_, kind, subject, frame.group, value, blank))

    def part(self, start: int, end: int, value: str, first: int, last: int) -> tuple[int, int]:
        """The bytes of characters ``[first, last)`` of the string that stands in ``[start, end)``."""
        if end - start == len(value):
            return start + first, start + last
        starts, ends = characters(self.raw, start, end, len(value))
        return starts[first], ends[last - 1]

    def text(self, path: str, start: int, end: int, value: str) -> None:
        """A string as a narrative of its own."""
        if value.strip():
            starts, ends = characters(self.raw, start, end, len(value))
            self.narratives.append(Narrative(path, MappedText(value, starts, ends)))

    def number(self, path: str, span: tuple[int, int], type_: PhiType, frame: Frame, blank: str = "0") -> None:
        """A bare number, redacted: no surrogate could promise to be a number again."""
        value = self.raw[slice(*span)].decode("ascii")
        self.sites.append(Site(path, *span, type_, Kind.REDACT, frame.subject, frame.group, value, blank))

    def attachment(self, frame: Frame) -> None:
        """The attachment of an object that has been walked to its end."""
        if frame.data is None:
            return
        path, start, end, data = frame.data
        marks = frame.marks or {}
        media = frame.owner.get("contentType")
        self.attachments.append(
            Attachment(
                path,
                start,
                end,
                media if isinstance(media, str) else "",
                "base64",
                data,
                size=marks.get("size"),
                digest=marks.get("hash"),
                media=marks.get("contentType"),
            )
        )


def decoded(value: str, path: str) -> bytes:
    """The bytes of a base64 string; white space in it is allowed, as STU3 wraps lines.

    Raises ``MessageError(MALFORMED)``.
    """
    try:
        return base64.b64decode(_SPACE.sub("", value), validate=True)
    except (binascii.Error, ValueError):
        raise MessageError(Reason.MALFORMED, path, "not base64") from None


def blank_of(type_: PhiType, value: str) -> str:
    """What FHIR still accepts in place of a redacted value: never an empty string, a date stays a date."""
    if type_ is PhiType.DATE:
        return "1900-01-01T00:00:00Z" if "T" in value else "1900-01-01"[: len(value)]
    return _BLANKS.get(type_, "REDACTED")
