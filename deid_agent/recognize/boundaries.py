"""Repairs the boundaries of spans by the decisions of the annotation guidelines.

A proposed span may be too wide (two people, an empty line, a title) or too narrow (half of a double name, a missing
initial). Repairs depend on the span and the text only. They neither add nor remove a span with a letter or digit in it.
Each separator below occurs in fewer than one of a thousand annotations of that type.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from deid_agent.model import CATEGORY, PhiCategory, PhiType, SourceKind, Span

_NAMES = frozenset(t for t, c in CATEGORY.items() if c is PhiCategory.NAME and t is not PhiType.USERNAME)
_TITLE = re.compile(
    r"(?:(?:dr|drs|mr|mrs|ms|mx|miss|prof|rev|fr|sr|sgt|cpl|lt|col|maj|capt|pt|doctor|professor|md)\.?\s+)+(?=\S)",
    re.IGNORECASE,
)
TITLES = "Mr|Mrs|Ms|Miss|Mx|Drs?|Prof|Professor"
"""Titles before the name of a person, as a part of a pattern."""
_POSSESSIVE = re.compile(r"['’][sS]$")
# Minh Do and Kim Ot are names: a credential that can be a name must be in capitals or in lower case
_CREDENTIAL = re.compile(
    r",?\s+(?:(?i:m\.?d\.?|r\.?n\.?|ph\.?d\.?|pa-c|crna|mbbs|lcsw|pharmd|frcpc?|frcs|dpt|otr/l)"
    r"|D\.?O\.?|d\.?o\.|NP|np|PT|pt|OT|ot)\.?$"
)
_PUNCTUATION = ' \t\r\n,;:[]{}<>"“”|*_=~'
_ABBREVIATED = re.compile(r"(?:\b[\w]{1,4}|[\w]\.[\w])\.$")
_DOT_STAYS = frozenset(
    {PhiType.STREET, PhiType.STATE, PhiType.HOSPITAL, PhiType.ORGANIZATION, PhiType.CITY, PhiType.DATE}
)
_LEGAL_FORM = r"(?:P\.?A|P\.?[CSL]|S\.?[AC]|LLC|L\.L\.C|Inc|Ltd|LLP|PLLC|PLC|LP|Co|Corp|GmbH|APMC)\b"
_ANY = r"\s+|(?<=\s)or(?=\s)|[|;]"
_AND = r"|(?<=\s)(?:and|&)(?=\s)"
_REGION = _AND.replace("and", r"and(?!\s+Labrador)") + "|[/,]"
_BODY = rf"|,(?=\s)(?!\s*(?i:{_LEGAL_FORM}))"
_SEPARATORS_OF_CATEGORY: Mapping[PhiCategory, str] = MappingProxyType(
    {
        PhiCategory.NAME: _AND + "|/",
        PhiCategory.PROFESSION: r"|,(?=\s)|/",
        PhiCategory.AGE: r"|,(?=\s)|(?<=\s)and(?=\s)(?!\s+a\b)",
        PhiCategory.ID: r"|,(?=\s)",
    }
)
_SEPARATORS_OF_TYPE: Mapping[PhiType, str] = MappingProxyType(
    {
        PhiType.USERNAME: "",
        PhiType.CITY: _REGION,
        PhiType.STATE: _REGION,
        PhiType.COUNTRY: _REGION,
        PhiType.ZIP: _REGION,
        PhiType.HOSPITAL: _BODY,
        PhiType.ORGANIZATION: _BODY,
        PhiType.DATE: r"|(?<=\d\s)[-–](?=\s\d)|(?<=\s)and(?=\s)",
    }
)
_SEPARATORS = MappingProxyType(
    {
        kind: re.compile(_ANY + _SEPARATORS_OF_TYPE.get(kind, _SEPARATORS_OF_CATEGORY.get(CATEGORY[kind], "")))
        for kind in PhiType
    }
)
_ONE_LINE = frozenset(
    {PhiType.CITY, PhiType.STATE, PhiType.COUNTRY, PhiType.ZIP, PhiType.AGE}
    | {kind for kind, category in CATEGORY.items() if category is PhiCategory.ID}
)
UPPER = "A-ZÀ-ÖØ-ÞŁŚŽŠČĐİ"
"""Capital letters of names in Latin script, as ranges of a character class."""
_SECOND_HALF = re.compile(rf"(?:[-‐](?:[{UPPER}][^\W\d_]*|[a-z]{{2,}}(?=[\s,.;:)]|\Z)))+")
_FIRST_HALF = re.compile(r"(?<![^\s(])(?:[^\W\d_]{1,12}[-‐'’])+\Z")
_INITIALS = re.compile(rf"(?<![^\s(:/])(?:[{UPPER}]\.[ ]?){{1,3}}\Z")
_BACK = 24
_YEAR = re.compile(r"(?:19|20)\d\d")
_HEADING_LETTER = re.compile(rf"[ \t]*\r?\n\s*[{UPPER}]\Z")
_LONG_NUMBER = re.compile(r"\d{4}|\d{3}[-.) ]{1,2}\d{3}")
_QUOTED = re.compile(r"'(?=\d{3})")  # a quoted number, but not the year '98
_NUMERIC = frozenset({PhiCategory.AGE, PhiCategory.DATE, PhiCategory.CONTACT, PhiCategory.ID})
_NO_INITIALS = frozenset({"MD", "DO", "RN", "NP", "PA", "PO", "MO", "MSW", "PT", "OT", "AD"})
"""Credentials and labels in the form of initials: "P.O. Verret", "M.S.W. Justina Obiekwe"."""
_SAINT = re.compile(r"(?<!\S)(?:St\.?|Saint)\s+[A-Z]\w+\Z")
_SAINTS = frozenset({PhiType.HOSPITAL, PhiType.ORGANIZATION, PhiType.LOCATION_OTHER})


def repair_boundaries(span: Span, text: str) -> Iterator[Span]:
    """The spans that replace ``span``: its parts, extended to complete values and without surrounding text."""
    # A single word without signs has no parts, and nothing to trim. Most spans are such words.
    for part in (span,) if text[span.start : span.end].isalnum() else _split_span(span, text):
        extended = _extend_span(part, text)
        trimmed = extended if text[extended.start : extended.end].isalnum() else trim_span(extended, text)
        if trimmed is not None:
            yield _number_by_its_form(_without_heading(trimmed, text), text)


def _without_heading(span: Span, text: str) -> Span:
    """A name without the letter that begins the next line as a heading (``A: sepsis``)."""
    if span.type in _NAMES and text[span.end : span.end + 1] == ":":
        found = _HEADING_LETTER.search(text, span.start, span.end)
        if found:
            return Span(span.start, found.start(), span.type, span.source)
    return span


def _number_by_its_form(span: Span, text: str) -> Span:
    """A long number is no age, whatever proposed it: an age keeps its text, and a telephone number would stay."""
    if span.type is PhiType.AGE and _LONG_NUMBER.search(text, span.start, span.end):
        return Span(span.start, span.end, PhiType.IDNUM, span.source)
    return span


def _split_span(span: Span, text: str) -> Iterator[Span]:
    """``span`` divided between two values of its type, and at gaps that no annotation spans."""
    start = span.start
    for between in _SEPARATORS[span.type].finditer(text, span.start, span.end):
        before = text[max(start, between.start() - 4) : between.start()]
        if between[0].isspace() and not _separates(between[0], span.type, before):
            continue
        if between.start() > start:
            yield Span(start, between.start(), span.type, span.source)
        start = between.end()
    if start == span.start:
        yield span
    elif start < span.end:
        yield Span(start, span.end, span.type, span.source)


def _separates(gap: str, kind: PhiType, before: str) -> bool:
    """Return true for an empty line, a tab and a wide gap.

    A single line end separates values of one-line types, ends a date that has its year, and separates names if it
    follows blanks or precedes tabs: there a cell ends and not a line of prose.
    """
    breaks = gap.count("\n")
    torn = kind is PhiType.SSN and before.endswith("-")
    ends = (kind in _ONE_LINE and not torn) or (kind is PhiType.DATE and _YEAR.fullmatch(before) is not None)
    if breaks == 1 and kind in _NAMES and (gap.startswith("  ") or "\t" in gap):
        return True
    return breaks > 1 or (ends if breaks else len(gap) > 1 or gap == "\t")


def _extend_span(span: Span, text: str) -> Span:
    """``span`` with the other half of a double name, preceding initials, or the ``'s`` of a saint's hospital."""
    start, end = span.start, span.end
    if span.type in _NAMES and end - start > 1:
        if half := _SECOND_HALF.match(text, end):
            end = half.end()
        if half := _FIRST_HALF.search(text, max(0, start - _BACK), start):
            start = half.start()
        if end - start > 2 and text[start].isupper():
            start -= _initials_before(text, start)
    elif span.type in _SAINTS and text[end : end + 2] in {"'s", "’s"} and _SAINT.search(text, start, end):
        end += 2
    return span if (start, end) == (span.start, span.end) else Span(start, end, span.type, span.source)


def _initials_before(text: str, start: int) -> int:
    """The number of characters before a name that are its initials."""
    found = _INITIALS.search(text, max(0, start - 9), start)
    if found is None or re.sub(r"[. ]", "", found[0]) in _NO_INITIALS:
        return 0
    return len(found[0])


def trim_span(span: Span, text: str) -> Span | None:
    """``span`` without surrounding characters, or ``None`` if no letter or digit remains.

    Blanks, brackets and punctuation at the ends are removed, and from names also titles, credentials and the
    possessive. A full stop remains only if it ends an abbreviation. Known PHI keeps words that look like a title or
    credential: it is found word by word, and MINH DO is a name if the message contains it as a name.
    """
    start, end = span.start, span.end
    while start < end:
        inside = text[start:end]
        cut, drop = _excess_at_start(span, inside), 0
        if not cut:
            drop = _excess_at_end(span, inside, text[end : end + 3])
        if not cut and not drop:
            break
        start, end = start + cut, end - drop
    if not any(c.isalnum() for c in text[start:end]):
        return None
    if (start, end) == (span.start, span.end):
        return span
    return Span(start, end, span.type, span.source)


def _excess_at_start(span: Span, inside: str) -> int:
    """The number of characters to remove at the start: blanks, punctuation, an unclosed bracket, titles."""
    kind = span.type
    cut = len(inside) - len(inside.lstrip(_PUNCTUATION))
    if inside[cut : cut + 1] == "(" and (")" not in inside or inside.find(")") >= len(inside) - 1):
        return cut + 1
    if kind in _NAMES and span.source.kind is not SourceKind.KNOWN and (title := _TITLE.match(inside)):
        return max(cut, title.end())
    if CATEGORY[kind] in _NUMERIC and _QUOTED.match(inside, cut):
        return cut + 1
    return cut


def _excess_at_end(span: Span, inside: str, rest: str) -> int:
    """The number of characters to remove at the end."""
    kind = span.type
    drop = len(inside) - len(inside.rstrip(_PUNCTUATION))
    if drop:
        return drop
    if inside.endswith(")") and "(" not in inside:
        return 1
    if kind in _NAMES:
        credential = None if span.source.kind is SourceKind.KNOWN else _CREDENTIAL.search(inside)
        if (found := _POSSESSIVE.search(inside) or credential) and found.start():
            return len(inside) - found.start()
    return 1 if inside.endswith(".") and not _dot_belongs(kind, inside, rest) else 0


def _dot_belongs(kind: PhiType, inside: str, rest: str) -> bool:
    """Return true if the full stop ends an abbreviation and does not also end the sentence."""
    if kind in _NAMES:
        return re.search(r"(?:\b[^\W\d_]|\b[JS]r)\.$", inside) is not None
    ends_sentence = not rest.strip() or rest[:1] in "\r\n" or rest.lstrip()[:1].isupper()
    return kind in _DOT_STAYS and not ends_sentence and _ABBREVIATED.search(inside) is not None
