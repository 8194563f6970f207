"""One field by its rule: its repetitions, the value beside a label, and a person in a field of another type.

The components of a repetition and single values are read by ``components``.
"""

from collections.abc import Sequence
from functools import lru_cache

from deid_agent.codec.hl7v2.charset import Hl7View, unescape_text
from deid_agent.codec.hl7v2.codes import CodeWords
from deid_agent.codec.hl7v2.components import ComponentReader
from deid_agent.codec.hl7v2.misplaced import coded_field_check, find_misplaced, find_person
from deid_agent.codec.hl7v2.shapes import (
    SYSTEMS_OF_CODED,
    free_text_of_coded,
    is_coded_value,
    is_staff_number,
    is_stranger_person,
    layout_of_repetition,
    shape_of_stranger,
)
from deid_agent.codec.hl7v2.structure import BLANK, NULL, Separators, inner_separator_pattern, split_text
from deid_agent.codec.hl7v2.table import Composite, Hl7Kind, Hl7Rule, Hl7Table, Layout, Stranger
from deid_agent.codec.hl7v2.texts import TextCollector
from deid_agent.codec.hl7v2.values import is_range, placeholder_for
from deid_agent.codec.labels import AGE_PLACEHOLDER, LabelMeaning, Labels
from deid_agent.model import DateKind, LeafRole, PhiType, Site, Subject

_CLOSED: Composite = (Hl7Kind.CODE,)
_NESTED = frozenset({Stranger.CODED, Stranger.WRITTEN})
_FREE: frozenset[Layout] = frozenset({Hl7Kind.TEXT, Hl7Kind.VERBATIM, (Hl7Kind.CODE,), (Hl7Kind.NUMBER,)})
_MEASURES: frozenset[Layout] = frozenset(
    {(Hl7Kind.NUMBER,), (Hl7Kind.CODE,), (Hl7Kind.TEXT,), (Hl7Kind.FLAG, Hl7Kind.NUMBER, Hl7Kind.FLAG, Hl7Kind.NUMBER)}
)
"""Layouts of observations without types of their own: NM, ID, ST and SN."""
# A lookup of an enumeration member costs more than everything else that happens to a kept value.
_ATTACHMENT, _CODED, _ID, _LABEL = Hl7Kind.ATTACHMENT, Hl7Kind.CODED, Hl7Kind.ID, Hl7Kind.LABEL
_RANGE, _UNIT, _VERBATIM = Hl7Kind.RANGE, Hl7Kind.UNIT, Hl7Kind.VERBATIM
_PERSON: tuple[Hl7Kind, ...] = (Hl7Kind.ID, Hl7Kind.FAMILY, Hl7Kind.GIVEN, Hl7Kind.GIVEN, *(Hl7Kind.AFFIX,) * 3)
_NESTED_PERSON: Composite = (_PERSON,)
_MISPLACED = Hl7Rule(_PERSON, Subject.PROVIDER, person=True)


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
        self._components = ComponentReader(table, labels, words, view, marks)
        self.sites = self._components.sites
        self.kind_of_code = words.kind_of_code
        self._labels = labels
        self._words = words
        self._codes = table.codes
        self._layouts = table.layouts
        self._view = view
        self._texts = texts
        self.set_separators(marks)

    def set_separators(self, marks: Separators) -> None:
        """Use ``marks`` from here on."""
        self._marks = marks
        self._components.set_separators(marks)
        self.has_no_text = coded_field_check(marks, self._words)
        self._separator = inner_separator_pattern(marks).search

    def read(self, rule: Hl7Rule, text: str, at: int, path: str) -> None:
        """Read the field ``text``, which begins at character ``at``."""
        self._components.required = rule.required
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
        if self._components.pending:
            role = LeafRole.LABEL if rule.layout is _LABEL else LeafRole.TEXT
            self._texts.add_text(self._components.take_text(), role)

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
            self._components.read_value(Hl7Kind.NAME, word, at, rule, f"{path}[1].{number}", f"{path}[1]", None)
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
            self._components.read_value(_ID, text, at, rule, f"{path}.1", path, None)
        elif kind is _CODED or kind is _UNIT or kind is _LABEL:
            self._components.read_coded(kind, (text,), at, rule, path)
        elif kind is _VERBATIM or (kind is _RANGE and not is_range(text)):
            self._components.pending.append((path, (at, at + len(text))))
        elif kind is not _RANGE:
            self._components.read_value(kind, text, at, rule, f"{path}.1", path, None)

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
            self._components.read_components(rule.alternative, words, at, rule, path, path)
        elif isinstance(layout, tuple) and len(layout) > 1:
            self._components.read_components(layout_of_repetition(rule, words), words, at, rule, path, path)
        elif isinstance(layout, Hl7Kind) and (layout is _CODED or layout is _UNIT or layout is _LABEL):
            self._components.read_coded(layout, words, at, rule, path)
        elif layout == _CLOSED and (found := find_misplaced(self._words, tuple(words), rule.tabled, False)):
            self._components.read_misplaced(found, words, at, rule, path)
        elif layout in _FREE and is_coded_value(words, self._codes):
            self._components.pending += free_text_of_coded(words, at, path, self._codes)
        elif layout is _VERBATIM or layout is _RANGE:
            if layout is _VERBATIM or not is_range(text):
                self._components.pending.append((path, (at, at + len(text))))
        elif layout is _ATTACHMENT or layout == (_ATTACHMENT,):
            self._components.pending += self._texts.add_ed(words, at, path)
        else:
            self._components.read_components(layout_of_repetition(rule, words), words, at, rule, path, path)

    def _read_stranger(
        self, stranger: Stranger, rule: Hl7Rule, text: str, words: Sequence[str], at: int, path: str
    ) -> bool:
        """Read a person, an address or a number that a sender wrote in a field of another type; False if it is none."""
        if is_stranger_person(stranger, words, self._codes, self._labels):
            self._components.read_components(_PERSON, words, at, _MISPLACED, path, path)
            return True
        if len(words) > 2 and (name := shape_of_stranger(words, self._codes)):
            self._components.read_components(self._layouts[name], words, at, rule, path, path)
            return True
        # Most fields begin with a number, and a number with neighbors is a new key of the cache in each message.
        if not words[0][:1].isdigit() and (found := find_person(self._words, tuple(words), rule.layout is _UNIT)):
            self._components.read_misplaced(found, words, at, rule, path)
            return True
        mark = self._marks.subcomponent
        if not (stranger in _NESTED and mark and mark in text):
            return False
        if not is_stranger_person(stranger, text.split(mark), self._codes, self._labels):
            return False
        self._components.read_components(_NESTED_PERSON, words, at, _MISPLACED, path, path)
        return True
