"""C-CDA: parses one document, or a fragment of one, to a message with its sites.

A document is never serialized again: edits are byte ranges of the original.
Source: HL7 CDA Release 2, C-CDA R2.1.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from deid_agent.codec.cda.sink import (
    CdaLeaves,
    CdaSink,
)
from deid_agent.codec.cda.table import load_cda_table
from deid_agent.codec.cda.walk import CdaWalk
from deid_agent.codec.labels import load_labels
from deid_agent.codec.markup.document import (
    MarkupMessage,
    MarkupView,
    check_well_formed,
    has_closing_bracket,
    parse_markup_view,
    read_root,
)
from deid_agent.model import (
    Dropped,
    MessageError,
    Narrative,
    PublishedPaths,
    Reason,
)

NAMESPACE = "urn:hl7-org:v3"


class CdaCodec:
    """Implements ``Codec`` for C-CDA. Holds the table of ``rules/cda``; no document changes it."""

    name = "cda"

    def __init__(self, rules: Path) -> None:
        """Reads ``rules/cda``. Raises ``ConfigurationError`` that names the file and the key."""
        self._table = load_cda_table(rules)
        self._labels = load_labels(rules)

    def detect(self, raw: bytes) -> bool:
        """True if the first element is in the HL7 v3 namespace, or has a name of CDA and no namespace."""
        root = read_root(raw)
        return root is not None and (root[1] == NAMESPACE or (root[1] is None and root[0] in self._table.fragments))

    def parse(self, raw: bytes) -> Sequence[MarkupMessage]:
        """The one document of the payload.

        Raises ``MessageError``: MALFORMED for XML that is not well-formed, UNSUPPORTED for a charset with shifts,
        RESOURCE for a document type with declarations and past the bounds.
        """
        sink, view = self._walk(raw, None)
        return [
            MarkupMessage(
                raw,
                sink.document or hashlib.sha256(raw).hexdigest(),
                tuple(sink.patients),
                tuple(sorted(sink.sites, key=lambda site: site.start)),
                tuple(sorted(sink.narratives, key=lambda narrative: narrative.mapped.starts[0])),
                tuple(sink.attachments),
                view.charset,
                has_closing_bracket(view),
                sexes=_sexes_by_name(sink),
            )
        ]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """Every text, attribute and comment; a narrative block is one leaf. Raises as ``parse``."""
        leaves = CdaLeaves()
        self._walk(raw, leaves)
        return leaves.in_byte_order()

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:  # noqa: ARG002
        """Raises ``MessageError(UNSUPPORTED)``: without its unlisted elements a document is no valid C-CDA."""
        raise MessageError(
            Reason.UNSUPPORTED, "byte 0", "the policy publishes listed paths, which C-CDA does not allow"
        )

    def _walk(self, raw: bytes, leaves: CdaLeaves | None) -> tuple[CdaSink, MarkupView]:
        view = parse_markup_view(raw)
        check_well_formed(view)
        sink = CdaSink(view, self._table)
        CdaWalk(sink, self._labels, leaves).run()
        return sink, view


def _sexes_by_name(sink: CdaSink) -> dict[str, str]:
    """The sex of each person by the path of the name."""
    names = {site.group for site in sink.sites if site.group} if sink.sexes else ()
    return {name: sex for name in names if (sex := sink.sexes.get(name.rpartition("/")[0]))}
