"""Conventions of other corpora: what their annotators put into a span and ours leave out, or annotate at all.

Without this, a system is blamed for each title that a corpus annotates with the name. A convention file is TOML::

    title = true        # "Dr. Okafor" is one name
    label = true        # "MRN 4471" and "#4471" are one number
    joined_site = true  # "Mercy Hospital, Troy" is one site
    bare_year = false   # "2019" and "spring" alone are no dates

Annotations and findings are brought to the project's own convention before they are scored.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from deid_agent.eval.score import Pair
from deid_agent.model import CATEGORY, PhiCategory, PhiType, Span
from deid_agent.rules import read_toml

_TITLE = re.compile(
    r"(?:(?:dr|drs|mr|mrs|ms|mx|miss|prof|professor|doctor|rev|fr|sr|nurse|sir|dame)\.?\s+)+(?=\S)", re.IGNORECASE
)
_LABEL = re.compile(r"(?:#\s*|[A-Za-z]{2,8}(?:\s+(?:no|number|id))?\.?\s*[:#]*\s+|[A-Za-z]{2,8}[:#]\s*)(?=[\w(+])")
_BARE = re.compile(r"(?i)(?:19|20)\d\d|spring|summer|fall|autumn|winter")
_BETWEEN_SITES = re.compile(r",?\s+(?:in\s+)?|\s*[-–]\s*")
_SITES = frozenset({PhiType.HOSPITAL, PhiType.ORGANIZATION})
_TOWNS = frozenset({PhiType.CITY, PhiType.STATE})


class Convention(BaseModel):
    """The convention of a corpus. The defaults are those of the project."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: bool = False
    """Titles are inside the names of persons."""
    label: bool = False
    """Labels are inside numbers."""
    joined_site: bool = False
    """A site and the town after it are one span."""
    bare_year: bool = True
    """A year or a season alone is a date."""


_FILE = TypeAdapter(Convention)


def load_convention(path: Path) -> Convention:
    """The convention of a file. Raises ``ConfigurationError`` with the file and the key for an invalid file."""
    return read_toml(path, _FILE)


def apply_convention(pairs: Sequence[Pair], convention: Convention) -> list[Pair]:
    """The pairs with annotations and findings in the project's own convention."""
    found = []
    for pair in pairs:
        text = pair.note.annotated.text
        gold = tuple(_trim(pair.note.annotated.spans, text, convention))
        spans = tuple(_trim(pair.found, text, convention))
        if convention.joined_site:
            spans = tuple(_join_sites(spans, text, gold))
        note = replace(pair.note, annotated=replace(pair.note.annotated, spans=gold))
        found.append(Pair(note, spans))
    return found


def _trim(spans: Sequence[Span], text: str, convention: Convention) -> Iterator[Span]:
    for span in spans:
        inside = text[span.start : span.end]
        category, cut = CATEGORY[span.type], 0
        if span.type is PhiType.DATE and not convention.bare_year and _BARE.fullmatch(inside):
            continue
        if convention.title and category is PhiCategory.NAME and (title := _TITLE.match(inside)):
            cut = title.end()
        elif convention.label and category in {PhiCategory.ID, PhiCategory.CONTACT} and (label := _LABEL.match(inside)):
            cut = label.end()
        yield Span(span.start + cut, span.end, span.type, span.source) if cut else span


def _join_sites(spans: Sequence[Span], text: str, gold: Sequence[Span]) -> Iterator[Span]:
    """The findings, with a site and the towns after it joined where one annotation of a site covers them."""
    sites = {(span.start, span.end): span.type for span in gold if span.type in _SITES}
    at = 0
    while at < len(spans):
        span, last = spans[at], at
        while (
            span.type in _SITES
            and last + 1 < len(spans)
            and spans[last + 1].type in _TOWNS
            and _BETWEEN_SITES.fullmatch(text, spans[last].end, spans[last + 1].start)
        ):
            last += 1
        if last > at and (span.start, spans[last].end) in sites:
            yield Span(span.start, spans[last].end, span.type, span.source)
            at = last + 1
        else:
            yield span
            at += 1
