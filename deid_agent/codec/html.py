"""HTML as a format of attachments: edits in place, tags and layout untouched.

The whole page is one narrative, because a name may run over tags; comments, scripts and style sheets
are part of it. Attributes that people or programs read are narratives of their own.
"""

import hashlib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from deid_agent import armor
from deid_agent.codec.markup import charset
from deid_agent.codec.markup.charset import View
from deid_agent.codec.markup.message import MarkupMessage
from deid_agent.codec.markup.reading import Attribute, MarkupText, read, value_of
from deid_agent.codec.places import part
from deid_agent.errors import ConfigurationError, MessageError, Reason
from deid_agent.phi import PhiType
from deid_agent.sites import Attachment, Narrative, Role, Site

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
class _Table:
    inline: frozenset[str]
    elements: frozenset[str]
    kept: frozenset[str]
    links: frozenset[str]
    alone: frozenset[str]


class HtmlCodec:
    """Implements ``codec.base.Codec``. Holds the lists of ``rules/markup``; time is linear in the size of a page."""

    name = "html"

    def __init__(self, rules: Path) -> None:
        """Reads ``rules/markup/html.toml``. Raises ``ConfigurationError`` naming the file and the key."""
        self._table = _load(rules)

    def detect(self, raw: bytes) -> bool:
        """True where the first markup is a document type of HTML or one of its tags."""
        return _FIRST.match(charset.head(raw, _HEAD).removeprefix("ï»¿")) is not None

    def parse(self, raw: bytes) -> Sequence[MarkupMessage]:
        """The page. Raises ``MessageError``: UNSUPPORTED for a charset with shifts, RESOURCE for a document type with
        declarations and past the bounds; nothing is malformed HTML."""
        page = self._page(raw)
        identity = hashlib.sha256(raw).hexdigest()
        narratives = tuple(sorted(page.narratives, key=lambda n: n.mapped.starts[0]))
        sites = tuple(sorted(page.sites, key=lambda s: s.start))
        attachments = tuple(sorted(page.attachments, key=lambda a: a.start))
        return [MarkupMessage(raw, identity, None, sites, narratives, attachments, page.view.charset)]

    def leaves(self, raw: bytes) -> Sequence[Narrative]:
        """The text of the page and every attribute. Raises as ``parse``."""
        return sorted(self._page(raw).leaves, key=lambda leaf: leaf.mapped.starts[0])

    def _page(self, raw: bytes) -> "_Page":
        view = charset.view(raw)
        if _DECLARES.search(view.text):
            raise MessageError(Reason.RESOURCE, "byte 0", "the document declares entities")
        page = _Page(view, self._table)
        mapped, attributes = read(
            view.text, view.starts, view.ends, inline=self._table.inline, elements=self._table.elements
        )
        if len(attributes) > MAX_ATTRIBUTES:
            raise MessageError(Reason.RESOURCE, "byte 0", f"more than {MAX_ATTRIBUTES} attributes")
        page.text("text", mapped)
        for attribute in attributes:
            page.attribute(attribute)
        return page


class _Page:
    """Collects what one page holds."""

    def __init__(self, view: View, table: _Table) -> None:
        self.view = view
        self._table = table
        self.sites: list[Site] = []
        self.narratives: list[Narrative] = []
        self.attachments: list[Attachment] = []
        self.leaves: list[Narrative] = []

    def text(self, path: str, mapped: MarkupText, role: Role = Role.TEXT) -> None:
        if mapped.text and not mapped.text.isspace():
            self.narratives.append(Narrative(path, mapped))
            self.leaves.append(Narrative(path, mapped, role))

    def attribute(self, attribute: Attribute) -> None:
        """One attribute: kept, a link, or text."""
        name = attribute.name.lower()
        if not attribute.value.strip() or (not name and self._table.alone.issuperset(attribute.value.lower().split())):
            return
        path = f"{attribute.element.lower()}/@{name if _NAMED.fullmatch(name) else '?'}"
        mapped = value_of(
            attribute.value, self.view.starts, self.view.ends, offset=attribute.start, bare=attribute.bare
        )
        if name in self._table.kept or name.startswith("xmlns:"):
            self.leaves.append(Narrative(path, mapped, Role.KEY))
        elif name in self._table.links:
            self._link(path, mapped)
        else:
            self.text(path, mapped)

    def _link(self, path: str, mapped: MarkupText) -> None:
        value = mapped.text
        if (found := _DATA.match(value)) and found.end() < len(value):
            self._document(path, mapped, found)
            return
        if value.lstrip().startswith("#"):
            self.leaves.append(Narrative(path, mapped, Role.KEY))
            return
        scheme = _SCHEME.match(value)
        type_ = _SCHEMES.get(scheme[1].lower()) if scheme else None
        if scheme is None or type_ is None:
            self.text(path, mapped)
            return
        self.leaves.append(Narrative(path, mapped))
        mark = value.find("?", scheme.end())
        end = mark if mark >= 0 else len(value)
        core = value[scheme.end() : end].strip()
        if core:
            at = value.index(core, scheme.end())
            first, last = mapped.starts[at], mapped.ends[at + len(core) - 1]
            self.sites.append(Site(path, first, last, type_, value=core, group=path, blank="redacted"))
        if value[end + 1 :].strip():
            starts, ends = part(mapped.starts, end + 1, len(value)), part(mapped.ends, end + 1, len(value))
            self.narratives.append(Narrative(path, MarkupText(value[end + 1 :], starts, ends, bare=mapped.bare)))

    def _document(self, path: str, mapped: MarkupText, found: re.Match[str]) -> None:
        """``data:``: the attachment reaches over the media type, so that a notice can say what it is."""
        value = mapped.text[found.end() :]
        try:
            data, layout = armor.read(unquote(value, errors="strict")) if found[2] else (b"", armor.PLAIN)
        except armor.TooLongError:
            raise MessageError(Reason.RESOURCE, path, "an attachment is too long") from None
        except ValueError:
            data = b""
        if not data:
            self.text(path, mapped)
            return
        start, end = mapped.starts[found.end()], mapped.ends[len(mapped.text) - 1]
        kind = found[1]
        media = (mapped.starts[found.start(1)], mapped.ends[found.end(1) - 1]) if kind else None
        plain = "text/plain".encode(self.view.charset)
        self.attachments.append(
            Attachment(path, start, end, kind, "base64", data, media=media, plain=plain, armor=layout)
        )


def _load(rules: Path) -> _Table:
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
    return _Table(lists["inline"], lists["inline"] | lists["blocks"], lists["kept"], lists["links"], lists["alone"])
