"""A parsed HTML or XML document: the places, and how to write into them."""

import re
from dataclasses import dataclass, field
from html import escape

from deid_agent.codec.markup.charset import View, encode
from deid_agent.sites import Attachment, Narrative, Site

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_RETURN = re.compile("\r(?!\n)")
_CLOSES = re.compile(r"(?<!\])\]>")


@dataclass(frozen=True, slots=True)
class MarkupMessage:
    """Implements ``sites.Message``. ``brackets``: a ``]`` written somewhere could end up before ``]>``."""

    raw: bytes = field(repr=False)
    identity: str = field(repr=False)
    patient: str | None = field(repr=False)
    sites: tuple[Site, ...]
    narratives: tuple[Narrative, ...]
    attachments: tuple[Attachment, ...]
    charset: str
    brackets: bool = False

    def encode(self, text: str) -> bytes:
        """``text`` as text or as the value of an attribute in any quotes, in the charset of the document.

        ``& < > " '`` and characters that the charset lacks become references, controls that XML forbids spaces.
        """
        out = _RETURN.sub("&#13;", escape(_CONTROLS.sub(" ", text)))
        return encode(out.replace("]", "&#93;") if self.brackets else out, self.charset)


def closes(view: View) -> bool:
    """True where a bracket and ``>`` stand side by side outside of the end of a CDATA section."""
    return _CLOSES.search(view.text) is not None
