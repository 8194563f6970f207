"""brat stand-off: ``NAME.txt`` with ``NAME.ann`` beside it.

    T1<TAB>PATIENT 5 8;9 14<TAB>Ann Quill

Offsets count characters of the text file with its line ends as they are. Fragments with only white space between them
are one span (brat divides what a line end divides); others are refused, since no span of ours has a hole. Lines that
do not begin with T (relations, events, notes) say nothing of places and are passed over.
Source: brat.nlplab.org/standoff.html.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from deid_agent.errors import ConfigurationError
from deid_agent.eval.labels import type_of
from deid_agent.eval.markup import Note
from deid_agent.markup import Annotated
from deid_agent.spans import Span, in_order


def read_brat(folder: Path) -> Iterator[Note]:
    """Every text that has annotations beside it, by name; each is a patient of its own."""
    for path in sorted(folder.glob("*.ann")):
        source = path.with_suffix(".txt")
        try:
            text, lines = source.read_bytes().decode("utf-8"), path.read_text("utf-8").split("\n")
        except OSError as fault:
            raise ConfigurationError(f"{fault.filename}: cannot be read ({type(fault).__name__})") from None
        except UnicodeDecodeError:
            raise ConfigurationError(f"{source}: the text or its .ann is not UTF-8: convert them first") from None
        spans = {_span(f"{path}:{n}", line, text) for n, line in enumerate(lines, 1) if line.startswith("T")}
        yield Note(path.stem, "", "", path.stem, Annotated(text, tuple(in_order(spans))), {})


def _span(where: str, line: str, text: str) -> Span:
    fields = line.rstrip("\r").split("\t")
    label, _, places = fields[1].partition(" ") if len(fields) > 1 else ("", "", "")
    kind = type_of(label)
    if kind is None:
        raise ConfigurationError(f"{where}: an unknown label: use the types of the annotation guidelines")
    try:
        pieces = [(int(a), int(b)) for a, b in (piece.split() for piece in places.split(";"))]
    except ValueError:
        raise ConfigurationError(f"{where}: expected a label and its start and end") from None
    if any(not 0 <= a < b <= len(text) for a, b in pieces):
        raise ConfigurationError(f"{where}: the annotation lies outside of the text")
    if any(b > c or text[b:c].strip() for (_, b), (c, _) in pairwise(pieces)):
        raise ConfigurationError(f"{where}: a span with a hole: make it two")
    return Span(pieces[0][0], pieces[-1][1], kind, "gold")
