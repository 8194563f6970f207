"""FHIR XML: any resource of any version, read by the codec of FHIR JSON and edited in its own bytes.

Source: FHIR R5, 2.1.6 (Resource formats), 2.1.28 (Narrative); decision record 0020.
"""

from collections.abc import Sequence

from deid_agent.codec.fhir.codec import FhirCodec
from deid_agent.codec.fhir.xml_rendering import FhirXmlRenderer
from deid_agent.codec.fhir.xml_types import FhirXmlTypes
from deid_agent.codec.markup.document import (
    FHIR_NAMESPACE,
    MarkupMessage,
    check_well_formed,
    parse_markup_view,
    read_root,
)
from deid_agent.codec.markup.elements import XmlTree, find_local_schemas, read_elements, read_spaces
from deid_agent.codec.rendering import build_message, drop_beside, outermost, read_beside
from deid_agent.model import Dropped, LeafRole, MessageError, Narrative, PublishedPaths, Reason

_DEEPEST = 100
"""Nested elements. In JSON a repeated element is two levels deep."""


class FhirXmlCodec:
    """Implements ``Codec`` for FHIR XML. Shares the tables and plans of ``fhir``."""

    name = "fhir-xml"

    def __init__(self, fhir: FhirCodec, types: FhirXmlTypes) -> None:
        """Takes the codec that reads the rendering, and the types that XML does not show."""
        self._fhir = fhir
        self._types = types

    def detect(self, raw: bytes) -> bool:
        """True if the first element is in the namespace of FHIR, or has the name of a resource and no namespace."""
        root = read_root(raw)
        return root is not None and (root[1] == FHIR_NAMESPACE or (root[1] is None and root[0] in self._fhir.resources))

    def parse(self, raw: bytes) -> Sequence[MarkupMessage]:
        """The one resource of the payload.

        Raises ``MessageError``: MALFORMED for XML that is not well-formed, UNSUPPORTED for a document type or a name
        that FHIR does not allow, RESOURCE for a document type with declarations and past the bounds.
        """
        tree, renderer = self._render(raw)
        rendering = renderer.rendering
        (found,) = self._fhir.parse(rendering.raw)
        if named := [site for site in found.sites if rendering.raw[site.end : site.end + 2] == b'":']:
            # The name of an element has two places, and none is ever rewritten.
            where = f"byte {rendering.site(named[0]).start}"
            raise MessageError(Reason.UNSUPPORTED, where, "the name of an element may be that of a person")
        charset = tree.view.charset
        # The type of a resource is the name of an element, which is never rewritten.
        values = (each for each in found.sites if each.start not in renderer.names)
        sites = [*map(rendering.site, values), *find_local_schemas(tree)]
        texts = (each for each in found.narratives if each.mapped.starts[0] not in renderer.names)
        attachments = [rendering.attachment(each, charset) for each in found.attachments]
        narratives = [*map(rendering.narrative, texts), *read_beside(tree, renderer.loose)]
        return [build_message(tree, raw, found, sites, narratives, attachments, lines=True)]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """Every value, comment and namespace. Raises as ``parse``."""
        tree, renderer = self._render(raw)
        leaves = [renderer.rendering.narrative(leaf) for leaf in self._fhir.parse_leaves(renderer.rendering.raw)]
        keys = {leaf.mapped.ends[-1]: leaf for leaf in leaves if leaf.role is LeafRole.KEY}  # ``x`` and ``_x``
        types = {leaf.mapped.starts[0] for leaf in renderer.names.values()}
        values = [leaf for leaf in leaves if leaf.role is not LeafRole.KEY and leaf.mapped.text]
        values = [leaf for leaf in values if leaf.mapped.starts[0] not in types]
        found = [
            *values,
            *keys.values(),
            *renderer.names.values(),
            *read_beside(tree, renderer.loose),
            *read_spaces(tree),
        ]
        return sorted(found, key=lambda leaf: leaf.mapped.starts[0])

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:
        """See ``selection``; text beside values is never published. Raises as ``parse``, and UNSUPPORTED."""
        tree, renderer = self._render(raw)
        rendering = renderer.rendering
        found = list(rendering.dropped(self._fhir.find_unlisted(rendering.raw, listed)))
        return list(outermost([*found, *drop_beside(tree, renderer.loose)]))

    def _render(self, raw: bytes) -> tuple[XmlTree, FhirXmlRenderer]:
        view = parse_markup_view(raw)
        check_well_formed(view)
        tree = read_elements(view, _DEEPEST, _is_markup)
        renderer = FhirXmlRenderer(view, self._types)
        renderer.resource(tree.root)
        return tree, renderer


def _is_markup(name: str) -> bool:
    return name == "div"
