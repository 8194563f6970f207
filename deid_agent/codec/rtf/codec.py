"""RTF as a format of attachments: edits in place, properties and pictures out."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.codec.rtf import flow
from deid_agent.codec.rtf.reader import Reader
from deid_agent.errors import MessageError, Reason
from deid_agent.sites import Attachment, Narrative, Role, Site

MAX_BYTES = 32 * 1024 * 1024
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?[\x00 \t\r\n]{0,64}\{\\rtf")


@dataclass(frozen=True, slots=True)
class RtfMessage:
    """Implements ``sites.Message``. Paths: ``body``, ``header``, ``footnote(2)``; ``info`` and ``pict`` are removed."""

    raw: bytes = field(repr=False)
    identity: str = field(repr=False)
    sites: tuple[Site, ...]
    narratives: tuple[Narrative, ...]
    patient: str | None = field(default=None, repr=False)
    attachments: tuple[Attachment, ...] = ()

    def encode(self, text: str) -> bytes:
        """``text`` as RTF, escaped; pure ASCII."""
        return flow.encode(text)


class RtfCodec:
    """Implements ``codec.base.Codec``. Time and memory are linear in the size of a document."""

    name = "rtf"

    def detect(self, raw: bytes) -> bool:
        """True for a group that begins with the control word rtf."""
        return _HEAD.match(raw) is not None

    def parse(self, raw: bytes) -> Sequence[RtfMessage]:
        """The document. Every text becomes a narrative of its own; pictures, objects and properties are sites.

        A document that ends early is read to its end. Raises ``MessageError``: MALFORMED for what is no RTF or
        says that it holds more binary data than it has, RESOURCE past the bounds.
        """
        found = self._read(raw, everything=False)
        narratives = tuple(_narratives(found.texts, raw, Role.TEXT))
        sites = tuple(sorted(found.sites, key=lambda s: s.start))
        return [RtfMessage(raw, hashlib.sha256(raw).hexdigest(), sites, narratives)]

    def leaves(self, raw: bytes) -> Sequence[Narrative]:
        """Every text, names of fonts and styles and what would be removed too, in byte order."""
        found = self._read(raw, everything=True)
        leaves = [*_narratives(found.texts, raw, Role.TEXT), *_narratives(found.kept, raw, Role.CODE)]
        return sorted(leaves, key=lambda leaf: leaf.mapped.starts[0])

    def _read(self, raw: bytes, *, everything: bool) -> Reader:
        if len(raw) > MAX_BYTES:
            raise MessageError(Reason.RESOURCE, "byte 0", f"more than {MAX_BYTES} bytes of RTF")
        if not self.detect(raw):
            raise MessageError(Reason.MALFORMED, "byte 0", "no RTF")
        return Reader(raw, everything=everything).read()


def _narratives(flows: Sequence[flow.Flow], raw: bytes, role: Role) -> Iterator[Narrative]:
    for each in flows:
        if (mapped := each.mapped(raw)) is not None:
            yield Narrative(each.path, mapped, role)
