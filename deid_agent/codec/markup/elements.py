"""A well-formed XML document as a tree of elements with their positions, for formats whose elements are values."""

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field

from deid_agent.codec.charsets import slice_offsets
from deid_agent.codec.markup.document import MarkupView, XmlPart, XmlToken, is_supported_charset, iter_tokens
from deid_agent.codec.markup.readable import Attribute, MarkupText, iter_attributes, read_value
from deid_agent.model import LeafRole, MessageError, Narrative, PhiType, Reason, Site, ValueKind

MAX_ATTRIBUTES = 2_000_000
_NAMESPACE = "xmlns"
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_STANDARD = re.compile(
    r"urn:hl7-org:(?:v2xml|v3|sdtc)|http://hl7\.org/fhir|http://www\.w3\.org/(?:1999/(?:xhtml|xlink)"
    r"|2001/XMLSchema(?:-instance)?|XML/1998/namespace|2000/(?:svg|09/xmldsig#)|1998/Math/MathML)"
)
_PREFIXES = frozenset({"xml", "xmlns", "xsi", "xs", "xsd", "xhtml", "xlink", "fhir", "sdtc", "ds", "svg", "xi"})
_TARGETS = frozenset({"xml", "xml-stylesheet", "xml-model"})
_TARGET = re.compile(r"[^\s?]+")
_DOCUMENT_TYPE = re.compile(
    r"""<!DOCTYPE\s+([^\s>\["']+)(?:\s+(?:SYSTEM|PUBLIC\s+(?:"([^"]*)"|'([^']*)')))?""",
)
_DECLARATION = re.compile(r"\s*<\?xml\s([^?]*)\?>")
_DECLARED = frozenset({"1.0", "1.1", "yes", "no"})
_WORD = re.compile(r"\S+")
_SCHEMA = "?/@schemaLocation"
NO_SCHEMA = "urn:redacted"
"""The replacement of the address of a schema."""
_LOCAL = re.compile(r"(?<!\S)(?:file:|[A-Za-z]:[\\/]|\\\\|/)\S*")


@dataclass(slots=True)
class XmlElement:
    """An element: characters ``[start, end)``, its local name, its attributes and its content.

    ``texts`` are its own text tokens that are not blank. ``markup`` is true if its content was not read.
    """

    name: str
    space: str
    start: int
    tag_end: int
    end: int = 0
    first: int = 0
    attributes: list[Attribute] = field(default_factory=list, repr=False)
    children: "list[XmlElement]" = field(default_factory=list, repr=False)
    texts: list[XmlToken] = field(default_factory=list, repr=False)
    markup: bool = False

    def attribute(self, name: str) -> Attribute | None:
        """The attribute of this name."""
        return next((each for each in self.attributes if each.name == name), None)


@dataclass(slots=True)
class XmlTree:
    """The root element, and the tokens that belong to no value: comments and instructions, with their element."""

    view: MarkupView = field(repr=False)
    root: XmlElement
    remarks: list[tuple[XmlElement | None, XmlToken]] = field(default_factory=list, repr=False)
    spaces: list[tuple[XmlElement, Attribute]] = field(default_factory=list, repr=False)
    """Attributes that bind a namespace or name a schema."""
    names: list[Narrative] = field(default_factory=list, repr=False)
    """Prefixes and targets of instructions that are not the usual ones: each name once."""


def read_elements(view: MarkupView, max_depth: int, is_markup: Callable[[str], bool]) -> XmlTree:
    """The tree of a document that ``check_well_formed`` has accepted. ``is_markup`` names elements not to be read.

    Raises ``MessageError``: RESOURCE past the bounds, UNSUPPORTED for a document type.
    """
    reader = _ElementReader(view, max_depth, is_markup)
    for token in iter_tokens(view):
        reader.take(token)
    if reader.tree is None:  # a well-formed document has a root
        raise MessageError(Reason.MALFORMED, "byte 0", "XML that is not well-formed")
    reader.tree.remarks = reader.remarks
    reader.tree.names = reader.names.found
    return reader.tree


class NameLeaves:
    """Collects the names of a document that are not the usual ones, as leaves: they are never rewritten.

    Each name is one leaf.
    """

    def __init__(self, view: MarkupView) -> None:
        self._view = view
        self._found: dict[str, Narrative] = {}

    @property
    def found(self) -> list[Narrative]:
        """The leaves so far."""
        return list(self._found.values())

    def note_declaration(self) -> None:
        """Read the values of the XML declaration: a parser that gets text accepts any version and any charset."""
        head = _DECLARATION.match(self._view.text)
        for each in iter_attributes(self._view.text, *head.span(1), "xml") if head else ():
            if each.name != "encoding" or not is_supported_charset(each.value):
                self.note(each.value, each.start, _DECLARED)

    def note_instruction(self, token: XmlToken, usual: Container[str] = ()) -> None:
        """Read the target of an instruction, or the name and the public identifier of a document type."""
        if found := _DOCUMENT_TYPE.match(self._view.text, token.start, token.end):
            for group in (1, 2, 3):
                self.note(found[group] or "", found.start(group), usual)
        elif target := _TARGET.match(self._view.text, token.start + 2, token.end):
            self.note(target[0], target.start(), _TARGETS)

    def note_prefix(self, name: str, at: int) -> None:
        """Read the prefix of a name that begins at character ``at``."""
        prefix, colon, _ = name.rpartition(":")
        if colon:
            self.note(prefix, at, _PREFIXES)

    def note_attribute(self, attribute: Attribute, *, known: bool = True) -> None:
        """Read the prefix of an attribute, the prefix that it binds, and its name unless it is ``known``."""
        mark, _, local = attribute.name.rpartition(":")
        if not mark and known:
            return
        at = self._view.text.rindex(attribute.name, 0, attribute.start)
        self.note_prefix(attribute.name, at)
        if mark == _NAMESPACE:
            self.note(local, at + len(mark) + 1, _PREFIXES)
        elif not known:
            self.note(local, at + len(attribute.name) - len(local))

    def note(self, name: str, at: int, usual: Container[str] = ()) -> None:
        """Keep a name that begins at character ``at``, unless it is a usual one."""
        if name and name not in usual and name not in self._found:
            self._found[name] = Narrative("?", self._view.mapped(at, at + len(name)), LeafRole.KEY)


class _ElementReader:
    """Takes the tokens of a document in order; used once."""

    def __init__(self, view: MarkupView, max_depth: int, is_markup: Callable[[str], bool]) -> None:
        self.tree: XmlTree | None = None
        self.remarks: list[tuple[XmlElement | None, XmlToken]] = []
        self._view = view
        self._max_depth = max_depth
        self._is_markup = is_markup
        self._open: list[XmlElement] = []
        self._bound: list[Mapping[str, str]] = [{}]
        self._inside = 0  # open tags of markup, including the first
        self._attributes = 0
        self.names = NameLeaves(view)
        self.names.note_declaration()

    def take(self, token: XmlToken) -> None:
        part = token.part
        if part is XmlPart.END:
            self._end(token)
        elif self._inside:
            self._inside += part is XmlPart.START
        elif part is XmlPart.START or part is XmlPart.EMPTY:
            self._start(token)
        elif part in {XmlPart.COMMENT, XmlPart.INSTRUCTION}:
            if self._view.text.startswith("<!D", token.start):
                raise MessageError(Reason.UNSUPPORTED, self._where(token.start), "a document type, which is not needed")
            if part is XmlPart.INSTRUCTION:
                self.names.note_instruction(token)
            if token.first < token.last:
                self.remarks.append((self._open[-1] if self._open else None, token))
        elif self._open and not self._view.text[token.first : token.last].isspace() and token.first < token.last:
            self._open[-1].texts.append(token)

    def _start(self, token: XmlToken) -> None:
        text = self._view.text
        prefix, _, name = token.name.rpartition(":")
        attributes = list(iter_attributes(text, token.first, token.last, name))
        self._attributes += len(attributes)
        self.names.note_prefix(token.name, token.start + 1)
        if self._attributes > MAX_ATTRIBUTES:
            raise MessageError(Reason.RESOURCE, self._where(token.start), "too many attributes")
        bound = self._bound[-1]
        if spaces := {each.name.partition(":")[2]: each.value for each in attributes if binds_namespace(each.name)}:
            bound = {**bound, **spaces}
        first = text.index(name, token.start + 1 + (len(prefix) + 1 if prefix else 0))
        element = XmlElement(name, bound.get(prefix, ""), token.start, token.end, token.end, first)
        if self.tree is None:
            self.tree = XmlTree(self._view, element)
        elif self._open:
            self._open[-1].children.append(element)
        for each in attributes:
            mark, _, local = each.name.rpartition(":")
            self.names.note_attribute(each)
            if binds_namespace(each.name) or (
                mark and bound.get(mark) == _INSTANCE and local.endswith("chemaLocation")
            ):
                self.tree.spaces.append((element, each))
            else:
                element.attributes.append(each)
        if token.part is XmlPart.EMPTY:
            return
        if len(self._open) >= self._max_depth:
            raise MessageError(Reason.RESOURCE, self._where(token.start), f"nested deeper than {self._max_depth}")
        self._open.append(element)
        self._bound.append(bound)
        if self._is_markup(name):
            element.markup = True
            self._inside = 1

    def _end(self, token: XmlToken) -> None:
        if self._inside > 1:
            self._inside -= 1
            return
        self._inside = 0
        self._open.pop().end = token.end
        self._bound.pop()

    def _where(self, at: int) -> str:
        return f"byte {self._view.starts[at]}"


def has_usual_prefix(name: str) -> bool:
    """True for the name of an attribute without a prefix, or with a usual one."""
    prefix, _, local = name.rpartition(":")
    return not prefix or (prefix in _PREFIXES and (prefix != _NAMESPACE or local in _PREFIXES))


def names_schemas(name: str) -> bool:
    """True for an attribute that names schemas, whatever its prefix."""
    return name.rpartition(":")[2] in {"schemaLocation", "noNamespaceSchemaLocation"}


def binds_namespace(name: str) -> bool:
    """True for an attribute that binds a namespace."""
    return name == _NAMESPACE or name.startswith(f"{_NAMESPACE}:")


def read_remarks(tree: XmlTree) -> Iterator[Narrative]:
    """Comments and instructions as text: people leave names there."""
    for owner, token in tree.remarks:
        kind = "comment" if token.part is XmlPart.COMMENT else "pi"
        yield Narrative(f"{'?' if owner is None else ''}/{kind}()", _plain(tree.view, token, comment=True))


def read_spaces(tree: XmlTree) -> Iterator[Narrative]:
    """The namespaces and unusual names, which are never rewritten, and the addresses of schemas, as leaves."""
    yield from tree.names
    for _, each in tree.spaces:
        yield from read_space(tree.view, each)


def read_space(view: MarkupView, attribute: Attribute) -> Iterator[Narrative]:
    """The namespace that an attribute binds, or the addresses of its schemas, as leaves without those of standards."""
    if binds_namespace(attribute.name):
        if attribute.value and not _STANDARD.fullmatch(attribute.value):
            yield Narrative("?/@xmlns", read_attribute(view, attribute), LeafRole.KEY)
        return
    for word in _WORD.finditer(attribute.value):
        if not _STANDARD.fullmatch(word[0]):
            start = attribute.start + word.start()
            part = attribute._replace(start=start, end=start + len(word[0]), value=word[0])
            yield Narrative(_SCHEMA, read_attribute(view, part))


def find_local_schemas(tree: XmlTree) -> Iterator[Site]:
    """The addresses of schemas in a folder."""
    for _, each in tree.spaces:
        mapped = read_attribute(tree.view, each)
        for a, b in find_folders(mapped.text):
            span = mapped.starts[a], mapped.ends[b - 1]
            yield Site(_SCHEMA, *span, PhiType.URL, ValueKind.REDACT, value=mapped.text[a:b], blank=NO_SCHEMA)


def find_folders(addresses: str) -> Iterator[tuple[int, int]]:
    """The ranges of the addresses in a folder: the names of folders are those of people and sites."""
    return (found.span() for found in _LOCAL.finditer(addresses))


def read_token(view: MarkupView, token: XmlToken) -> MarkupText:
    """The text of a text token or of a CDATA section."""
    if token.part is XmlPart.CDATA:
        return _plain(view, token, comment=False)
    return read_value(view.text[token.first : token.last], view.starts, view.ends, offset=token.first, lines=True)


def read_attribute(view: MarkupView, attribute: Attribute) -> MarkupText:
    """The value of an attribute with its references decoded, line ends included."""
    return read_value(attribute.value, view.starts, view.ends, offset=attribute.start, lines=True)


def _plain(view: MarkupView, token: XmlToken, *, comment: bool) -> MarkupText:
    span = token.first, token.last
    starts, ends = slice_offsets(view.starts, *span), slice_offsets(view.ends, *span)
    return MarkupText(view.text[slice(*span)], starts, ends, comments=(starts[0],) if comment else ())
