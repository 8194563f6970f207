"""Plain text as a format: one narrative, no structure. For texts inside of other formats, once they are decoded."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from deid_agent.mapped import MappedText
from deid_agent.sites import Attachment, Narrative, Site


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """Implements ``sites.Message`` for UTF-8 bytes; it has no places of its own, a reader proposes them."""

    raw: bytes = field(repr=False)
    identity: str = field(default="", repr=False)
    patient: str | None = field(default=None, repr=False)
    sites: tuple[Site, ...] = ()
    narratives: tuple[Narrative, ...] = ()
    attachments: tuple[Attachment, ...] = ()

    def encode(self, text: str) -> bytes:
        """``text`` as UTF-8."""
        return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class PlainText:
    """Implements ``codec.base.Codec`` for UTF-8 text that stands at ``path``. It detects nothing: a caller knows."""

    path: str
    name: str = "text"

    def detect(self, raw: bytes) -> bool:  # noqa: ARG002
        """Never: every format would be plain text to it."""
        return False

    def parse(self, raw: bytes) -> Sequence[PlainMessage]:
        """The text as one message."""
        return [PlainMessage(raw)]

    def leaves(self, raw: bytes) -> Sequence[Narrative]:
        """The text as one leaf."""
        text = raw.decode("utf-8", "surrogatepass")
        return [Narrative(self.path, mapped(text))] if text else []


def mapped(text: str) -> MappedText:
    """Each character with its bytes in UTF-8."""
    if text.isascii():
        return MappedText(text, range(len(text)), range(1, len(text) + 1))
    starts, ends, at = array("Q"), array("Q"), 0
    for char in text:
        starts.append(at)
        at += 1 if char < "\x80" else 2 if char < "\u0800" else 3 if char < "\U00010000" else 4
        ends.append(at)
    return MappedText(text, starts, ends)
