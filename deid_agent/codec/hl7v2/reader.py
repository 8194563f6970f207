"""One walk over one message: every field by its rule, into sites, narratives and attachments."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from deid_agent.codec.hl7v2 import attachment, documents, joints, measures, values
from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.escape import plain
from deid_agent.codec.hl7v2.message import Hl7Message
from deid_agent.codec.hl7v2.narrative import NULL, join
from deid_agent.codec.hl7v2.table import Join, Leaf, Part, Rule, Table
from deid_agent.codec.hl7v2.wire import BLANK, HEADERS, Range, Segment, Separators, inner, separators, split
from deid_agent.errors import MessageError, Reason
from deid_agent.phi import PhiType
from deid_agent.sites import Attachment, Narrative, Site

MAX_PIECES = 1_000_000
"""Fields, repetitions and components of one message; more is no message but an attack on memory."""
MAX_SEPARATORS = 8
"""Sets of separators that the headers of one message may declare (file, batch, message: three)."""
_KEPT = frozenset({Leaf.KEEP, Leaf.CODE, Leaf.NUMBER, Leaf.ROOM, Leaf.IDTYPE, Leaf.AUTHORITY, Leaf.EQUIPMENT, Leaf.USE})
_FREE: frozenset[Part] = frozenset({Leaf.TEXT, Leaf.VERBATIM, (Leaf.CODE,), (Leaf.NUMBER,)})
_SCRUBBED = _KEPT - {Leaf.ROOM} | {Leaf.TEXT, Leaf.VERBATIM}
_FROM_TABLES = frozenset({Leaf.HOSPITAL, Leaf.ROOM, Leaf.PLACE, Leaf.CITY})
LONGEST_TABLE_VALUE = 20
"""Facilities, rooms and counties are mostly values of a user's table (IS), which may be so long."""
_CONTACT = frozenset({Leaf.PHONE, Leaf.EMAIL})
_UNITS, _RANGE = 6, 7
"""OBX-6 and OBX-7: what stands there says that a number in OBX-5 measures something."""
_PATIENT = ("PID-3", "PID-2", "PID-4", "MRG-1")
_NOTED = frozenset({"MSH", "PID", "MRG"})
_KEEP, _VARIES, _VERBATIM = Leaf.KEEP, Leaf.VARIES, Leaf.VERBATIM


class Reader:
    """Reads one message once; ``read`` may be called once."""

    def __init__(self, table: Table, view: View) -> None:
        self._table = table
        self._view = view
        self._text = view.text
        self._marks = Separators("|", "^", "~", "\\", "&")
        self._inner = inner(self._marks)
        self._sites: list[Site] = []
        self._attachments: list[Attachment] = []
        self._narratives: list[tuple[int, Narrative]] = []
        self._pending: list[tuple[str, Range]] = []
        self._run: tuple[tuple[str, str], list[tuple[str, Range]]] | None = None
        self._first: dict[str, str] = {}
        self._declared: set[Separators] = set()
        self._documents = documents.Documents(view)
        self._current: tuple[str, list[str]] = ("", [])

    def read(self, segments: Sequence[Segment]) -> Hl7Message:
        """Raises ``MessageError`` (MALFORMED, UNSUPPORTED, RESOURCE)."""
        seen: Counter[str] = Counter()
        own: Separators | None = None
        for number, segment in enumerate(segments, start=1):
            if segment.header:
                self._marks = self._checked(segment)
                self._inner = inner(self._marks)
                if own is None:
                    joints.refuse_shown(self._text, self._marks, self._table)
                own = self._marks if own is None or segment.header == "MSH" else own
            name = segment.header or self._name(segment)
            if not name or name == "ADD":
                start = min(segment.start + 4, segment.end) if name else segment.start
                self._stray(start, segment.end, f"line({number})")
                continue
            seen[name] += 1
            path = name if seen[name] == 1 else f"{name}({seen[name]})"
            if name not in self._table.joins:
                self._close()
                self._finish()
            self._segment(name, path, segment)
        self._close()
        self._finish()
        control, time = self._first.get("MSH-10", ""), self._first.get("MSH-7", "")
        self._sites.sort(key=lambda s: s.start)
        return Hl7Message(
            raw=self._view.raw,
            identity=f"{control}^{time}" if control else hashlib.sha256(self._view.raw).hexdigest(),
            patient=next((self._first[p] for p in _PATIENT if self._first.get(p)), None),
            sites=tuple(self._sites),
            narratives=tuple(n for _, n in sorted(self._narratives, key=lambda item: item[0])),
            attachments=tuple(sorted(self._attachments, key=lambda a: a.start)),
            marks=own or self._marks,
            charset=self._view.charset,
        )

    def _checked(self, segment: Segment) -> Separators:
        marks = separators(self._text, segment)
        own = (marks.field, marks.component, marks.repetition, marks.subcomponent)
        if marks not in self._declared:
            self._declared.add(marks)
            if len(self._declared) > MAX_SEPARATORS:
                raise MessageError(Reason.RESOURCE, f"{segment.header}-2", "headers disagree on separators")
            if sum(self._text.count(mark) for mark in own if mark) > MAX_PIECES:
                raise MessageError(Reason.RESOURCE, f"{segment.header}-2", f"more than {MAX_PIECES} pieces")
        return marks

    def _name(self, segment: Segment) -> str:
        """The segment's name; empty for a line that has none, which is broken text."""
        start, end = segment.start, segment.end
        text = self._text[start : min(start + 3, end)]
        name = text.upper()
        if len(text) < 3 or not text.isascii() or name in HEADERS:  # the capital of one letter may be two
            return ""
        known = self._table.knows(name)
        if not known and not (name.isalnum() and name[0].isalpha()):
            return ""
        if end == start + 3:
            return name if known else ""
        return name if self._text[start + 3] == self._marks.field else ""

    def _segment(self, name: str, path: str, segment: Segment) -> None:
        """The hot loop: most fields are empty, kept, or one value without a separator, and cost next to nothing."""
        field, special = self._marks.field, self._inner.search
        fields = self._text[segment.start : segment.end].split(field)
        self._current = (name, fields)
        offset = 1 if segment.header else 0
        joints.refuse(name, path, fields, offset, self._marks, self._table)
        rules, rest = self._table.rules(name)
        known = len(rules)
        if name in _NOTED:
            self._note(name, split(self._text, segment.start, segment.end, field), offset)
        joined = self._table.joins.get(name)
        join_at = joined.field if joined is not None else 0
        continued = False
        number, b = offset, segment.start + len(fields[0])
        for text in fields[1:]:
            number += 1
            a = b + 1
            b = a + len(text)
            if not text and number != join_at:
                continue
            rule = rules[number - 1] if number <= known else rest
            if rule.part is _VARIES:
                rule = self._table.observation(self._value(fields, 2).upper())
            if rule.part is _KEEP or (offset and number == 2):
                continue
            if number == join_at and joined is not None and rule.part is _VERBATIM:
                self._extend(joined, f"{path}-{number}", a, b)
                continued = True
            elif rule.plain and text.isalnum() and values.is_plain(rule.plain, text):
                continue
            else:
                first = len(self._sites)
                if rule.lone is not None and special(text) is None:
                    self._lone(rule, rule.lone, a, b, f"{path}-{number}[1]")
                else:
                    self._field(rule, a, b, f"{path}-{number}")
                if rule.required and first < len(self._sites):
                    site = self._sites[first]
                    self._sites[first] = replace(site, blank=values.placeholder(site.type))
        if joined is not None and not continued:
            self._close()

    def _lone(self, rule: Rule, leaf: Leaf, a: int, b: int, path: str) -> None:
        """A field that is one value."""
        if a == b:
            return
        if leaf is _VERBATIM or leaf is Leaf.RANGE:
            if leaf is _VERBATIM or not measures.is_range(self._text[a:b]):
                self._narrative([(path, (a, b))])
            return
        if leaf is Leaf.CODED or leaf is Leaf.UNIT:
            self._coded([(a, b)], path, units=leaf is Leaf.UNIT)
        else:
            self._leaf(leaf, a, b, rule, f"{path}.1", path, None)
        if self._pending:
            self._narrative(self._pending)
            self._pending = []

    def _value(self, fields: Sequence[str], number: int, *, whole: bool = True) -> str:
        """Field ``number``, or its first component; of an uncoded field the whole."""
        if number >= len(fields):
            return ""
        text = fields[number]
        first = text.partition(self._marks.component)[0] if self._marks.component else text
        return first.strip(BLANK) if whole else first or text

    def _note(self, name: str, ranges: Sequence[Range], offset: int) -> None:
        for number in (1, 2, 3, 4, 7, 10):
            key = f"{name}-{number}"
            if number - offset < len(ranges) and number > offset and key not in self._first:
                a, b = ranges[number - offset]
                for mark in (self._marks.repetition, self._marks.component, self._marks.subcomponent):
                    a, b = split(self._text, a, b, mark)[0]
                value = plain(self._view, a, b, self._marks).strip()
                if value and value != NULL:
                    self._first[key] = value

    # Text over several segments -------------------------------------------------

    def _extend(self, joined: Join, path: str, a: int, b: int) -> None:
        self._finish()
        name, fields = self._current
        if name == "OBX" and self._measured(fields, self._text[a:b]):
            return
        key = (name, self._value(fields, joined.by, whole=False) if joined.by else "")
        if self._run is None or self._run[0] != key:
            self._close()
            self._run = (key, [])
        for number, (x, y) in enumerate(split(self._text, a, b, self._marks.repetition), start=1):
            where, pieces = f"{path}[{number}]", split(self._text, x, y, self._marks.component)
            if self._is_code(pieces):
                self._coded(pieces, where)
                self._run[1].extend(self._pending)
                self._pending = []
            else:
                self._run[1].append((where, (x, y)))

    def _measured(self, fields: Sequence[str], text: str) -> bool:
        """True for a number in OBX-5 that its form, its units or its reference range say to be a measurement."""
        if not text or len(text) > values.LONGEST_CODE:
            return False
        units, range_ = (self._value(fields, n, whole=False).strip(BLANK) for n in (_UNITS, _RANGE))
        measured = (units not in {"", NULL} and measures.is_unit(units)) or measures.is_range(range_)
        parts = text.split(self._marks.repetition) if self._marks.repetition else [text]
        return all(measures.is_measure(part, measured=measured) for part in parts)

    def _stray(self, a: int, b: int, path: str) -> None:
        """A line without a segment name, or an ADD, goes on with the text before it: a report's own line breaks."""
        pieces = self._leaves(a, b)
        if self._documents.more(path, pieces[0], self._text[slice(*pieces[0])]):
            del pieces[0]
        fragments = [(path, piece) for piece in pieces]
        if self._run is not None:
            self._run[1].extend(fragments)
        else:
            self._narrative(fragments)

    def _close(self) -> None:
        """The text so far is whole."""
        if self._run is not None:
            self._narrative(self._run[1])
            self._run = None

    def _leaves(self, a: int, b: int) -> list[Range]:
        pieces = [(a, b)]
        for mark in (self._marks.field, self._marks.repetition, self._marks.component, self._marks.subcomponent):
            pieces = [leaf for piece in pieces for leaf in split(self._text, *piece, mark)]
        return pieces

    def _finish(self) -> None:
        """The documents so far are whole."""
        if self._documents:
            self._attachments += self._documents.take(f"text{self._marks.component}plain".encode())

    def _narrative(self, fragments: Sequence[tuple[str, Range]]) -> None:
        if sum(b - a for _, (a, b) in fragments) >= attachment.LONG:
            fragments = self._without_documents(fragments)
        mapped = join(self._view, [piece for _, piece in fragments], self._marks) if fragments else None
        if mapped is not None:
            self._narratives.append((fragments[0][1][0], Narrative(fragments[0][0], mapped)))

    def _without_documents(self, fragments: Sequence[tuple[str, Range]]) -> Sequence[tuple[str, Range]]:
        """The fragments that are text; those that are a document become one."""
        if not any(" " not in self._text[a : min(a + 20, b)] for _, (a, b) in fragments if b - a >= 20):
            return fragments
        lines = [plain(self._view, *piece, self._marks) for _, piece in fragments]
        rest: list[tuple[str, Range]] = []
        at = 0
        for start, end in documents.runs(lines):
            rest += fragments[at:start]
            spans = [piece for _, piece in fragments[start:end]]
            self._attachments.append(documents.bare(self._view, spans, lines[start:end], fragments[start][0]))
            at = end
        return [*rest, *fragments[at:]]

    # Fields -----------------------------------------------------------------------

    def _field(self, rule: Rule, a: int, b: int, path: str) -> None:
        for number, (x, y) in enumerate(split(self._text, a, b, self._marks.repetition), start=1):
            if x < y:
                self._repetition(rule, x, y, f"{path}[{number}]")
        if self._pending:
            self._narrative(self._pending)
            self._pending = []

    def _repetition(self, rule: Rule, a: int, b: int, group: str) -> None:
        part = rule.part
        pieces = split(self._text, a, b, self._marks.component)
        if part is Leaf.CODED or part is Leaf.UNIT:
            self._coded(pieces, group, units=part is Leaf.UNIT)
        elif part in _FREE and self._is_code(pieces):
            self._coded(pieces, group)
        elif part is Leaf.VERBATIM or part is Leaf.RANGE:
            if part is Leaf.VERBATIM or not measures.is_range(self._text[a:b]):
                self._pending.append((group, (a, b)))
        elif part == (Leaf.ATTACHMENT,) or part is Leaf.ATTACHMENT:
            self._document(pieces, group)
        elif isinstance(part, Leaf):
            self._parts((part,) * len(pieces), pieces, rule, group, group)
        else:
            if rule.other is not None and not isinstance(rule.other, Leaf) and self._misplaced(part, pieces):
                part = rule.other
            self._parts(part, pieces, rule, group, group)

    def _misplaced(self, part: Sequence[Leaf | tuple[Leaf, ...]], pieces: Sequence[Range]) -> bool:
        return len(pieces) > len(part) or any(
            p is Leaf.DATE and a < b and not any(c.isdigit() for c in self._text[a:b])
            for p, (a, b) in zip(part, pieces, strict=False)
        )

    def _parts(
        self,
        part: Sequence[Leaf | tuple[Leaf, ...]],
        pieces: Sequence[Range],
        rule: Rule,
        path: str,
        group: str,
    ) -> None:
        """Components of a repetition, or subcomponents of a component; what is beyond the layout is text."""
        told = self._told(tuple(part), pieces) if len(pieces) > 1 else None
        for number, (a, b) in enumerate(pieces, start=1):
            if a == b:
                continue
            own = part[number - 1] if number <= len(part) else Leaf.TEXT
            where = f"{path}.{number}"
            inner = split(self._text, a, b, self._marks.subcomponent)
            if isinstance(own, tuple):
                if len(inner) > 1:
                    self._parts(own, inner, rule, where, group)
                else:
                    self._leaf(own[0], a, b, rule, where, group, told)
            elif own is Leaf.CODED:
                self._coded(inner, where)
            elif len(inner) == 1:
                self._leaf(own, a, b, rule, where, group, told)
            else:
                for order, (x, y) in enumerate(inner, start=1):
                    self._leaf(own, x, y, rule, f"{where}.{order}", group, told)

    def _told(self, part: tuple[Leaf | tuple[Leaf, ...], ...], pieces: Sequence[Range]) -> PhiType | None:
        for index, leaf in values.hint_parts(part):
            if index < len(pieces) and pieces[index][0] < pieces[index][1]:
                words = [
                    self._text[a:b].strip().upper()
                    for a, b in split(self._text, *pieces[index], self._marks.subcomponent)
                ]
                if told := values.hint(leaf, words, self._table.codes):
                    return told
        return None

    def _leaf(self, leaf: Leaf, a: int, b: int, rule: Rule, path: str, group: str, told: PhiType | None) -> None:
        text = self._text[a:b]
        if not text or text == NULL or text.strip(BLANK) in {"", NULL}:
            return
        if leaf in _KEPT and values.is_kept(leaf, text):
            return
        if leaf is Leaf.TEXT and (found := values.TOWN.fullmatch(text)):
            self._town(found, a, rule, path, group)
            return
        if leaf in _SCRUBBED or (leaf in _CONTACT and not values.reads_as_contact(text)):
            self._pending.append((path, (a, b)))
            return
        if text[0] in BLANK or text[-1] in BLANK:
            a, b = a + len(text) - len(text.lstrip(BLANK)), b - len(text) + len(text.rstrip(BLANK))
        value = plain(self._view, a, b, self._marks)
        if not value.strip():
            return
        type_, kind = values.classify(leaf, value, rule, told)
        start, end = (a, b) if self._view.starts is None else self._view.span(a, b)
        limit = LONGEST_TABLE_VALUE if leaf in _FROM_TABLES and len(value) <= LONGEST_TABLE_VALUE else 0
        # An identifier's number is required wherever anything else of it is said (CX.1, EI.1, since 2.5).
        blank = values.placeholder(type_) if leaf is Leaf.ID else ""
        self._sites.append(Site(path, start, end, type_, kind, rule.subject, group, value, blank, limit=limit))

    def _town(self, found: re.Match[str], at: int, rule: Rule, path: str, group: str) -> None:
        for name, type_ in (("town", PhiType.CITY), ("state", PhiType.STATE), ("zip", PhiType.ZIP)):
            if found[name]:
                span = self._view.span(at + found.start(name), at + found.end(name))
                self._sites.append(Site(path, *span, type_, subject=rule.subject, group=group, value=found[name]))

    def _is_code(self, pieces: Sequence[Range]) -> bool:
        """True where text is a coded value in fact: a code, its text and the name of a public code system."""
        if len(pieces) < 3 or not self._table.codes.system(self._text[slice(*pieces[2])]):
            return False
        code = self._text[slice(*pieces[0])].strip(BLANK)
        return code != "" and not values.is_prose(code)

    def _coded(self, pieces: Sequence[Range], path: str, *, units: bool = False) -> None:
        """A coded value: its text is free text where no code and system stand beside it; the original text always.

        ``units`` of measure are no text, coded or not.
        """
        words = [self._text[a:b].strip(BLANK) for a, b in pieces]
        words += [""] * (3 - len(words))
        for number, (a, b) in enumerate(pieces, start=1):
            if a == b:
                continue
            match number:
                case 1:
                    free = not words[2] and values.is_prose(words[0])
                case 2:
                    free = not (words[0] and words[2])
                case 5:
                    free = not words[3]
                case 11:
                    free = not words[9]
                case _:
                    free = number == 9 or number > 22 or b - a > values.LONGEST_CODE
            if free and words[number - 1] != NULL and not (units and measures.is_unit(words[number - 1])):
                self._pending.append((f"{path}.{number}", (a, b)))

    def _document(self, pieces: list[Range], path: str) -> None:
        """An ED. One with less than five components is a document without its description, or none at all."""
        if len(pieces) < 5:
            if any(b - a >= attachment.LONG for a, b in pieces):
                a, b = pieces[0][0], pieces[-1][1]
                text = plain(self._view, a, b, self._marks)
                self._attachments.append(documents.bare(self._view, [(a, b)], [text], path))
            else:
                self._pending += [(path, leaf) for a, b in pieces if a < b for leaf in self._leaves(a, b)]
            return
        if found := attachment.piece(self._view, pieces, self._marks, self._observation()):
            value, declared, encoding, key = found
            label = (pieces[1][0], pieces[2][1])
            span = pieces[4]
            self._documents.add(documents.Piece(f"{path}.5", span, value, key, label, declared, encoding))
        pieces = [(a, b) for a, b in pieces[:1] if b - a >= attachment.LONG] + pieces[5:]
        self._pending += [(path, leaf) for a, b in pieces if a < b for leaf in self._leaves(a, b)]

    def _observation(self) -> tuple[str, str]:
        """The segment's name, and what it observes (OBX-3): what pieces of one document share."""
        name, fields = self._current
        joined = self._table.joins.get(name)
        return name, self._value(fields, joined.by, whole=False) if joined is not None and joined.by else ""
