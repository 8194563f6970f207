"""C-CDA: one document, or a fragment of one, in; a message with its sites out.

Nothing is ever serialised again: what changes are byte ranges of the document as it came.
Source: HL7 CDA Release 2, C-CDA R2.1.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from deid_agent.codec.cda.sink import Leaves, Sink
from deid_agent.codec.cda.table import load
from deid_agent.codec.cda.walk import Walk
from deid_agent.codec.markup import charset, xml
from deid_agent.codec.markup.message import MarkupMessage, closes
from deid_agent.phi import PhiType
from deid_agent.sites import Narrative

NAMESPACE = "urn:hl7-org:v3"
_HEAD = 65_536
_ROOT = re.compile(
    r"\A(?>\ufeff?)(?>\s+|<!--(?>[^-]+|-(?!->))*-->|<\?(?>[^?]+|\?(?!>))*\?>|<![A-Z][^<>\[]*>)*"
    r"<((?:[A-Za-z_][\w.-]*:)?)([A-Za-z_][\w.-]*)([^<>]*)"
)
_NAMESPACE = re.compile(r"""\sxmlns((?::[\w.-]+)?)\s*=\s*["']([^"']*)["']""")


class CdaCodec:
    """Implements ``codec.base.Codec``. Holds the table of ``rules/cda``; never changed by a document."""

    name = "cda"

    def __init__(self, rules: Path) -> None:
        """Reads ``rules/cda``. Raises ``ConfigurationError`` naming the file and the key."""
        self._table = load(rules)

    def detect(self, raw: bytes) -> bool:
        """True where the first element is of the HL7 v3 namespace, or bears a name of CDA and no other namespace."""
        found = _ROOT.match(charset.head(raw, _HEAD).removeprefix("ï»¿"))
        if found is None:
            return False
        prefix, name, rest = found.groups()
        spaces = {mark.removeprefix(":"): space for mark, space in _NAMESPACE.findall(rest)}
        space = spaces.get(prefix.rstrip(":"))
        return space == NAMESPACE or (space is None and name in self._table.fragments)

    def parse(self, raw: bytes) -> Sequence[MarkupMessage]:
        """The one document of the payload.

        Raises ``MessageError``: MALFORMED for what is not well-formed, UNSUPPORTED for a charset with shifts,
        RESOURCE for a document type with declarations and past the bounds.
        """
        sink, view = self._walked(raw, None)
        return [
            MarkupMessage(
                raw,
                sink.document or hashlib.sha256(raw).hexdigest(),
                _patient(sink.patients),
                tuple(sorted(sink.sites, key=lambda site: site.start)),
                tuple(sorted(sink.narratives, key=lambda narrative: narrative.mapped.starts[0])),
                tuple(sink.attachments),
                view.charset,
                closes(view),
            )
        ]

    def leaves(self, raw: bytes) -> Sequence[Narrative]:
        """Every text, attribute and comment; a block of narrative is one leaf. Raises as ``parse``."""
        leaves = Leaves()
        self._walked(raw, leaves)
        return leaves.in_order()

    def _walked(self, raw: bytes, leaves: Leaves | None) -> tuple[Sink, charset.View]:
        view = charset.view(raw)
        xml.check(view)
        sink = Sink(view, self._table)
        Walk(sink, leaves).run()
        return sink, view


def _patient(found: list[tuple[PhiType, str]]) -> str | None:
    """The medical record number, else the first identifier."""
    own = (value for type_, value in found if type_ is PhiType.MEDICALRECORD)
    return next(own, found[0][1] if found else None)
