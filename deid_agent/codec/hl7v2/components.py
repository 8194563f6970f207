"""The components of one repetition, or its only value, by the layout of its field: sites, free text, or kept."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from deid_agent.codec.dates import is_typed_date
from deid_agent.codec.hl7v2.charset import Hl7View, unescape_text
from deid_agent.codec.hl7v2.codes import CodeWords, kept_value_reader
from deid_agent.codec.hl7v2.misplaced import Misplaced, find_login, find_misplaced
from deid_agent.codec.hl7v2.shapes import free_text_of_coded
from deid_agent.codec.hl7v2.structure import BLANK, NULL, Fragment, Separators, split_text
from deid_agent.codec.hl7v2.table import Composite, Hl7Kind, Hl7Rule, Hl7Table
from deid_agent.codec.hl7v2.values import (
    DATE_KINDS,
    TOWN_AND_STATE,
    UNEXPECTED,
    classify_value,
    hint_components,
    hinted_type,
    placeholder_for,
    reads_as_contact,
    unexpected_kind,
)
from deid_agent.codec.labels import Labels
from deid_agent.model import DateKind, PhiType, Site, ValueKind

LONGEST_TABLE_VALUE = 20
"""Facilities, rooms and counties are mostly values of a user-defined table (IS), which have at most this length."""
_SHORTEST = 3
"""No name that is recognized in a kept value is shorter."""
_LONG = 64
"""The decision about a shorter value is remembered between messages."""
_KEPT = frozenset(
    {
        Hl7Kind.FLAG,
        Hl7Kind.AFFIX,
        Hl7Kind.DIAL,
        Hl7Kind.KEEP,
        Hl7Kind.CODE,
        Hl7Kind.NUMBER,
        Hl7Kind.ROOM,
        Hl7Kind.IDTYPE,
        Hl7Kind.AUTHORITY,
        Hl7Kind.EQUIPMENT,
        Hl7Kind.USE,
    }
)
_SCRUBBED = _KEPT - {Hl7Kind.ROOM, Hl7Kind.AFFIX} | {Hl7Kind.TEXT, Hl7Kind.VERBATIM}
_SSN = re.compile(r"\s*[0-9]{3}-[0-9]{2}-[0-9]{4}\s*")
_STRICT = frozenset(
    {Hl7Kind.FLAG, Hl7Kind.DIAL, Hl7Kind.IDTYPE, Hl7Kind.EQUIPMENT, Hl7Kind.USE, Hl7Kind.PHONE, Hl7Kind.EMAIL}
)
"""Kinds without free text: another word than theirs is a name."""
_OF_PERSONS = frozenset({Hl7Kind.FAMILY, Hl7Kind.STREET, Hl7Kind.PHONE, Hl7Kind.ID, Hl7Kind.ORGANIZATION})
_FROM_TABLES = frozenset({Hl7Kind.HOSPITAL, Hl7Kind.ROOM, Hl7Kind.PLACE, Hl7Kind.CITY})
_CONTACT = frozenset({Hl7Kind.PHONE, Hl7Kind.EMAIL})
_OPEN = frozenset(Hl7Kind) - _KEPT - UNEXPECTED - _SCRUBBED - _CONTACT - {Hl7Kind.ANSWER}
"""Kinds of which every value is a site."""
# A lookup of an enumeration member costs more than everything else that happens to a kept value.
_ANSWER, _CODED, _ID, _KEEP, _LABEL = Hl7Kind.ANSWER, Hl7Kind.CODED, Hl7Kind.ID, Hl7Kind.KEEP, Hl7Kind.LABEL
_NUMBER, _STATE, _TEXT, _UNIT = Hl7Kind.NUMBER, Hl7Kind.STATE, Hl7Kind.TEXT, Hl7Kind.UNIT
_VALUE, _REDACT, _DAY, _IDNUM = ValueKind.VALUE, ValueKind.REDACT, PhiType.DATE, PhiType.IDNUM
_EVENT = DateKind.EVENT
_make_tuple = tuple.__new__
_SOURCE: str = Site._field_defaults["source"]


class ComponentReader:
    """Reads components and single values.

    Identifying values are added to ``sites``. Free text is added to ``pending``, which the reader of the field takes
    when the field ends: its fragments are one text.
    """

    def __init__(self, table: Hl7Table, labels: Labels, words: CodeWords, view: Hl7View, marks: Separators) -> None:
        self.sites: list[Site] = []
        self.pending: list[Fragment] = []
        self.required = False
        """True until the first value of a required field is read."""
        self._labels = labels
        self._words = words
        self._read_as = kept_value_reader(words)
        self._codes = table.codes
        self._hints = _hints_of(table)
        self._view = view
        self._marks = marks

    def set_separators(self, marks: Separators) -> None:
        """Use ``marks`` from here on."""
        self._marks = marks

    def take_text(self) -> list[Fragment]:
        """The free text since the last call."""
        found, self.pending = self.pending, []
        return found

    def read_components(
        self, layout: Composite, words: Sequence[str], at: int, rule: Hl7Rule, path: str, group: str
    ) -> None:
        """Components of a repetition, or subcomponents of a component; those beyond the layout are text."""
        hinted = self._hinted_type(layout, words) if len(words) > 1 else None
        mark, known = self._marks.subcomponent, len(layout)
        for number, text in enumerate(words, start=1):
            start, at = at, at + len(text) + 1
            if not text:
                continue
            kind = layout[number - 1] if number <= known else _TEXT
            if isinstance(kind, tuple):
                if mark and mark in text:
                    self.read_components(kind, text.split(mark), start, rule, f"{path}.{number}", group)
                    continue
                kind = kind[0]
            elif kind is _KEEP and len(text) < _SHORTEST:
                continue
            elif kind is _CODED and rule.person and self._labels.reads_as_person(self._view.string(start, at - 1)):
                kind = Hl7Kind.NAME
            elif kind is _CODED:
                self._read_inner(split_text(text, mark), start, rule, f"{path}.{number}", layout)
                continue
            elif mark and mark in text:
                for order, piece in enumerate(text.split(mark), start=1):
                    self.read_value(kind, piece, start, rule, f"{path}.{number}.{order}", group, hinted)
                    start += len(piece) + 1
                continue
            self.read_value(kind, text, start, rule, f"{path}.{number}", group, hinted)

    def read_coded(self, kind: Hl7Kind, words: Sequence[str], at: int, rule: Hl7Rule, path: str) -> None:
        """A coded value: its free text, and the components that name or number a person."""
        units = kind is _UNIT
        found = find_login(words) if kind is _LABEL else find_misplaced(self._words, tuple(words), rule.tabled, units)
        skip = [number for number, _ in found]
        self.pending += free_text_of_coded(words, at, path, self._codes, units=units, skip=skip)
        if found:
            self.read_misplaced(found, words, at, rule, path, rest=False)

    def _read_inner(self, words: Sequence[str], at: int, rule: Hl7Rule, path: str, layout: Composite) -> None:
        """A coded value as one component of ``layout``. In those of persons and addresses it has no clinical words."""
        strict = _names_somebody(layout)
        found = find_misplaced(self._words, tuple(words), strict, False, strict)
        skip = [number for number, _ in found]
        self.pending += free_text_of_coded(words, at, path, self._codes, inner=True, skip=skip)
        if found:
            self.read_misplaced(found, words, at, rule, path, rest=False)

    def read_misplaced(
        self,
        found: Iterable[Misplaced],
        words: Sequence[str],
        at: int,
        rule: Hl7Rule,
        path: str,
        *,
        rest: bool = True,
    ) -> None:
        """The components of ``found`` as their kinds, and the ``rest`` as text."""
        kinds = dict(found)
        for number, text in enumerate(words, start=1):
            if text and (rest or number in kinds):
                hinted = PhiType.SSN if _SSN.fullmatch(text) else None
                self.read_value(kinds.get(number, _TEXT), text, at, rule, f"{path}.{number}", path, hinted)
            at += len(text) + 1

    def _hinted_type(self, layout: Composite, words: Sequence[str]) -> PhiType | None:
        """The PHI type that the other components name for the identifier or number of a composite."""
        # The hash of a long layout costs more than the search in it.
        listed = self._hints.get(id(layout))
        for index, kind in hint_components(layout) if listed is None else listed:
            if index < len(words) and words[index]:
                hints = [word.strip().upper() for word in split_text(words[index], self._marks.subcomponent)]
                if found := hinted_type(kind, hints, self._codes):
                    return found
        return None

    def read_value(  # noqa: PLR0911, PLR0912 - one arm for each form; the hot loop: one more call costs measurable time
        self, kind: Hl7Kind, text: str, at: int, rule: Hl7Rule, path: str, group: str, hinted: PhiType | None
    ) -> None:
        """One value without separators."""
        is_open, escape = kind in _OPEN, self._marks.escape
        # An escaped value is the same value: "\X46\" is a sex like "F".
        read = unescape_text(self._view, at, at + len(text), self._marks) if escape and escape in text else text
        if not is_open and kind in _KEPT:
            read_as = self._read_as(kind, read, rule.tabled) if len(read) < _LONG else self._words.read_as(kind, read)
            if read_as is None:
                return
            if read_as is not kind:
                kind = read_as
                is_open = kind in _OPEN
        value = text.strip(BLANK)
        if not value or value == NULL:
            return
        if not is_open:
            if kind is _ANSWER:
                if (found := self._words.kind_of_answer(read)) is None:
                    return
                kind = found
            elif kind is _TEXT and (town := TOWN_AND_STATE.fullmatch(text)):
                self._read_town(town, rule, at, path, group)
                return
            if kind is _STATE and read.isalpha() and len(read) > _SHORTEST and not self._labels.is_state(read):
                kind = self._words.kind_of_code(read, True) or kind
            elif kind in UNEXPECTED:
                kind = unexpected_kind(kind, self._view.string(at, at + len(text)).strip(BLANK), self._labels)
            if kind in _SCRUBBED or (kind in _CONTACT and not reads_as_contact(read)):
                tabled = rule.tabled or (kind is _NUMBER and path[:3] != "OBX")
                found = self._words.kind_of_word(read, kind in _STRICT, tabled, path[:1] == "Z")
                if found is None:
                    self.pending.append((path, (at, at + len(text))))
                    return
                kind = found
        if len(value) < len(text):
            at += len(text) - len(text.lstrip(BLANK))
        end = at + len(value)
        if not value.isascii() or not escape or escape in value:
            value = unescape_text(self._view, at, end, self._marks)
        if not value.strip():
            return
        type_, form = classify_value(kind, value, rule, hinted)
        date_kind = _EVENT
        if type_ is _DAY:
            date_kind = DATE_KINDS[kind]
            if self._words.is_common_word(value):
                self.pending.append((path, (at, end)))
                return
            if not is_typed_date(value):  # without a use in this field, and no policy keeps it as a date
                type_, form, date_kind = _IDNUM, _REDACT, _EVENT
        if self._view.starts is not None:
            at, end = self._view.span(at, end)
        # The number of an identifier is required if any of its other components is valued (CX.1, EI.1, since 2.5).
        blank = self._placeholder(_DAY if kind in DATE_KINDS else type_) if self.required or kind is _ID else ""
        limit = LONGEST_TABLE_VALUE if kind in _FROM_TABLES and len(value) <= LONGEST_TABLE_VALUE else 0
        # The constructor of a named tuple takes three times as long, and more with keywords.
        made = (path, at, end, type_, form, rule.subject, group, value, blank, _SOURCE, limit, date_kind)
        self.sites.append(_make_tuple(Site, made))

    def _read_town(self, town: re.Match[str], rule: Hl7Rule, at: int, path: str, group: str) -> None:
        """A town, its state and its postal code in a text."""
        for name, type_ in (("town", PhiType.CITY), ("state", PhiType.STATE), ("zip", PhiType.ZIP)):
            if town[name]:
                start, end = self._view.span(at + town.start(name), at + town.end(name))
                blank = self._placeholder(type_) if self.required else ""
                self.sites.append(Site(path, start, end, type_, _VALUE, rule.subject, group, town[name], blank))

    def _placeholder(self, type_: PhiType) -> str:
        """The placeholder of a redacted value. Only the first value of a required field, and identifiers, need one."""
        self.required = False
        return placeholder_for(type_)


@lru_cache(maxsize=512)
def _names_somebody(layout: Composite) -> bool:
    return any(kind in _OF_PERSONS or (isinstance(kind, tuple) and _names_somebody(kind)) for kind in layout)


@lru_cache(maxsize=4)
def _hints_of(table: Hl7Table) -> dict[int, tuple[tuple[int, Hl7Kind], ...]]:
    """The hint components of the layouts of a table by the identity of the layout; the table keeps them alive."""
    parts = [part for layout in table.layouts.values() for part in layout if isinstance(part, tuple)]
    return {id(layout): hint_components(layout) for layout in (*table.layouts.values(), *parts)}
