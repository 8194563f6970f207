"""The values of an HL7 v2 message that an allow-list policy does not publish.

An unlisted field, component or subcomponent becomes empty. A segment of which nothing is listed keeps its name and one
field separator. A line without a known segment name is removed.

The frame is always kept, because the message cannot be read without it: the separators, the time, type, id, processing
id, version and charset of the message, and the type of an observation (OBX-2).
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from deid_agent.codec.hl7v2.charset import Hl7View
from deid_agent.codec.hl7v2.structure import (
    DEFAULT_SEPARATORS,
    HEADERS,
    Hl7Segment,
    Range,
    Separators,
    parse_separators,
    split_range,
)
from deid_agent.codec.hl7v2.table import Hl7Table
from deid_agent.model import Dropped, PublishedPaths

_FRAME = frozenset(
    {"FHS-2", "BHS-2", "MSH-2", "MSH-7.1", "MSH-9.1", "MSH-9.2", "MSH-9.3"}
    | {"MSH-10.1", "MSH-11.1", "MSH-11.2", "MSH-12.1", "MSH-18"}
)
_VALUE_TYPE = re.compile(r"[A-Z]{2,3}")
_OBSERVATION, _TYPE = "OBX", 2


def find_unlisted(
    table: Hl7Table, view: Hl7View, lines: Sequence[Hl7Segment], listed: PublishedPaths
) -> Iterator[Dropped]:
    """The ranges of one message that are not published, in order."""
    marks, listed = DEFAULT_SEPARATORS, _with_frame(listed)
    for line in lines:
        if line.header:
            marks = parse_separators(view.text, line)
        fields = split_range(view.text, line.start, line.end, marks.field)
        name = view.text[slice(*fields[0])].upper()
        known = table.knows(name) and name != "ADD" and (line.header or name not in HEADERS)
        if not known and not (listed.leads(name) and len(name) == 3):
            yield _drop(view, "?", line.start, _end_with_terminator(view.text, line.end))
        elif not listed.leads(name) and not line.header:
            first = fields[0][1] + 1
            if first < line.end:
                yield _drop(view, name, first, line.end)
        else:
            yield from _of_fields(view, name, fields, marks, listed, offset=1 if line.header else 0)


@lru_cache(maxsize=8)
def _with_frame(listed: PublishedPaths) -> PublishedPaths:
    """The listed paths, and those without which no message can be read."""
    return PublishedPaths(listed.paths | _FRAME)


def _of_fields(
    view: Hl7View, name: str, fields: Sequence[Range], marks: Separators, listed: PublishedPaths, *, offset: int
) -> Iterator[Dropped]:
    type_ = view.text[slice(*fields[_TYPE])] if name == _OBSERVATION and len(fields) > _TYPE else ""
    is_type = _VALUE_TYPE.fullmatch(type_) is not None
    for index, (start, end) in enumerate(fields[1:], start=1):
        path = f"{name}-{index + offset}"
        if start == end or (is_type and index == _TYPE):
            continue
        paths = (path, f"{name}({type_})-{index}") if is_type else (path,)
        if not any(map(listed.lists, paths)):
            yield from _of_field(view, (start, end), marks, listed, paths)


def _of_field(
    view: Hl7View, field: Range, marks: Separators, listed: PublishedPaths, paths: Sequence[str]
) -> Iterator[Dropped]:
    """A field that is not listed as a whole: some of its components may be."""
    if not any(map(listed.leads, paths)):
        yield _drop(view, paths[0], *field)
        return
    for repetition in split_range(view.text, *field, marks.repetition):
        for number, component in enumerate(split_range(view.text, *repetition, marks.component), start=1):
            below = [f"{path}.{number}" for path in paths]
            if component[0] == component[1] or any(map(listed.lists, below)):
                continue
            if not any(map(listed.leads, below)):
                yield _drop(view, below[0], *component)
                continue
            for order, part in enumerate(split_range(view.text, *component, marks.subcomponent), start=1):
                if part[0] < part[1] and not any(listed.lists(f"{path}.{order}") for path in below):
                    yield _drop(view, f"{below[0]}.{order}", *part)


def _drop(view: Hl7View, path: str, start: int, end: int) -> Dropped:
    return Dropped(path, *view.span(start, end))


def _end_with_terminator(text: str, end: int) -> int:
    if text.startswith("\r\n", end):
        return end + 2
    return end + (text[end : end + 1] in {"\r", "\n"})
