"""One field by its rule: repetitions, components and subcomponents become sites or free text, or are kept."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from deid_agent.codec.dates import is_typed_date
from deid_agent.codec.hl7v2.charset import Hl7View, unescape_text
from deid_agent.codec.hl7v2.codes import CodeWords, Misplaced, coded_field_check, kept_value_reader
from deid_agent.codec.hl7v2.shapes import (
    SYSTEMS_OF_CODED,
    free_text_of_coded,
    is_coded_value,
    is_person_shape,
    is_staff_number,
    shape_of_stranger,
)
from deid_agent.codec.hl7v2.structure import BLANK, NULL, Fragment, Separators, inner_separator_pattern, split_text
from deid_agent.codec.hl7v2.table import Composite, Hl7Kind, Hl7Rule, Hl7Table, Layout, Stranger
from deid_agent.codec.hl7v2.texts import TextCollector
from deid_agent.codec.hl7v2.values import (
    DATE_KINDS,
    TOWN_AND_STATE,
    UNEXPECTED,
    classify_value,
    hint_components,
    hinted_type,
    is_range,
    placeholder_for,
    reads_as_contact,
    unexpected_kind,
)
from deid_agent.codec.labels import AGE_PLACEHOLDER, LabelMeaning, Labels
from deid_agent.model import DateKind, LeafRole, PhiType, Site, Subject, ValueKind

LONGEST_TABLE_VALUE = 20
"""Facilities, rooms and counties are mostly values of a user-defined table (IS), which have at most this length."""
_CLOSED: Composite = (Hl7Kind.CODE,)
_NESTED = frozenset({Stranger.CODED, Stranger.WRITTEN})
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
_FREE: frozenset[Layout] = frozenset({Hl7Kind.TEXT, Hl7Kind.VERBATIM, (Hl7Kind.CODE,), (Hl7Kind.NUMBER,)})
_SSN = re.compile(r"\s*[0-9]{3}-[0-9]{2}-[0-9]{4}\s*")
_STRICT = frozenset(
    {Hl7Kind.FLAG, Hl7Kind.DIAL, Hl7Kind.IDTYPE, Hl7Kind.EQUIPMENT, Hl7Kind.USE, Hl7Kind.PHONE, Hl7Kind.EMAIL}
)
"""Kinds without free text: another word than theirs is a name."""
_OF_PERSONS = frozenset({Hl7Kind.FAMILY, Hl7Kind.STREET, Hl7Kind.PHONE, Hl7Kind.ID, Hl7Kind.ORGANIZATION})
_FROM_TABLES = frozenset({Hl7Kind.HOSPITAL, Hl7Kind.ROOM, Hl7Kind.PLACE, Hl7Kind.CITY})
_MEASURES: frozenset[Layout] = frozenset(
    {(Hl7Kind.NUMBER,), (Hl7Kind.CODE,), (Hl7Kind.TEXT,), (Hl7Kind.FLAG, Hl7Kind.NUMBER, Hl7Kind.FLAG, Hl7Kind.NUMBER)}
)
"""Layouts of observations without types of their own: NM, ID, ST and SN."""
_CONTACT = frozenset({Hl7Kind.PHONE, Hl7Kind.EMAIL})
# A lookup of an enumeration member costs more than everything else that happens to a kept value.
_ATTACHMENT, _CODED, _LABEL, _ID, _KEEP = (
    Hl7Kind.ATTACHMENT,
    Hl7Kind.CODED,
    Hl7Kind.LABEL,
    Hl7Kind.ID,
    Hl7Kind.KEEP,
)
_RANGE, _TEXT, _UNIT, _VERBATIM = Hl7Kind.RANGE, Hl7Kind.TEXT, Hl7Kind.UNIT, Hl7Kind.VERBATIM
_ANSWER, _CODE, _NUMBER, _STATE = Hl7Kind.ANSWER, Hl7Kind.CODE, Hl7Kind.NUMBER, Hl7Kind.STATE
_VALUE, _REDACT, _DAY, _IDNUM = ValueKind.VALUE, ValueKind.REDACT, PhiType.DATE, PhiType.IDNUM
_EVENT = DateKind.EVENT
_PERSON: tuple[Hl7Kind, ...] = (Hl7Kind.ID, Hl7Kind.FAMILY, Hl7Kind.GIVEN, Hl7Kind.GIVEN, *(Hl7Kind.AFFIX,) * 3)
_NESTED_PERSON: Composite = (_PERSON,)
_MISPLACED = Hl7Rule(_PERSON, Subject.PROVIDER, person=True)
_OPEN = frozenset(Hl7Kind) - _KEPT - UNEXPECTED - _SCRUBBED - _CONTACT - {Hl7Kind.ANSWER}
"""Kinds of which every value is a site."""
_make_tuple = tuple.__new__
_SOURCE: str = Site._field_defaults["source"]


@lru_cache(maxsize=8192)
def _meaning_of(labels: Labels, label: str, repetition: str, component: str) -> LabelMeaning | None:
    words = [*split_text(split_text(label, repetition)[0], component), *[""] * 9]
    return labels.of_observation((words[1], words[4], words[8], words[0], words[3]), (words[0], words[3]))


class FieldReader:
    """Reads fields: identifying values are added to ``sites``, free text to ``texts``."""

    def __init__(
        self,
        table: Hl7Table,
        labels: Labels,
        words: CodeWords,
        view: Hl7View,
        texts: TextCollector,
        marks: Separators,
    ) -> None:
        self.sites: list[Site] = []
        self._labels = labels
        self._words = words
        self._read_as = kept_value_reader(words)
        self.kind_of_code = words.kind_of_code
        self._codes = table.codes
        self._layouts = table.layouts
        self._hints = _hints_of(table)
        self._view = view
        self._texts = texts
        self._pending: list[Fragment] = []
        self._required = False
        self.set_separators(marks)

    def set_separators(self, marks: Separators) -> None:
        """Use ``marks`` from here on."""
        self._marks = marks
        self.has_no_text = coded_field_check(marks, self._words)
        self._separator = inner_separator_pattern(marks).search

    def read(self, rule: Hl7Rule, text: str, at: int, path: str) -> None:
        """Read the field ``text``, which begins at character ``at``."""
        self._required = rule.required
        layout = rule.layout
        if path[:3] == "PID" and (layout is _CODED or layout == _CLOSED) and self._read_person(rule, text, at, path):
            return
        if rule.single is not None and self._separator(text) is None:
            self._read_single(rule, rule.single, text, at, f"{path}[1]")
        else:
            for number, repetition in enumerate(split_text(text, self._marks.repetition), start=1):
                if repetition:
                    self._read_repetition(rule, repetition, at, f"{path}[{number}]")
                at += len(repetition) + 1
        if self._pending:
            self._texts.add_text(self._pending, LeafRole.LABEL if rule.layout is _LABEL else LeafRole.TEXT)
            self._pending = []

    def _read_person(self, rule: Hl7Rule, text: str, at: int, path: str) -> bool:
        """A person's name in a field of PID for a group, a religion or a language; senders put the mother's there."""
        words = split_text(text, self._marks.component)
        if len(words) > 2 and any(words[2:]):
            return False
        if not self._labels.reads_as_person(
            self._view.string(at, at + len(text)).replace(self._marks.component or " ", " ")
        ):
            return False
        for number, word in enumerate(words, start=1):
            self._read_value(Hl7Kind.NAME, word, at, rule, f"{path}[1].{number}", f"{path}[1]", None)
            at += len(word) + 1
        return True

    def read_pair(self, text: str, at: int, path: str) -> bool:
        """Read a field of an unknown segment that holds a label and its value; False if it is no such pair."""
        words = split_text(text, self._marks.component)
        return len(words) > 1 and self.read_labelled(
            words[0], Hl7Kind.TEXT, self._marks.component.join(words[1:]), at + len(words[0]) + 1, path
        )

    def read_labelled(self, label: str, layout: Layout, text: str, at: int, path: str) -> bool:
        """Read the value of an observation whose ``label`` (OBX-3) names an identity.

        False, and nothing is read, if the label names none, if no part of the value has a form of that identity, or if
        its layout has types of its own.
        """
        meaning = self._meaning_of(label)
        if meaning is None or (isinstance(layout, tuple) and layout not in _MEASURES):
            return False
        marks, found, rest = self._marks, False, []
        first = len(self.sites)
        for number, repetition in enumerate(split_text(text, marks.repetition), start=1):
            words = split_text(repetition, marks.component)
            for order, word in enumerate(words, start=1):
                where = f"{path}[{number}].{order}"
                if len(words) > 2 and order in SYSTEMS_OF_CODED:
                    at += len(word) + 1
                    continue
                for piece in split_text(word, marks.subcomponent):
                    if self._read_piece(meaning, piece, at, where):
                        found = True
                    elif piece.strip(BLANK) not in {"", NULL}:
                        rest.append((where, (at, at + len(piece))))
                    at += len(piece) + 1
        if found:
            self._texts.add_text(rest)
        else:
            del self.sites[first:]
        return found

    def names_identity(self, label: str) -> bool:
        """False if ``read_labelled`` returns False for any value beside this label."""
        return self._meaning_of(label) is not None

    def _meaning_of(self, label: str) -> LabelMeaning | None:
        """The identity that a coded label names: by its texts, its codes, or the LOINC terms in it."""
        return _meaning_of(self._labels, label, self._marks.repetition, self._marks.component)

    def _read_piece(self, meaning: LabelMeaning, text: str, at: int, path: str) -> bool:
        value = text.strip(BLANK)
        if not value or value == NULL:
            return False
        at += len(text) - len(text.lstrip(BLANK))
        end = at + len(value)
        value = unescape_text(self._view, at, end, self._marks)
        judged = self._labels.judge(meaning, value)
        if judged is None:
            return False
        type_, kind = judged
        start, end = self._view.span(at, end)
        blank = AGE_PLACEHOLDER if type_ is PhiType.AGE else placeholder_for(type_)
        date_kind = meaning.date_kind if type_ is PhiType.DATE else DateKind.EVENT
        site = Site(path, start, end, type_, kind, meaning.subject, path, value, blank, date_kind=date_kind)
        self.sites.append(site)
        return True

    def _read_single(self, rule: Hl7Rule, kind: Hl7Kind, text: str, at: int, path: str) -> None:
        """A field that holds one value."""
        if isinstance(rule.alternative, tuple) and is_staff_number((text,), self._codes):
            self._read_value(_ID, text, at, rule, f"{path}.1", path, None)
        elif kind is _CODED or kind is _UNIT or kind is _LABEL:
            self._read_coded(kind, (text,), at, rule, path)
        elif kind is _VERBATIM or (kind is _RANGE and not is_range(text)):
            self._pending.append((path, (at, at + len(text))))
        elif kind is not _RANGE:
            self._read_value(kind, text, at, rule, f"{path}.1", path, None)

    def _read_repetition(self, rule: Hl7Rule, text: str, at: int, path: str) -> None:
        layout, words = rule.layout, split_text(text, self._marks.component)
        if (
            (stranger := rule.stranger) is not None
            and (len(words) > 1 or self._marks.subcomponent in text)
            and self._read_stranger(stranger, rule, text, words, at, path)
        ):
            return
        single = layout is _CODED or len(layout) == 1
        if single and isinstance(rule.alternative, tuple) and is_staff_number(words, self._codes):
            self._read_components(rule.alternative, words, at, rule, path, path)
        elif isinstance(layout, tuple) and len(layout) > 1:
            self._read_components(_layout_for(rule, words), words, at, rule, path, path)
        elif isinstance(layout, Hl7Kind) and (layout is _CODED or layout is _UNIT or layout is _LABEL):
            self._read_coded(layout, words, at, rule, path)
        elif layout == _CLOSED and (found := self._words.misplaced(tuple(words), rule.tabled, False)):
            self._read_misplaced(found, words, at, rule, path)
        elif layout in _FREE and is_coded_value(words, self._codes):
            self._pending += free_text_of_coded(words, at, path, self._codes)
        elif layout is _VERBATIM or layout is _RANGE:
            if layout is _VERBATIM or not is_range(text):
                self._pending.append((path, (at, at + len(text))))
        elif layout is _ATTACHMENT or layout == (_ATTACHMENT,):
            self._pending += self._texts.add_ed(words, at, path)
        else:
            self._read_components(_layout_for(rule, words), words, at, rule, path, path)

    def _read_coded(self, kind: Hl7Kind, words: Sequence[str], at: int, rule: Hl7Rule, path: str) -> None:
        """A coded value: its free text, and the components that name or number a person."""
        units = kind is _UNIT
        found = () if kind is _LABEL else self._words.misplaced(tuple(words), rule.tabled, units)
        skip = [number for number, _ in found]
        self._pending += free_text_of_coded(words, at, path, self._codes, units=units, skip=skip)
        if found:
            self._read_misplaced(found, words, at, rule, path, rest=False)

    def _read_misplaced(
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
                self._read_value(kinds.get(number, _TEXT), text, at, rule, f"{path}.{number}", path, hinted)
            at += len(text) + 1

    def _read_stranger(
        self, stranger: Stranger, rule: Hl7Rule, text: str, words: Sequence[str], at: int, path: str
    ) -> bool:
        """Read a person, an address or a number that a sender wrote in a field of another type; False if it is none."""
        if self._is_person(stranger, words):
            self._read_components(_PERSON, words, at, _MISPLACED, path, path)
            return True
        if len(words) > 2 and (name := shape_of_stranger(words, self._codes)):
            self._read_components(self._layouts[name], words, at, rule, path, path)
            return True
        # Most fields begin with a number, and a number with neighbors is a new key of the cache in each message.
        if not words[0][:1].isdigit() and (found := self._words.person(tuple(words), rule.layout is _UNIT)):
            self._read_misplaced(found, words, at, rule, path)
            return True
        mark = self._marks.subcomponent
        if stranger in _NESTED and mark and mark in text and self._is_person(stranger, text.split(mark)):
            self._read_components(_NESTED_PERSON, words, at, _MISPLACED, path, path)
            return True
        return False

    def _is_person(self, stranger: Stranger, words: Sequence[str]) -> bool:
        """True if a field that holds no person has one: ``4471^Okafor^Ada``."""
        if len(words) < 3:
            return False
        if stranger is Stranger.NUMBERED:
            return is_person_shape(words, self._codes, coded=False)
        if stranger is Stranger.CODED:
            return is_person_shape(words, self._codes, coded=True)
        if not words[0].strip(BLANK).isalnum():
            return False
        if stranger is Stranger.WRITTEN and is_person_shape(words, self._codes, coded=True):
            return True
        return self._labels.lists_name(words[2]) and is_person_shape(words, self._codes, coded=False)

    def _read_components(
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
                    self._read_components(kind, text.split(mark), start, rule, f"{path}.{number}", group)
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
                    self._read_value(kind, piece, start, rule, f"{path}.{number}.{order}", group, hinted)
                    start += len(piece) + 1
                continue
            self._read_value(kind, text, start, rule, f"{path}.{number}", group, hinted)

    def _read_inner(self, words: Sequence[str], at: int, rule: Hl7Rule, path: str, layout: Composite) -> None:
        """A coded value as one component of ``layout``. In those of persons and addresses it has no clinical words."""
        strict = _names_somebody(layout)
        found = self._words.misplaced(tuple(words), strict, False, strict)
        skip = [number for number, _ in found]
        self._pending += free_text_of_coded(words, at, path, self._codes, inner=True, skip=skip)
        if found:
            self._read_misplaced(found, words, at, rule, path, rest=False)

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

    def _read_value(  # noqa: PLR0911, PLR0912 - one arm for each form; the hot loop: one more call costs measurable time
        self, kind: Hl7Kind, text: str, at: int, rule: Hl7Rule, path: str, group: str, hinted: PhiType | None
    ) -> None:
        """One value without separators."""
        is_open = kind in _OPEN
        if not is_open and kind in _KEPT:
            read_as = self._read_as(kind, text, rule.tabled) if len(text) < _LONG else self._words.read_as(kind, text)
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
                if (found := self._words.kind_of_answer(text)) is None:
                    return
                kind = found
            elif kind is _TEXT and (town := TOWN_AND_STATE.fullmatch(text)):
                self._read_town(town, rule, at, path, group)
                return
            if kind is _STATE and value.isalpha() and len(value) > _SHORTEST and not self._labels.is_state(value):
                kind = self._words.kind_of_code(value, True) or kind
            elif kind in UNEXPECTED:
                kind = unexpected_kind(kind, self._view.string(at, at + len(text)).strip(BLANK), self._labels)
            if kind in _SCRUBBED or (kind in _CONTACT and not reads_as_contact(text)):
                tabled = rule.tabled or (kind is _NUMBER and path[:3] != "OBX")
                found = self._words.kind_of_word(text, kind in _STRICT, tabled, path[:1] == "Z")
                if found is None:
                    self._pending.append((path, (at, at + len(text))))
                    return
                kind = found
        if len(value) < len(text):
            at += len(text) - len(text.lstrip(BLANK))
        end = at + len(value)
        escape = self._marks.escape
        if not value.isascii() or not escape or escape in value:
            value = unescape_text(self._view, at, end, self._marks)
        if not value.strip():
            return
        type_, form = classify_value(kind, value, rule, hinted)
        date_kind = _EVENT
        if type_ is _DAY:
            date_kind = DATE_KINDS[kind]
            if self._words.is_common_word(value):
                self._pending.append((path, (at, end)))
                return
            if not is_typed_date(value):  # without a use in this field, and no policy keeps it as a date
                type_, form, date_kind = _IDNUM, _REDACT, _EVENT
        if self._view.starts is not None:
            at, end = self._view.span(at, end)
        # The number of an identifier is required if any of its other components is valued (CX.1, EI.1, since 2.5).
        blank = self._placeholder(_DAY if kind in DATE_KINDS else type_) if self._required or kind is _ID else ""
        limit = LONGEST_TABLE_VALUE if kind in _FROM_TABLES and len(value) <= LONGEST_TABLE_VALUE else 0
        # The constructor of a named tuple takes three times as long, and more with keywords.
        made = (path, at, end, type_, form, rule.subject, group, value, blank, _SOURCE, limit, date_kind)
        self.sites.append(_make_tuple(Site, made))

    def _read_town(self, town: re.Match[str], rule: Hl7Rule, at: int, path: str, group: str) -> None:
        """A town, its state and its postal code in a text."""
        for name, type_ in (("town", PhiType.CITY), ("state", PhiType.STATE), ("zip", PhiType.ZIP)):
            if town[name]:
                start, end = self._view.span(at + town.start(name), at + town.end(name))
                blank = self._placeholder(type_) if self._required else ""
                self.sites.append(Site(path, start, end, type_, _VALUE, rule.subject, group, town[name], blank))

    def _placeholder(self, type_: PhiType) -> str:
        """The placeholder of a redacted value. Only the first value of a required field, and identifiers, need one."""
        self._required = False
        return placeholder_for(type_)


@lru_cache(maxsize=512)
def _names_somebody(layout: Composite) -> bool:
    return any(kind in _OF_PERSONS or (isinstance(kind, tuple) and _names_somebody(kind)) for kind in layout)


@lru_cache(maxsize=4)
def _hints_of(table: Hl7Table) -> dict[int, tuple[tuple[int, Hl7Kind], ...]]:
    """The hint components of the layouts of a table by the identity of the layout; the table keeps them alive."""
    parts = [part for layout in table.layouts.values() for part in layout if isinstance(part, tuple)]
    return {id(layout): hint_components(layout) for layout in (*table.layouts.values(), *parts)}


def _layout_for(rule: Hl7Rule, words: Sequence[str]) -> Composite:
    """The layout of a repetition; the alternative layout of the rule if the components cannot have the first."""
    layout = rule.layout
    if isinstance(layout, Hl7Kind):
        return (layout,) * len(words)
    if (
        isinstance(rule.alternative, tuple)
        and len(layout) > 1
        and (
            len(words) > len(layout)
            or any(
                kind in DATE_KINDS and word and not any(map(str.isdigit, word))
                for kind, word in zip(layout, words, strict=False)
            )
        )
    ):
        return rule.alternative
    return layout
