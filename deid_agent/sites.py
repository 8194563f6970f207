"""What codecs hand upward: the places of a message that may hold PHI.

Codecs produce these, ``deidentify`` decides about them, surrogates never see
bytes. Values are left out of every ``repr``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from deid_agent.armor import PLAIN, Armor
from deid_agent.mapped import MappedText
from deid_agent.phi import PhiType

ELSEWHERE = "attachment-url"
"""``Site.source`` of the address of an attachment that lies elsewhere: policy has a word of its own for it."""


class Kind(StrEnum):
    """How a structured value is written."""

    FAMILY = "family"  # one family name ("van Beethoven")
    GIVEN = "given"  # one or more given names, or initials ("Ludwig", "L.")
    NAME = "name"  # a whole name in one string ("Okafor, Ada M.", "Dr. Ada Okafor")
    INSTANT = "instant"  # a date with its time, of which no part may be missing
    VALUE = "value"  # anything else that is one value of its type
    REDACT = "redact"  # a value nobody can use once its identity is gone


class Subject(StrEnum):
    """Whose value it is; known PHI of each is searched for in the narrative."""

    PATIENT = "patient"  # and relatives, guarantor, insured
    PROVIDER = "provider"
    OTHER = "other"


class Site(NamedTuple):
    """One structured value: bytes ``[start, end)`` of the message stand for ``value``.

    ``group`` ties the parts of one composite together (the path of the
    repetition), so that a family and a given name become one person.
    A tuple, since a message has thousands: a frozen dataclass takes three times as long to build.
    """

    path: str
    start: int
    end: int
    type: PhiType
    kind: Kind = Kind.VALUE
    subject: Subject = Subject.OTHER
    group: str = ""
    value: str = ""
    blank: str = ""  # what a redacted value becomes: empty in HL7, a valid placeholder in FHIR
    source: str = "structure"
    limit: int = 0  # most characters that a surrogate may have here; 0: any

    def __repr__(self) -> str:
        """All but the value."""
        told = (f"{name}={item!r}" for name, item in zip(self._fields, self, strict=True) if name != "value")
        return f"Site({', '.join(told)})"


class Role(StrEnum):
    """What a text value is to its reader: whether the leak guard may write over it, and what counts as a leak there."""

    TEXT = "text"  # free text, or a value that nothing else reads: may be rewritten
    LABEL = "label"  # the words of a code of a named terminology: may be rewritten, a lone word of it is no name
    CODE = "code"  # a code, or the name of a code system: as LABEL, but never rewritten
    KEY = "key"  # a name of structure that nobody knows (a JSON key): never rewritten


@dataclass(frozen=True, slots=True)
class Narrative:
    """Free text of a message, perhaps in many fragments, read as one document; or one leaf (``Codec.leaves``)."""

    path: str
    mapped: MappedText
    role: Role = Role.TEXT


@dataclass(frozen=True, slots=True)
class Attachment:
    """An embedded document: bytes ``[start, end)`` hold ``data`` in ``encoding``.

    ``size``, ``digest`` and ``media`` are the byte ranges of the sibling values
    that must follow when the data change (FHIR Attachment.size, .hash, .contentType; HL7 ED.2-3).
    ``plain`` is what ``media`` reads for plain text. ``encoding`` is base64, hex or text.
    A document cut over several places goes on in ``parts``; ``labels`` are their media types, which follow too.
    ``armor`` says how the encoding was laid out.
    """

    path: str
    start: int
    end: int
    content_type: str
    encoding: str
    data: bytes = field(repr=False)
    size: tuple[int, int] | None = None
    digest: tuple[int, int] | None = None
    media: tuple[int, int] | None = None
    plain: bytes = b"text/plain"
    parts: tuple[tuple[int, int], ...] = ()
    labels: tuple[tuple[int, int], ...] = ()
    armor: Armor = PLAIN


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that the structured part (or a caller's context) says about a person of the document."""

    type: PhiType
    kind: Kind
    subject: Subject
    group: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes ``[start, end)`` of the message become ``data``."""

    start: int
    end: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Remark:
    """What was done at one place: the unit of the audit. Never a value."""

    path: str
    type: str
    method: str
    source: str
    count: int = 1


class Message(Protocol):
    """A parsed message. Sites, narratives and attachments never share a byte."""

    @property
    def raw(self) -> bytes:
        """The bytes as they came."""

    @property
    def identity(self) -> str:
        """What names this document among all others: the scope of its date shift. Holds PHI."""

    @property
    def patient(self) -> str | None:
        """The patient's first identifier: the scope of per-patient maps. Holds PHI."""

    @property
    def sites(self) -> Sequence[Site]:
        """Structured values that may identify, in byte order."""

    @property
    def narratives(self) -> Sequence[Narrative]:
        """Free text, in byte order of its first fragment."""

    @property
    def attachments(self) -> Sequence[Attachment]:
        """Embedded documents, in byte order."""

    def encode(self, text: str) -> bytes:
        """``text`` as a value of this message: escapes and charset applied."""


def place(raw: bytes, edits: Sequence[Edit]) -> tuple[bytes, list[tuple[int, int]]]:
    """``raw`` with every edit in place, all other bytes untouched; and where each edit stands then, in byte order.

    Raises ``ValueError`` where two edits overlap: that is a fault of a codec, and writing on would leak.
    """
    out: list[bytes] = []
    ranges: list[tuple[int, int]] = []
    at = size = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < at or edit.end < edit.start or edit.end > len(raw):
            raise ValueError(f"edit [{edit.start}, {edit.end}) overlaps or leaves the message")
        out += (raw[at : edit.start], edit.data)
        size += edit.start - at
        ranges.append((size, size + len(edit.data)))
        at, size = edit.end, size + len(edit.data)
    out.append(raw[at:])
    return b"".join(out), ranges
