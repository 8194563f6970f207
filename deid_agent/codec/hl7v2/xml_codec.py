"""HL7 v2 XML: read by the codec of HL7 v2 and edited in its own bytes.

Source: HL7 Version 2: XML Encoding Syntax, release 2; decision record 0020.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from deid_agent.codec.hl7v2.codec import Hl7Codec
from deid_agent.codec.hl7v2.xml_rendering import Hl7XmlRenderer
from deid_agent.codec.markup.document import MarkupMessage, check_well_formed, parse_markup_view, read_root
from deid_agent.codec.markup.elements import XmlTree, find_local_schemas, read_elements, read_spaces
from deid_agent.codec.rendering import Rendering, build_message, drop_beside, outermost, read_beside
from deid_agent.model import Attachment, Dropped, MessageError, Narrative, PublishedPaths, Reason

NAMESPACE = "urn:hl7-org:v2xml"
_ROOT = re.compile(r"ACK|[A-Z]{3}_[A-Z0-9]{2,3}")
"""A message structure, such as ``ORU_R01``."""
_DEEPEST = 100


class Hl7XmlCodec:
    """Implements ``Codec`` for HL7 v2 XML. Shares the tables of ``hl7``."""

    name = "hl7v2-xml"

    def __init__(self, hl7: Hl7Codec) -> None:
        """Takes the codec that reads the rendering."""
        self._hl7 = hl7

    def detect(self, raw: bytes) -> bool:
        """True if the first element is in the namespace of HL7 v2, or has the name of a structure and no namespace."""
        root = read_root(raw)
        return root is not None and (root[1] == NAMESPACE or (root[1] is None and _ROOT.fullmatch(root[0]) is not None))

    def parse(self, raw: bytes) -> Sequence[MarkupMessage]:
        """The one message of the payload.

        Raises ``MessageError``: MALFORMED for XML that is not well-formed or has no header, UNSUPPORTED for a document
        type or an element that HL7 v2 cannot express, RESOURCE for a document type with declarations and past the
        bounds.
        """
        tree, renderer = self._render(raw)
        rendering, charset = renderer.rendering, tree.view.charset
        messages = self._hl7.parse(rendering.raw)
        if len(messages) > 1:
            raise MessageError(Reason.UNSUPPORTED, "MSH", "more than one message in a document")
        found = messages[0]
        sites = [*map(rendering.site, found.sites), *find_local_schemas(tree)]
        narratives = [*map(rendering.narrative, found.narratives), *read_beside(tree, renderer.loose)]
        attachments = [_attachment(rendering, each, raw, charset) for each in found.attachments]
        return [build_message(tree, raw, found, sites, narratives, attachments)]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """Every value, comment, attribute, namespace and unusual name. Raises as ``parse``."""
        tree, renderer = self._render(raw)
        rendering = renderer.rendering
        values = [
            rendering.narrative(leaf)
            for leaf in self._hl7.parse_leaves(rendering.raw)
            if rendering.covers(leaf.mapped.starts[0])
        ]
        found = [*values, *renderer.names, *read_beside(tree, renderer.loose), *read_spaces(tree)]
        return sorted(found, key=lambda leaf: leaf.mapped.starts[0])

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:
        """See ``selection``; text beside values is never published. Raises as ``parse``."""
        tree, renderer = self._render(raw)
        found = list(renderer.rendering.dropped(self._hl7.find_unlisted(renderer.rendering.raw, listed)))
        return list(outermost([*found, *drop_beside(tree, renderer.loose)]))

    def _render(self, raw: bytes) -> tuple[XmlTree, Hl7XmlRenderer]:
        view = parse_markup_view(raw)
        check_well_formed(view)
        tree = read_elements(view, _DEEPEST, lambda _: False)
        renderer = Hl7XmlRenderer(tree, self._hl7.groups)
        renderer.message()
        return tree, renderer


def _attachment(rendering: Rendering, found: Attachment, raw: bytes, charset: str) -> Attachment:
    """The attachment in the original. Its media type is two elements there: ED.2 and ED.3, with all between them."""
    labels = [found.media, *found.labels]
    main, _, sub = (part.encode(charset) for part in found.plain.decode("ascii").partition("^"))
    spans = []
    plain = b""
    for label in labels:
        parts = rendering.values_in(*label) if label is not None else []
        if len(parts) == 2:
            plain = main + raw[parts[0][1] : parts[1][0]] + sub
            spans.append((parts[0][0], parts[1][1]))
    bare = replace(found, media=None, labels=(), plain=b"")
    mapped = rendering.attachment(bare, charset)
    return replace(mapped, media=spans[0] if spans else None, labels=tuple(spans[1:]), plain=plain)
