"""One field by its rule: repetitions, components and subcomponents, each a site, a text, or nothing."""

import re
from collections.abc import Sequence

from deid_agent.codec.hl7v2 import coded, measures, values
from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.escape import plain
from deid_agent.codec.hl7v2.table import Leaf, Part, Rule, Table
from deid_agent.codec.hl7v2.texts import Texts
from deid_agent.codec.hl7v2.wire import BLANK, Fragment, Separators, inner, parts
from deid_agent.phi import PhiType
from deid_agent.sites import Kind, Site

LONGEST_TABLE_VALUE = 20
"""Facilities, rooms and counties are mostly values of a user's table (IS), which may be so long."""
_KEPT = frozenset({Leaf.KEEP, Leaf.CODE, Leaf.NUMBER, Leaf.ROOM, Leaf.IDTYPE, Leaf.AUTHORITY, Leaf.EQUIPMENT, Leaf.USE})
_SCRUBBED = _KEPT - {Leaf.ROOM} | {Leaf.TEXT, Leaf.VERBATIM}
_FREE: frozenset[Part] = frozenset({Leaf.TEXT, Leaf.VERBATIM, (Leaf.CODE,), (Leaf.NUMBER,)})
_FROM_TABLES = frozenset({Leaf.HOSPITAL, Leaf.ROOM, Leaf.PLACE, Leaf.CITY})
_CONTACT = frozenset({Leaf.PHONE, Leaf.EMAIL})
# Asking an enumeration for a member costs more than all else that is done to a value that is kept.
_ATTACHMENT, _CODED, _DATE, _ID, _KEEP = Leaf.ATTACHMENT, Leaf.CODED, Leaf.DATE, Leaf.ID, Leaf.KEEP
_RANGE, _TEXT, _UNIT, _VERBATIM = Leaf.RANGE, Leaf.TEXT, Leaf.UNIT, Leaf.VERBATIM
_VALUE = Kind.VALUE

Layout = tuple[Leaf | tuple[Leaf, ...], ...]


class Fields:
    """Reads fields: identifying values become ``sites``, what is free text goes to ``texts``."""

    def __init__(self, table: Table, view: View, texts: Texts, marks: Separators) -> None:
        self.sites: list[Site] = []
        self._codes = table.codes
        self._view = view
        self._texts = texts
        self._pending: list[Fragment] = []
        self._required = False
        self.declare(marks)

    def declare(self, marks: Separators) -> None:
        """Other separators from here on."""
        self._marks = marks
        self._separator = inner(marks).search

    def read(self, rule: Rule, text: str, at: int, path: str) -> None:
        """The field ``text`` that begins at character ``at``."""
        self._required = rule.required
        if rule.lone is not None and self._separator(text) is None:
            self._lone(rule, rule.lone, text, at, f"{path}[1]")
        else:
            for number, repetition in enumerate(parts(text, self._marks.repetition), start=1):
                if repetition:
                    self._repetition(rule, repetition, at, f"{path}[{number}]")
                at += len(repetition) + 1
        if self._pending:
            self._texts.add(self._pending)
            self._pending = []

    def _lone(self, rule: Rule, leaf: Leaf, text: str, at: int, path: str) -> None:
        """A field that is one value."""
        if leaf is _CODED or leaf is _UNIT:
            self._pending += coded.texts((text,), at, path, units=leaf is _UNIT)
        elif leaf is _VERBATIM or (leaf is _RANGE and not measures.is_range(text)):
            self._pending.append((path, (at, at + len(text))))
        elif leaf is not _RANGE:
            self._leaf(leaf, text, at, rule, f"{path}.1", path, None)

    def _repetition(self, rule: Rule, text: str, at: int, path: str) -> None:
        part, words = rule.part, parts(text, self._marks.component)
        if isinstance(part, tuple) and len(part) > 1:
            self._parts(_layout(rule, words), words, at, rule, path, path)
        elif part is _CODED or part is _UNIT:
            self._pending += coded.texts(words, at, path, units=part is _UNIT)
        elif part in _FREE and coded.is_coded(words, self._codes):
            self._pending += coded.texts(words, at, path)
        elif part is _VERBATIM or part is _RANGE:
            if part is _VERBATIM or not measures.is_range(text):
                self._pending.append((path, (at, at + len(text))))
        elif part is _ATTACHMENT or part == (_ATTACHMENT,):
            self._pending += self._texts.document(words, at, path)
        else:
            self._parts(_layout(rule, words), words, at, rule, path, path)

    def _parts(self, layout: Layout, words: Sequence[str], at: int, rule: Rule, path: str, group: str) -> None:
        """Components of a repetition, or subcomponents of a component; what is beyond the layout is text."""
        told = self._told(layout, words) if len(words) > 1 else None
        mark, known = self._marks.subcomponent, len(layout)
        for number, text in enumerate(words, start=1):
            start, at = at, at + len(text) + 1
            if not text:
                continue
            leaf = layout[number - 1] if number <= known else _TEXT
            if isinstance(leaf, tuple):
                if mark and mark in text:
                    self._parts(leaf, text.split(mark), start, rule, f"{path}.{number}", group)
                    continue
                leaf = leaf[0]
            elif leaf is _KEEP and len(text) <= values.LONGEST_CODE and not (mark and mark in text):
                continue
            elif leaf is _CODED:
                self._pending += coded.texts(parts(text, mark), start, f"{path}.{number}")
                continue
            elif mark and mark in text:
                for order, piece in enumerate(text.split(mark), start=1):
                    self._leaf(leaf, piece, start, rule, f"{path}.{number}.{order}", group, told)
                    start += len(piece) + 1
                continue
            self._leaf(leaf, text, start, rule, f"{path}.{number}", group, told)

    def _told(self, layout: Layout, words: Sequence[str]) -> PhiType | None:
        """What the other parts of a composite say about its identifier or number."""
        for index, leaf in values.hint_parts(layout):
            if index < len(words) and words[index]:
                hints = [word.strip().upper() for word in parts(words[index], self._marks.subcomponent)]
                if told := values.hint(leaf, hints, self._codes):
                    return told
        return None

    def _leaf(self, leaf: Leaf, text: str, at: int, rule: Rule, path: str, group: str, told: PhiType | None) -> None:
        """One value without separators."""
        if leaf in _KEPT and values.is_kept(leaf, text):
            return
        value = text.strip(BLANK)
        if not value or value == values.NULL:
            return
        if leaf is _TEXT and (found := values.TOWN.fullmatch(text)):
            self._town(found, at, rule, path, group)
            return
        if leaf in _SCRUBBED or (leaf in _CONTACT and not values.reads_as_contact(text)):
            self._pending.append((path, (at, at + len(text))))
            return
        if len(value) < len(text):
            at += len(text) - len(text.lstrip(BLANK))
        end = at + len(value)
        escape = self._marks.escape
        if not value.isascii() or not escape or escape in value:
            value = plain(self._view, at, end, self._marks)
        if not value.strip():
            return
        type_, kind = values.classify(leaf, value, rule, told)
        if self._view.starts is not None:
            at, end = self._view.span(at, end)
        # An identifier's number is required wherever anything else of it is said (CX.1, EI.1, since 2.5).
        blank = self._blank(type_) if self._required or leaf is _ID else ""
        limit = LONGEST_TABLE_VALUE if leaf in _FROM_TABLES and len(value) <= LONGEST_TABLE_VALUE else 0
        self.sites.append(Site(path, at, end, type_, kind, rule.subject, group, value, blank, limit=limit))

    def _town(self, found: re.Match[str], at: int, rule: Rule, path: str, group: str) -> None:
        for name, type_ in (("town", PhiType.CITY), ("state", PhiType.STATE), ("zip", PhiType.ZIP)):
            if found[name]:
                start, end = self._view.span(at + found.start(name), at + found.end(name))
                blank = self._blank(type_) if self._required else ""
                self.sites.append(Site(path, start, end, type_, _VALUE, rule.subject, group, found[name], blank))

    def _blank(self, type_: PhiType) -> str:
        """What a redacted value becomes where one is required: the first of its field, or any identifier."""
        self._required = False
        return values.placeholder(type_)


def _layout(rule: Rule, words: Sequence[str]) -> Layout:
    """What the components of a repetition are; the rule's other layout where they can't be what it says first."""
    part = rule.part
    if isinstance(part, Leaf):
        return (part,) * len(words)
    if isinstance(rule.other, tuple) and (
        len(words) > len(part)
        or any(p is _DATE and word and not any(map(str.isdigit, word)) for p, word in zip(part, words, strict=False))
    ):
        return rule.other
    return part
