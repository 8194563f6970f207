"""The leak guard: a finished message is searched for every identifier that its structured part named.

What is searched for (``searched``): names of patients, relatives and clinicians, their numbers, phones, addresses of
mail and net, user names, street lines, towns; patients' dates; facilities. Not: states, countries, ages, jobs, what
policy keeps, numbers of orders, devices and definitions.

What is not a leak:

* what a surrogate wrote, by its place in the output: it may be somebody's name; and what policy kept, by its place;
* what known PHI does not count either (``recognize.known``): a name part alone that is a common word or under three
  letters (``May``, ``Will``, ``White``), a number under six signs without a letter or a label, a date not in full;
* an identifier without a digit (``example``), and a postal code of five digits: words and numbers like others;
* beside a code system (``Role.LABEL``, ``CODE``): one word of a name, a date, a town, a number under eight signs.
  There ``Park`` is a street and ``Candida`` a fungus; two name parts together, or a long number, are nobody's code;
* a facility of one word (``NORTHGATE``) inside of a longer text, any place in an address of the net, and an OID.

What is safe to scrub: ``Role.TEXT`` and ``LABEL``; the surrogate of the fact's type is written there and the result
searched again, once. What stands in a ``CODE`` or a ``KEY``, or survives, makes the record a dead letter (LEAK);
in a ``CODE`` only for patients and clinicians. One pass over all leaves together: linear in message and facts.
"""

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import quote, unquote_to_bytes

from deid_agent.errors import MessageError, Reason
from deid_agent.literal import Reading, reading
from deid_agent.mapped import MappedText
from deid_agent.phi import CATEGORY, PhiCategory, PhiType
from deid_agent.sites import Edit, Fact, Narrative, Role, Subject, place
from deid_agent.spans import Replacement, Span
from deid_agent.text import Document

Range = tuple[int, int]
Find = Callable[[Document], Iterable[Span]]
RulesOut = Callable[[Reading, tuple[Fact, ...]], bool]

SOURCE = "guard"
_BLANK = "\x00"
_NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_LITERALS = frozenset({PhiType.EMAIL, PhiType.URL, PhiType.IPADDRESS, PhiType.USERNAME})
_SITES = frozenset({PhiType.HOSPITAL, PhiType.ORGANIZATION})
_ALWAYS = _NAMES | _LITERALS | {PhiType.STREET, PhiType.CITY}
_RESERVED = ("example", "localhost", "127.0.0.1")
"""Names that belong to nobody (RFC 2606)."""
_PHONES = frozenset({PhiType.PHONE, PhiType.FAX})
_LONG = 8
_ESCAPED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_OID = re.compile(r"(?:urn:oid:)?[012](?:\.\d+){3,}")
"""The name of an authority, not a number of a person, even where a broken sender puts it as a value too."""
_SHORT = 20
_WORD = re.compile(r"[^\W\d_]{2,}")
_PLAIN = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class Hit:
    """Characters ``[start, end)`` of a leaf say a fact; ``subject`` is whose."""

    leaf: Narrative
    start: int
    end: int
    type: PhiType
    subject: Subject

    @property
    def old(self) -> str:
        return self.leaf.mapped.text[self.start : self.end]

    @property
    def safe(self) -> bool:
        """True where it may be written over."""
        return self.leaf.role in {Role.TEXT, Role.LABEL}

    def replacement(self, new: str) -> Replacement:
        """``new`` in its place; inside of an address of the net without what would end the address."""
        text = self.leaf.mapped.text
        if "://" in text and not any(c.isspace() for c in text):
            flat = unicodedata.normalize("NFKD", new).encode("ascii", "ignore").decode("ascii")
            new = _PLAIN.sub("-", flat).strip("-") or "x"
        if self.type in _SITES and len(text) <= _SHORT:  # HL7 keeps names of facilities in values of tables (IS)
            new = new[: _SHORT - len(text) + self.end - self.start].rstrip()
        return Replacement(self.start, self.end, new)


def searched(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """The facts that would be a leak, each once."""
    return tuple(dict.fromkeys(fact for fact in facts if _identifies(fact)))


def _identifies(fact: Fact) -> bool:
    value = fact.value
    if fact.type in _SITES:
        return len(value.strip()) > 3 and _WORD.search(value) is not None
    if fact.subject is Subject.OTHER:
        return fact.type in _NAMES
    if fact.type in _ALWAYS:
        return (fact.type is PhiType.URL or "://" not in value) and not any(name in value.lower() for name in _RESERVED)
    if fact.type is PhiType.DATE:
        return fact.subject is Subject.PATIENT
    signs = sum(c.isalnum() for c in value)
    if fact.type is PhiType.ZIP:
        return signs > 5
    numbered = CATEGORY[fact.type] is PhiCategory.ID or fact.type in _PHONES
    return numbered and any(c.isdigit() for c in value)


class Guard:
    """Searches leaves for facts. ``find`` proposes spans of ``Document.facts`` (``recognize.known``, exact).

    ``rules_out`` says of the whole output that it holds no fact, without its leaves: most messages are done then.
    """

    def __init__(self, find: Find, rules_out: RulesOut | None = None) -> None:
        self._find = find
        self._rules_out = rules_out

    def clean(
        self,
        output: bytes,
        decided: Sequence[Range],
        facts: tuple[Fact, ...],
        *,
        leaves: Callable[[bytes], Sequence[Narrative]],
        encode: Callable[[str], bytes],
        surrogate: Callable[[Hit], str | None],
        moved: Callable[[Sequence[Edit], Sequence[Range]], None] | None = None,
    ) -> bytes:
        """``output`` with its hits written over; byte ranges ``decided`` are surrogates and what policy kept.

        ``surrogate`` says what stands for a hit, None where policy keeps it. ``moved`` is told where everything that
        was decided on stands afterwards.
        Raises ``MessageError(LEAK)`` for a hit that is not safe to write over or that stands there still.
        """
        for last in (False, True):
            edits: list[Edit] = []
            if not facts or self._ruled_out(output, decided, facts):
                break
            hits = self.search(leaves(output), decided, facts)
            for leaf, found in groupby(hits, key=lambda hit: hit.leaf):
                replacements = []
                for hit in found:
                    new = surrogate(hit)
                    if new is None:
                        continue
                    if last or not hit.safe:
                        raise MessageError(Reason.LEAK, leaf.path, f"a {hit.type} that the message names stands here")
                    replacements.append(hit.replacement(new))
                edits += (Edit(start, end, encode(text)) for start, end, text in leaf.mapped.place(replacements))
            if not edits:
                break
            edits = [*(Edit(a, b, output[a:b]) for a, b in decided), *edits]
            output, decided = place(output, edits)
            if moved is not None:
                moved(edits, decided)
        return output

    def _ruled_out(self, output: bytes, decided: Sequence[Range], facts: tuple[Fact, ...]) -> bool:
        """True where ``output`` says what it says as it stands, and none of it is a fact."""
        said = reading(output, decided) if self._rules_out is not None else None
        return said is not None and self._rules_out is not None and self._rules_out(said, facts)

    def search(self, leaves: Sequence[Narrative], decided: Sequence[Range], facts: tuple[Fact, ...]) -> list[Hit]:
        """Every place that says one of ``facts``, disjoint, in order; byte ranges ``decided`` (sorted) are left out."""
        if not facts:
            return []
        pile = _Pile.of(leaves, decided)
        if not pile.texts:
            return []
        document = Document("".join(pile.texts), facts)
        hits = [placed for span in self._find(document) for placed in pile.hits(span)]
        hits.sort(key=lambda item: (item[0], item[1].start, -item[1].end, item[1].type))
        return list(_merged(hit for _, hit in hits))


@dataclass(slots=True)
class _Pile:
    """All leaves as one text; leaves of one composite touch as two lines do."""

    leaves: list[Narrative] = field(default_factory=list, repr=False)
    starts: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list, repr=False)
    size: int = 0

    @classmethod
    def of(cls, leaves: Sequence[Narrative], decided: Sequence[Range]) -> "_Pile":
        pile = cls()
        ends = [end for _, end in decided]
        before = ""
        for leaf in leaves:
            mapped = leaf.mapped
            if not mapped.text:
                continue
            first, last = mapped.starts[0], mapped.ends[len(mapped.text) - 1]
            at = bisect_right(ends, first)
            if at < len(decided) and decided[at][0] <= first and last <= decided[at][1]:
                continue
            read = _unquoted(leaf) if "%" in mapped.text else leaf
            text = read.mapped.text
            while at < len(decided) and decided[at][0] < last:
                text = _blanked(text, read.mapped, *decided[at])
                at += 1
            parent = leaf.path.rpartition(".")[0]
            pile._add(read, text, joined=parent == before)
            before = parent
        return pile

    def _add(self, leaf: Narrative, text: str, *, joined: bool) -> None:
        gap = "\n" if joined else "\n\x1f\n"
        self.texts += (gap, text)
        self.leaves.append(leaf)
        self.starts.append(self.size + len(gap))
        self.size += len(gap) + len(text)

    def hits(self, span: Span) -> Iterator[tuple[int, Hit]]:
        """A span, leaf by leaf, each with the number of its leaf; an initial on its own says nothing."""
        at = bisect_right(self.starts, span.start) - 1
        subject = Subject(span.source.partition(":")[2].partition("-")[0])
        while at < len(self.leaves) and self.starts[at] < span.end:
            leaf, begin = self.leaves[at], self.starts[at]
            start, end = max(span.start - begin, 0), min(span.end - begin, len(leaf.mapped.text))
            at += 1
            if end - start > 1:
                hit = Hit(leaf, start, end, span.type, subject)
                if _counts(hit):
                    yield at, hit


def _counts(hit: Hit) -> bool:
    """The rule of the module's text: whether what stands here is the fact, or a word, a code or an address."""
    leaf, old = hit.leaf, hit.old
    text = leaf.mapped.text
    whole = text.strip().casefold() == old.casefold()
    words, free = len(_WORD.findall(old)), leaf.role is Role.TEXT
    if leaf.role is Role.KEY:
        counts = True
    elif hit.type in _SITES:
        counts = leaf.role is not Role.CODE and "://" not in text and (whole or words > 1)
    elif hit.type in _NAMES:
        counts = free or words > 1
    elif hit.type in {PhiType.CITY, PhiType.DATE}:
        counts = free and "://" not in text
    elif hit.type is PhiType.STREET:
        counts = free or (words > 1 and any(c.isdigit() for c in old))
    else:
        counts = _OID.fullmatch(text) is None and (free or sum(c.isalnum() for c in old) >= _LONG)
    return counts


def _merged(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Hits that overlap as one, of the type of the longest."""
    last: Hit | None = None
    for hit in hits:
        if last is None or hit.leaf is not last.leaf or hit.start >= last.end:
            if last is not None:
                yield last
            last = hit
            continue
        best = max(last, hit, key=lambda h: h.end - h.start)
        last = Hit(hit.leaf, last.start, max(last.end, hit.end), best.type, best.subject)
    if last is not None:
        yield last


def _blanked(text: str, mapped: MappedText, start: int, end: int) -> str:
    """``text`` without the characters whose bytes lie in ``[start, end)``; same length."""
    first, last = bisect_left(mapped.starts, start), bisect_left(mapped.starts, end)
    return text[:first] + _BLANK * (last - first) + text[last:]


@dataclass(frozen=True, slots=True)
class _Quoted(MappedText):
    """Percent-encoded text, read plain and written encoded (RFC 3986, 2.1)."""

    def place(self, replacements: Iterable[Replacement]) -> Iterator[tuple[int, int, str]]:
        for start, end, text in MappedText.place(self, replacements):
            yield start, end, quote(text)


def _unquoted(leaf: Narrative) -> Narrative:
    """The leaf with ``%20`` and its like as the characters they stand for."""
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
    return Narrative(leaf.path, _Quoted("".join(text), starts, ends), leaf.role)
