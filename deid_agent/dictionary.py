"""Dictionaries of ``rules/dictionary``: names, places, jobs and their like, found in a document.

A list is a file ``<name>.txt``: comment lines ``# ...`` first, then one term a line, folded as
``deid_agent.text.folded`` does, in order. A term behind ``?`` is ambiguous: an ordinary word too
(Dehghan 2015 section 2.2 drops those; here they are marked, and who reads decides).

Terms are compared token by token, without regard to case and accents. Inside a term of several words the
signs ``. - ' ’`` count for nothing, so that ``st louis`` finds ``St. Louis``. At each token the longest term of each
list counts (Liu 2015 section 3.2.2), at most ``LONGEST`` words; a term never spans an empty line or a tab.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deid_agent import senses
from deid_agent.errors import ConfigurationError
from deid_agent.senses import Sense
from deid_agent.text import Document, Range, folded

LONGEST = 8
"""Words of the longest term."""

AMBIGUOUS = "?"
"""Stands before an ambiguous term in a file and behind the list's name in a tag."""

_SKIPPED = frozenset(".-'’")
_WORD = re.compile(r"[^\W_]+")
_PIECE = re.compile(r"\d+|[^\W\d_]+|[^\s]")
_ACROSS = re.compile(r"\n[^\S\n]*\r?\n|\t")

Tags = frozenset[str]
_NONE: Tags = frozenset()


class _Node(dict[str, "_Node"]):
    """What may follow, by folded token; ``lists`` are the marked lists whose term ends here."""

    __slots__ = ("lists",)

    def __init__(self) -> None:
        self.lists = _NONE


@dataclass(frozen=True, slots=True)
class Entry:
    """A term found: tokens ``[first, last)`` of the document, and the lists that hold it."""

    first: int
    last: int
    lists: Tags

    def range(self, doc: Document) -> Range:
        """Its characters."""
        return doc.tokens[self.first][0], doc.tokens[self.last - 1][1]


def base(tag: str) -> str:
    """The list of a tag or marked list: ``city`` of ``city?:B``."""
    return tag.partition(":")[0].removesuffix(AMBIGUOUS)


@dataclass(frozen=True, slots=True)
class Dictionaries:
    """All lists, ready to be looked up."""

    names: tuple[str, ...]
    single: Mapping[str, Tags] = field(repr=False)
    phrases: Mapping[str, _Node] = field(repr=False)
    _units: Mapping[Tags, Tags] = field(repr=False)
    senses: Mapping[str, Sense] = field(default_factory=dict, repr=False)
    hidden: frozenset[str] = frozenset()

    @staticmethod
    def load(rules: Path) -> "Dictionaries":
        """Every list below ``rules/dictionary``, and the senses of words.

        Raises ``ConfigurationError`` naming file and line for a term that is not folded, out of order, twice there, too
        long or without letter or digit, an empty list, a missing folder, or bytes that are not UTF-8.
        """
        paths = sorted((rules / "dictionary").glob("*.txt"))
        if not paths:
            raise ConfigurationError(f"{rules / 'dictionary'}: no list *.txt there; correct the rules folder")
        masks: dict[str, int] = {}  # bit n for the nth of ``marked``
        get = masks.get
        roots: dict[str, _Node] = {}
        marked: list[str] = []
        for path in paths:
            for name, terms in zip((path.stem, f"{path.stem}?"), _read(path), strict=True):
                bit = 1 << len(marked)
                marked.append(name)
                words = [t if t.isalpha() else _plant(t, name, roots) for t in terms]
                for word in filter(None, words):
                    masks[word] = get(word, 0) | bit
        lists = {mask: frozenset(n for at, n in enumerate(marked) if mask >> at & 1) for mask in set(masks.values())}
        units = {mask: frozenset(f"{name}:U" for name in names) for mask, names in lists.items()}
        single = {term: units[mask] for term, mask in masks.items()}
        units_of = {units[mask]: lists[mask] for mask in lists}
        return Dictionaries(tuple(p.stem for p in paths), single, roots, units_of, senses.load(rules))

    def hiding(self, *names: str) -> "Dictionaries":
        """The same without these lists, to tell what each is worth."""
        return replace(self, hidden=self.hidden | {*names})

    def tags(self, doc: Document) -> tuple[Tags, ...]:
        """Of each token the lists of the longest term around it: alone ``city:U``, first ``city:B``, then ``city:I``.

        ``city?:U`` where the term is ambiguous. Depends on ``LONGEST`` words to either side and no others.
        """
        words = _folded_tokens(doc)
        get = self.single.get
        out = [get(word, _NONE) for word in words]
        longer = [e for e in self._phrases(doc, words) if e.last - e.first > 1]
        for entry in sorted(longer, key=lambda e: (e.last - e.first, -e.first)):
            lists = {base(name) for name in entry.lists}
            for at in range(entry.first, entry.last):
                mark = "B" if at == entry.first else "I"
                rest = (tag for tag in out[at] if base(tag) not in lists)
                out[at] = frozenset((*rest, *(f"{name}:{mark}" for name in entry.lists)))
        return tuple(map(self._shown, out)) if self.hidden else tuple(out)

    def entries(self, doc: Document) -> Iterator[Entry]:
        """Every term found, single words too, by place, shorter first; overlaps are left to the reader."""
        if self.hidden:
            shown = (replace(each, lists=self._shown(each.lists)) for each in replace(self, hidden=_NONE).entries(doc))
            yield from (each for each in shown if each.lists)
            return
        words = _folded_tokens(doc)
        phrases = list(self._phrases(doc, words))
        at = 0
        for first, word in enumerate(words):
            tags = self.single.get(word)
            if tags:
                yield Entry(first, first + 1, self._units[tags])
            while at < len(phrases) and phrases[at].first == first:
                yield phrases[at]
                at += 1

    def lists_of(self, term: str) -> Tags:
        """The marked lists that hold exactly ``term``."""
        words = _pieces(folded(term))
        if len(words) == 1:
            return self._shown(self._units.get(self.single.get(words[0], _NONE), _NONE))
        nodes: Mapping[str, _Node] = self.phrases
        lists = _NONE
        for word in words:
            node = nodes.get(word)
            if node is None:
                return _NONE
            nodes, lists = node, node.lists
        return self._shown(lists)

    def _shown(self, lists: Tags) -> Tags:
        return frozenset(name for name in lists if base(name) not in self.hidden) if self.hidden else lists

    def _phrases(self, doc: Document, words: Sequence[str]) -> Iterator[Entry]:
        """Terms of several words: of each first token for each list the longest one."""
        starts = self.phrases
        for first, word in enumerate(words):
            root = starts.get(word)
            if root is not None:
                yield from _walk(root, first, words, doc)


def _walk(root: _Node, first: int, words: Sequence[str], doc: Document) -> Iterator[Entry]:
    node, at = root, first + 1
    ends: list[tuple[int, Tags]] = []
    limit = min(len(words), first + 3 * LONGEST)
    while at < limit:
        below = node.get(words[at])
        if below is None and words[at] in _SKIPPED:
            at += 1
            continue
        if below is None:
            break
        node, at = below, at + 1
        if node.lists:
            ends.append((at, node.lists))
    if not ends:
        return
    seen: set[str] = set()
    found: list[Entry] = []
    for last, lists in reversed(ends):
        fresh = frozenset(name for name in lists if base(name) not in seen)
        if fresh and not _ACROSS.search(doc.text, doc.tokens[first][0], doc.tokens[last - 1][1]):
            seen |= {base(name) for name in fresh}
            found.append(Entry(first, last, fresh))
    yield from reversed(found)


def _folded_tokens(doc: Document) -> list[str]:
    lower = doc.lower
    if lower.isascii():
        return [lower[a:b] for a, b in doc.tokens]
    return [folded(doc.text[a:b]) for a, b in doc.tokens]


def _read(path: Path) -> tuple[list[str], list[str]]:
    """The plain and the ambiguous terms of a list, checked."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigurationError(f"{path}: cannot be read as UTF-8 ({type(fault).__name__})") from None
    head = next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))
    terms = lines[head:]
    if not terms:
        raise ConfigurationError(f"{path}: the list is empty: add a term or remove the file")
    bare = [line[1:] if line.startswith(AMBIGUOUS) else line for line in terms]
    at_ease = bare == sorted(set(bare)) and "".join(bare).isascii()
    for number, (term, last) in enumerate(zip(bare, ["", *bare], strict=False), head + 1):
        if not (at_ease and term.isalpha() and term.islower()):
            _check(f"{path}:{number}", term, last)
    return [t for t in terms if t[0] != AMBIGUOUS], [t[1:] for t in terms if t[0] == AMBIGUOUS]


def _check(where: str, term: str, last: str) -> None:
    """Raises ``ConfigurationError`` unless ``term`` may stand behind ``last``."""
    fault = ""
    if term != folded(term).strip() or term.startswith(("#", AMBIGUOUS)):
        fault = "the term is not folded: write it in lower case, without accents and outer blanks, or take it out"
    elif not 1 <= len(_WORD.findall(term)) <= LONGEST:
        fault = f"the term needs 1 to {LONGEST} words"
    elif term == last:
        fault = "the term stands twice: remove one"
    elif term < last:
        fault = "the term is out of order: sort the list"
    if fault:
        raise ConfigurationError(f"{where}: {fault}")


def _pieces(term: str) -> list[str]:
    return [t for t in _PIECE.findall(term) if t not in _SKIPPED]


def _plant(term: str, name: str, roots: dict[str, _Node]) -> str:
    """Puts a term under its first token; one that has no other token is not planted but returned."""
    first, *others = _pieces(term)
    if not others:
        return first
    node = roots.setdefault(first, _Node())
    for token in others:
        node = node.setdefault(token, _Node())
    node.lists |= {name}
    return ""
