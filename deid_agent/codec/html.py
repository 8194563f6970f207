"""HTML as a format of attachments. Edits are made in place; tags and layout are left unchanged.

The whole page is one narrative, because a name may span tags; comments, scripts and style sheets are part of it.
Each attribute that people or programs read is a narrative of its own.
"""

import hashlib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from deid_agent.codec.base import LabelledCell, find_labelled_cells, markup_rows
from deid_agent.codec.charsets import is_western, slice_offsets
from deid_agent.codec.labels import load_labels
from deid_agent.codec.markup.document import MarkupMessage, MarkupView, decode_head, parse_markup_view
from deid_agent.codec.markup.readable import Attribute, MarkupText, read_markup, read_value
from deid_agent.model import (
    PLAIN_LAYOUT,
    Attachment,
    ConfigurationError,
    Dropped,
    LeafRole,
    MessageError,
    Narrative,
    PhiType,
    PublishedPaths,
    Reason,
    Site,
    TooLongError,
    decode_base64,
)

FILE = "markup/html.toml"
MAX_ATTRIBUTES = 1_000_000
_HEAD = 65_536
_FIRST = re.compile(
    r"\A\ufeff?(?>\s+|<!--(?>[^-]+|-(?!->))*-->|<\?(?>[^?>]+|\?(?!>))*\??>)*"
    r"<(?:!doctype\s+html|(?:html|head|body|title|meta|div|p|span|table|center|font|pre|ul|ol|h[1-6]|b|i|br|a|img)(?=[\s/>]))",
    re.IGNORECASE,
)
_DECLARES = re.compile(r"<!doctype[^<>\[]{0,1000}\[", re.IGNORECASE)
_DATA = re.compile(r"\s*data:([\w.+/-]*)(?:;[\w=.+-]+?)*?(;base64)?,", re.IGNORECASE)
_SCHEMES = {"mailto": PhiType.EMAIL, "tel": PhiType.PHONE, "sms": PhiType.PHONE, "fax": PhiType.FAX}
_SCHEME = re.compile(r"\s*([A-Za-z]{3,6}):(?://)?")
_NAMED = re.compile(r"[A-Za-z][A-Za-z0-9:_-]{0,39}")


@dataclass(frozen=True, slots=True, repr=False)
class _HtmlTable:
    """The lists of ``rules/markup/html.toml``, in lower case: ``elements`` is all tags, ``alone`` the attributes
    that have no value."""

    inline: frozenset[str]
    elements: frozenset[str]
    kept: frozenset[str]
    links: frozenset[str]
    alone: frozenset[str]


class HtmlCodec:
    """Implements ``Codec`` for HTML. The time is linear in the size of the page."""

    name = "html"

    def __init__(self, rules: Path) -> None:
        """Reads ``rules/markup/html.toml``. Raises ``ConfigurationError`` that names the file and the key."""
        self._table = _load_html_table(rules)
        self._labels = load_labels(rules)

    def detect(self, raw: bytes) -> bool:
        """True if the first markup is a document type of HTML or one of its tags."""
        return _FIRST.match(decode_head(raw, _HEAD).removeprefix("ï»¿")) is not None

    def parse(self, raw: bytes) -> Sequence[MarkupMessage]:
        """The page as one message.

        Raises ``MessageError``: UNSUPPORTED for a charset with shifts or one that is not declared, RESOURCE for a
        document type with declarations and past the bounds. No HTML is malformed.
        """
        page = self._read(raw)
        identity = hashlib.sha256(raw).hexdigest()
        narratives = tuple(sorted(page.narratives, key=lambda n: n.mapped.starts[0]))
        sites = tuple(sorted(page.sites, key=lambda s: s.start))
        attachments = tuple(sorted(page.attachments, key=lambda a: a.start))
        return [MarkupMessage(raw, identity, (), sites, narratives, attachments, page.view.charset)]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """The text of the page and every attribute. Raises as ``parse``."""
        return sorted(self._read(raw).leaves, key=lambda leaf: leaf.mapped.starts[0])

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:  # noqa: ARG002
        """Nothing: a page has no paths."""
        return ()

    def _read(self, raw: bytes) -> "_PageSink":
        view = parse_markup_view(raw)
        if _DECLARES.search(view.text):
            raise MessageError(Reason.RESOURCE, "byte 0", "the document declares entities")
        page = _PageSink(view, self._table)
        mapped, attributes = read_markup(
            view.text, view.starts, view.ends, inline=self._table.inline, elements=self._table.elements
        )
        if len(attributes) > MAX_ATTRIBUTES:
            raise MessageError(Reason.RESOURCE, "byte 0", f"more than {MAX_ATTRIBUTES} attributes")
        if view.charset == "latin-1" and not is_western(mapped.text):
            raise MessageError(Reason.UNSUPPORTED, "byte 0", "text in an alphabet whose charset is not declared")
        page.add_page(mapped, list(find_labelled_cells(self._labels, markup_rows(view.text))))
        for attribute in attributes:
            page.add_attribute(attribute)
        return page


class _PageSink:
    """Collects the sites, narratives, attachments and leaves of one page."""

    def __init__(self, view: MarkupView, table: _HtmlTable) -> None:
        self.view = view
        self._table = table
        self.sites: list[Site] = []
        self.narratives: list[Narrative] = []
        self.attachments: list[Attachment] = []
        self.leaves: list[Narrative] = []

    def add_page(self, mapped: MarkupText, cells: Sequence[LabelledCell]) -> None:
        """Add the text of the page. The cells of its tables that a label names are sites, the rest is text."""
        view, at = self.view, 0
        if not cells:
            self.add_text("text", mapped)
            return
        self.leaves.append(Narrative("text", mapped))
        for found in cells:
            first, last = found.cell.start, found.cell.end
            self._add_markup(at, first)
            if found.type is not None:
                span, group = view.span(first, last), f"text@{first}"
                value, blank = found.cell.text, found.blank or "redacted"
                self.sites.append(Site("text", *span, found.type, found.kind, found.subject, group, value, blank))
            at = last
        self._add_markup(at, len(view.text))

    def _add_markup(self, first: int, end: int) -> None:
        view, table = self.view, self._table
        mapped, _ = read_markup(
            view.text[first:end], view.starts, view.ends, offset=first, inline=table.inline, elements=table.elements
        )
        if mapped.text and not mapped.text.isspace():
            self.narratives.append(Narrative("text", mapped))

    def add_text(self, path: str, mapped: MarkupText, role: LeafRole = LeafRole.TEXT) -> None:
        """Add a text, unless it is blank."""
        if mapped.text and not mapped.text.isspace():
            self.narratives.append(Narrative(path, mapped))
            self.leaves.append(Narrative(path, mapped, role))

    def add_attribute(self, attribute: Attribute) -> None:
        """Add an attribute: it is kept, a link, or text."""
        name = attribute.name.lower()
        if not attribute.value.strip() or (not name and self._table.alone.issuperset(attribute.value.lower().split())):
            return
        path = f"{attribute.element.lower()}/@{name if _NAMED.fullmatch(name) else '?'}"
        mapped = read_value(
            attribute.value, self.view.starts, self.view.ends, offset=attribute.start, bare=attribute.bare
        )
        if name in self._table.kept or name.startswith("xmlns:"):
            self.leaves.append(Narrative(path, mapped, LeafRole.KEY))
        elif name in self._table.links:
            self._add_link(path, mapped)
        else:
            self.add_text(path, mapped)

    def _add_link(self, path: str, mapped: MarkupText) -> None:
        value = mapped.text
        if (found := _DATA.match(value)) and found.end() < len(value):
            self._add_data_url(path, mapped, found)
            return
        if value.lstrip().startswith("#"):
            self.leaves.append(Narrative(path, mapped, LeafRole.KEY))
            return
        scheme = _SCHEME.match(value)
        type_ = _SCHEMES.get(scheme[1].lower()) if scheme else None
        if scheme is None or type_ is None:
            self.add_text(path, mapped)
            return
        self.leaves.append(Narrative(path, mapped))
        query = value.find("?", scheme.end())
        end = query if query >= 0 else len(value)
        address = value[scheme.end() : end].strip()
        if address:
            at = value.index(address, scheme.end())
            first, last = mapped.starts[at], mapped.ends[at + len(address) - 1]
            self.sites.append(Site(path, first, last, type_, value=address, group=path, blank="redacted"))
        if value[end + 1 :].strip():
            starts, ends = (
                slice_offsets(mapped.starts, end + 1, len(value)),
                slice_offsets(mapped.ends, end + 1, len(value)),
            )
            self.narratives.append(Narrative(path, MarkupText(value[end + 1 :], starts, ends, bare=mapped.bare)))

    def _add_data_url(self, path: str, mapped: MarkupText, found: re.Match[str]) -> None:
        """Add the attachment of a ``data:`` URL. It includes the media type, which changes if a notice replaces it."""
        value = mapped.text[found.end() :]
        try:
            data, layout = decode_base64(unquote(value, errors="strict")) if found[2] else (b"", PLAIN_LAYOUT)
        except TooLongError:
            raise MessageError(Reason.RESOURCE, path, "an attachment is too long") from None
        except ValueError:
            data = b""
        if not data:
            self.add_text(path, mapped)
            return
        start, end = mapped.starts[found.end()], mapped.ends[len(mapped.text) - 1]
        media_type = found[1]
        media = (mapped.starts[found.start(1)], mapped.ends[found.end(1) - 1]) if media_type else None
        plain = "text/plain".encode(self.view.charset)
        self.attachments.append(
            Attachment(path, start, end, media_type, "base64", data, media=media, plain=plain, layout=layout)
        )


def _load_html_table(rules: Path) -> _HtmlTable:
    path = rules / FILE
    try:
        conf = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        reason = problem if isinstance(problem, ValueError) else "cannot be read"
        raise ConfigurationError(f"{path}: {reason}") from None
    known = ("inline", "blocks", "kept", "links", "alone")
    if unknown := set(conf) - set(known):
        raise ConfigurationError(f"{FILE}: unknown key {sorted(unknown)[0]}; known: {', '.join(known)}")
    lists: dict[str, frozenset[str]] = {}
    for name in known:
        found = conf.get(name)
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise ConfigurationError(f"{FILE}: {name} must be a list of names")
        lists[name] = frozenset(found)
    elements = lists["inline"] | lists["blocks"]
    return _HtmlTable(lists["inline"], elements, lists["kept"], lists["links"], lists["alone"])
