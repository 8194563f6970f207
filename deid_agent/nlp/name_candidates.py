"""Candidates for names of persons, as input of the name filter. Recall matters here, precision does not.

Ferrandez 2012 sections 3.2.2 and 3.2.3: candidates come from rules, lists of names (a common word only with an initial
capital) and cues. Each candidate has the strategies that proposed it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.model import PhiType, Range, Span
from deid_agent.nlp.token_features import TokenFeatures
from deid_agent.rules import list_of_tag

PERSONS = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
"""The types that are names of persons. A login name is not one of them."""

_LISTED = frozenset({"given-female", "given-male", "nickname", "family"})
_RARE = "family-rare"
_ENGLISH = frozenset({"common-word", "rare-word"})
_CUE = "name-cue"
_CUED = f"{_CUE}:U"
_KNOWN_WORD = frozenset({_CUE, "common-word", "rare-word", "drug", "eponym", "abbreviation"})
_NO_INITIALS = frozenset({"common-word", "abbreviation", "state-abbrev"})
_PARTICLES = frozenset(
    {
        *("de", "da", "di", "del", "della", "der", "den", "van", "von", "la", "le", "el", "al", "bin", "ibn", "abu"),
        *("st", "mc", "o", "d", "du", "dos", "san", "ter", "y"),
    }
)
_SUFFIXES = frozenset({"jr", "sr", "ii", "iii", "iv"})
_SIGNS = frozenset(".-'’‐")
_STRONG = frozenset({"rule", "list", "again", "cue", "rare", "unknown", "initials"})
_CUE_REACH = 3  # tokens
_BREAK = re.compile(r"[ ]?\r?\n[ \t]{0,8}")
_MAX_TOKENS = 9  # of a candidate, with punctuation
_MAX_WORDS_ALL_PARTS = 4  # in a run of at most so many words every part is a candidate too


@dataclass(frozen=True, slots=True)
class Candidate:
    """The tokens ``[first, last)`` of a document, and the strategies that proposed them or a part of them."""

    first: int
    last: int
    strategies: frozenset[str] = field(default=frozenset())

    def range(self, tokens: Sequence[Range]) -> Range:
        """The character range of the candidate; ``tokens`` are those of the document."""
        return tokens[self.first][0], tokens[self.last - 1][1]


def find_candidates(tokens: TokenFeatures) -> list[Candidate]:
    """All candidates of a document in order, longer ones first. They may overlap. Time is linear in the text."""
    marks: list[set[str]] = [set() for _ in tokens.words]
    whole: dict[Range, set[str]] = {}
    for span in tokens.first_pass:
        if span.type not in PERSONS:
            continue
        first, last = _find_tokens(tokens, span)
        if 0 < last - first <= _MAX_TOKENS:
            whole.setdefault((first, last), set()).add("rule")
        for at in range(first, last):
            marks[at].add("rule")
    _mark_words(tokens, marks)
    found = {run: frozenset(names) for run, names in whole.items()}
    for first, last in _find_runs(tokens, marks):
        for part in _find_parts(tokens, marks, first, last):
            strategies = set().union(*marks[part[0] : part[1]])
            found.setdefault(part, frozenset(f"part:{name}" for name in strategies))
    return [Candidate(a, b, found[a, b]) for a, b in sorted(found, key=lambda p: (p[0], -p[1]))]


def _find_tokens(tokens: TokenFeatures, span: Span) -> Range:
    """The tokens that share a character with a span."""
    ranges = tokens.doc.tokens
    low, high = 0, len(ranges)
    while low < high:
        middle = (low + high) // 2
        if ranges[middle][1] <= span.start:
            low = middle + 1
        else:
            high = middle
    last = low
    while last < len(ranges) and ranges[last][0] < span.end:
        last += 1
    return low, last


def _mark_words(tokens: TokenFeatures, marks: list[set[str]]) -> None:
    """Mark single words: listed names, cues, unknown capitalized words, words of a name found elsewhere."""
    named = {
        low
        for low, label in zip(tokens.lower, tokens.labels, strict=True)
        if label[2:] in PERSONS and len(low) > 2 and low.isalpha()
    }
    near_cue, after_cue = _find_cued(tokens)
    for at, (word, low, tags) in enumerate(zip(tokens.words, tokens.lower, tokens.tags, strict=True)):
        if not word[0].isalpha():
            continue
        if len(word) < 2:
            if word.isupper() and _is_dotted_pair(tokens, at):
                marks[at].add("initials")
            continue
        lists = {list_of_tag(tag) for tag in tags}
        capital = word[0].isupper()
        if not lists.isdisjoint(_LISTED) and (capital or lists.isdisjoint(_ENGLISH)):
            marks[at].add("list")
        elif _RARE in lists and capital:
            marks[at].add("rare")
        if capital and lists.isdisjoint(_KNOWN_WORD):
            marks[at].add("unknown" if not lists else "listed")
            if at in near_cue:
                marks[at].add("cue")
        if 2 <= len(word) <= 3 and word.isupper() and lists.isdisjoint(_NO_INITIALS) and _is_signature(tokens, at):
            marks[at].add("initials")
        if at in after_cue and word.islower() and word.isalpha() and lists.isdisjoint(_KNOWN_WORD):
            marks[at].add("cue")
        if low in named and (capital or lists.isdisjoint(_ENGLISH)):
            marks[at].add("again")


def _find_cued(tokens: TokenFeatures) -> tuple[set[int], set[int]]:
    """The indices of tokens near a cue, and of those directly after one."""
    near: set[int] = set()
    after: set[int] = set()
    for at, tags in enumerate(tokens.tags):
        if _CUED in tags:
            near.update(range(at - _CUE_REACH, at + _CUE_REACH + 1))
            step = at + 1
            while step < len(tokens.words) and not tokens.words[step][0].isalnum() and step - at < _CUE_REACH:
                step += 1
            after.update((step, step + 1))
    return near, after


def _is_signature(tokens: TokenFeatures, at: int) -> bool:
    """Whether initials sign the text: after a slash or dash, at the start or end of a line, or before a time."""
    before = tokens.words[at - 1] if at else ""
    after = tokens.words[at + 1] if at + 1 < len(tokens.words) else ""
    ends = "\n" in _gap(tokens, at) or "\n" in _gap(tokens, at + 1)
    return ends or before in {"/", "-", "~", "\u2013", "by"} or after == "/" or after[:1].isdigit()


def _is_dotted_pair(tokens: TokenFeatures, at: int) -> bool:
    """Whether two initials with full stops begin here, such as ``M.G.``"""
    words = tokens.words[at : at + 4]
    return (
        len(words) == 4
        and words[1] == words[3] == "."
        and _is_initial(words[2])
        and not _gap(tokens, at + 2).strip(" ")
    )


def _find_runs(tokens: TokenFeatures, marks: Sequence[set[str]]) -> Iterator[Range]:
    """Runs of marked words, with the initials, particles and punctuation of names between and around them."""
    at, size = 0, len(tokens.words)
    while at < size:
        if marks[at].isdisjoint(_STRONG):
            at += 1
            continue
        first = _extend_back(tokens, at)
        last = at + 1
        while (step := _extend_forward(tokens, marks, last)) > last:
            last = step
        yield first, last
        at = last


def _gap(tokens: TokenFeatures, at: int) -> str:
    """The text between token ``at`` and the token before it; a line break at the ends of the text."""
    ranges = tokens.doc.tokens
    return tokens.doc.text[ranges[at - 1][1] : ranges[at][0]] if 0 < at < len(ranges) else "\n"


def _is_initial(word: str) -> bool:
    return len(word) == 1 and word.isalpha() and word.isupper()


def _extend_back(tokens: TokenFeatures, at: int) -> int:
    """The first token of the run that contains the marked word ``at``, with the initials and particles before it."""
    first = at
    while first and _gap(tokens, first) in ("", " "):
        before = tokens.words[first - 1]
        dotted = before == "." and first > 1 and _is_initial(tokens.words[first - 2]) and not _gap(tokens, first - 1)
        glued = before in "-'’‐" and first > 1 and not _gap(tokens, first) + _gap(tokens, first - 1)
        if dotted or (glued and tokens.words[first - 2][0].isalpha()):
            first -= 2
        elif _is_initial(before) or tokens.lower[first - 1] in _PARTICLES:
            first -= 1
        else:
            break
    return first


def _extend_forward(tokens: TokenFeatures, marks: Sequence[set[str]], at: int) -> int:
    """The token after the next word of a run that ends before ``at``; ``at`` if the run does not continue."""
    size = len(tokens.words)
    look = at
    comma = False
    while look < size and look - at < 3:
        gap = _gap(tokens, look)
        if gap not in ("", " ") and not (look == at and _BREAK.fullmatch(gap) and marks[look] and marks[at - 1]):
            return at
        word, low = tokens.words[look], tokens.lower[look]
        if _is_initial(word) or low in _SUFFIXES:
            dotted = look + 1 < size and tokens.words[look + 1] == "." and not _gap(tokens, look + 1)
            return look + 2 if dotted else look + 1
        if marks[look] or (word[0].isupper() and word.isalpha() and not comma and _may_continue(tokens, look)):
            return look + 1
        if word == "," and not comma:
            comma = True
        elif not (word in _SIGNS or low in _PARTICLES):
            return at
        look += 1
    return at


def _may_continue(tokens: TokenFeatures, at: int) -> bool:
    """Whether a capitalized word may continue a name although no list contains it: it is not a common word."""
    return not any(list_of_tag(tag) in ("common-word", "abbreviation") for tag in tokens.tags[at])


def _find_parts(tokens: TokenFeatures, marks: Sequence[set[str]], first: int, last: int) -> Iterator[Range]:
    """A run and its parts: all sequences of its words if they are few, else those at its ends and pairs of words."""
    starts = [at for at in range(first, last) if tokens.words[at][0].isalpha()]
    ends = []
    for at in starts:
        dotted = at + 1 < last and tokens.words[at + 1] == "." and len(tokens.words[at]) <= 2
        ends.append(at + 2 if dotted else at + 1)
    count = len(starts)
    for a in range(count):
        for b in range(a, count):
            edges = a == 0 or b == count - 1 or b == a + 1
            if (count <= _MAX_WORDS_ALL_PARTS or edges) and ends[b] - starts[a] <= _MAX_TOKENS:
                inside = any(not marks[at].isdisjoint(_STRONG) for at in range(starts[a], ends[b]))
                if inside and _has_whole_words(tokens, starts[a], ends[b]):
                    yield starts[a], ends[b]


def _has_whole_words(tokens: TokenFeatures, first: int, last: int) -> bool:
    """Whether no hyphenated or joined word is cut in two."""
    glue = _SIGNS - {"."}
    left = first and not _gap(tokens, first) and tokens.words[first - 1] in glue
    right = last < len(tokens.words) and not _gap(tokens, last) and tokens.words[last] in glue
    if right and tokens.words[last] in "'’":  # the possessive is not part of the name
        right = not (last + 1 < len(tokens.words) and tokens.lower[last + 1] == "s")
    return not (left or right)
