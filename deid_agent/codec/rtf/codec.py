"""RTF as a format of attachments. Edits are made in place; properties and pictures are removed."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deid_agent.codec.rtf.reader import RtfReader
from deid_agent.codec.rtf.tokens import RtfFlow, encode_rtf
from deid_agent.model import (
    Attachment,
    Dropped,
    LeafRole,
    MessageError,
    Narrative,
    PatientIdentifier,
    PublishedPaths,
    Reason,
    Site,
)

MAX_BYTES = 32 * 1024 * 1024
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?[\x00 \t\r\n]{0,64}\{\\rtf")


@dataclass(frozen=True, slots=True)
class RtfMessage:
    """A parsed document; implements ``Message``.

    Paths: ``body``, ``header``, ``footnote(2)``; ``info`` and ``pict`` are removed.
    """

    raw: bytes = field(repr=False)
    identity: str = field(repr=False)
    sites: tuple[Site, ...]
    narratives: tuple[Narrative, ...]
    patients: tuple[PatientIdentifier, ...] = field(default=(), repr=False)
    attachments: tuple[Attachment, ...] = ()
    sexes: Mapping[str, str] = field(default_factory=dict)

    def encode(self, text: str) -> bytes:
        """``text`` as RTF, escaped; pure ASCII."""
        return encode_rtf(text)


class RtfCodec:
    """Implements ``Codec`` for RTF. Time and memory are linear in the size of the document."""

    name = "rtf"

    def detect(self, raw: bytes) -> bool:
        r"""True for a group that begins with the control word ``\rtf``."""
        return _HEAD.match(raw) is not None

    def parse(self, raw: bytes) -> Sequence[RtfMessage]:
        """The document as one message. Each text is a narrative; pictures, objects and properties are sites.

        A truncated document is read to its end. Raises ``MessageError``: MALFORMED if it is not RTF or declares more
        binary data than it has, RESOURCE past the bounds.
        """
        found = self._read(raw, everything=False)
        narratives = tuple(_narratives(found.texts, raw, LeafRole.TEXT))
        sites = tuple(sorted(found.sites, key=lambda s: s.start))
        return [RtfMessage(raw, hashlib.sha256(raw).hexdigest(), sites, narratives)]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """Every text in byte order, including names of fonts and styles, and the text of removed parts."""
        found = self._read(raw, everything=True)
        leaves = [*_narratives(found.texts, raw, LeafRole.TEXT), *_narratives(found.kept, raw, LeafRole.CODE)]
        return sorted(leaves, key=lambda leaf: leaf.mapped.starts[0])

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:  # noqa: ARG002
        """Nothing: a document in RTF has no paths."""
        return ()

    def _read(self, raw: bytes, *, everything: bool) -> RtfReader:
        if len(raw) > MAX_BYTES:
            raise MessageError(Reason.RESOURCE, "byte 0", f"more than {MAX_BYTES} bytes of RTF")
        if not self.detect(raw):
            raise MessageError(Reason.MALFORMED, "byte 0", "no RTF")
        return RtfReader(raw, everything=everything).read()


def _narratives(flows: Sequence[RtfFlow], raw: bytes, role: LeafRole) -> Iterator[Narrative]:
    for each in flows:
        if (mapped := each.mapped(raw)) is not None:
            yield Narrative(each.path, mapped, role)
