"""One walk over one message: its segments, and of each the fields that may hold something."""

import hashlib
from collections.abc import Sequence
from itertools import chain, count, repeat
from types import MappingProxyType

from deid_agent.codec.hl7v2 import escape, joints, observation, values
from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.fields import Fields
from deid_agent.codec.hl7v2.message import Hl7Message
from deid_agent.codec.hl7v2.table import Leaf, Table
from deid_agent.codec.hl7v2.texts import Texts
from deid_agent.codec.hl7v2.wire import HEADERS, Segment, Separators, parts, separators
from deid_agent.errors import MessageError, Reason

MAX_PIECES = 1_000_000
"""Fields, repetitions and components of one message; more is no message but an attack on memory."""
MAX_SEPARATORS = 8
"""Sets of separators that the headers of one message may declare (file, batch, message: three)."""
_PATIENT = ("PID-3", "PID-2", "PID-4", "MRG-1")
_NOTED = MappingProxyType({"MSH": (7, 10), "PID": (2, 3, 4), "MRG": (1,)})
"""The fields that name the message, its time and its patient."""
_KEEP, _VARIES, _VERBATIM = Leaf.KEEP, Leaf.VARIES, Leaf.VERBATIM


class Reader:
    """Reads one message once; ``read`` may be called once."""

    def __init__(self, table: Table, view: View) -> None:
        self._table = table
        self._view = view
        self._text = view.text
        self._marks = Separators("|", "^", "~", "\\", "&")
        self._texts = Texts(table.codes, view, self._marks)
        self._fields = Fields(table, view, self._texts, self._marks)
        self._first: dict[str, str] = {}
        self._declared: set[Separators] = set()

    def read(self, segments: Sequence[Segment]) -> Hl7Message:
        """Raises ``MessageError`` (MALFORMED, UNSUPPORTED, RESOURCE)."""
        seen: dict[str, int] = {}
        own: Separators | None = None
        for number, segment in enumerate(segments, start=1):
            if segment.header:
                self._declare(segment)
                own = self._marks if own is None or segment.header == "MSH" else own
            fields = self._text[segment.start : segment.end].split(self._marks.field)
            name = segment.header or self._name(fields[0], segment)
            if not name or name == "ADD":
                start = min(segment.start + 4, segment.end) if name else segment.start
                self._texts.stray(start, segment.end, f"line({number})")
                continue
            seen[name] = order = seen.get(name, 0) + 1
            self._segment(name, name if order == 1 else f"{name}({order})", segment, fields)
        narratives, attachments = self._texts.taken()
        control, time = self._first.get("MSH-10", ""), self._first.get("MSH-7", "")
        return Hl7Message(
            raw=self._view.raw,
            identity=f"{control}^{time}" if control else hashlib.sha256(self._view.raw).hexdigest(),
            patient=next((self._first[p] for p in _PATIENT if self._first.get(p)), None),
            sites=tuple(sorted(self._fields.sites, key=lambda s: s.start)),
            narratives=narratives,
            attachments=attachments,
            marks=own or self._marks,
            charset=self._view.charset,
        )

    def _declare(self, segment: Segment) -> None:
        """The separators of a header, for all that comes after it."""
        marks = separators(self._text, segment)
        if marks not in self._declared:
            if len(self._declared) == MAX_SEPARATORS:
                raise MessageError(Reason.RESOURCE, f"{segment.header}-2", "headers disagree on separators")
            own = (marks.field, marks.component, marks.repetition, marks.subcomponent)
            if sum(self._text.count(mark) for mark in own if mark) > MAX_PIECES:
                raise MessageError(Reason.RESOURCE, f"{segment.header}-2", f"more than {MAX_PIECES} pieces")
            if not self._declared:
                joints.refuse_shown(self._text, marks, self._table)
            self._declared.add(marks)
        self._marks = marks
        self._texts.declare(marks)
        self._fields.declare(marks)

    def _name(self, text: str, segment: Segment) -> str:
        """The name of a segment whose first field is ``text``; empty for a line that has none: broken text."""
        if self._table.knows(text):
            return text if text not in HEADERS else ""
        name = text.upper()
        if len(text) != 3 or not text.isascii() or name in HEADERS:  # the capital of one letter may be two
            return ""
        if self._table.knows(name):
            return name
        ends = segment.end == segment.start + 3
        return name if not ends and name.isalnum() and name[0].isalpha() else ""

    def _segment(self, name: str, path: str, segment: Segment, fields: Sequence[str]) -> None:
        """The hot loop: most fields are empty, kept, or one value without a separator, and cost next to nothing."""
        offset = 1 if segment.header else 0
        joints.refuse(name, path, fields, offset, self._marks, self._table)
        if name in _NOTED:
            self._note(name, fields, segment.start, offset)
        joined = self._table.joins.get(name)
        self._texts.begin(name, fields, joined)
        join_at = joined.field if joined is not None else 0
        rules, rest = self._table.rules(name)
        goes_on = False
        at = segment.start + len(fields[0]) + 1
        known = chain(rules[offset:], repeat(rest))
        for number, text, listed in zip(count(offset + 1), fields[1:], known, strict=False):
            if not text and number != join_at:
                at += 1
                continue
            start, at = at, at + len(text) + 1
            rule = listed if listed.part is not _VARIES else observation.rule(self._table, fields, self._marks)
            part, plain = rule.part, rule.plain
            if part is _KEEP or (plain is not None and text.isalnum() and values.is_plain(plain, text)):
                continue
            if number == join_at and part is _VERBATIM:
                goes_on = True
                if name == "OBX" and observation.is_measured(fields, text, self._marks):
                    self._texts.interrupt()
                else:
                    self._texts.extend(text, start, f"{path}-{number}")
            elif text and not (offset and number == 2):
                self._fields.read(rule, text, start, f"{path}-{number}")
        if joined is not None and not goes_on:
            self._texts.end()

    def _note(self, name: str, fields: Sequence[str], start: int, offset: int) -> None:
        """Remember what names the message and its patient, the first time that it is said."""
        for number in _NOTED[name]:
            key, index = f"{name}-{number}", number - offset
            if key in self._first or index >= len(fields) or not fields[index]:
                continue
            at = start + sum(map(len, fields[:index])) + index
            text = fields[index]
            for mark in (self._marks.repetition, self._marks.component, self._marks.subcomponent):
                text = parts(text, mark)[0]
            value = escape.plain(self._view, at, at + len(text), self._marks).strip()
            if value and value != values.NULL:
                self._first[key] = value
