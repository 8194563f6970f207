"""The results of a C-CDA walk: sites, narratives, attachments and leaves of one document.

Embedded documents have the data type ED: in ``nonXMLBody/text``, ``observationMedia/value`` and other elements.
Source: HL7 v3 data types, ED (mediaType, representation, compression, integrityCheck).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from deid_agent.codec.cda.table import CdaEntity, CdaTable
from deid_agent.codec.charsets import slice_offsets
from deid_agent.codec.dates import find_dates, is_whole_date
from deid_agent.codec.labels import LabelMeaning, has_identity_cue
from deid_agent.codec.markup.document import MarkupView, XmlPart, XmlToken
from deid_agent.codec.markup.readable import Attribute, MarkupText, read_value
from deid_agent.model import (
    PLAIN_LAYOUT,
    Attachment,
    DateKind,
    LeafRole,
    MappedText,
    MessageError,
    Narrative,
    PatientIdentifier,
    PhiType,
    Reason,
    Site,
    Subject,
    TooLongError,
    ValueKind,
    decode_base64,
)

UNKNOWN = "application/octet-stream"
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUBJECTS = {CdaEntity.PATIENT: Subject.PATIENT, CdaEntity.PROVIDER: Subject.PROVIDER}
_BLANKS = {
    PhiType.EMAIL: "redacted@redacted.invalid",
    PhiType.URL: "http://redacted.invalid/",
    PhiType.AGE: "90",
    PhiType.ZIP: "00000",
    PhiType.BIOID: "AA==",
}
_PLAIN_TEXT = frozenset({"", "text/plain", "text/x-hl7-text+xml"})
_SPACE = re.compile(r"\s+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_DROPPED = re.compile(r"""\s+(?:compression|integrityCheckAlgorithm|integrityCheck)\s*=\s*(?:"[^"]*"|'[^']*')""")
_BETWEEN = re.compile(
    r"""(?:\s+(?:representation|language|charset|integrityCheckAlgorithm|integrityCheck)\s*=\s*"""
    r"""(?:"[!#-%'-~]*"|'[!-%(-~]*'))*\s+compression\s*=\s*["']"""
)


@dataclass(slots=True)
class CdaFrame:
    """An open element. ``name`` is its local name; ``group`` is the path of the composite that it is part of.

    ``runs`` are the text tokens of an embedded document, ``mixed`` is true if the element has child elements, and
    ``content`` is the first character of a narrative block, ``meaning`` the identity that the code in it names.
    """

    name: str
    path: str
    parent: "CdaFrame | None" = field(repr=False)
    entity: CdaEntity = CdaEntity.OTHER
    group: str = ""
    attributes: dict[str, Attribute] = field(default_factory=dict, repr=False)
    counts: dict[str, int] = field(default_factory=dict, repr=False)
    runs: list[XmlToken] | None = field(default=None, repr=False)
    mixed: bool = False
    content: int = 0
    meaning: LabelMeaning | None = None
    born: bool = False  # its label is that of a date of birth

    def value(self, attribute: str) -> str:
        """The value of an attribute, not decoded; empty if the element does not have the attribute."""
        found = self.attributes.get(attribute)
        return found.value if found else ""

    @property
    def parent_name(self) -> str:
        """The local name of the parent element; empty for the root."""
        return self.parent.name if self.parent else ""


@dataclass(slots=True)
class CdaSink:
    """Collects the sites, narratives and attachments of one document; offsets are bytes."""

    view: MarkupView = field(repr=False)
    table: CdaTable = field(repr=False)
    sites: list[Site] = field(default_factory=list, repr=False)
    narratives: list[Narrative] = field(default_factory=list, repr=False)
    attachments: list[Attachment] = field(default_factory=list, repr=False)
    document: str = field(default="", repr=False)
    patients: list[PatientIdentifier] = field(default_factory=list, repr=False)
    sexes: dict[str, str] = field(default_factory=dict)
    """The sex of persons by the path of the element that has their names."""
    anchors: dict[str, str] = field(default_factory=dict, repr=False)

    def redacted_anchor(self, anchor: str) -> str:
        """The redacted form of an anchor: numbered, so that each reference still has one target."""
        return self.anchors.setdefault(anchor, f"redacted{len(self.anchors) + 1}")

    def add_text(self, path: str, mapped: MappedText) -> None:
        """Add a narrative, unless it is blank."""
        if mapped.text and not mapped.text.isspace():
            self.narratives.append(Narrative(path, mapped))


@dataclass(slots=True)
class CdaLeaves:
    """Collects the leaves of one document."""

    found: list[Narrative] = field(default_factory=list, repr=False)

    def add(self, path: str, mapped: MappedText, role: LeafRole) -> None:
        """Add a leaf, unless it is blank."""
        if mapped.text and not mapped.text.isspace():
            self.found.append(Narrative(path, mapped, role))

    def in_byte_order(self) -> Sequence[Narrative]:
        """All leaves, sorted by their first byte."""
        return sorted(self.found, key=lambda leaf: leaf.mapped.starts[0])


@dataclass(slots=True)
class CdaValue:
    """One text or attribute value: its characters, its path and its element."""

    sink: CdaSink
    mapped: MarkupText
    path: str
    frame: CdaFrame

    @property
    def text(self) -> str:
        """The decoded characters."""
        return self.mapped.text

    def site(
        self,
        type_: PhiType,
        start: int = 0,
        end: int | None = None,
        *,
        kind: ValueKind = ValueKind.VALUE,
        subject: Subject | None = None,
        blank: str | None = None,
        source: str = "structure",
    ) -> None:
        """Add characters ``[start, end)``, without surrounding white space, as one value of ``type_``."""
        end = len(self.text) if end is None else end
        value = self.text[start:end]
        start += len(value) - len(value.lstrip())
        value = value.strip()
        if not value:
            return
        starts, ends = self.mapped.starts, self.mapped.ends
        owner = subject or _SUBJECTS.get(self.frame.entity, Subject.OTHER)
        placeholder = placeholder_for(type_, value) if blank is None else blank
        first, last = starts[start], ends[start + len(value) - 1]
        group = self.frame.group or self.frame.path
        date_kind = self._date_kind() if type_ is PhiType.DATE else DateKind.EVENT
        self.sink.sites.append(
            Site(self.path, first, last, type_, kind, owner, group, value, placeholder, source, date_kind=date_kind)
        )

    def _date_kind(self) -> DateKind:
        """The kind of a date by its element, else by the label of the observation whose value it is."""
        found = self.sink.table.date_kind(self.frame.name)
        value = self.frame if self.frame.name == "value" else self.frame.parent
        labelled = value is not None and value.name == "value" and value.parent is not None and value.parent.born
        return DateKind.BIRTH if labelled and found is DateKind.EVENT else found

    def take_dates(self) -> bool:
        """Add the dates in a value that is kept otherwise; False if it has none."""
        found = list(find_dates(self.text))
        for start, end in found:
            self.site(PhiType.DATE, start, end)
        return bool(found)

    def narrative(self, start: int = 0, end: int | None = None) -> None:
        """Add characters ``[start, end)`` as free text, or as a date if they are one."""
        end = len(self.text) if end is None else end
        if is_whole_date(self.text[start:end].strip()):
            self.site(PhiType.DATE, start, end)
            return
        span = start, end
        starts, ends = slice_offsets(self.mapped.starts, *span), slice_offsets(self.mapped.ends, *span)
        self.sink.add_text(self.path, MarkupText(self.text[start:end], starts, ends))


def is_uuid(value: str) -> bool:
    """True for a UUID in its canonical form, in any case."""
    return _UUID.fullmatch(value) is not None


def placeholder_for(type_: PhiType, value: str) -> str:
    """A valid replacement of a redacted value: a date for a date, an identifier of its kind for an identifier."""
    if type_ is PhiType.DATE:
        digits = len(value) if value.isdigit() and len(value) < 8 else 8
        return "1900-01-01"[: len(value)] if value[4:5] == "-" and len(value) > 7 else "19000101"[:digits]
    if is_uuid(value):
        return "00000000-0000-0000-0000-000000000000"
    return _BLANKS.get(type_, "REDACTED")


def may_hold_document(frame: CdaFrame) -> bool:
    """True if the content is declared as encoded, compressed or of another media type than text."""
    media = frame.value("mediaType").strip().lower()
    encoded = frame.value("representation").strip().upper() == "B64" or bool(frame.value("compression").strip())
    return (encoded or media not in _PLAIN_TEXT) and frame.name != "signatureText"


def take_document(frame: CdaFrame, sink: CdaSink, *, leaves: bool) -> bool:
    """Add the attachment of an element that has ended (nothing with ``leaves``). False if its content is text."""
    text = sink.view.text
    runs = [run for run in frame.runs or () if not text[run.first : run.last].isspace()]
    encoded = bool(frame.value("compression").strip()) or frame.value("representation").strip().upper() == "B64"
    dense = _SPACE.sub("", "".join(text[run.first : run.last] for run in runs))
    encoded = encoded or (len(dense) % 4 == 0 and _BASE64.fullmatch(dense) is not None)
    if runs and not encoded and (len(runs) > 1 or frame.mixed):
        return False
    if runs and not leaves:
        attachment = _encoded_document(frame, sink, runs, dense) if encoded else _inline_document(frame, sink, runs[0])
        sink.attachments.append(attachment)
    return True


def _inline_document(frame: CdaFrame, sink: CdaSink, run: XmlToken) -> Attachment:
    """A document as text, escaped or in a CDATA section; a replacement includes the marks of the section."""
    view = sink.view
    inner = view.text[run.first : run.last]
    if run.part is not XmlPart.CDATA:
        inner = read_value(inner, view.starts, view.ends, offset=run.first).text
    data = inner.encode("utf-8", "replace")
    media, plain = _media_range(frame, sink)
    declared = frame.value("mediaType").strip()
    return Attachment(frame.path, *view.span(run.start, run.end), declared, "text", data, media=media, plain=plain)


def _encoded_document(frame: CdaFrame, sink: CdaSink, runs: list[XmlToken], dense: str) -> Attachment:
    """A document in base64. One that does not decode, or is compressed, has an unknown type and is never text."""
    view = sink.view
    compressed = bool(frame.value("compression").strip())
    media_type = frame.value("mediaType").strip()
    spans = [_trimmed_range(view, run) for run in runs]
    layout = PLAIN_LAYOUT
    try:
        data, layout = decode_base64(
            view.text[slice(*spans[0])] if len(runs) == 1 and runs[0].part is XmlPart.TEXT else dense
        )
    except TooLongError:
        raise MessageError(Reason.RESOURCE, frame.path, "an attachment is too long") from None
    except ValueError:
        data, media_type = dense.encode("utf-8", "replace"), UNKNOWN
    media, plain = _media_range(frame, sink)
    check = frame.attributes.get("integrityCheck")
    by_sha1 = frame.value("integrityCheckAlgorithm") in {"", "SHA-1"}
    has_digest = check and _is_code(check.value, sink.table) and by_sha1 and not compressed
    digest = view.span(check.start, check.end) if check and has_digest else None
    span, *parts = (view.span(*each) for each in spans)
    return Attachment(
        frame.path,
        *span,
        UNKNOWN if compressed else media_type,
        "base64",
        data,
        digest=digest,
        media=media,
        plain=plain,
        parts=tuple(parts),
        layout=layout,
    )


def _trimmed_range(view: MarkupView, run: XmlToken) -> tuple[int, int]:
    """The characters of a run without surrounding white space; a CDATA section includes its marks."""
    if run.part is XmlPart.CDATA:
        return run.start, run.end
    text = view.text[run.first : run.last]
    return run.last - len(text.lstrip()), run.first + len(text.rstrip())


def _media_range(frame: CdaFrame, sink: CdaSink) -> tuple[tuple[int, int] | None, bytes]:
    """The bytes to rewrite if a notice replaces the data, and their new content.

    They span from the media type to the compression, because a notice is not compressed.
    """
    media, compression = frame.attributes.get("mediaType"), frame.attributes.get("compression")
    view, plain = sink.view, "text/plain"
    if media is None or not _is_code(media.value, sink.table):
        return None, plain.encode(view.charset)
    first, last = media.start, media.end
    if (
        compression
        and _is_code(compression.value, sink.table)
        and compression.start > last
        and _BETWEEN.fullmatch(view.text[last + 1 : compression.start])
    ):
        last = compression.end + 1
        plain += _DROPPED.sub("", view.text[media.end : last])
    return view.span(first, last), plain.encode(view.charset, "xmlcharrefreplace")


def _is_code(value: str, table: CdaTable) -> bool:
    """True for a value that the walk reads as a code, so that no site or narrative covers it."""
    if value == "" or not value.isascii() or any(c.isspace() or c == "&" for c in value):
        return False
    named = has_identity_cue(value) or not table.people.is_plain_label(value)
    return next(find_dates(value), None) is None and not named
