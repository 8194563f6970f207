"""XML read by expat alone, for tests that are independent of the codecs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat


@dataclass(slots=True)
class Element:
    """An element: its path (local names, ``[2]`` for the second of its name), its content and its ancestors."""

    path: str
    name: str
    above: tuple[str, ...]
    attributes: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=lambda: [""])
    """The text before each child, comment and instruction, and after the last."""
    asides: list[str] = field(default_factory=list)
    """Comments and instructions."""
    counts: dict[str, int] = field(default_factory=dict)


def elements(raw: bytes) -> list[Element]:
    """All elements in the order of their start tags; one without a name has the content outside the root."""
    outside = Element("", "", ())
    found, stack = [outside], [outside]

    def start(name: str, attributes: dict[str, str]) -> None:
        parent, local = stack[-1], name.rpartition(":")[2]
        count = parent.counts[local] = parent.counts.get(local, 0) + 1
        path = "/".join(filter(None, (parent.path, local if count == 1 else f"{local}[{count}]")))
        parent.texts.append("")
        element = Element(path, local, (*parent.above, parent.name), attributes)
        found.append(element)
        stack.append(element)

    def text(data: str) -> None:
        stack[-1].texts[-1] += data

    def aside(data: str) -> None:
        stack[-1].asides.append(data)
        stack[-1].texts.append("")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.CharacterDataHandler = text
    parser.CommentHandler = aside
    parser.ProcessingInstructionHandler = lambda target, data: aside(f"{target} {data}")
    parser.Parse(raw, True)
    return found


def iter_leaves(element: Element) -> Iterator[tuple[str, str]]:
    """Path and text of all texts, comments and attributes of one element, without its children."""
    for number, text in enumerate(element.texts):
        yield f"{element.path}/text({number})", text
    for number, text in enumerate(element.asides):
        yield f"{element.path}/comment({number})", text
    for name, value in element.attributes.items():
        yield f"{element.path}/@{name}", value
