"""What a model says, brought to the size of a finding.

A model that tells inside from outside alone (Dehghan 2015 section 2.3) makes one span of two dates side by side, and
one of a page of names. The first of these would be replaced as one date: the others would stay.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from deid_agent.phi import CATEGORY, PhiCategory
from deid_agent.spans import Span
from deid_agent.text import Document

LONGEST = 200
"""Characters of one finding: what is longer is told in pieces. The longest annotation of the corpus has 55."""
_COUNTED = frozenset({PhiCategory.AGE, PhiCategory.DATE, PhiCategory.CONTACT, PhiCategory.ID})
_WHOLE = re.compile(r"(?!\d{4}\Z)\D*\d[\s\S]*")  # not "October", not "2018": a line end stands between the two
_BETWEEN = re.compile(r"(?i)(?:[\W_]|\b(?:and|or|to|through|thru|until|then|vs)\b){0,12}")


def apart(spans: Iterable[Span], first: Sequence[Span], doc: Document) -> list[Span]:
    """``spans`` of a model, divided where ``first`` (disjoint, in order) holds two of their type, or else too long.

    Dates, ages, numbers and addresses of the net only: a rule often sees a part of a name or a place. No letter or
    digit is uncovered, but words such as "and" between two of them. Time is linear in the text.
    """
    found: list[Span] = []
    starts = [span.start for span in first]
    for span in spans:
        inside = first[bisect_left(starts, span.start) : bisect_left(starts, span.end)]
        same = [other for other in inside if other.type is span.type and _is_whole(other, span, doc)]
        several = len(same) > 1 and CATEGORY[span.type] in _COUNTED
        for start, end in _divided(span, same, doc.text) if several else ((span.start, span.end),):
            found += _pieces(Span(start, end, span.type, span.source), doc)
    return found


def _is_whole(other: Span, span: Span, doc: Document) -> bool:
    return other.end <= span.end and _WHOLE.fullmatch(doc.text, other.start, other.end) is not None


def _divided(span: Span, same: Sequence[Span], text: str) -> Iterator[tuple[int, int]]:
    """Each of ``same`` with what stands before it, unless that joins two of them; the last with the rest too."""
    start = span.start
    for at, each in enumerate(same):
        if at and _BETWEEN.fullmatch(text, start, each.start):
            start = each.start
        elif at:
            yield start, each.start
            start = each.start
        end = span.end if at == len(same) - 1 else each.end
        yield start, end
        start = end


def _pieces(span: Span, doc: Document) -> Iterator[Span]:
    """``span``, or pieces of it that end where a token does; a token is never cut."""
    start = span.start
    if len(span) > LONGEST:
        at = bisect_left(doc.tokens, (span.start, 0))
        while at < len(doc.tokens) and doc.tokens[at][1] <= span.end:
            if doc.tokens[at][1] - start > LONGEST and doc.tokens[at][0] > start:
                yield Span(start, doc.tokens[at][0], span.type, span.source)
                start = doc.tokens[at][0]
            at += 1
    yield Span(start, span.end, span.type, span.source)
