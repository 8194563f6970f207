"""One pass over the tokens of a C-CDA document: what stands where, and whose it is."""

from collections.abc import Callable

from deid_agent.codec.cda import embedded
from deid_agent.codec.cda.sink import Frame, Leaves, Sink, Value
from deid_agent.codec.cda.table import Do, Treatment, Whose
from deid_agent.codec.cda.values import TREATMENTS, identifier_type
from deid_agent.codec.markup.charset import View
from deid_agent.codec.markup.reading import Attribute, MarkupText, attributes_of, read, value_of
from deid_agent.codec.markup.xml import Part, Token, tokens
from deid_agent.codec.places import part
from deid_agent.errors import MessageError, Reason
from deid_agent.sites import Role

MAX_ATTRIBUTES = 2_000_000
_UNKNOWN = "?"
_COMPOSITES = frozenset({"name", "addr"})
_ROLES = {Do.CODE: Role.CODE, Do.LABEL: Role.LABEL, Do.KEY: Role.KEY}
_IN_BLOCKS = frozenset({Do.CODE, Do.LABEL, Do.KEY, Do.KEEP, Do.LINK, Do.ADDRESS, Do.CONTACT})


class Walk:
    """Walks one document that is well-formed; used once. With ``leaves`` it collects all texts there and no sites."""

    def __init__(self, sink: Sink, leaves: Leaves | None = None) -> None:
        self._sink = sink
        self._table = sink.table
        self._view: View = sink.view
        self._leaves = leaves
        self._open: list[Frame] = []
        self._block = 0  # open tags inside of a block, the block's own included
        self._attributes = 0

    def run(self) -> None:
        """Raises ``MessageError(RESOURCE)`` past the bounds."""
        steps: dict[Part, Callable[[Token], None]] = {
            Part.START: self._start,
            Part.EMPTY: self._start,
            Part.END: self._end,
            Part.TEXT: self._text,
            Part.CDATA: self._text,
            Part.COMMENT: self._aside,
            Part.INSTRUCTION: self._aside,
        }
        for token in tokens(self._view):
            steps[token.part](token)

    def _start(self, token: Token) -> None:
        if self._block:
            self._block += token.part is Part.START
            return
        frame = self._frame(token)
        if self._open:
            self._open[-1].mixed = True
        for attribute in attributes_of(self._view.text, token.first, token.last, frame.name):
            self._attributes += 1
            frame.attributes[attribute.name] = attribute
        if self._attributes > MAX_ATTRIBUTES:
            raise MessageError(Reason.RESOURCE, f"byte {self._view.starts[token.start]}", "too many attributes")
        frame.whose = self._whose(frame)
        for attribute in frame.attributes.values():
            self._attribute(attribute, frame)
        self._note(frame)
        if token.part is Part.EMPTY:
            return
        self._open.append(frame)
        if embedded.is_document(frame):
            frame.runs = []
        elif self._table.text(frame.parent_name, frame.name).do is Do.BLOCK:
            frame.content = token.end
            self._block = 1

    def _end(self, token: Token) -> None:
        if self._block > 1:
            self._block -= 1
            return
        frame = self._open.pop()
        if self._block:
            self._block = 0
            self._read_block(frame, token.start)
        elif frame.runs is not None and not embedded.take(frame, self._sink, leaves=self._leaves is not None):
            for run in frame.runs:
                self._value(frame, run, Treatment(Do.TEXT))

    def _text(self, token: Token) -> None:
        if self._block or self._view.text[token.first : token.last].isspace() or token.first == token.last:
            return
        frame = self._open[-1] if self._open else Frame("", "", None)
        if frame.runs is not None:
            frame.runs.append(token)
            return
        self._value(frame, token, self._table.text(frame.parent_name, frame.name))

    def _value(self, frame: Frame, token: Token, treatment: Treatment) -> None:
        first, last = token.first, token.last
        starts, ends = self._view.starts, self._view.ends
        text = self._view.text[first:last]
        mapped: MarkupText
        if token.part is Part.CDATA and treatment.do not in {Do.TEXT, Do.BLOCK}:
            mapped = _whole(text, starts[token.start], ends[token.end - 1])
        elif token.part is Part.CDATA:
            mapped = MarkupText(text, part(starts, first, last), part(ends, first, last))
        else:
            mapped = value_of(text, starts, ends, offset=first)
        if self._leaves is not None:
            self._leaves.add(frame.path, mapped, Role.TEXT)
        else:
            TREATMENTS[treatment.do](Value(self._sink, mapped, frame.path, frame), treatment)

    def _aside(self, token: Token) -> None:
        """A comment or an instruction: people leave names there."""
        if self._block or token.first == token.last:
            return
        path = f"{self._open[-1].path if self._open else ''}/{'comment' if token.part is Part.COMMENT else 'pi'}()"
        span = token.first, token.last
        starts, ends = part(self._view.starts, *span), part(self._view.ends, *span)
        mapped = MarkupText(self._view.text[slice(*span)], starts, ends, comments=(starts[0],))
        if self._leaves is not None:
            self._leaves.add(path, mapped, Role.TEXT)
        else:
            self._sink.text(path, mapped)

    def _read_block(self, frame: Frame, end: int) -> None:
        first = frame.content
        view = self._view
        mapped, attributes = read(view.text[first:end], view.starts, view.ends, offset=first, inline=self._table.inline)
        if self._leaves is not None:
            self._leaves.add(frame.path, mapped, Role.TEXT)
        else:
            self._sink.text(frame.path, mapped)
        for each in attributes:
            treatment = self._table.attribute(each.element, each.name)
            if treatment.do not in _IN_BLOCKS:
                treatment = Treatment(Do.TEXT)
            at = Attribute(each.name, first + each.start, first + each.end, each.value, each.element)
            self._attribute(at, frame, treatment)

    def _attribute(self, attribute: Attribute, frame: Frame, treatment: Treatment | None = None) -> None:
        if not attribute.value:
            return
        treatment = treatment or self._table.attribute(frame.name, attribute.name)
        known = self._table.knows_attribute(attribute.name)
        if treatment.do in {Do.KEY, Do.KEEP, Do.LABEL} and self._leaves is None:
            return
        path = f"{frame.path}/@{attribute.name if known else _UNKNOWN}"
        mapped = value_of(attribute.value, self._view.starts, self._view.ends, offset=attribute.start)
        if self._leaves is None:
            TREATMENTS[treatment.do](Value(self._sink, mapped, path, frame), treatment)
            return
        role = _ROLES.get(treatment.do, Role.TEXT)
        if treatment.do in {Do.LINK, Do.ADDRESS} and attribute.value.startswith("#"):
            role = Role.KEY
        if attribute.name != "displayName" or "codeSystem" in frame.attributes:
            self._leaves.add(path, mapped, role)
        else:
            self._leaves.add(path, mapped, Role.TEXT)

    def _frame(self, token: Token) -> Frame:
        parent = self._open[-1] if self._open else None
        name = token.name.rpartition(":")[2]
        shown = name if name in self._table.names else _UNKNOWN
        if parent is None:
            return Frame(name, shown, None)
        count = parent.counts[shown] = parent.counts.get(shown, 0) + 1
        path = f"{parent.path}/{shown}" if count == 1 else f"{parent.path}/{shown}[{count}]"
        return Frame(name, path, parent, parent.whose, parent.group or (path if name in _COMPOSITES else ""))

    def _whose(self, frame: Frame) -> Whose:
        inherited = frame.parent.whose if frame.parent else Whose.OTHER
        by_class = self._table.whose.get(f"{frame.name}@{frame.value('classCode')}")
        found = by_class or self._table.whose.get(frame.name)
        return found or inherited

    def _note(self, frame: Frame) -> None:
        """The document's own identifier, and those of the patient."""
        if frame.name != "id" or frame.parent is None:
            return
        root, extension = frame.value("root"), frame.value("extension")
        if frame.parent.name == "ClinicalDocument" and (root or extension) and not self._sink.document:
            self._sink.document = f"{root}^{extension}"
        if frame.parent.name == "patientRole" and (extension or root) and "nullFlavor" not in frame.attributes:
            empty = MarkupText("", (), ())
            type_ = identifier_type(Value(self._sink, empty, frame.path, frame))
            self._sink.patients.append((type_, extension or root))


def _whole(text: str, start: int, end: int) -> MarkupText:
    """A CDATA section that is one value: written as ordinary text, in place of its marks too."""
    return MarkupText(text, [start] * len(text), [end] * len(text))
