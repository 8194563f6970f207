"""Fragments of a message as one text: lines of a report over many OBX, repetitions, text components."""

from array import array
from collections.abc import Sequence

from deid_agent.codec.hl7v2.charset import View
from deid_agent.codec.hl7v2.escape import unescape
from deid_agent.codec.hl7v2.wire import Range, Separators
from deid_agent.mapped import MappedText

NULL = '""'


def join(view: View, fragments: Sequence[Range], marks: Separators) -> MappedText | None:
    """The fragments as lines of one text; the breaks between them are joints without bytes.

    None where there is nothing to read. Memory is 16 bytes a character, and none for one plain fragment.
    """
    if len(fragments) == 1:
        a, b = fragments[0]
        own = view.text[a:b]
        if own.isascii() and view.starts is None and marks.escape and marks.escape not in own and own != NULL:
            return MappedText(own, range(a, b), range(a + 1, b + 1)) if own.strip() else None
        view.span(a, b)
        chunk = unescape(view, a, a if own == NULL else b, marks)
        return MappedText(chunk.text, chunk.starts, chunk.ends) if chunk.text.strip() else None
    chunks = []
    for a, b in fragments:
        view.span(a, b)
        end = a if view.text[a:b] == NULL else b
        chunks.append((view.span(a, a)[0], unescape(view, a, end, marks)))
    if not any(chunk.text.strip() for _, chunk in chunks):
        return None
    text: list[str] = []
    starts, ends, joints, length = array("Q"), array("Q"), [], 0
    for number, (at, chunk) in enumerate(chunks):
        if number:
            text.append("\n")
            starts.append(at)
            ends.append(at)
            joints.append(length)
            length += 1
        text.append(chunk.text)
        starts.extend(chunk.starts)
        ends.extend(chunk.ends)
        length += len(chunk.text)
    return MappedText("".join(text), starts, ends, frozenset(joints))
