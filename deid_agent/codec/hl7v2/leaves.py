"""Every value of a message with the bytes it stands for, kept ones too: what the leak guard reads."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.escape import unescape
from deid_agent.codec.hl7v2.table import Leaf, Part, Rule, Table
from deid_agent.codec.hl7v2.values import is_local
from deid_agent.codec.hl7v2.wire import Range, Segment, Separators, separators, split
from deid_agent.mapped import MappedText
from deid_agent.sites import Narrative, Role

_SYSTEM = {1: 3, 2: 3, 4: 6, 5: 6, 10: 12, 11: 12}
"""CWE: the component that names the code system of a code or a text (HL7 v2.8.2 chapter 2A.2.12)."""
_PARTIES = range(3, 7)
"""MSH-3 to MSH-6: applications and facilities."""
_CODES = frozenset({Leaf.IDTYPE, Leaf.EQUIPMENT, Leaf.USE})
_NAMES = frozenset({Leaf.KEEP, Leaf.AUTHORITY, Leaf.ROOM})
_CODED = frozenset({Leaf.CODED, Leaf.UNIT, Leaf.VARIES, Leaf.KEEP})
_TEXTS: frozenset[Part] = frozenset({Leaf.TEXT, Leaf.VERBATIM, (Leaf.CODE,), (Leaf.NUMBER,)})
_LABELS = frozenset({2, 5, 11})
_SYSTEMS = frozenset({3, 6, 7, 8, 12})


def leaves(table: Table, view: View, lines: Sequence[Segment], offset: int) -> Iterator[Narrative]:
    """The leaves of one message whose bytes begin at byte ``offset`` of the payload.

    A coded value with a code system that is not its sender's own is CODE and LABEL, what the table keeps is LABEL,
    headers but for the parties are CODE; MSH, FHS and BHS 1 and 2 are left out; all else is TEXT.
    """
    seen: Counter[str] = Counter()
    marks = Separators("|", "^", "~", "\\", "&")
    for number, line in enumerate(lines, start=1):
        if line.header:
            marks = separators(view.text, line)
        fields = split(view.text, line.start, line.end, marks.field)
        name = view.text[slice(*fields[0])]
        if len(name) == 3 and name.isascii() and name.isalnum():
            seen[name] += 1
            path = name if seen[name] == 1 else f"{name}({seen[name]})"
            rules, rest = table.rules(name.upper())
            first = 2 if line.header else 1
        else:  # broken text: nothing of it is a name
            path, rules, rest, first = f"line({number})", (), None, 0
        shift = 1 if line.header else 0
        for index in range(first, len(fields)):
            a, b = fields[index]
            if b - a < 2:  # one character names nobody
                continue
            order = index + shift
            rule = rules[order - 1] if 0 < order <= len(rules) else rest
            header = bool(line.header) and order not in _PARTIES
            for repetition, piece in enumerate(split(view.text, a, b, marks.repetition), start=1):
                where = f"{path}-{order}[{repetition}]"
                for leaf in _repetition(table, view, piece, marks, rule, where, offset):
                    yield Narrative(leaf.path, leaf.mapped, Role.CODE) if header else leaf


def _repetition(
    table: Table, view: View, piece: Range, marks: Separators, rule: Rule | None, path: str, offset: int
) -> Iterator[Narrative]:
    components = split(view.text, *piece, marks.component)
    coded = False
    if rule is not None and len(components) > 2:
        named = rule.part in _TEXTS and table.codes.system(view.text[slice(*components[2])])
        coded = named or rule.part in _CODED
    for number, (a, b) in enumerate(components, start=1):
        if b - a < 2:
            continue
        role = _role(view, components, number) if coded else _kept(rule, number)
        inner = split(view.text, a, b, marks.subcomponent)
        for order, (x, y) in enumerate(inner, start=1):
            if x < y:
                where = f"{path}.{number}" if len(inner) == 1 else f"{path}.{number}.{order}"
                yield Narrative(where, _mapped(view, x, y, marks, offset), role)


def _role(view: View, components: Sequence[Range], number: int) -> Role:
    """What a component of a coded value is; without a code system, or in its sender's own, a text like any other."""
    if number in _SYSTEMS:
        return Role.CODE
    system = _SYSTEM.get(number)
    if system is None or system > len(components) or is_local(view.text[slice(*components[system - 1])]):
        return Role.TEXT
    return Role.LABEL if number in _LABELS else Role.CODE


def _kept(rule: Rule | None, number: int) -> Role:
    """What a component outside of coded values is; of a person's name the kept parts are read as text."""
    if rule is None or rule.person or not isinstance(rule.part, tuple) or number > len(rule.part):
        return Role.TEXT
    part = rule.part[number - 1]
    if part in _CODES:
        return Role.CODE
    return Role.LABEL if part in _NAMES or isinstance(part, tuple) else Role.TEXT


def _mapped(view: View, a: int, b: int, marks: Separators, offset: int) -> MappedText:
    if view.plain and marks.escape not in (text := view.text[a:b]):
        return MappedText(text, range(a + offset, b + offset), range(a + offset + 1, b + offset + 1))
    chunk = unescape(view, a, b, marks)
    return MappedText(chunk.text, _moved(chunk.starts, offset), _moved(chunk.ends, offset))


def _moved(places: Sequence[int], offset: int) -> Sequence[int]:
    if not offset:
        return places
    if isinstance(places, range):
        return range(places.start + offset, places.stop + offset)
    return array("Q", (at + offset for at in places))
