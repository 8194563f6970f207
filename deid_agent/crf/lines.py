"""What a token model sees of the lines that a token stands in: headings, labels, gaps, places.

Functions of the document and of the line of each token alone; one value for each token, ``""`` for none.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deid_agent.text import Document

_LABEL = re.compile(r"([^\W\d_][^\W_]*)[^\w:]{0,3}\Z")
_HEADING = re.compile(r"[ \t]*([A-Z][A-Za-z/&,' -]{2,40}):?[ \t]*\r?\n?\Z")
_EMPTY_LINE = re.compile(r"\n[^\S\n]*\n")
_ZONE = 8  # lines at either end of a note that hold its letterhead and signature


def gaps(doc: Document) -> list[str]:
    """What stands before a token: nothing, a blank, a wide gap, a line end, an empty line."""
    text, found, last = doc.text, [], 0
    for a, b in doc.tokens:
        gap = text[last:a]
        breaks = gap.count("\n")
        found.append("" if not gap else "N" if breaks > 1 else "n" if breaks else "_" if len(gap) == 1 else "w")
        last = b
    return found


def paragraphs(doc: Document) -> list[int]:
    """The tokens behind an empty line: no annotation goes over one, so that chains may be cut there."""
    starts = [a for a, _ in doc.tokens]
    found = (bisect_left(starts, gap.end()) for gap in _EMPTY_LINE.finditer(doc.text))
    return sorted({at for at in found if at < len(starts)})


def labels(doc: Document, lower: Sequence[str], lines: Sequence[int]) -> list[str]:
    """The last words before the nearest colon to the left in the line; else of the line above, if it ends in one."""
    found, label, line = [], "", -1
    text, tokens = doc.text, doc.tokens
    carried = ""
    for i, word in enumerate(lower):
        if lines[i] != line:
            carried = label if line >= 0 and i and lower[i - 1] == ":" and lines[i] == line + 1 else ""
            line, label = lines[i], ""
        found.append(label or carried)
        if word == ":":
            before = text[max(doc.lines[line][0], tokens[i][0] - 40) : tokens[i][0]]
            words = _LABEL.findall(before)
            start = i - 1
            while start > 0 and lines[start - 1] == line and i - start < 2 and lower[start - 1].isalpha():
                start -= 1
            label = " ".join(lower[start:i]) if words else ""
    return found


def sections(doc: Document) -> list[str]:
    """For each line the heading over it: the last short line of its own that ends in a colon or is in capitals."""
    text, heads, current = doc.text, [], ""
    for a, b in doc.lines:
        line = text[a:b]
        if (head := _HEADING.match(line)) and (line.rstrip().endswith(":") or head[1].isupper()):
            current = " ".join(head[1].lower().split()[:2])
        heads.append(current)
    return heads


def places(lines: Sequence[int]) -> list[str]:
    """First, second or last of its line, and how long the line is."""
    counts = Counter(lines)
    found, last, at = [], -1, 0
    for line in lines:
        at = at + 1 if line == last else 0
        last = line
        size = counts[line]
        place = str(at) if at < 2 else "$" if at == size - 1 else "."
        found.append(f"{place}{'s' if size < 6 else 'm' if size < 16 else 'l'}")
    return found


def cases(doc: Document) -> list[str]:
    """How each line is written: all capitals, no capitals, title case, as a sentence."""
    text, found = doc.text, []
    for a, b in doc.lines:
        line = text[a:b]
        words = [w for w in line.split() if w[0].isalpha()]
        if not words:
            found.append("-")
        elif line.isupper():
            found.append("U")
        elif line.islower():
            found.append("l")
        else:
            found.append("T" if sum(w[0].isupper() for w in words) * 4 >= len(words) * 3 else "s")
    return found


def zones(doc: Document) -> list[str]:
    """How near each line is to the head or the tail of the document, in steps of two lines."""
    size = len(doc.lines)
    return [
        f"h{at // 2}" if at < _ZONE else f"t{(size - 1 - at) // 2}" if size - 1 - at < _ZONE else "b"
        for at in range(size)
    ]


def words_before(words: Sequence[str], lines: Sequence[int]) -> NDArray[np.int64]:
    """The last word before each token in its line, signs passed over: its index, -1 where there is none."""
    found, last, line = [], -1, -1
    for at, word in enumerate(words):
        if lines[at] != line:
            line, last = lines[at], -1
        found.append(last)
        if word[0].isalnum():
            last = at
    return np.array(found, np.int64)
