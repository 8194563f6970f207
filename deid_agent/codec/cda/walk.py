"""C-CDA: one pass over the tokens of a well-formed document, to its sites and narratives or to its leaves."""

from collections.abc import Callable

from deid_agent.codec.base import find_labelled_cells, markup_rows
from deid_agent.codec.cda.sink import (
    CdaFrame,
    CdaLeaves,
    CdaSink,
    CdaValue,
    may_hold_document,
    placeholder_for,
    take_document,
)
from deid_agent.codec.cda.table import CdaAction, CdaEntity, CdaTreatment
from deid_agent.codec.cda.values import HANDLERS, describe, identifier_type, take_folders
from deid_agent.codec.charsets import slice_offsets
from deid_agent.codec.dates import has_date, is_whole_date
from deid_agent.codec.labels import AGE_PLACEHOLDER, Labels, has_identity_cue
from deid_agent.codec.markup.document import (
    MarkupView,
    XmlPart,
    XmlToken,
    iter_tokens,
)
from deid_agent.codec.markup.elements import NameLeaves, binds_namespace, names_schemas, read_attribute, read_space
from deid_agent.codec.markup.readable import Attribute, MarkupText, iter_attributes, read_markup, read_value
from deid_agent.model import (
    LeafRole,
    MessageError,
    PatientIdentifier,
    PhiType,
    Reason,
    Site,
)

MAX_ATTRIBUTES = 2_000_000
_UNKNOWN = "?"
_COMPOSITES = frozenset({"name", "addr"})
_ROLES = {CdaAction.CODE: LeafRole.CODE, CdaAction.LABEL: LeafRole.LABEL, CdaAction.KEY: LeafRole.KEY}
_IN_BLOCKS = frozenset(
    {
        CdaAction.CODE,
        CdaAction.LABEL,
        CdaAction.KEY,
        CdaAction.KEEP,
        CdaAction.LINK,
        CdaAction.ADDRESS,
        CdaAction.CONTACT,
    }
)
"""Actions that apply to attributes inside a narrative block; with any other action the attribute is text."""
_SEXES = {"F": "female", "M": "male"}
"""administrativeGenderCode (HL7 v3 AdministrativeGender)."""
_TEXT = CdaTreatment(CdaAction.TEXT)
_FORMAL = frozenset({CdaAction.CODE, CdaAction.KEY})
_KEPT_ACTIONS = frozenset({CdaAction.KEY, CdaAction.KEEP, CdaAction.LABEL})
_LABELS = frozenset({"code", "translation"})
_CODED = frozenset({"code", "displayName"})
_IN_VALUE = frozenset({"low", "high", "center", "originalText", "translation", "numerator", "denominator"})
_LABELLED_ATTRIBUTES = frozenset({"", "value", "displayName", "code", "extension"})
_TYPE = "xsi:type"
_YEARS = frozenset({"a", "yr", "y", "year", "years"})


class CdaWalk:
    """One pass over the tokens of a well-formed document; used once.

    With ``leaves`` it collects the leaves there and no sites.
    """

    def __init__(self, sink: CdaSink, labels: Labels, leaves: CdaLeaves | None = None) -> None:
        self._sink = sink
        self._labels = labels
        self._table = sink.table
        self._view: MarkupView = sink.view
        self._leaves = leaves
        self._open: list[CdaFrame] = []
        self._block = 0  # open tags inside a narrative block, including the tag of the block
        self._attributes = 0
        self._names = NameLeaves(self._view)

    def run(self) -> None:
        """Walk the document. Raises ``MessageError(RESOURCE)`` past the bounds."""
        steps: dict[XmlPart, Callable[[XmlToken], None]] = {
            XmlPart.START: self._start,
            XmlPart.EMPTY: self._start,
            XmlPart.END: self._end,
            XmlPart.TEXT: self._text,
            XmlPart.CDATA: self._text,
            XmlPart.COMMENT: self._comment,
            XmlPart.INSTRUCTION: self._comment,
        }
        for token in iter_tokens(self._view):
            steps[token.part](token)
        if self._leaves is not None:
            self._names.note_declaration()
            self._leaves.found += self._names.found

    def _start(self, token: XmlToken) -> None:
        if self._leaves is not None and token.name not in self._table.names:
            prefix, _, name = token.name.rpartition(":")
            self._names.note_prefix(token.name, token.start + 1)
            self._names.note(name, token.start + 1 + (len(prefix) + 1 if prefix else 0), self._table.names)
        if self._block:
            self._block += token.part is XmlPart.START
            return
        frame = self._make_frame(token)
        if self._open:
            self._open[-1].mixed = True
        for attribute in iter_attributes(self._view.text, token.first, token.last, frame.name):
            self._attributes += 1
            frame.attributes[attribute.name] = attribute
        if self._attributes > MAX_ATTRIBUTES:
            raise MessageError(Reason.RESOURCE, f"byte {self._view.starts[token.start]}", "too many attributes")
        frame.entity = self._entity_of(frame)
        if frame.name in _LABELS and self._leaves is None:
            self._note_label(frame, frame.value("displayName"))
        for attribute in frame.attributes.values():
            self._attribute(attribute, frame)
        self._note_identifier(frame)
        if frame.name == "administrativeGenderCode" and (sex := _SEXES.get(frame.value("code"))):
            self._sink.sexes[frame.parent.path if frame.parent else ""] = sex
        if token.part is XmlPart.EMPTY:
            return
        self._open.append(frame)
        if may_hold_document(frame):
            frame.runs = []
        elif self._table.text(frame.parent_name, frame.name).action is CdaAction.BLOCK:
            frame.content = token.end
            self._block = 1

    def _end(self, token: XmlToken) -> None:
        if self._block > 1:
            self._block -= 1
            return
        frame = self._open.pop()
        if self._block:
            self._block = 0
            self._read_block(frame, token.start)
        elif frame.runs is not None and not take_document(frame, self._sink, leaves=self._leaves is not None):
            for run in frame.runs:
                self._value(frame, run, _TEXT)

    def _text(self, token: XmlToken) -> None:
        if self._block or self._view.text[token.first : token.last].isspace() or token.first == token.last:
            return
        frame = self._open[-1] if self._open else CdaFrame("", "", None)
        if frame.runs is not None:
            frame.runs.append(token)
            return
        self._value(frame, token, self._table.text(frame.parent_name, frame.name))

    def _value(self, frame: CdaFrame, token: XmlToken, treatment: CdaTreatment) -> None:
        first, last = token.first, token.last
        starts, ends = self._view.starts, self._view.ends
        text = self._view.text[first:last]
        mapped: MarkupText
        if token.part is XmlPart.CDATA and treatment.action not in {CdaAction.TEXT, CdaAction.BLOCK}:
            # A section that is one value: its replacement is ordinary text in place of the section and its marks.
            start, end = starts[token.start], ends[token.end - 1]
            mapped = MarkupText(text, [start] * len(text), [end] * len(text))
        elif token.part is XmlPart.CDATA:
            mapped = MarkupText(text, slice_offsets(starts, first, last), slice_offsets(ends, first, last))
        else:
            mapped = read_value(text, starts, ends, offset=first)
        if self._leaves is not None:
            self._leaves.add(frame.path, mapped, LeafRole.TEXT)
        elif not self._take_labelled(CdaValue(self._sink, mapped, frame.path, frame), ""):
            HANDLERS[treatment.action](CdaValue(self._sink, mapped, frame.path, frame), treatment)

    def _comment(self, token: XmlToken) -> None:
        """A comment or a processing instruction: people leave names there."""
        if token.part is XmlPart.INSTRUCTION and self._leaves is not None:
            self._names.note_instruction(token, self._table.names)
        if self._block or token.first == token.last:
            return
        path = f"{self._open[-1].path if self._open else ''}/{'comment' if token.part is XmlPart.COMMENT else 'pi'}()"
        span = token.first, token.last
        starts, ends = slice_offsets(self._view.starts, *span), slice_offsets(self._view.ends, *span)
        mapped = MarkupText(self._view.text[slice(*span)], starts, ends, comments=(starts[0],))
        if self._leaves is not None:
            self._leaves.add(path, mapped, LeafRole.TEXT)
        else:
            self._sink.add_text(path, mapped)

    def _read_block(self, frame: CdaFrame, end: int) -> None:
        first = frame.content
        view = self._view
        mapped, attributes = read_markup(
            view.text[first:end], view.starts, view.ends, offset=first, inline=self._table.inline
        )
        if self._leaves is not None:
            self._leaves.add(frame.path, mapped, LeafRole.TEXT)
        elif frame.name == "originalText" and frame.parent is not None and frame.parent.name in _LABELS:
            self._note_label(frame.parent, mapped.text)
            self._sink.add_text(frame.path, mapped)
        elif frame.name == "desc" and frame.entity is not CdaEntity.PRODUCT and not attributes:
            describe(CdaValue(self._sink, mapped, frame.path, frame))
        elif (
            attributes
            or "<" in view.text[first:end]
            or not self._take_labelled(CdaValue(self._sink, mapped, frame.path, frame), "")
        ):
            self._read_tables(frame, mapped, end)
        for each in attributes:
            treatment = self._table.attribute(each.element, each.name)
            if treatment.action not in _IN_BLOCKS:
                treatment = _TEXT
            attribute = Attribute(each.name, first + each.start, first + each.end, each.value, each.element)
            self._attribute(attribute, frame, treatment)

    def _read_tables(self, frame: CdaFrame, mapped: MarkupText, end: int) -> None:
        """A narrative block. The cells of its tables that a column or a neighbor labels are sites, the rest is text."""
        view, first = self._view, frame.content
        rows = markup_rows(view.text[first:end])
        cells = list(find_labelled_cells(self._labels, rows))
        if not cells:
            self._sink.add_text(frame.path, mapped)
            return
        at = first
        for found in cells:
            a, b = first + found.cell.start, first + found.cell.end
            self._add_markup(frame, at, a)
            if found.type is not None:
                blank = found.blank or placeholder_for(found.type, found.cell.text)
                value, group = found.cell.text, f"{frame.path}@{a}"
                span, subject = view.span(a, b), found.subject
                self._sink.sites.append(Site(frame.path, *span, found.type, found.kind, subject, group, value, blank))
            at = b
        self._add_markup(frame, at, end)

    def _add_markup(self, frame: CdaFrame, first: int, end: int) -> None:
        view, inline = self._view, self._table.inline
        mapped, _ = read_markup(view.text[first:end], view.starts, view.ends, offset=first, inline=inline)
        self._sink.add_text(frame.path, mapped)

    def _note_label(self, frame: CdaFrame, text: str) -> None:
        """Remember the identity that the code of an observation names."""
        above = frame.parent if frame.name == "code" else frame.parent.parent if frame.parent else None
        if above is not None and above.meaning is None:
            above.meaning = self._labels.of_observation((text, frame.value("code")), (frame.value("code"),))
        if above is not None and any(map(self._table.labels_of_birth.is_birth, (text, frame.value("code")))):
            above.born = True

    def _take_labelled(self, item: CdaValue, attribute: str) -> bool:
        """Read a value of an observation whose code names an identity; False if it does not have the form of one."""
        frame: CdaFrame | None = item.frame
        while frame is not None and frame.name != "value" and frame.name in _IN_VALUE:
            frame = frame.parent
        if frame is None or frame.name != "value" or frame.parent is None or frame.parent.meaning is None:
            return False
        own, meaning = item.frame, frame.parent.meaning
        if attribute not in _LABELLED_ATTRIBUTES or (
            attribute == "code" and self._table.is_public(own.value("codeSystem"))
        ):
            return False
        unit = own.value("unit").lower()
        if unit not in _YEARS and not (unit in {"", "1"} and attribute in {"value", "", "code", "displayName"}):
            return False
        judged = self._labels.judge(meaning, item.text)
        if judged is None or (unit in _YEARS - {""} and judged[0] is not PhiType.AGE):
            return False
        blank = AGE_PLACEHOLDER if judged[0] is PhiType.AGE else None
        item.site(judged[0], kind=judged[1], subject=meaning.subject, blank=blank)
        return True

    def _attribute(self, attribute: Attribute, frame: CdaFrame, treatment: CdaTreatment | None = None) -> None:
        usual, known, keeps_date = self._table.read_attribute(frame.name, attribute.name)
        path = f"{frame.path}/@{attribute.name if known else _UNKNOWN}"
        if self._leaves is not None and not known:
            self._names.note_attribute(attribute, known=self._table.has_attribute(attribute.name))
        if self._take_space(attribute, frame, path) or not attribute.value:
            return
        treatment = treatment or usual
        public = attribute.name in _CODED and self._table.is_public(frame.value("codeSystem"))
        versioned = keeps_date and is_whole_date(attribute.value.strip())
        if treatment.action in _KEPT_ACTIONS and self._leaves is None:
            coded = treatment.action is CdaAction.LABEL and attribute.name == "displayName" and not public
            dated = has_date(attribute.value)
            if versioned or not (coded or dated or self._identifies(attribute.value, public=public)):
                return
            treatment = treatment if treatment.action is CdaAction.KEY and " " not in attribute.value else _TEXT
        elif versioned and self._leaves is None:
            return
        mapped = read_value(attribute.value, self._view.starts, self._view.ends, offset=attribute.start)
        if self._leaves is None:
            item = CdaValue(self._sink, mapped, path, frame)
            fixed = versioned or (attribute.name == "code" and public)
            if treatment.action in _FORMAL and not fixed and item.take_dates():
                return
            if not self._take_labelled(item, attribute.name):
                HANDLERS[treatment.action](item, treatment)
            return
        has_prefix = attribute.name == _TYPE and ":" in attribute.value
        role = LeafRole.KEY if has_prefix else _ROLES.get(treatment.action, LeafRole.TEXT)
        if treatment.action in {CdaAction.LINK, CdaAction.ADDRESS} and attribute.value.startswith("#"):
            role = LeafRole.KEY
        if attribute.name != "displayName" or public:
            self._leaves.add(path, mapped, role)
        else:
            self._leaves.add(path, mapped, LeafRole.TEXT)

    def _take_space(self, attribute: Attribute, frame: CdaFrame, path: str) -> bool:
        """Read a namespace or the addresses of schemas; False if the value is another one, or is read as any other."""
        schemas = names_schemas(attribute.name)
        if self._leaves is None:
            return schemas and take_folders(CdaValue(self._sink, read_attribute(self._view, attribute), path, frame))
        if not (schemas or binds_namespace(attribute.name)):
            return False
        self._leaves.found += read_space(self._view, attribute)
        return True

    def _identifies(self, value: str, *, public: bool) -> bool:
        """True for a kept value with an identifier or a name in it; the text of a public code has neither."""
        return has_identity_cue(value) if public else not self._table.people.is_plain_label(value)

    def _make_frame(self, token: XmlToken) -> CdaFrame:
        parent = self._open[-1] if self._open else None
        name = token.name.rpartition(":")[2]
        shown = name if name in self._table.names else _UNKNOWN
        if parent is None:
            return CdaFrame(name, shown, None)
        count = parent.counts[shown] = parent.counts.get(shown, 0) + 1
        path = f"{parent.path}/{shown}" if count == 1 else f"{parent.path}/{shown}[{count}]"
        return CdaFrame(name, path, parent, parent.entity, parent.group or (path if name in _COMPOSITES else ""))

    def _entity_of(self, frame: CdaFrame) -> CdaEntity:
        inherited = frame.parent.entity if frame.parent else CdaEntity.OTHER
        by_class = self._table.entities.get(f"{frame.name}@{frame.value('classCode')}")
        found = by_class or self._table.entities.get(frame.name)
        return found or inherited

    def _note_identifier(self, frame: CdaFrame) -> None:
        """Remember the identifier of the document, and those of the patient."""
        if frame.name != "id" or frame.parent is None:
            return
        root, extension = frame.value("root"), frame.value("extension")
        if frame.parent.name == "ClinicalDocument" and (root or extension) and not self._sink.document:
            self._sink.document = f"{root}^{extension}"
        if frame.parent.name == "patientRole" and (extension or root) and "nullFlavor" not in frame.attributes:
            empty = MarkupText("", (), ())
            type_ = identifier_type(CdaValue(self._sink, empty, frame.path, frame))
            assigners = tuple(filter(None, (root, frame.value("assigningAuthorityName"))))
            self._sink.patients.append(PatientIdentifier(extension or root, "", assigners, type_))
