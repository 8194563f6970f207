"""The forms of dates in typed values and in kept values, and the labels of dates of birth.

A recognizer of narratives knows more forms. Here a date is what a field of a date type can hold in any version of HL7,
FHIR or CDA, or what senders write in its place: HL7 timestamps, ISO 8601, figures divided by ``/``, ``-`` and ``.``,
and names of months in English.
"""

import re
import tomllib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from deid_agent.model import Attachment, ConfigurationError, MappedText, Narrative, PhiType, Site

_Y, _M, _D = r"(?:19|20)[0-9]{2}", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12][0-9]|3[01])"
_ZONE = r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_CLOCK = r"(?:[01][0-9]|2[0-4])(?:[0-5][0-9](?:[0-6][0-9](?:\.[0-9]{1,9}|[0-9]{3})?)?)?"
_COLONS = r"[0-9]{1,2}(?::[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?)?(?: ?[AaPp]\.?[Mm]\.?)?"
_COMPACT = rf"{_Y}{_M}{_D}(?:[T ]?{_CLOCK})?{_ZONE}"
_ISO = rf"{_Y}-{_M}-{_D}(?:(?:T| {{1,2}}){_COLONS} ?{_ZONE}|Z)?"
_MONTHS = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_FIGURES = r"[0-9]{1,2}([-/.])[0-9]{1,2}\1"
_SLASHED = rf"{_Y}([/.])[01]?[0-9]\2[0-3]?[0-9]"
_DAY = r"[0-9]{1,2}(?:st|nd|rd|th)?"
_WORDS = rf"{_DAY}[ ./-]{{0,2}}{_MONTHS}[ ,./-]{{1,2}}|{_MONTHS} ?{_DAY}[ ,]{{1,2}}"
_PACKED = rf"(?:{_M}{_D}|{_D}{_M}){_Y}"
_WHOLE = re.compile(rf"{_COMPACT}|{_ISO}|(?:{_FIGURES}{_Y}|{_SLASHED}|(?i:{_WORDS}){_Y})(?:,?[ T]{_COLONS} ?{_ZONE})?")
_TYPED = re.compile(
    rf"[0-9]{{4}}(?:{_M}(?:{_D}(?:[T ]?[0-9]{{2,6}}(?:\.[0-9]{{1,9}})?)?)?)?{_ZONE}"
    rf"|[0-9]{{4}}-{_M}(?:-{_D}(?:[T ]{_COLONS} ?{_ZONE}|Z)?)?|{_PACKED}"
    rf"|(?:[0-9]{{1,2}}([-/.])[0-9]{{1,2}}\1|(?i:{_WORDS}))(?:{_Y}|[0-9]{{2}})(?:,?[ T]{_COLONS} ?{_ZONE})?"
    r"|(?=.*0)[0\-/: .T]+|9{8,14}"
)
_LONGEST = 40
_SHORTEST = 8
_DIGITS = frozenset("0123456789")

_CANDIDATES = tuple(
    re.compile(rf"{century}[0-9]{{2}}(?:[0-9]{{4}}|[-/.][01]?[0-9][-/.]|(?<=[-/. ,]....)(?![0-9]))")
    for century in ("19", "20")
)
"""A pattern that begins with plain characters is searched for several times faster than one with a set or a choice."""
_YEAR_FIRST = re.compile(
    rf"(?<![0-9])(?<![0-9]\.){_Y}(?:-{_M}-{_D}(?:[T ]{_COLONS}{_ZONE})?|{_M}{_D}(?:T?{_CLOCK})?(?:[+-][0-9]{{4}})?"
    r"|([/.])[01]?[0-9]\1[0-3]?[0-9])(?![0-9]|\.[0-9])"
)
_BEFORE_YEAR = re.compile(rf"(?<![0-9])(?<![0-9][-/.])(?:{_FIGURES}|(?i:{_WORDS}))\Z")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_REACH = 24
_YEAR = 4
_DIVIDERS = frozenset("-/. ,")


def is_whole_date(text: str) -> bool:
    """True for a date of eight digits or more, and for another form of day, month and a year of four digits."""
    return _SHORTEST <= len(text) <= _LONGEST and _WHOLE.fullmatch(text) is not None


def is_typed_date(text: str) -> bool:
    """True for what a field of a date type may hold: also a year, a month, a year of two digits, zeros or nines."""
    return len(text) <= _LONGEST and (_TYPED.fullmatch(text) is not None or _WHOLE.fullmatch(text) is not None)


def find_dates(text: str) -> Iterator[tuple[int, int]]:
    """The whole dates in ``text``, in order. Digits of longer numbers, OIDs and UUIDs are none."""
    last = 0
    if "19" not in text and "20" not in text:  # most texts
        return
    for at in _candidates(text, 0, len(text)):
        found = _date_at(text, at)
        if found is not None and found[0] >= last:
            yield found
            last = found[1]


def has_date(text: str) -> bool:
    """True if ``text`` contains a whole date."""
    return ("19" in text or "20" in text) and next(find_dates(text), None) is not None


def find_kept_dates(
    text: str,
    starts: Sequence[int] | None,
    sites: Sequence[Site],
    narratives: Sequence[Narrative],
    attachments: Sequence[Attachment],
) -> Iterator[tuple[int, int]]:
    """The whole dates in ``text`` that no site, narrative or attachment covers, in order.

    ``starts`` are the bytes of the characters, None if they are equal. The narratives are in byte order. The cost is
    that of one search in ``text``.
    """
    known = {site.start for site in sites}
    cover: _Cover | None = None
    last = 0
    gaps = _outside(attachments, len(text)) if starts is None else [(0, len(text))]
    for at in (at for gap in gaps for at in _candidates(text, *gap)):
        byte = at if starts is None else starts[at]
        if byte in known:
            continue
        if cover is None:
            if _date_at(text, at) is None:  # most messages need no cover
                continue
            cover = _Cover(sites, narratives, attachments)
        if not cover.includes(byte) and (found := _date_at(text, at)) is not None and found[0] >= last:
            yield found
            last = found[1]


def _candidates(text: str, start: int, end: int) -> list[int]:
    """Where a year begins that may be part of a date, in order."""
    return sorted([match.start() for pattern in _CANDIDATES for match in pattern.finditer(text, start, end)])


def _outside(attachments: Sequence[Attachment], end: int) -> Iterator[tuple[int, int]]:
    """The ranges between the data of the attachments, which may be long."""
    at = 0
    for start, stop in sorted(span for each in attachments for span in ((each.start, each.end), *each.parts)):
        yield at, start
        at = stop
    yield at, end


def _date_at(text: str, at: int) -> tuple[int, int] | None:
    """The whole date whose year begins at character ``at``."""
    if match := _YEAR_FIRST.match(text, at):
        return None if _is_in_uuid(text, *match.span()) else match.span()
    head = text[max(0, at - _REACH) : at]
    if head[-1:] in _DIVIDERS and not text[at + _YEAR : at + _YEAR + 1].isdecimal():
        before = _BEFORE_YEAR.search(head)
        return before and (at - len(head) + before.start(), at + _YEAR)
    return None


def _is_in_uuid(text: str, start: int, end: int) -> bool:
    return any(a.start() <= start and end <= a.end() for a in _UUID.finditer(text, max(0, start - 36), end + 36))


class _Cover:
    """The bytes that sites, narratives and attachments cover; asked in ascending order."""

    def __init__(
        self, sites: Sequence[Site], narratives: Sequence[Narrative], attachments: Sequence[Attachment]
    ) -> None:
        spans = [(site.start, site.end) for site in sites]
        for each in attachments:
            spans += ((each.start, each.end), *each.parts)
        spans.sort()
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]
        self._waiting = deque(narrative.mapped for narrative in narratives if narrative.mapped.text)
        self._open: list[MappedText] = []

    def includes(self, byte: int) -> bool:
        before = bisect_right(self._starts, byte) - 1
        if before >= 0 and byte < self._ends[before]:
            return True
        while self._waiting and self._waiting[0].starts[0] <= byte:
            self._open.append(self._waiting.popleft())
        self._open = [mapped for mapped in self._open if mapped.ends[-1] > byte]
        return any(mapped.ends[bisect_right(mapped.starts, byte) - 1] > byte for mapped in self._open)


def take_dates(narratives: Iterable[Narrative]) -> tuple[list[Site], list[Narrative]]:
    """The narratives of which each line is a whole date, as sites, and the other narratives.

    No recognizer has to find a date that has no words beside it.
    """
    sites: list[Site] = []
    rest = []
    for narrative in narratives:
        text = narrative.mapped.text
        found = _dates_of_lines(narrative) if text[:1] in _DIGITS or (len(text) <= _LONGEST and "20" in text) else []
        if found:
            sites += found
        else:
            rest.append(narrative)
    return sites, rest


def _dates_of_lines(narrative: Narrative) -> list[Site]:
    mapped, at = narrative.mapped, 0
    sites = []
    for line in mapped.text.split("\n"):
        value = line.strip()
        if value and not is_whole_date(value):
            return []
        start = at + len(line) - len(line.lstrip())
        if value:
            first, last = mapped.starts[start], mapped.ends[start + len(value) - 1]
            sites.append(Site(narrative.path, first, last, PhiType.DATE, group=narrative.path, value=value))
        at += len(line) + 1
    return sites


# Dates of birth, by rules/births.toml.

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORD_GAPS = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True, eq=False)
class BirthLabels:
    """The labels and codes (``rules/births.toml``) beside which a date is the date of birth of a person.

    Compared by identity. The answers to the last labels are cached.
    """

    codes: frozenset[str]
    labels: re.Pattern[str]
    others: re.Pattern[str]

    @lru_cache(maxsize=8192)  # noqa: B019 - one vocabulary for each process
    def is_birth(self, label: str) -> bool:
        """True if ``label`` is such a code, or its words contain such a label and no word of ``others``."""
        if label.strip() in self.codes:
            return True
        words = f" {_WORD_GAPS.sub(' ', _CAMEL.sub(' ', label)).lower().strip()} "
        return self.labels.search(words) is not None and self.others.search(words) is None


def load_birth_labels(rules: Path) -> BirthLabels:
    """The labels of ``rules/births.toml``. Raises ``ConfigurationError`` that names the file and the key."""
    path = rules / "births.toml"
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        reason = problem if isinstance(problem, ValueError) else "cannot be read"
        raise ConfigurationError(f"{path}: {reason}") from None
    codes = found.get("codes")
    if not isinstance(codes, Mapping):
        raise ConfigurationError(f"{path}: codes must be a table of codes with their meaning")
    return BirthLabels(frozenset(map(str, codes)), _phrases(found, "labels", path), _phrases(found, "others", path))


def _phrases(found: Mapping[str, object], key: str, path: Path) -> "re.Pattern[str]":
    words = found.get(key)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ConfigurationError(f"{path}: {key} must be a list of phrases")
    return re.compile("(?<= )(?:" + "|".join(re.escape(str(word)).replace("\\ ", " ") for word in words) + ")(?= )")
