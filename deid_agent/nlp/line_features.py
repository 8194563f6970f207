"""Features of a token that depend on its line: headings, labels, gaps and positions.

Each function depends only on the document and the line of each token. A value is ``""`` if the feature is absent.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deid_agent.model import Document

_LABEL = re.compile(r"([^\W\d_][^\W_]*)[^\w:]{0,3}\Z")
_HEADING = re.compile(r"[ \t]*([A-Z][A-Za-z/&,' -]{2,40}):?[ \t]*\r?\n?\Z")
_EMPTY_LINE = re.compile(r"\n[^\S\n]*\n")
_SENTENCE_LENGTHS = (4, 8, 16, 32)
_END_MARKS = frozenset(".?!")
_BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}
_ZONE = 8  # lines at both ends of a note, which contain its letterhead and signature


def find_gaps(doc: Document) -> list[str]:
    """For each token the white space before it: none, one blank, a wide gap, a line break, an empty line."""
    text, found, last = doc.text, [], 0
    for a, b in doc.tokens:
        gap = text[last:a]
        breaks = gap.count("\n")
        found.append("" if not gap else "N" if breaks > 1 else "n" if breaks else "_" if len(gap) == 1 else "w")
        last = b
    return found


def find_paragraph_starts(doc: Document) -> list[int]:
    """The indices of tokens that follow an empty line. No annotation crosses one, so chains may be cut there."""
    starts = [a for a, _ in doc.tokens]
    found = (bisect_left(starts, gap.end()) for gap in _EMPTY_LINE.finditer(doc.text))
    return sorted({at for at in found if at < len(starts)})


def find_line_labels(doc: Document, lower: Sequence[str], lines: Sequence[int]) -> list[str]:
    """For each token the label before it: up to two words before the nearest colon to its left in the line.

    If the line has no colon before the token and the line above ends in one, the label of that line applies.
    ``lower`` has the tokens in lower case, ``lines`` the line number of each token.
    """
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


def find_sections(doc: Document) -> list[str]:
    """For each line the first two words of the section heading that applies to it.

    A heading is a short line that ends in a colon or is in capitals.
    """
    text, heads, current = doc.text, [], ""
    for a, b in doc.lines:
        line = text[a:b]
        if (head := _HEADING.match(line)) and (line.rstrip().endswith(":") or head[1].isupper()):
            current = " ".join(head[1].lower().split()[:2])
        heads.append(current)
    return heads


def find_line_positions(lines: Sequence[int]) -> list[str]:
    """For each token its position in the line (first, second, last, other) and the length class of the line."""
    counts = Counter(lines)
    found, last, at = [], -1, 0
    for line in lines:
        at = at + 1 if line == last else 0
        last = line
        size = counts[line]
        position = str(at) if at < 2 else "$" if at == size - 1 else "."
        found.append(f"{position}{'s' if size < 6 else 'm' if size < 16 else 'l'}")
    return found


def find_line_cases(doc: Document) -> list[str]:
    """For each line its letter case: all capitals, all lower case, title case, sentence case, no words."""
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


def find_zones(doc: Document) -> list[str]:
    """For each line its distance from the start or the end of the document, in steps of two lines."""
    size = len(doc.lines)
    return [
        f"h{at // 2}" if at < _ZONE else f"t{(size - 1 - at) // 2}" if size - 1 - at < _ZONE else "b"
        for at in range(size)
    ]


def find_sentences(words: Sequence[str], lines: Sequence[int]) -> list[str]:
    """For each token its sentence: the length class, ``.`` if it has an end mark, ``(`` if a bracket is not matched.

    A sentence ends at the end of its line, and before a capital that follows an end mark. Source: Liu 2015 section
    3.2.2 (sentence information).
    """
    found: list[str] = []
    for at, word in enumerate(words):
        ended = at and words[at - 1] in _END_MARKS and word[0].isupper()
        if at and (ended or lines[at] != lines[at - 1]):
            found += _describe_sentence(words[len(found) : at])
    return found + _describe_sentence(words[len(found) :])


def _describe_sentence(words: Sequence[str]) -> list[str]:
    is_open = sum(_BRACKETS.get(word, 0) for word in words) != 0
    marks = f"{'.' if words and words[-1] in _END_MARKS else ''}{'(' if is_open else ''}"
    return [f"{bisect_left(_SENTENCE_LENGTHS, len(words))}{marks}"] * len(words)


def find_previous_words(words: Sequence[str], lines: Sequence[int]) -> NDArray[np.int64]:
    """For each token the index of the last word before it in its line, without punctuation; -1 if there is none.

    Shape ``[token]``.
    """
    found, last, line = [], -1, -1
    for at, word in enumerate(words):
        if lines[at] != line:
            line, last = lines[at], -1
        found.append(last)
        if word[0].isalnum():
            last = at
    return np.array(found, np.int64)
