"""Joins resolved spans that the annotation guidelines count as one value, and completes their ends.

These repairs need the neighbours of a span, so they run after overlaps are resolved; ``boundaries`` has those of a
single span. Each one changes fewer than 1 of 1,000 annotations of the corpus (``tests/unit/recognize``).
"""

import re
from collections.abc import Sequence

from deid_agent.model import PhiType, Source, SourceKind, Span

_NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_SITES = frozenset({PhiType.HOSPITAL, PhiType.ORGANIZATION})
_ABBREVIATION = re.compile(
    r"(?:\b(?:[JS]r|Inc|Ltd|Co|Corp|St|Ave|Rd|Blvd|Dr|Ln|Hwy|Ct|Pl|Ste|Apt|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec"
    r"|P\.[AC]|L\.L\.C|M\.C))\Z"
)
_STOP = re.compile(r"\.(?![ \t]{0,3}[A-Z]|\s*\Z|[ \t]*\r?\n)")
_REVERSED = re.compile(r", ?")
_BEFORE_REVERSED = re.compile(r"(?:\A|\n|(?<!s):|[|\t]|(?<!s)[ ]{2})[ \t]*\Z")
_AFTER_REVERSED = re.compile(
    r"[ \t]*(?:\r?\n|\Z|[ \t]{2}|\(?(?:DOB|dob|MRN|mrn|[0-9]{1,2}/[0-9]{1,2}/)"
    r"|,? ?(?:M\.?D\b|D\.?O\b|R\.?N\b|NP\b|PA\b|PA-C\b|PhD\b))"
)
_ONE_NAME = re.compile(r"[^\W\d_][\w.'’-]*(?: [^\W\d_][\w'’-]*){0,2}\.?")
_GIVEN = re.compile(r"[^\W\d_][\w'’-]*(?: [^\W\d_]\.?| [^\W\d_][\w'’-]+)?")
_SITE_LINK = re.compile(r" (?:of|for|de|&) (?:the |la )?")
_CAPITALS = re.compile(
    r" (?:(?:of|de|&) (?:the |la )?|for (?:the )?(?=(?:Special|Sick|Child|Wom[ae]n|Men|Veteran|Tropical|Mental|Rehab"
    r"|Advanced|Joint|Digestive|Health|Human|Integrative|Behavioral|Nervous|Neuro|Rheumati|Chest|Infectious|Living"
    r"|Independent|Relief|Aged|Blind|Deaf)))[A-Z][\w'’-]+(?: [A-Z][\w'’-]+){0,3}"
)
"""The rest of the name of a site. "Mercy for Sepsis" is a site and a reason."""
_DAY = re.compile(r"\d{1,2}(?:st|nd|rd|th)?,?")
_MONTH = re.compile(r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?")
_DATE_WITHOUT_YEAR = re.compile(
    r"(?:[A-Za-z]{3,9}\.? \d{1,2}(?:st|nd|rd|th)?|\d{1,2}(?:st|nd|rd|th)? [A-Za-z]{3,9}\.?),?"
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_LINE_END = re.compile(r",?[ \t]{0,2}\r?\n[ \t]{0,8}")
_HYPHENATED = re.compile(r"-?[ \t]{0,3}\r?\n[ \t]{0,6}[a-zà-ÿ]{2,15}(?![\w])")
"""The rest of a word that a line end divides."""
_MARK_BEFORE = re.compile(r"(?:\A|(?<=[\s(/\"]))['‘’ʻ]\Z")
_LABEL_BEFORE_NUMBER = re.compile(r"(?:CSN|HIC|HICN|MRN|FIN|ACCT|DEA|NPI|SSN|Lic|LIC|ID)[#:. ]{1,2}(?=[A-Z0-9])")
_NUMBERS = frozenset(
    {PhiType.MEDICALRECORD, PhiType.ACCOUNT, PhiType.HEALTHPLAN, PhiType.LICENSE, PhiType.IDNUM, PhiType.SSN}
)


def complete_spans(spans: Sequence[Span], text: str) -> list[Span]:
    """``spans``, disjoint and in order, joined and completed. No letter or digit of a span is uncovered, except labels.

    Time is linear in the number of spans and their lengths.
    """
    out: list[Span] = []
    for span in spans:
        if out and (joined := _join(out[-1], span, text)):
            out[-1] = joined
        else:
            out.append(span)
    found: list[Span] = []
    for at, span in enumerate(out):
        last = out[at + 1].start if at + 1 < len(out) else len(text)
        found.append(_complete(span, text, found[-1].end if found else 0, last))
    return found


def _join(a: Span, b: Span, text: str) -> Span | None:
    gap = text[a.end : b.start]
    if len(gap) > 12:
        return None
    if a.type is b.type and (
        (a.type in _NAMES and _is_reversed_name(a, b, gap, text))
        or (
            a.type is PhiType.DATE
            and _LINE_END.fullmatch(gap)
            and _is_one_date(text[a.start : a.end], text[b.start : b.end])
        )
        or (a.type in _SITES and _SITE_LINK.fullmatch(gap) and text[b.start].isupper())
    ):
        return Span(a.start, b.end, a.type, _source_of(a, b))
    if a.type in _SITES and b.type is PhiType.CITY and gap in {" of ", " of the "}:
        return Span(a.start, b.end, a.type, a.source)
    return None


def _is_reversed_name(a: Span, b: Span, gap: str, text: str) -> bool:
    return (
        _REVERSED.fullmatch(gap) is not None
        and _ONE_NAME.fullmatch(text, a.start, a.end) is not None
        and _GIVEN.fullmatch(text, b.start, b.end) is not None
        and _BEFORE_REVERSED.search(text, max(0, a.start - 4), a.start) is not None
        and _AFTER_REVERSED.match(text, b.end) is not None
    )


def _is_one_date(first: str, second: str) -> bool:
    return (
        (_DAY.fullmatch(first) is not None and _MONTH.fullmatch(second) is not None)
        or (_MONTH.fullmatch(first) is not None and _DAY.fullmatch(second) is not None)
        or (_DATE_WITHOUT_YEAR.fullmatch(first) is not None and _YEAR.fullmatch(second) is not None)
    )


def _source_of(a: Span, b: Span) -> Source:
    """The source of the longer span; a confident one before a low-confidence one."""
    if (a.source.kind is SourceKind.LOW_CONFIDENCE) != (b.source.kind is SourceKind.LOW_CONFIDENCE):
        return b.source if a.source.kind is SourceKind.LOW_CONFIDENCE else a.source
    return a.source if len(a) >= len(b) else b.source


def _complete(span: Span, text: str, least: int, last: int) -> Span:
    start, end = span.start, span.end
    if end < last and _STOP.match(text, end) and _ABBREVIATION.search(text, start, end):
        end += 1
    if (
        span.type in _NAMES
        and "-" in text[end - 1 : end + 1]
        and (more := _HYPHENATED.match(text, end))
        and more.end() <= last
    ):
        end = more.end()
    if span.type in _SITES and (more := _CAPITALS.match(text, end)) and more.end() <= last:
        end = more.end()
    if (
        span.type in _NAMES
        and start > least
        and text[start].isalpha()
        and _MARK_BEFORE.search(text, max(0, start - 2), start)
    ):
        start -= 1
    if span.type in _NUMBERS and (label := _LABEL_BEFORE_NUMBER.match(text, start, end)):
        start = label.end()
    return span if (start, end) == (span.start, span.end) else Span(start, end, span.type, span.source)
