"""Record keys: a pure function of the key alone for identifiers, of key and message for file names."""

import hashlib
import re
from collections.abc import Callable, Container, Iterable

from deid_agent.phi import PhiType
from deid_agent.policy import KeyMode, Method
from deid_agent.replacer import Replacer
from deid_agent.sites import Fact, Kind
from deid_agent.spans import Replacement, Span, splice
from deid_agent.surrogate import Scope
from deid_agent.text import Document

Find = Callable[[Document], Iterable[Span]]
"""The resolved findings of a document."""

_SEPARATOR = re.compile(r"[_\-/.]")
_REFERENCE = re.compile(r"([A-Z][A-Za-z]{2,40})/[A-Za-z0-9.-]{1,64}")


def sanitized(
    key: bytes | None,
    facts: tuple[Fact, ...],
    scope: Scope,
    replacer: Replacer,
    find: Find,
    resources: Container[str] = frozenset(),
) -> bytes | None:
    """The record key, sanitized as the policy says; a null key stays null.

    ``facts`` and ``scope`` are those of the message and matter to file names only. ``resources`` are the types of
    FHIR: these alone stay before a slash, for OAH/90217 is a number, and Okafor/90217 has a name in it.
    """
    mode = replacer.policy.record_key
    if key is None or mode is KeyMode.DROP:
        return None
    if mode is KeyMode.KEEP or not key:
        return key
    charset = "utf-8" if _is_utf8(key) else "latin-1"
    text = key.decode(charset)
    if mode is KeyMode.TEXT:
        return _as_text(text, facts, scope, replacer, find).encode(charset, "replace")
    # A FHIR key is often a reference: the id alone is mapped, so that it joins with Resource.id.
    reference = _REFERENCE.fullmatch(text)
    head = f"{reference[1]}/" if reference and reference[1] in resources else ""
    new = replacer.surrogates.replace(PhiType.IDNUM, text[len(head) :], kind=Kind.VALUE, scope=Scope(document=""))
    return (head + new).encode(charset, "replace")


def document_of(text: str) -> str:
    """What names a text that nobody named: the scope of its date shift."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _as_text(text: str, facts: tuple[Fact, ...], scope: Scope, replacer: Replacer, find: Find) -> str:
    """A file name: words joined by ``_``, ``-``, ``.`` and ``/`` are read apart."""
    document = Document(_SEPARATOR.sub(" ", text), facts)
    replacements = []
    for span in find(document):
        old = slice(span.start, span.end)
        new = replacer.finding(span.type, document.text[old], Method.SURROGATE, scope)
        separator = _SEPARATOR.search(text[old])
        joined = new.replace(" ", separator[0]) if separator else new
        replacements.append(Replacement(span.start, span.end, joined))
    return splice(text, replacements)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
