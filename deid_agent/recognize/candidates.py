"""Where a person may be named: candidates for the filter, recall first.

Ferrandez 2012 sections 3.2.2 and 3.2.3: what rules, lists of names (a common word only with an initial capital) and
cues propose, each candidate with the strategies that made it. How many are wrong does not matter here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.crf.columns import View
from deid_agent.dictionary import base
from deid_agent.phi import PhiType
from deid_agent.spans import Span
from deid_agent.text import Range

PERSONS = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
"""What the filter calls a name of a person; logins are none."""

_LISTED = frozenset({"given-female", "given-male", "nickname", "family"})
_RARE = "family-rare"
_ENGLISH = frozenset({"common-word", "rare-word"})
_CUE = "name-cue"
_CUED = f"{_CUE}:U"
_OTHER = frozenset({_CUE, "common-word", "rare-word", "drug", "eponym", "abbreviation"})
_NO_INITIALS = frozenset({"common-word", "abbreviation", "state-abbrev"})
_PARTICLES = frozenset(
    [
        "de",
        "da",
        "di",
        "del",
        "della",
        "der",
        "den",
        "van",
        "von",
        "la",
        "le",
        "el",
        "al",
        "bin",
        "ibn",
        "abu",
        "st",
        "mc",
        "o",
        "d",
        "du",
        "dos",
        "san",
        "ter",
        "y",
    ]
)
_SUFFIXES = frozenset({"jr", "sr", "ii", "iii", "iv"})
_SIGNS = frozenset(".-'’‐")
_CUE_REACH = 3
_BREAK = re.compile(r"[ ]?\r?\n[ \t]{0,8}")
_LONGEST = 9  # tokens of a candidate, signs counted
_PART_LIMIT = 4  # words of a run of which every part is a candidate too


@dataclass(frozen=True, slots=True)
class Candidate:
    """Tokens ``[first, last)`` of a document, and the strategies that proposed them or a part of them."""

    first: int
    last: int
    strategies: frozenset[str] = field(default=frozenset())

    def range(self, tokens: Sequence[Range]) -> Range:
        """Its characters."""
        return tokens[self.first][0], tokens[self.last - 1][1]


def candidates(view: View) -> list[Candidate]:
    """Every candidate of a document in order, longer first; they overlap. Time is linear in the text."""
    marks: list[set[str]] = [set() for _ in view.words]
    whole: dict[Range, set[str]] = {}
    for span in view.first:
        if span.type not in PERSONS:
            continue
        first, last = _tokens_of(view, span)
        if 0 < last - first <= _LONGEST:
            whole.setdefault((first, last), set()).add("rule")
        for at in range(first, last):
            marks[at].add("rule")
    _mark_words(view, marks)
    found = {place: frozenset(names) for place, names in whole.items()}
    for first, last in _runs(view, marks):
        for place in _parts(view, marks, first, last):
            strategies = set().union(*marks[place[0] : place[1]])
            found.setdefault(place, frozenset(f"part:{name}" for name in strategies))
    return [Candidate(a, b, found[a, b]) for a, b in sorted(found, key=lambda p: (p[0], -p[1]))]


def _tokens_of(view: View, span: Span) -> Range:
    """The tokens that share a character with a span."""
    tokens = view.doc.tokens
    low, high = 0, len(tokens)
    while low < high:
        middle = (low + high) // 2
        if tokens[middle][1] <= span.start:
            low = middle + 1
        else:
            high = middle
    last = low
    while last < len(tokens) and tokens[last][0] < span.end:
        last += 1
    return low, last


def _mark_words(view: View, marks: list[set[str]]) -> None:
    """What single words say: lists, cues, unknown words with a capital, words of a name found elsewhere."""
    named = {
        low
        for low, label in zip(view.lower, view.labels, strict=True)
        if label[2:] in PERSONS and len(low) > 2 and low.isalpha()
    }
    cued, beside = _cued(view)
    for at, (word, low, tags) in enumerate(zip(view.words, view.lower, view.tags, strict=True)):
        if not word[0].isalpha():
            continue
        if len(word) < 2:
            if word.isupper() and _dotted_pair(view, at):
                marks[at].add("initials")
            continue
        lists = {base(tag) for tag in tags}
        capital = word[0].isupper()
        if not lists.isdisjoint(_LISTED) and (capital or lists.isdisjoint(_ENGLISH)):
            marks[at].add("list")
        elif _RARE in lists and capital:
            marks[at].add("rare")
        if capital and lists.isdisjoint(_OTHER):
            marks[at].add("unknown" if not lists else "listed")
            if at in cued:
                marks[at].add("cue")
        if 2 <= len(word) <= 3 and word.isupper() and lists.isdisjoint(_NO_INITIALS) and _apart(view, at):
            marks[at].add("initials")
        if at in beside and word.islower() and word.isalpha() and lists.isdisjoint(_OTHER):
            marks[at].add("cue")
        if low in named and (capital or lists.isdisjoint(_ENGLISH)):
            marks[at].add("again")


def _cued(view: View) -> tuple[set[int], set[int]]:
    """The tokens near a cue, and those right behind one."""
    near: set[int] = set()
    behind: set[int] = set()
    for at, tags in enumerate(view.tags):
        if _CUED in tags:
            near.update(range(at - _CUE_REACH, at + _CUE_REACH + 1))
            step = at + 1
            while step < len(view.words) and not view.words[step][0].isalnum() and step - at < _CUE_REACH:
                step += 1
            behind.update((step, step + 1))
    return near, behind


def _apart(view: View, at: int) -> bool:
    """Initials that sign: behind a slash or dash, at either end of a line, or before a time."""
    before = view.words[at - 1] if at else ""
    behind = view.words[at + 1] if at + 1 < len(view.words) else ""
    ends = "\n" in _gap(view, at) or "\n" in _gap(view, at + 1)
    return ends or before in {"/", "-", "~", "\u2013", "by"} or behind == "/" or behind[:1].isdigit()


def _dotted_pair(view: View, at: int) -> bool:
    """Two initials with full stops: ``M.G.``"""
    words = view.words[at : at + 4]
    return len(words) == 4 and words[1] == words[3] == "." and _initial(words[2]) and not _gap(view, at + 2).strip(" ")


_STRONG = frozenset({"rule", "list", "again", "cue", "rare", "unknown", "initials"})


def _runs(view: View, marks: Sequence[set[str]]) -> Iterator[Range]:
    """Marked words side by side, with initials, particles and signs of names between and around them."""
    at, size = 0, len(view.words)
    while at < size:
        if marks[at].isdisjoint(_STRONG):
            at += 1
            continue
        first = _back(view, at)
        last = at + 1
        while (step := _next(view, marks, last)) > last:
            last = step
        yield first, last
        at = last


def _gap(view: View, at: int) -> str:
    """What stands before token ``at``."""
    tokens = view.doc.tokens
    return view.doc.text[tokens[at - 1][1] : tokens[at][0]] if 0 < at < len(tokens) else "\n"


def _initial(word: str) -> bool:
    return len(word) == 1 and word.isalpha() and word.isupper()


def _back(view: View, at: int) -> int:
    """Where the run that begins at a marked word begins with initials and particles before it."""
    first = at
    while first and _gap(view, first) in ("", " "):
        before = view.words[first - 1]
        dotted = before == "." and first > 1 and _initial(view.words[first - 2]) and not _gap(view, first - 1)
        glued = before in "-'’‐" and first > 1 and not _gap(view, first) + _gap(view, first - 1)
        if dotted or (glued and view.words[first - 2][0].isalpha()):
            first -= 2
        elif _initial(before) or view.lower[first - 1] in _PARTICLES:
            first -= 1
        else:
            break
    return first


def _next(view: View, marks: Sequence[set[str]], at: int) -> int:
    """The token behind the next word of a run that so far ends before ``at``; ``at`` itself if it is over."""
    size = len(view.words)
    look = at
    comma = False
    while look < size and look - at < 3:
        gap = _gap(view, look)
        if gap not in ("", " ") and not (look == at and _BREAK.fullmatch(gap) and marks[look] and marks[at - 1]):
            return at
        word, low = view.words[look], view.lower[look]
        if _initial(word) or low in _SUFFIXES:
            dotted = look + 1 < size and view.words[look + 1] == "." and not _gap(view, look + 1)
            return look + 2 if dotted else look + 1
        if marks[look] or (word[0].isupper() and word.isalpha() and not comma and _may_follow(view, look)):
            return look + 1
        if word == "," and not comma:
            comma = True
        elif not (word in _SIGNS or low in _PARTICLES):
            return at
        look += 1
    return at


def _may_follow(view: View, at: int) -> bool:
    """A capitalized word that is no common one continues a name, though no list knows it."""
    return not any(base(tag) in ("common-word", "abbreviation") for tag in view.tags[at])


def _parts(view: View, marks: Sequence[set[str]], first: int, last: int) -> Iterator[Range]:
    """A run and its parts: every row of its words if they are few, else both sides of its commas and its ends."""
    starts = [at for at in range(first, last) if view.words[at][0].isalpha()]
    ends = []
    for at in starts:
        dotted = at + 1 < last and view.words[at + 1] == "." and len(view.words[at]) <= 2
        ends.append(at + 2 if dotted else at + 1)
    count = len(starts)
    for a in range(count):
        for b in range(a, count):
            edges = a == 0 or b == count - 1 or b == a + 1
            if (count <= _PART_LIMIT or edges) and ends[b] - starts[a] <= _LONGEST:
                inside = any(not marks[at].isdisjoint(_STRONG) for at in range(starts[a], ends[b]))
                if inside and _whole_words(view, starts[a], ends[b]):
                    yield starts[a], ends[b]


def _whole_words(view: View, first: int, last: int) -> bool:
    """No hyphenated or glued word is cut in two."""
    glue = _SIGNS - {"."}
    left = first and not _gap(view, first) and view.words[first - 1] in glue
    right = last < len(view.words) and not _gap(view, last) and view.words[last] in glue
    if right and view.words[last] in "'’":  # the possessive stays outside
        right = not (last + 1 < len(view.words) and view.lower[last + 1] == "s")
    return not (left or right)
