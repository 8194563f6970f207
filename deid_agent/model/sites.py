"""A parsed message: the structured values, narratives and attachments that may contain PHI, and edits of its bytes.

Codecs produce these values, the pipeline decides about them, and surrogates never see bytes. No ``repr`` contains a
value of the message.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from typing import NamedTuple, Protocol

from deid_agent.model.patients import PatientIdentifier
from deid_agent.model.phi import PhiType
from deid_agent.model.spans import MappedText

ATTACHMENT_URL_SOURCE = "attachment-url"
"""``Site.source`` of the URL of an external attachment, for which the policy has a separate setting."""

HOST_SOURCE = "host"
"""``Site.source`` of the host in an address of the site. It is mapped where it is found, and never searched for."""


class ValueKind(StrEnum):
    """The form of a structured value."""

    FAMILY = "family"  # one family name ("van Beethoven")
    GIVEN = "given"  # one or more given names, or initials ("Ludwig", "L.")
    NAME = "name"  # a complete name in one string ("Okafor, Ada M.", "Dr. Ada Okafor")
    INSTANT = "instant"  # a date with its time; no part may be removed
    VALUE = "value"  # any other single value of its type
    REDACT = "redact"  # a value that has no use without its identity


class DateKind(StrEnum):
    """The sort of a date, which decides how it moves."""

    EVENT = "event"  # admission, observation, procedure, any date in a narrative: moves with the document
    BIRTH = "birth"  # of the patient or a relative: moves by an offset of its own person
    TECHNICAL = "technical"  # when a message or a resource was written or sent
    PUBLIC = "public"  # of no person (expiry of a lot): stays, unless the policy allows only the year


class Subject(StrEnum):
    """The person to whom a value belongs. Known PHI of each is searched for in the narratives."""

    PATIENT = "patient"  # and relatives, guarantor, insured
    PROVIDER = "provider"
    OTHER = "other"


class Site(NamedTuple):
    """One structured value: bytes ``[start, end)`` of the message encode ``value``.

    Parts of one composite have the same ``group`` (the path of the repetition), so that a family name and a given name
    become one person. A message has thousands of sites, and a frozen dataclass takes three times as long to create as
    a tuple.
    """

    path: str
    start: int
    end: int
    type: PhiType
    kind: ValueKind = ValueKind.VALUE
    subject: Subject = Subject.OTHER
    group: str = ""
    value: str = ""
    blank: str = ""  # replaces a redacted value: empty in HL7, a valid placeholder in FHIR
    source: str = "structure"
    limit: int = 0  # the maximum length of a surrogate in characters; 0: unlimited
    date_kind: DateKind = DateKind.EVENT  # of a value of type DATE

    def __repr__(self) -> str:
        """All fields except the value."""
        shown = (f"{name}={item!r}" for name, item in zip(self._fields, self, strict=True) if name != "value")
        return f"Site({', '.join(shown)})"


class LeafRole(StrEnum):
    """The use of a text value: decides if the leak guard may rewrite it, and which text in it is a leak."""

    TEXT = "text"  # free text, or a value without another use: may be rewritten
    LABEL = "label"
    """The display text of a code, or the name of a test: may be rewritten; a single word is no name.

    A narrative with this role is read without models: in three words out of context they see names.
    """
    CODE = "code"  # a code, or the name of a code system: like LABEL, but never rewritten
    KEY = "key"  # an unknown structural name (a JSON key), or a number of an unknown field: never rewritten


@dataclass(frozen=True, slots=True)
class Narrative:
    """Free text of a message, in one or more fragments, read as one document; or one leaf (``Codec.parse_leaves``)."""

    path: str
    mapped: MappedText
    role: LeafRole = LeafRole.TEXT


@dataclass(frozen=True, slots=True)
class EncodingLayout:
    """How encoded bytes are written: ``width`` characters in a line (0: a single line), the line end, the alphabet."""

    width: int = 0
    newline: str = "\n"
    ends: bool = False  # the last line has a line end too
    urlsafe: bool = False
    padded: bool = True
    lower: bool = False  # hex digits


PLAIN_LAYOUT = EncodingLayout()


@dataclass(frozen=True, slots=True)
class Attachment:
    """An embedded document: bytes ``[start, end)`` hold ``data`` in ``encoding``.

    ``encoding`` is base64, hex or text, and ``layout`` its layout; the message inside an envelope may also be a JSON
    value (json), the content of a JSON string (string), or compressed (base64+gzip, gzip). A document without a message
    is itself its bytes (raw).

    ``size``, ``digest`` and ``media`` are the byte ranges of sibling values that depend on the data (FHIR
    Attachment.size, .hash, .contentType; HL7 ED.2-3). ``plain`` is the value of ``media`` for plain text. A document
    divided over several values continues in ``parts``; ``labels`` are the media types of the parts, which
    depend on the data too. ``labelled``: the encoding holds a text beside the data (the name of a file in gzip), so it
    is written anew even if the data is unchanged.
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
    layout: EncodingLayout = PLAIN_LAYOUT
    labelled: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of a person of the document, from the structured part of the message or from the caller's context.

    ``sex`` ("female", "male" or "") is that of the person of a name, if the caller gives it.
    """

    type: PhiType
    kind: ValueKind
    subject: Subject
    group: str
    value: str = field(repr=False)
    date_kind: DateKind = DateKind.EVENT
    sex: str = field(default="", repr=False)


class Edit(NamedTuple):
    """Bytes ``[start, end)`` of the message are replaced by ``data``."""

    start: int
    end: int
    data: bytes

    def __repr__(self) -> str:
        """The range alone."""
        return f"Edit(start={self.start}, end={self.end})"


@dataclass(frozen=True, slots=True)
class Remark:
    """A replacement at one path, with its source and its count: the unit of the audit. Contains no value."""

    path: str
    type: str
    method: str
    source: str
    count: int = 1


class Message(Protocol):
    """A parsed message. Sites, narratives and attachments do not overlap."""

    @property
    def raw(self) -> bytes:
        """The bytes of the message as received."""

    @property
    def identity(self) -> str:
        """The identifier of this document: the scope of its date shift. Contains PHI."""

    @property
    def patients(self) -> Sequence[PatientIdentifier]:
        """The identifiers of the patient, in any order. ``PatientChoice`` makes them the scope of per-patient maps."""

    @property
    def sexes(self) -> Mapping[str, str]:
        """The sex ("female" or "male") of persons whose sex the message gives, by ``Site.group``."""

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
        """``text`` as a value of this message, with its escapes and its charset."""


def apply_edits(raw: bytes, edits: Sequence[Edit]) -> tuple[bytes, list[tuple[int, int]]]:
    """``raw`` with all edits applied and all other bytes unchanged, and the range of each edit in the result, in order.

    Raises ``ValueError`` if two edits overlap: this is an error in a codec, and the result could contain PHI.
    """
    out: list[bytes] = []
    ranges: list[tuple[int, int]] = []
    at = size = 0
    for edit in sorted(edits, key=itemgetter(0, 1)):
        if edit.start < at or edit.end < edit.start or edit.end > len(raw):
            raise ValueError(f"edit [{edit.start}, {edit.end}) overlaps or leaves the message")
        out += (raw[at : edit.start], edit.data)
        size += edit.start - at
        ranges.append((size, size + len(edit.data)))
        at, size = edit.end, size + len(edit.data)
    out.append(raw[at:])
    return b"".join(out), ranges


# Encoded bytes: base64 (RFC 4648 section 4; URL-safe alphabet: section 5; lines of 76: RFC 2045 section 6.8) and hex.
# Decoding also returns the layout, so that new bytes can be encoded in the same layout.

MAX_ENCODED_BYTES = 64 * 1024 * 1024
"""Characters of one encoded value. A longer value is refused before it is decoded."""
_BREAK = re.compile(r"\s+")
_URLSAFE = str.maketrans("-_", "+/")
_BACK = str.maketrans("+/", "-_")


class TooLongError(ValueError):
    """An encoded value is longer than ``MAX_ENCODED_BYTES``."""


def decode_base64(value: str) -> tuple[bytes, EncodingLayout]:
    """The bytes of a base64 value and its layout. Either alphabet, padding and line breaks are accepted.

    Raises ``ValueError`` for any other character, for data after the padding and for an impossible length, and
    ``TooLongError`` for a value longer than ``MAX_ENCODED_BYTES``. Bytes are never dropped.
    """
    dense, layout = _strip_layout(value)
    urlsafe = "-" in dense or "_" in dense
    if urlsafe:
        dense = dense.translate(_URLSAFE)
    missing = -len(dense) % 4
    if missing == 3 or (missing and dense.endswith("=")):
        raise ValueError("impossible length of base64")
    data = base64.b64decode(dense + "=" * missing, validate=True)
    padded = not missing and (dense.endswith("=") or not urlsafe)
    return data, EncodingLayout(layout.width, layout.newline, layout.ends, urlsafe, padded)


def decode_hex(value: str) -> tuple[bytes, EncodingLayout]:
    """The bytes of a value in hexadecimal digits and its layout. Raises the errors of ``decode_base64``."""
    dense, layout = _strip_layout(value)
    return bytes.fromhex(dense), EncodingLayout(
        layout.width, layout.newline, layout.ends, lower=any("a" <= c <= "f" for c in dense)
    )


def encode_base64(data: bytes, layout: EncodingLayout) -> str:
    """``data`` as base64 in ``layout``."""
    text = base64.b64encode(data).decode("ascii")
    if layout.urlsafe:
        text = text.translate(_BACK)
    return _apply_lines(text if layout.padded else text.rstrip("="), layout)


def encode_hex(data: bytes, layout: EncodingLayout) -> str:
    """``data`` as hexadecimal digits in ``layout``."""
    return _apply_lines(data.hex() if layout.lower else data.hex().upper(), layout)


def split_by_lengths(text: str, lengths: Sequence[int]) -> list[str]:
    """``text`` divided into parts of these lengths; the last part takes all the remaining text."""
    out: list[str] = []
    at = 0
    for length in lengths[:-1]:
        out.append(text[at : at + length])
        at += length
    return [*out, text[at:]]


def _strip_layout(value: str) -> tuple[str, EncodingLayout]:
    """``value`` without white space, and its line layout."""
    if len(value) > MAX_ENCODED_BYTES:
        raise TooLongError("encoded value too long")
    core = value.strip()
    found = _BREAK.search(core)
    if found is None:
        after = value[len(value.rstrip()) :]
        return core, EncodingLayout(newline=after or "\n", ends=bool(after))
    return _BREAK.sub("", core), EncodingLayout(found.start(), found[0], value[-1:].isspace())


def _apply_lines(text: str, layout: EncodingLayout) -> str:
    lines = [text[i : i + layout.width] for i in range(0, len(text), layout.width)] if layout.width else [text]
    return layout.newline.join(lines) + (layout.newline if layout.ends else "")
