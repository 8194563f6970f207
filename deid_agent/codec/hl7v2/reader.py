"""One pass over a message: its segments and, of each, the fields that may hold PHI."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from operator import attrgetter
from types import MappingProxyType

from deid_agent.codec.hl7v2.charset import Hl7View, escape_text, unescape_text
from deid_agent.codec.hl7v2.codes import CodeWords
from deid_agent.codec.hl7v2.fields import FieldReader
from deid_agent.codec.hl7v2.missing_terminators import refuse_missing_terminator, refuse_written_out_terminator
from deid_agent.codec.hl7v2.shapes import SHORTEST_STAFF_NUMBER, kind_in_address
from deid_agent.codec.hl7v2.structure import (
    DEFAULT_SEPARATORS,
    HEADERS,
    NULL,
    Hl7Segment,
    Separators,
    parse_separators,
    split_text,
)
from deid_agent.codec.hl7v2.table import CodeTable, Hl7Kind, Hl7Rule, Hl7Table
from deid_agent.codec.hl7v2.texts import TextCollector, is_measured_value, rule_for_observation
from deid_agent.codec.hl7v2.values import hinted_type, is_surely_kept
from deid_agent.codec.labels import Labels
from deid_agent.model import (
    Attachment,
    MessageError,
    Narrative,
    PatientField,
    PatientIdentifier,
    PhiType,
    Reason,
    Site,
    ValueKind,
)

MAX_PIECES = 1_000_000
"""Fields, repetitions and components of one message; a message with more is an attack on memory."""
MAX_SEPARATORS = 8
"""Different sets of separators that the headers of one message may declare (file, batch and message: three)."""
_IDENTIFYING = (7, 10)
"""The fields of MSH that identify the message: its time and its control id."""
_MAIN, _OTHER, _MERGED = PatientField.MAIN, PatientField.OTHER, PatientField.MERGED
_PATIENT = MappingProxyType({"PID": ((3, _MAIN), (2, _OTHER), (4, _OTHER)), "MRG": ((1, _MERGED),)})
_OBSERVATION = 3
"""OBX-3, the label of an observation."""
_CODED, _LABEL, _UNIT = Hl7Kind.CODED, Hl7Kind.LABEL, Hl7Kind.UNIT
_SHORTEST_NAME, _LONGEST_ABBREVIATION = 3, 5
_REPORTS = frozenset({"TX", "FT"})
_CODES = frozenset({Hl7Kind.CODED, Hl7Kind.CODE})
_LONG = 512
"""The decision about a shorter coded field is remembered between messages."""
_KEEP, _VARIES, _VERBATIM = Hl7Kind.KEEP, Hl7Kind.VARIES, Hl7Kind.VERBATIM

_PERSON_SEX = MappingProxyType(
    {"PID": (8, 0, (5, 9)), "NK1": (15, 3, (2,)), "GT1": (9, 11, (3,)), "IN1": (43, 0, (16,)), "STF": (5, 0, (3,))}
)
"""The fields of a person: sex, relation to the patient (0: none), names."""
_SEX_CODES = MappingProxyType({"F": "female", "FEMALE": "female", "M": "male", "MALE": "male"})
_KINSHIP = MappingProxyType(
    dict.fromkeys(("MTH", "MOTHER", "SIS", "SISTER", "WIFE", "DAU", "DAUGHTER", "GRANDMOTHER", "AUNT"), "female")
    | dict.fromkeys(("FTH", "FATHER", "BRO", "BROTHER", "HUSBAND", "SON", "GRANDFATHER", "UNCLE"), "male")
)
"""HL7 table 0063, and words that senders use instead of its codes."""
_NO_CAPITALS = re.compile(r"[^A-Z]+")
_START = attrgetter("start")
_FAMILY, _GIVEN, _NAME = ValueKind.FAMILY, ValueKind.GIVEN, ValueKind.NAME


@dataclass(frozen=True, slots=True)
class Hl7Message:
    """A parsed message; implements ``Message``.

    Paths: ``PID-5[1].1`` is segment, field, repetition, component. ``PID-5[1].1.2`` adds the subcomponent if the
    component has several. The second OBX of a message is ``OBX(2)``. A narrative has the path of its first fragment. A
    broken line without a segment name is ``line(n)``.
    """

    raw: bytes = field(repr=False)
    identity: str = field(repr=False)
    patients: tuple[PatientIdentifier, ...] = field(repr=False)
    sites: tuple[Site, ...]
    narratives: tuple[Narrative, ...]
    attachments: tuple[Attachment, ...]
    marks: Separators
    charset: str
    sexes: Mapping[str, str] = field(default_factory=dict)

    def encode(self, text: str) -> bytes:
        """``text`` as a value: separators and line breaks escaped, in the charset of the message."""
        return escape_text(text, self.charset, self.marks)


class Hl7Reader:
    """Reads one message; ``read`` may be called once."""

    def __init__(self, table: Hl7Table, labels: Labels, words: CodeWords, view: Hl7View) -> None:
        self._table = table
        self._labels = labels
        self._words = words
        self._view = view
        self._text = view.text
        self._marks = DEFAULT_SEPARATORS
        self._texts = TextCollector(table.codes, view, self._marks)
        self._fields = FieldReader(table, labels, words, view, self._texts, self._marks)
        self._first: dict[str, str] = {}
        self._patients: list[PatientIdentifier] = []
        self._declared: set[Separators] = set()
        self._sexes: dict[str, str] = {}

    def read(self, segments: Sequence[Hl7Segment]) -> Hl7Message:
        """The message of these segments. Raises ``MessageError`` (MALFORMED, UNSUPPORTED, RESOURCE)."""
        seen: dict[str, int] = {}
        own: Separators | None = None
        for number, segment in enumerate(segments, start=1):
            if segment.header:
                self._set_separators(segment)
                own = self._marks if own is None or segment.header == "MSH" else own
            fields = self._text[segment.start : segment.end].split(self._marks.field)
            name = segment.header or self._segment_name(fields[0], segment)
            if not name or name == "ADD":
                start = min(segment.start + 4, segment.end) if name else segment.start
                self._texts.add_unnamed_line(start, segment.end, f"line({number})")
                continue
            seen[name] = order = seen.get(name, 0) + 1
            self._segment(name, name if order == 1 else f"{name}({order})", segment, fields)
        narratives, attachments = self._texts.finish()
        control, time = self._first.get("MSH-10", ""), self._first.get("MSH-7", "")
        return Hl7Message(
            raw=self._view.raw,
            identity=f"{control}^{time}" if control else hashlib.sha256(self._view.raw).hexdigest(),
            patients=tuple(self._patients),
            sites=tuple(sorted(self._fields.sites, key=_START)),
            narratives=narratives,
            attachments=attachments,
            marks=own or self._marks,
            charset=self._view.charset,
            sexes=self._sexes_by_name(),
        )

    def _set_separators(self, segment: Hl7Segment) -> None:
        """Use the separators of a header for the segments after it."""
        marks = parse_separators(self._text, segment)
        if marks not in self._declared:
            if len(self._declared) == MAX_SEPARATORS:
                raise MessageError(Reason.RESOURCE, f"{segment.header}-2", "headers disagree on separators")
            own = (marks.field, marks.component, marks.repetition, marks.subcomponent)
            if sum(self._text.count(mark) for mark in own if mark) > MAX_PIECES:
                raise MessageError(Reason.RESOURCE, f"{segment.header}-2", f"more than {MAX_PIECES} pieces")
            if not self._declared:
                refuse_written_out_terminator(self._text, marks, self._table)
            self._declared.add(marks)
        self._marks = marks
        self._texts.set_separators(marks)
        self._fields.set_separators(marks)

    def _segment_name(self, text: str, segment: Hl7Segment) -> str:
        """The name of a segment whose first field is ``text``; empty for a line of broken text, which has none."""
        if self._table.knows(text):
            return text if text not in HEADERS else ""
        name = text.upper()
        if len(text) != 3 or not text.isascii() or name in HEADERS:  # one letter may have two letters as its capital
            return ""
        if self._table.knows(name):
            return name
        ends = segment.end == segment.start + 3
        return name if not ends and name.isalnum() and name[0].isalpha() else ""

    def _segment(  # noqa: PLR0912 - the hot loop
        self, name: str, path: str, segment: Hl7Segment, fields: Sequence[str]
    ) -> None:
        """The hot loop: most fields are empty, kept, or one value without a separator, and cost next to nothing."""
        offset = 1 if segment.header else 0
        refuse_missing_terminator(name, path, fields, offset, self._marks, self._table)
        if name == "MSH":
            self._note_identity(fields, segment.start)
        elif name in _PATIENT:
            self._note_patient(name, fields, segment.start)
        if name in _PERSON_SEX:
            self._note_sex(name, path, fields)
        joined = self._table.joins.get(name)
        self._texts.begin_segment(name, fields, joined)
        join_at = joined.field if joined is not None else 0
        rules, rest = self._table.rules(name)
        label = fields[_OBSERVATION] if name == "OBX" and len(fields) > _OBSERVATION else ""
        if label and not self._fields.names_identity(label):
            label = ""
        has_no_text, kind_of_code = self._fields.has_no_text, self._fields.kind_of_code
        unknown, continues = not rules, False
        at = segment.start + len(fields[0]) + 1
        known = chain(rules[offset:], repeat(rest))
        for number, text, listed in zip(count(offset + 1), fields[1:], known, strict=False):
            if not text and number != join_at:
                at += 1
                continue
            start, at = at, at + len(text) + 1
            rule = listed if listed.layout is not _VARIES else rule_for_observation(self._table, fields, self._marks)
            layout, usually_kept = rule.layout, rule.usually_kept
            if unknown and text and self._read_local(rule, fields, number - offset, start, f"{path}-{number}"):
                continue
            if (
                number == join_at
                and label
                and self._fields.read_labelled(label, layout, text, start, f"{path}-{number}")
            ):
                continue
            plain = rule.alternative is None or len(text) < SHORTEST_STAFF_NUMBER or text.isalpha()
            if layout is _KEEP or (
                usually_kept is not None
                and plain
                and text.isalnum()
                and is_surely_kept(usually_kept, text)
                and (
                    len(text) < _SHORTEST_NAME
                    or usually_kept not in _CODES
                    or kind_of_code(text, listed.tabled) is None
                )
            ):
                continue
            if number == join_at and layout is _VERBATIM:
                continues = True
                if name == "OBX" and (
                    (
                        len(text) < _LONGEST_ABBREVIATION
                        and fields[2] not in _REPORTS
                        and self._words.is_abbreviation(text)
                    )
                    or is_measured_value(fields, text, self._marks, self._labels)
                ):
                    self._texts.skip_number()
                else:
                    self._texts.continue_text(text, start, f"{path}-{number}")
            elif (
                (layout is _CODED or layout is _LABEL or layout is _UNIT)
                and name != "PID"
                and len(text) < _LONG
                and plain
                and has_no_text(text, layout, listed.tabled)
            ):
                continue
            elif text and not (offset and number == 2):
                self._fields.read(rule, text, start, f"{path}-{number}")
        if joined is not None and not continues:
            self._texts.end_text()

    def _note_sex(self, name: str, path: str, fields: Sequence[str]) -> None:
        """Remember the sex that a segment gives, by the fields that name its person."""
        sex, relation, names = _PERSON_SEX[name]
        for number, codes in ((sex, _SEX_CODES), (relation, _KINSHIP)):
            text = fields[number] if 0 < number < len(fields) else ""
            if not text:
                continue
            text = text.upper()
            words = (text,) if text.isascii() and text.isalpha() else _NO_CAPITALS.split(text)
            found = next((codes[word] for word in words if word in codes), "")
            if found:
                self._sexes.update({f"{path}-{field}": found for field in names})
                break
        if name == "PID":
            self._sexes[f"{path}-6"] = "female"  # the mother's maiden name

    def _sexes_by_name(self) -> dict[str, str]:
        if not self._sexes:
            return {}
        sites = self._fields.sites
        groups = {site.group for site in sites if (kind := site.kind) is _FAMILY or kind is _GIVEN or kind is _NAME}
        return {group: sex for group in groups if (sex := self._sexes.get(group.partition("[")[0]))}

    def _read_local(self, rule: Hl7Rule, fields: Sequence[str], at: int, start: int, path: str) -> bool:
        """Read field ``at`` of a local segment if it or its neighbors tell what it holds; else False."""
        text, before = fields[at], fields[at - 1] if at > 1 else ""
        if self._fields.read_labelled(before, rule.layout, text, start, path):
            return True
        if self._fields.read_pair(text, start, path):
            return True
        kind = kind_in_address(fields, at)
        if kind is None:
            return False
        self._fields.read(replace(rule, layout=kind, single=kind), text, start, path)
        return True

    def _note_identity(self, fields: Sequence[str], start: int) -> None:
        """Remember the first value of each field that identifies the message."""
        for number in _IDENTIFYING:
            key, index = f"MSH-{number}", number - 1
            if key not in self._first and index < len(fields) and fields[index]:
                at = start + sum(map(len, fields[:index])) + index
                text = split_text(fields[index], self._marks.repetition)[0]
                if value := _read_first_component(self._view, text, at, self._marks):
                    self._first[key] = value

    def _note_patient(self, name: str, fields: Sequence[str], start: int) -> None:
        """Remember the identifiers of the patient: of the first PID that has any, and of MRG."""
        if self._patients and name == "PID":
            return
        for number, rank in _PATIENT[name]:
            if number < len(fields) and fields[number]:
                at = start + sum(map(len, fields[:number])) + number
                codes = self._table.codes
                self._patients += _read_patient_identifiers(self._view, fields[number], at, self._marks, codes, rank)


def _read_first_component(view: Hl7View, text: str, at: int, marks: Separators) -> str:
    """The first component of ``text``, which begins at character ``at`` of ``view``; empty for the HL7 null."""
    for mark in (marks.component, marks.subcomponent):
        text = split_text(text, mark)[0]
    value = unescape_text(view, at, at + len(text), marks).strip()
    return "" if value == NULL else value


def _read_patient_identifiers(
    view: Hl7View, text: str, at: int, marks: Separators, codes: CodeTable, rank: PatientField
) -> list[PatientIdentifier]:
    """The identifiers in the repetitions of a field that names the patient; it begins at character ``at``.

    The layout is that of CX in all versions: value, check digit, its scheme, assigner, type (chapter 2A.2.14; the
    composite of version 2.2 has the same first components).
    """
    found = []
    for repetition in split_text(text, marks.repetition):
        parts = split_text(repetition, marks.component)
        if parts[0] and (value := _read_first_component(view, parts[0], at, marks)):
            assigners = split_text(parts[3], marks.subcomponent) if len(parts) > 3 and parts[3] else ()
            code = parts[4].strip().upper() if len(parts) > 4 else ""
            kind = codes.idtype.get(code) or (hinted_type(Hl7Kind.AUTHORITY, assigners, codes) if assigners else None)
            code, kind = "" if code == NULL else code, kind or PhiType.MEDICALRECORD
            found.append(PatientIdentifier(value, code, tuple(assigners), kind, rank))
        at += len(repetition) + 1
    return found
