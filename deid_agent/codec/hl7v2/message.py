"""A parsed HL7 v2 message: the places, and how to write into them."""

from dataclasses import dataclass, field

from deid_agent.codec.hl7v2.escape import escape
from deid_agent.codec.hl7v2.wire import Separators
from deid_agent.sites import Attachment, Narrative, Site


@dataclass(frozen=True, slots=True)
class Hl7Message:
    """Implements ``sites.Message``.

    Paths: ``PID-5[1].1`` is segment, field, repetition, component; ``PID-5[1].1.2`` the subcomponent where the
    component has several; the second OBX of a message is ``OBX(2)``. A narrative has the path of its first
    fragment, a broken line without a segment name is ``line(n)``.
    """

    raw: bytes = field(repr=False)
    identity: str = field(repr=False)
    patient: str | None = field(repr=False)
    sites: tuple[Site, ...]
    narratives: tuple[Narrative, ...]
    attachments: tuple[Attachment, ...]
    marks: Separators
    charset: str

    def encode(self, text: str) -> bytes:
        """``text`` as a value: separators and line breaks escaped, in the charset that the message is written in."""
        return escape(text, self.charset, self.marks)
