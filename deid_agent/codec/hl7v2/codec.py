"""The HL7 v2 codec: one payload to its messages, and to the leaves that the leak guard searches."""

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from pathlib import Path

from deid_agent.codec.dates import BirthLabels, find_kept_dates, load_birth_labels, take_dates
from deid_agent.codec.hl7v2.charset import Hl7View, parse_view, unescape
from deid_agent.codec.hl7v2.codes import load_code_words
from deid_agent.codec.hl7v2.reader import Hl7Message, Hl7Reader
from deid_agent.codec.hl7v2.selection import find_unlisted
from deid_agent.codec.hl7v2.shapes import SYSTEMS_OF_CODED
from deid_agent.codec.hl7v2.structure import (
    BLANK,
    DEFAULT_SEPARATORS,
    Hl7Segment,
    Range,
    Separators,
    iter_segments,
    parse_separators,
    split_range,
    split_text,
    starts_message,
)
from deid_agent.codec.hl7v2.table import Hl7Kind, Hl7Rule, Hl7Table, Layout
from deid_agent.codec.hl7v2.table_files import load_hl7_table
from deid_agent.codec.hl7v2.texts import rule_for_observation
from deid_agent.codec.labels import load_labels
from deid_agent.model import (
    DateKind,
    Dropped,
    LeafRole,
    MappedText,
    MessageError,
    Narrative,
    PhiType,
    PublishedPaths,
    Reason,
    Site,
)

MAX_SEGMENTS = 200_000
"""Lines of one payload; the largest real batch seen has a few thousand."""

_SYSTEM = {1: 3, 2: 3, 4: 6, 5: 6, 10: 12, 11: 12}
"""CWE: the component that names the code system of a code or a text (HL7 v2.8.2 chapter 2A.2.12)."""
_DATE = PhiType.DATE  # a member lookup for each site is slow
_DAY = 8
"""Characters of a date without its time of day."""
_LABELS = frozenset({2, 5, 11})
_VERSIONS = frozenset({7, 8, 13, 16, 19, 22})
_PARTIES = range(3, 7)
"""MSH-3 to MSH-6: applications and facilities."""
_CODES = frozenset({Hl7Kind.IDTYPE, Hl7Kind.EQUIPMENT, Hl7Kind.USE})
_NAMES = frozenset({Hl7Kind.KEEP, Hl7Kind.FLAG, Hl7Kind.AFFIX, Hl7Kind.DIAL, Hl7Kind.AUTHORITY, Hl7Kind.ROOM})
_CODED = frozenset({Hl7Kind.CODED, Hl7Kind.LABEL, Hl7Kind.UNIT, Hl7Kind.VARIES, Hl7Kind.KEEP})
_TEXTS: frozenset[Layout] = frozenset({Hl7Kind.TEXT, Hl7Kind.VERBATIM, (Hl7Kind.CODE,), (Hl7Kind.NUMBER,)})


_LOCAL_SYSTEM = re.compile(r"(?:99)?[A-Z0-9]{1,5}|99[A-Z0-9]{1,10}|LOCAL|[0-9]+(?:\.[0-9]+){2,}")


class Hl7Codec:
    """Implements ``Codec`` for HL7 v2.1 to v2.9, including batches (FHS, BHS) and MLLP framing.

    The cost is linear in the size of the payload. This class limits the number of lines; the caller limits the size.
    """

    name = "hl7v2"

    def __init__(self, rules: Path, *, max_segments: int = MAX_SEGMENTS) -> None:
        """Reads ``rules/hl7`` and the labels. Raises ``ConfigurationError`` that names the file and the key."""
        self._table = load_hl7_table(rules)
        self._labels = load_labels(rules)
        self._words = load_code_words(rules, self._table.codes)
        self._births = load_birth_labels(rules)
        self._max_segments = max_segments

    @property
    def groups(self) -> frozenset[str]:
        """The names of segments and of groups of segments."""
        return self._table.groups

    def detect(self, raw: bytes) -> bool:
        """True for MSH, FHS or BHS and a separator, after white space, a byte order mark or a start block."""
        return starts_message(raw[:64].decode("latin-1"))

    def parse(self, raw: bytes) -> Sequence[Hl7Message]:
        """The messages of the payload. File and batch headers belong to the message after them, trailers before."""
        return [
            _complete_dates(
                self._table,
                self._births,
                self._words.published,
                view,
                lines,
                Hl7Reader(self._table, self._labels, self._words, view).read(lines),
            )
            for view, lines, _ in self._views(raw)
        ]

    def parse_leaves(self, raw: bytes) -> Sequence[Narrative]:
        """Every value of every message. Raises as ``parse``."""
        return [leaf for view, lines, at in self._views(raw) for leaf in _leaves(self._table, view, lines, at)]

    def find_unlisted(self, raw: bytes, listed: PublishedPaths) -> Sequence[Dropped]:
        """See ``selection``. Raises ``MessageError(UNSUPPORTED)`` for a range inside a charset shift."""
        return [each for view, lines, _ in self._views(raw) for each in find_unlisted(self._table, view, lines, listed)]

    def _views(self, raw: bytes) -> Iterator[tuple[Hl7View, list[Hl7Segment], int]]:
        """Each message as characters, with its lines and its first byte."""
        text = raw.decode("latin-1")
        if not starts_message(text[:64]):
            raise MessageError(Reason.MALFORMED, "byte 0", "neither MSH, FHS nor BHS with a separator")
        carriage = "\r" in text
        lines = list(islice(iter_segments(text, carriage=carriage), self._max_segments + 1))
        if len(lines) > self._max_segments:
            raise MessageError(Reason.RESOURCE, f"byte {lines[-1].start}", f"over {self._max_segments} segments")
        if not lines[0].header:
            raise MessageError(Reason.MALFORMED, "MSH-2", "letters or controls cannot separate")
        groups = _group_by_message(lines)
        starts = [0, *(group[0].start for group in groups[1:]), len(raw)]
        for group, a, b in zip(groups, starts, starts[1:], strict=False):
            part, own = raw[a:b], [Hl7Segment(s.header, s.start - a, s.end - a) for s in group] if a else group
            view = parse_view(part, _declared_charset(part, own))
            if view.starts is not None:  # decoded as a whole, so the offsets differ
                own = list(iter_segments(view.text, carriage=b"\r" in part))
            yield view, own, a


def _complete_dates(
    table: Hl7Table,
    births: BirthLabels,
    published: frozenset[str],
    view: Hl7View,
    lines: Sequence[Hl7Segment],
    message: Hl7Message,
) -> Hl7Message:
    """``message`` with the dates that its fields do not announce.

    These are narratives that are dates, dates in kept values, births by the label in OBX-3, and by its code
    (``published``) dates of documents that everybody receives.
    """
    dates, narratives = take_dates(message.narratives)
    sites = sorted((*message.sites, *dates), key=attrgetter("start")) if dates else message.sites
    found = list(find_kept_dates(view.text, view.starts, sites, narratives, message.attachments))
    observed = {s.path.partition("[")[0] for s in sites if s.type is _DATE and s.path[:3] == "OBX" and "-5[" in s.path}
    if not (dates or found or observed):
        return message
    born: set[str] = set()
    public: set[str] = set()
    kept: list[Site] = []
    begins = [a for a, _ in found]
    for path, line, marks in _segments(view, lines):
        here = found[bisect_left(begins, line.start) : bisect_left(begins, line.end)] if found else ()
        value = f"{path}-5" if path[:3] == "OBX" else ""
        if not here and value not in observed:
            continue
        fields = view.text[line.start : line.end].split(marks.field)
        sites_here = list(filter(None, (_kept_date(table, view, line, fields, marks, path, span) for span in here)))
        dated = value in observed or any(site.path.startswith(f"{value}[") for site in sites_here if value)
        if dated and any(map(births.is_birth, labels := _texts_of_label(fields, marks))):
            born.add(value)
        elif dated and not published.isdisjoint(labels):
            public.add(value)
        kept += sites_here
    if not (dates or kept or born or public):
        return message
    every = [*sites, *kept]
    if born:
        every = [s._replace(date_kind=DateKind.BIRTH) if _is_observed(s, born) else s for s in every]
    if public:
        every = _publish(every, public)
    return replace(message, sites=tuple(sorted(every, key=attrgetter("start"))), narratives=tuple(narratives))


def _publish(sites: Sequence[Site], paths: Container[str]) -> list[Site]:
    """``sites`` with public dates at ``paths``. One that is the day of an event of the message would give its shift."""
    days = {s.value[:_DAY] for s in sites if s.type is _DATE and not _is_observed(s, paths)}
    return [
        s._replace(date_kind=DateKind.PUBLIC) if _is_observed(s, paths) and s.value[:_DAY] not in days else s
        for s in sites
    ]


def _is_observed(site: Site, paths: Container[str]) -> bool:
    return site.type is _DATE and site.path.partition("[")[0] in paths


def _segments(view: Hl7View, lines: Sequence[Hl7Segment]) -> Iterator[tuple[str, Hl7Segment, Separators]]:
    """The path, the line and the separators of each line with the name of a segment."""
    seen: dict[str, int] = {}
    marks = DEFAULT_SEPARATORS
    for line in lines:
        if line.header:
            marks = parse_separators(view.text, line)
        end = view.text.find(marks.field, line.start, line.end)
        name = view.text[line.start : end if end >= 0 else line.end].upper()
        if len(name) == 3 and name.isascii() and name.isalnum():
            seen[name] = order = seen.get(name, 0) + 1
            yield (name if order == 1 else f"{name}({order})"), line, marks


def _texts_of_label(fields: Sequence[str], marks: Separators) -> list[str]:
    """The codes and texts of OBX-3."""
    words = split_text(fields[3], marks.component) if len(fields) > 3 else []
    return [words[n - 1] for n in (1, 2, 4, 5, 9) if n <= len(words)]


def _kept_date(
    table: Hl7Table,
    view: Hl7View,
    line: Hl7Segment,
    fields: Sequence[str],
    marks: Separators,
    path: str,
    span: Range,
) -> Site | None:
    """The date at ``span``, which is in a kept value, as a site; None if the value may keep it.

    That is the code of a public code system, and the version of any (CWE.7, CWE.8 and so on).
    """
    index, at = _piece_at(fields, line.start, span[0])
    repetitions = split_text(fields[index], marks.repetition)
    repetition, at = _piece_at(repetitions, at, span[0])
    components = split_text(repetitions[repetition], marks.component)
    component, at = _piece_at(components, at, span[0])
    subcomponents = split_text(components[component], marks.subcomponent)
    subcomponent, _ = _piece_at(subcomponents, at, span[0])
    number = index + (1 if line.header else 0)
    rules, rest = table.rules(path[:3])
    rule = rules[number - 1] if 0 < number <= len(rules) else rest
    if rule.layout is Hl7Kind.VARIES:
        rule = rule_for_observation(table, fields, marks)
    words, order, layout = components, component + 1, rule.layout
    if isinstance(layout, tuple) and len(layout) > 1:
        layout = layout[component] if component < len(layout) else Hl7Kind.TEXT
        words, order = subcomponents, subcomponent + 1
    if _may_keep_date(table, words, order, coded=layout in _CODED):
        return None
    group = f"{path}-{number}[{repetition + 1}]"
    start, end = view.span(*span)
    value = view.text[slice(*span)]
    return Site(f"{group}.{component + 1}", start, end, PhiType.DATE, subject=rule.subject, group=group, value=value)


def _piece_at(pieces: Sequence[str], at: int, target: int) -> tuple[int, int]:
    """The index and the first character of the piece that contains character ``target``; the first begins at ``at``."""
    for index, piece in enumerate(pieces):
        if target <= at + len(piece):
            return index, at
        at += len(piece) + 1
    return len(pieces) - 1, at


def _may_keep_date(table: Hl7Table, words: Sequence[str], order: int, *, coded: bool) -> bool:
    """True for component ``order`` of a coded value if it is a code of a public system, or the version of a system."""
    if order in _VERSIONS:
        return coded and any(words[2:6])
    system = _SYSTEM.get(order, 0) if order not in _LABELS else 0
    return 0 < system <= len(words) and table.codes.is_public_system(words[system - 1])


def _group_by_message(lines: Sequence[Hl7Segment]) -> list[list[Hl7Segment]]:
    """The lines of each message; framing before a header belongs to the message before it."""
    groups: list[list[Hl7Segment]] = [[]]
    has_message = False
    for line in lines:
        if line.header and has_message:
            groups.append([])
            has_message = False
        groups[-1].append(line)
        has_message = has_message or line.header == "MSH"
    return groups


def _declared_charset(raw: bytes, lines: Sequence[Hl7Segment]) -> str:
    """The value of MSH-18, its repetitions joined by ``~``; empty if there is none."""
    for line in lines:
        if line.header == "MSH":
            text = raw[line.start : line.end].decode("latin-1")
            marks = parse_separators(text, Hl7Segment("MSH", 0, len(text)))
            fields = text.split(marks.field, 18)
            value = fields[17] if len(fields) > 17 else ""
            return value.replace(marks.repetition, "~") if marks.repetition else value
    return ""


def _leaves(table: Hl7Table, view: Hl7View, lines: Sequence[Hl7Segment], offset: int) -> Iterator[Narrative]:
    """The leaves of one message that begins at byte ``offset`` of the payload.

    The components of a coded value are CODE and LABEL if its code system is not local. Values that the table keeps are
    LABEL. Headers are CODE, except the parties. MSH-1, MSH-2 and those of FHS and BHS are omitted. All else is TEXT.
    """
    seen: Counter[str] = Counter()
    marks = DEFAULT_SEPARATORS
    for number, line in enumerate(lines, start=1):
        if line.header:
            marks = parse_separators(view.text, line)
        fields = split_range(view.text, line.start, line.end, marks.field)
        name = view.text[slice(*fields[0])]
        if len(name) == 3 and name.isascii() and name.isalnum():
            seen[name] += 1
            path = name if seen[name] == 1 else f"{name}({seen[name]})"
            rules, rest = table.rules(name.upper())
            first = 2 if line.header else 1
        else:  # a line of broken text has no segment name
            path, rules, rest, first = f"line({number})", (), None, 0
        shift = 1 if line.header else 0
        for index in range(first, len(fields)):
            a, b = fields[index]
            if b - a < 2:  # one character identifies no person
                continue
            order = index + shift
            rule = rules[order - 1] if 0 < order <= len(rules) else rest
            header = bool(line.header) and order not in _PARTIES
            for repetition, piece in enumerate(split_range(view.text, a, b, marks.repetition), start=1):
                piece_path = f"{path}-{order}[{repetition}]"
                for leaf in _leaves_of_repetition(table, view, piece, marks, rule, piece_path, offset):
                    yield Narrative(leaf.path, leaf.mapped, LeafRole.CODE) if header else leaf


def _leaves_of_repetition(
    table: Hl7Table, view: Hl7View, piece: Range, marks: Separators, rule: Hl7Rule | None, path: str, offset: int
) -> Iterator[Narrative]:
    components = split_range(view.text, *piece, marks.component)
    coded = False
    if rule is not None and len(components) > 2:
        named = rule.layout in _TEXTS and table.codes.is_public_system(view.text[slice(*components[2])])
        coded = named or rule.layout in _CODED
    for number, (a, b) in enumerate(components, start=1):
        if b - a < 2:
            continue
        role = _role_in_coded(table, view, components, number) if coded else _role_of_component(rule, number)
        subcomponents = split_range(view.text, a, b, marks.subcomponent)
        for order, (x, y) in enumerate(subcomponents, start=1):
            if x < y:
                leaf_path = f"{path}.{number}" if len(subcomponents) == 1 else f"{path}.{number}.{order}"
                yield Narrative(leaf_path, _map_value(view, x, y, marks, offset), role)


def _role_in_coded(table: Hl7Table, view: Hl7View, components: Sequence[Range], number: int) -> LeafRole:
    """The role of a component of a coded value; TEXT if the code system is missing or local."""
    if number in SYSTEMS_OF_CODED:
        name = view.text[slice(*components[number - 1])].strip(BLANK)
        named = table.codes.is_public_system(name) or _LOCAL_SYSTEM.fullmatch(name) or number in _VERSIONS
        return LeafRole.CODE if named else LeafRole.TEXT
    system = _SYSTEM.get(number)
    if system is None or system > len(components):
        return LeafRole.TEXT
    if not table.codes.is_public_system(view.text[slice(*components[system - 1])]):
        return LeafRole.TEXT
    return LeafRole.LABEL if number in _LABELS else LeafRole.CODE


def _role_of_component(rule: Hl7Rule | None, number: int) -> LeafRole:
    """The role of a component outside coded values. The kept components of a person's name are TEXT."""
    if rule is None or rule.person or not isinstance(rule.layout, tuple) or number > len(rule.layout):
        return LeafRole.TEXT
    kind = rule.layout[number - 1]
    if kind in _CODES:
        return LeafRole.CODE
    return LeafRole.LABEL if kind in _NAMES or isinstance(kind, tuple) else LeafRole.TEXT


def _map_value(view: Hl7View, a: int, b: int, marks: Separators, offset: int) -> MappedText:
    if view.plain and marks.escape not in (text := view.text[a:b]):
        return MappedText(text, range(a + offset, b + offset), range(a + offset + 1, b + offset + 1))
    chunk = unescape(view, a, b, marks)
    return MappedText(chunk.text, _shift(chunk.starts, offset), _shift(chunk.ends, offset))


def _shift(offsets: Sequence[int], by: int) -> Sequence[int]:
    if not by:
        return offsets
    if isinstance(offsets, range):
        return range(offsets.start + by, offsets.stop + by)
    return array("Q", (at + by for at in offsets))
