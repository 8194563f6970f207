"""The leak guard: searches a finished message for every identifier that its structured part names.

``select_searched_facts`` selects the facts to search for: names of patients, relatives and clinicians; their numbers,
phones, mail and network addresses, user names, street lines and towns; dates of patients; facilities. It leaves out
states, countries, ages, jobs, values that the policy keeps, and numbers of orders, devices and definitions.

These are not leaks:

* a range that was edited: a surrogate may be a real person's name, and the policy keeps some values;
* matches that known-PHI recognition ignores (``recognize.known_phi``): a single name part that is a common word or has
  under three letters (``May``, ``Will``, ``White``), a number under six characters without a letter or a label, a
  partial date;
* an identifier without a digit (``example``), and a postal code of five digits: any text may hold them;
* in a label or a code (``LeafRole.LABEL``, ``CODE``): one word of a name, a date, a town, a number under eight
  characters. There ``Park`` is a street and ``Candida`` a fungus. Two name parts, or a long number, are a leak;
* a URL that the message names, in the name of a system, a full URL or a reference: the codec has mapped these;
* a facility of one word (``NORTHGATE``) inside a longer text, any place name in a network address, and an OID.

A hit in ``LeafRole.TEXT`` or ``LABEL`` is scrubbed: the surrogate of the fact's type is written over it, and the result
is searched once more. A hit in a ``CODE`` or a ``KEY``, or one that survives, makes the record a dead letter (LEAK); in
a ``CODE`` only for patients and clinicians. All leaves are searched in one pass, linear in message and facts.
"""

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import quote, unquote_to_bytes

from deid_agent.model import (
    CATEGORY,
    Document,
    Edit,
    Fact,
    LeafRole,
    MappedText,
    MessageError,
    Narrative,
    PhiCategory,
    PhiType,
    Reason,
    Replacement,
    Span,
    Subject,
    apply_edits,
    normalize_writing,
)
from deid_agent.pipeline.tracing import NO_DOCUMENT_TRACE, DocumentTracer
from deid_agent.recognize import PlainReading, read_without_parser, subject_of

Range = tuple[int, int]
Find = Callable[[Document], Iterable[Span]]
ProvesAbsence = Callable[[PlainReading, tuple[Fact, ...]], bool]

GUARD_SOURCE = "guard"
_BLANK = "\x00"
_NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_LITERALS = frozenset({PhiType.EMAIL, PhiType.URL, PhiType.IPADDRESS, PhiType.USERNAME})
_FACILITIES = frozenset({PhiType.HOSPITAL, PhiType.ORGANIZATION})
_ALWAYS_SEARCHED = _NAMES | _LITERALS | {PhiType.STREET, PhiType.CITY}
_RESERVED = ("example", "localhost", "127.0.0.1")
"""Reserved names that identify no person (RFC 2606)."""
_PHONES = frozenset({PhiType.PHONE, PhiType.FAX})
_LONG_NUMBER = 8
_ESCAPED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_OID = re.compile(r"(?:urn:oid:)?[012](?:\.\d+){3,}")
"""Names an assigning authority, not a person, even if a broken sender puts one in place of a value."""
_REPETITION = re.compile(r"\[\d+\]\Z")
_TABLE_VALUE = 20  # characters that HL7 allows in a value of a table (IS)
_WORD = re.compile(r"[^\W\d_]{2,}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|urn:[A-Za-z0-9-]+:|[A-Z][A-Za-z]+/|#")
_ADDRESS_ELEMENTS = frozenset({"fullUrl", "location", "profile", "reference", "source", "system", "url"})
"""FHIR elements that hold an address or the name of a system. The codec has mapped those that identify."""
_PLAIN = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class LeakHit:
    """Characters ``[start, end)`` of a leaf state a fact about ``subject``."""

    leaf: Narrative
    start: int
    end: int
    type: PhiType
    subject: Subject

    @property
    def text(self) -> str:
        """The matching characters in their normal form."""
        found = self.leaf.mapped.text[self.start : self.end]
        plain = normalize_writing(found)
        return found if plain is None or not plain.text.strip() else plain.text

    @property
    def scrubbable(self) -> bool:
        """True if it may be written over."""
        return self.leaf.role in {LeafRole.TEXT, LeafRole.LABEL}

    def replacement(self, new: str) -> Replacement:
        """``new`` as a replacement of the hit.

        In an address, characters that would end the address or a part of it are replaced.
        """
        text = self.leaf.mapped.text
        if _ADDRESS.match(text) and not any(c.isspace() for c in text):
            flat = unicodedata.normalize("NFKD", new).encode("ascii", "ignore").decode("ascii")
            new = _PLAIN.sub("-", flat).strip("-") or "x"
        if self.type in _FACILITIES and len(text) <= _TABLE_VALUE:  # the field may be a value of a table
            new = new[: _TABLE_VALUE - len(text) + self.end - self.start].rstrip()
        return Replacement(self.start, self.end, new)


def select_searched_facts(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """The facts that would be a leak, each once."""
    return tuple(dict.fromkeys(fact for fact in facts if _identifies(fact)))


def _identifies(fact: Fact) -> bool:
    value = fact.value
    if fact.type in _FACILITIES:
        return len(value.strip()) > 3 and _WORD.search(value) is not None
    if fact.subject is Subject.OTHER:
        return fact.type in _NAMES
    if fact.type in _ALWAYS_SEARCHED:
        return (fact.type is PhiType.URL or "://" not in value) and not any(name in value.lower() for name in _RESERVED)
    if fact.type is PhiType.DATE:
        return fact.subject is Subject.PATIENT
    signs = sum(c.isalnum() for c in value)
    if fact.type is PhiType.ZIP:
        return signs > 5
    numbered = CATEGORY[fact.type] is PhiCategory.ID or fact.type in _PHONES
    return numbered and (any(c.isdigit() for c in value) or fact.type is not PhiType.IDNUM or _is_capitals(value))


def _is_capitals(value: str) -> bool:
    return len(value) > 4 and value.isalpha() and value.isupper()


class LeakGuard:
    """Searches leaves for facts. ``find`` proposes spans of ``Document.facts`` (an exact ``KnownRecognizer``).

    ``proves_absence`` returns True if the whole output states none of the facts. It reads no leaves and settles most
    messages.
    """

    def __init__(self, find: Find, proves_absence: ProvesAbsence | None = None) -> None:
        self._find = find
        self._proves_absence = proves_absence

    def clean(
        self,
        output: bytes,
        edited: Sequence[Range],
        facts: tuple[Fact, ...],
        *,
        leaves: Callable[[bytes], Sequence[Narrative]],
        encode: Callable[[str], bytes],
        surrogate: Callable[[LeakHit], str | None],
        trace: DocumentTracer = NO_DOCUMENT_TRACE,
    ) -> bytes:
        """``output`` with surrogates written over the hits. The byte ranges ``edited`` are not searched.

        ``surrogate`` returns the text for a hit, or None if the policy keeps it. ``trace`` receives the edits with the
        byte ranges of all edits after them.
        Raises ``MessageError(LEAK)`` for a hit that may not be written over, and for one that remains.
        """
        for last in (False, True):
            edits: list[Edit] = []
            if not facts or self._ruled_out(output, edited, facts):
                break
            hits = self.search(leaves(output), edited, facts)
            for leaf, found in groupby(hits, key=lambda hit: hit.leaf):
                replacements = []
                for hit in found:
                    new = surrogate(hit)
                    if new is None:
                        continue
                    if last or not hit.scrubbable:
                        raise MessageError(Reason.LEAK, leaf.path, f"a {hit.type} that the message names remains here")
                    replacements.append(hit.replacement(new))
                edits += (Edit(start, end, encode(text)) for start, end, text in leaf.mapped.place(replacements))
            if not edits:
                break
            edits = [*(Edit(a, b, output[a:b]) for a, b in edited), *edits]
            output, edited = apply_edits(output, edits)
            trace.record_scrubs(edits, edited)
        return output

    def _ruled_out(self, output: bytes, edited: Sequence[Range], facts: tuple[Fact, ...]) -> bool:
        """True if ``output`` can be read without decoding and states none of the facts."""
        reading = read_without_parser(output, edited) if self._proves_absence is not None else None
        return reading is not None and self._proves_absence is not None and self._proves_absence(reading, facts)

    def search(self, leaves: Sequence[Narrative], edited: Sequence[Range], facts: tuple[Fact, ...]) -> list[LeakHit]:
        """Every hit of ``facts``, disjoint and in order. The sorted byte ranges ``edited`` are not searched."""
        if not facts:
            return []
        joined = _JoinedLeaves.join(leaves, edited)
        if not joined.texts:
            return []
        document = Document("".join(joined.texts), facts)
        hits = [located for span in self._find(document) for located in joined.locate_hits(span)]
        hits.sort(key=lambda item: (item[0], item[1].start, -item[1].end, item[1].type))
        return list(_merge_overlaps(hit for _, hit in hits))


@dataclass(slots=True)
class _JoinedLeaves:
    """All leaves as one text. Leaves of one composite follow each other like two lines."""

    leaves: list[Narrative] = field(default_factory=list, repr=False)
    starts: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list, repr=False)
    size: int = 0

    @classmethod
    def join(cls, leaves: Sequence[Narrative], edited: Sequence[Range]) -> "_JoinedLeaves":
        joined = cls()
        ends = [end for _, end in edited]
        before = ""
        for leaf in leaves:
            mapped = leaf.mapped
            if not mapped.text:
                continue
            first, last = mapped.starts[0], mapped.ends[len(mapped.text) - 1]
            at = bisect_right(ends, first)
            if at < len(edited) and edited[at][0] <= first and last <= edited[at][1]:
                continue
            decoded = _decode_percent(leaf) if "%" in mapped.text else leaf
            text = decoded.mapped.text
            while at < len(edited) and edited[at][0] < last:
                text = _blank_range(text, decoded.mapped, *edited[at])
                at += 1
            parent = _REPETITION.sub("", leaf.path.rpartition(".")[0])
            joined._add(decoded, text, same_composite=parent == before)
            before = parent
        return joined

    def _add(self, leaf: Narrative, text: str, *, same_composite: bool) -> None:
        gap = "\n" if same_composite else "\n\x1f\n"
        self.texts += (gap, text)
        self.leaves.append(leaf)
        self.starts.append(self.size + len(gap))
        self.size += len(gap) + len(text)

    def locate_hits(self, span: Span) -> Iterator[tuple[int, LeakHit]]:
        """The hits of a span, leaf by leaf, each with the number of its leaf. A single initial is no hit."""
        at = bisect_right(self.starts, span.start) - 1
        subject = subject_of(span.source)
        while at < len(self.leaves) and self.starts[at] < span.end:
            leaf, begin = self.leaves[at], self.starts[at]
            start, end = max(span.start - begin, 0), min(span.end - begin, len(leaf.mapped.text))
            at += 1
            if end - start > 1 or span.type not in _NAMES:
                hit = LeakHit(leaf, start, end, span.type, subject)
                if _is_leak(hit):
                    yield at, hit


def _is_leak(hit: LeakHit) -> bool:
    """True if the hit is the fact itself, not a word, a code or an address (see the module docstring)."""
    leaf, old = hit.leaf, hit.text
    text = leaf.mapped.text
    whole = hit.end - hit.start == len(text.strip())
    words, free = len(_WORD.findall(old)), leaf.role is LeafRole.TEXT
    if leaf.role is LeafRole.KEY:
        counts = True
    elif hit.type is PhiType.URL and _is_kept_address(leaf):
        counts = False
    elif hit.type in _FACILITIES:
        counts = leaf.role is not LeafRole.CODE and "://" not in text and (whole or words > 1)
    elif hit.type in _NAMES:
        counts = free or words > 1
    elif hit.type in {PhiType.CITY, PhiType.DATE}:
        counts = free and "://" not in text
    elif hit.type is PhiType.STREET:
        counts = free or (words > 1 and any(c.isdigit() for c in old))
    else:
        counts = _OID.fullmatch(text) is None and (free or sum(c.isalnum() for c in old) >= _LONG_NUMBER)
    return counts


def _is_kept_address(leaf: Narrative) -> bool:
    """True for the name of a system, a full URL or a reference that the table keeps."""
    element = leaf.path.rpartition(".")[2].partition("[")[0]
    kept = leaf.role is LeafRole.CODE or element in _ADDRESS_ELEMENTS
    return kept and _ADDRESS.match(leaf.mapped.text) is not None


def _merge_overlaps(hits: Iterable[LeakHit]) -> Iterator[LeakHit]:
    """Overlapping hits as one hit with the type of the longest."""
    last: LeakHit | None = None
    for hit in hits:
        if last is None or hit.leaf is not last.leaf or hit.start >= last.end:
            if last is not None:
                yield last
            last = hit
            continue
        best = max(last, hit, key=lambda h: h.end - h.start)
        last = LeakHit(hit.leaf, last.start, max(last.end, hit.end), best.type, best.subject)
    if last is not None:
        yield last


def _blank_range(text: str, mapped: MappedText, start: int, end: int) -> str:
    """``text`` without the characters whose bytes lie in ``[start, end)``; same length."""
    first, last = bisect_left(mapped.starts, start), bisect_left(mapped.starts, end)
    return text[:first] + _BLANK * (last - first) + text[last:]


@dataclass(frozen=True, slots=True)
class _PercentEncoded(MappedText):
    """Percent-encoded text, read decoded and written encoded (RFC 3986, section 2.1)."""

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        for start, end, text in MappedText.place(self, replacements):
            yield start, end, quote(text)


def _decode_percent(leaf: Narrative) -> Narrative:
    """The leaf with percent-encoded characters such as ``%20`` decoded."""
    mapped = leaf.mapped
    if type(mapped) is not MappedText or not _ESCAPED.search(mapped.text) or any(c.isspace() for c in mapped.text):
        return leaf
    text: list[str] = []
    starts, ends = array("Q"), array("Q")
    at = 0
    for found in _ESCAPED.finditer(mapped.text):
        plain = unquote_to_bytes(found[0]).decode("utf-8", "replace")
        text += (mapped.text[at : found.start()], plain)
        starts.extend(mapped.starts[i] for i in range(at, found.start()))
        ends.extend(mapped.ends[i] for i in range(at, found.start()))
        starts.extend([mapped.starts[found.start()]] * len(plain))
        ends.extend([mapped.ends[found.end() - 1]] * len(plain))
        at = found.end()
    text.append(mapped.text[at:])
    starts.extend(mapped.starts[i] for i in range(at, len(mapped.text)))
    ends.extend(mapped.ends[i] for i in range(at, len(mapped.text)))
    return Narrative(leaf.path, _PercentEncoded("".join(text), starts, ends), leaf.role)
