"""Where a walk of a C-CDA document puts what it finds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from deid_agent.codec.cda.table import Table, Whose
from deid_agent.codec.markup.charset import View
from deid_agent.codec.markup.reading import Attribute, MarkupText
from deid_agent.codec.markup.xml import Token
from deid_agent.codec.places import part
from deid_agent.mapped import MappedText
from deid_agent.phi import PhiType
from deid_agent.sites import Attachment, Kind, Narrative, Role, Site, Subject

_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUBJECTS = {Whose.PATIENT: Subject.PATIENT, Whose.PROVIDER: Subject.PROVIDER}
_BLANKS = {
    PhiType.EMAIL: "redacted@redacted.invalid",
    PhiType.URL: "http://redacted.invalid/",
    PhiType.AGE: "90",
    PhiType.ZIP: "00000",
    PhiType.BIOID: "AA==",
}


@dataclass(slots=True)
class Frame:
    """An element that is open. ``name`` is its local name, ``group`` the path of the composite it is part of."""

    name: str
    path: str
    parent: "Frame | None" = field(repr=False)
    whose: Whose = Whose.OTHER
    group: str = ""
    attributes: dict[str, Attribute] = field(default_factory=dict, repr=False)
    counts: dict[str, int] = field(default_factory=dict, repr=False)
    runs: list[Token] | None = field(default=None, repr=False)
    mixed: bool = False
    content: int = 0

    def value(self, attribute: str) -> str:
        """An attribute's value as it stands; empty where there is none."""
        found = self.attributes.get(attribute)
        return found.value if found else ""

    @property
    def parent_name(self) -> str:
        return self.parent.name if self.parent else ""


@dataclass(slots=True)
class Sink:
    """Collects what one document holds; offsets are bytes."""

    view: View = field(repr=False)
    table: Table = field(repr=False)
    sites: list[Site] = field(default_factory=list, repr=False)
    narratives: list[Narrative] = field(default_factory=list, repr=False)
    attachments: list[Attachment] = field(default_factory=list, repr=False)
    document: str = field(default="", repr=False)
    patients: list[tuple[PhiType, str]] = field(default_factory=list, repr=False)

    def text(self, path: str, mapped: MappedText) -> None:
        if mapped.text and not mapped.text.isspace():
            self.narratives.append(Narrative(path, mapped))


@dataclass(slots=True)
class Value:
    """One text where it stands: its characters, the path, the element around it."""

    sink: Sink
    mapped: MarkupText
    path: str
    frame: Frame

    @property
    def text(self) -> str:
        return self.mapped.text

    def site(
        self,
        type_: PhiType,
        start: int = 0,
        end: int | None = None,
        *,
        kind: Kind = Kind.VALUE,
        subject: Subject | None = None,
        blank: str | None = None,
        source: str = "structure",
    ) -> None:
        """Characters ``[start, end)``, without white space at the edges, are one value of ``type_``."""
        end = len(self.text) if end is None else end
        value = self.text[start:end]
        start += len(value) - len(value.lstrip())
        value = value.strip()
        if not value:
            return
        starts, ends = self.mapped.starts, self.mapped.ends
        whose = subject or _SUBJECTS.get(self.frame.whose, Subject.OTHER)
        empty = blank_of(type_, value) if blank is None else blank
        first, last = starts[start], ends[start + len(value) - 1]
        group = self.frame.group or self.frame.path
        self.sink.sites.append(Site(self.path, first, last, type_, kind, whose, group, value, empty, source))

    def narrative(self, start: int = 0) -> None:
        """What stands from ``start`` on is free text."""
        span = start, len(self.text)
        starts, ends = part(self.mapped.starts, *span), part(self.mapped.ends, *span)
        self.sink.text(self.path, MarkupText(self.text[start:], starts, ends))


@dataclass(slots=True)
class Leaves:
    """Collects every text of one document instead."""

    found: list[Narrative] = field(default_factory=list, repr=False)

    def add(self, path: str, mapped: MappedText, role: Role) -> None:
        if mapped.text and not mapped.text.isspace():
            self.found.append(Narrative(path, mapped, role))

    def in_order(self) -> Sequence[Narrative]:
        return sorted(self.found, key=lambda leaf: leaf.mapped.starts[0])


def is_uuid(value: str) -> bool:
    return _UUID.fullmatch(value) is not None


def blank_of(type_: PhiType, value: str) -> str:
    """What CDA still accepts in place of a redacted value: a date stays a date, an identifier of its kind."""
    if type_ is PhiType.DATE:
        digits = len(value) if value.isdigit() and len(value) < 8 else 8
        return "1900-01-01"[: len(value)] if value[4:5] == "-" and len(value) > 7 else "19000101"[:digits]
    if is_uuid(value):
        return "00000000-0000-0000-0000-000000000000"
    return _BLANKS.get(type_, "REDACTED")
