"""The dictionaries of ``rules/dictionary``: names, places, jobs and similar terms, and their search in a document.

A list is a file ``<name>.txt``: comment lines ``# ...`` first, then one term per line, sorted, in the form that
``deid_agent.model.fold_accents`` gives. A ``?`` before a term marks it as ambiguous: it is an ordinary word too.
Dehghan 2015 section 2.2 drops ambiguous terms; here they are marked, and the recognizer or model decides.

Terms are compared token by token, ignoring case and accents. Inside a term of several words the characters ``. - ' ’``
are ignored, so that ``st louis`` finds ``St. Louis``. At each token the longest term of each list counts (Liu 2015
section 3.2.2), up to ``LONGEST`` words. A term never spans an empty line or a tab.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, filterfalse
from operator import lt
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from deid_agent.model import ConfigurationError, Document, Range, fold_accents
from deid_agent.rules.files import Sense, load_senses, read_lines, read_toml

if TYPE_CHECKING:
    from nicknames import NickNamer

LONGEST = 8
"""Words of the longest term."""

AMBIGUOUS = "?"
"""The prefix of an ambiguous term in a file, and the suffix of the list's name in a tag."""

_SKIPPED = frozenset(".-'’")
_WORD = re.compile(r"[^\W_]+")
_PIECE = re.compile(r"\d+|[^\W\d_]+|[^\s]")
_ACROSS = re.compile(r"\n[^\S\n]*\r?\n|\t")

Tags = frozenset[str]
_NONE: Tags = frozenset()


class _Node(dict[str, "_Node"]):
    """The next nodes by folded token; ``lists`` are the marked lists with a term that ends here."""

    __slots__ = ("lists",)

    def __init__(self) -> None:
        self.lists = _NONE


class _Root(_Node):
    """The node of a first token. ``terms`` are the lists and terms that no text has asked for yet: most never are."""

    __slots__ = ("terms",)

    def __init__(self) -> None:
        super().__init__()
        self.terms: list[tuple[str, str]] = []

    def expand(self) -> "_Root":
        """This node with the nodes of its terms. Two threads that expand it at once build the same nodes."""
        for name, term in self.terms:
            node: _Node = self
            for token in _pieces(term)[1:]:
                node = node.setdefault(token, _Node())
            node.lists |= {name}
        self.terms = []
        return self


@dataclass(frozen=True, slots=True)
class DictionaryEntry:
    """A term in a document: tokens ``[first, last)``, and the lists that contain the term."""

    first: int
    last: int
    lists: Tags

    def range(self, doc: Document) -> Range:
        """The characters ``[start, end)`` of the term."""
        return doc.tokens[self.first][0], doc.tokens[self.last - 1][1]


def list_of_tag(tag: str) -> str:
    """The name of the list in a tag or marked list: ``city`` of ``city?:B``."""
    return tag.partition(":")[0].removesuffix(AMBIGUOUS)


@lru_cache(maxsize=4_096)
def lists_of_tags(tags: Tags) -> frozenset[str]:
    """The names of the lists in tags or marked lists."""
    return frozenset(map(list_of_tag, tags))


@dataclass(frozen=True, slots=True)
class Dictionaries:
    """All lists, indexed for search."""

    names: tuple[str, ...]
    single: Mapping[str, Tags] = field(repr=False)
    phrases: Mapping[str, _Root] = field(repr=False)
    _units: Mapping[Tags, Tags] = field(repr=False)
    senses: Mapping[str, Sense] = field(default_factory=dict, repr=False)
    hidden: frozenset[str] = frozenset()

    @staticmethod
    def load(rules: Path) -> "Dictionaries":
        """Every list of folder ``dictionary`` in ``rules``, and the senses of words.

        Raises ``ConfigurationError`` with the file and line for a term that is not folded, out of order, repeated, too
        long or without a letter or digit, for an empty list, a missing folder, or bytes that are not UTF-8.
        """
        paths = sorted((rules / "dictionary").glob("*.txt"))
        if not paths:
            raise ConfigurationError(f"{rules / 'dictionary'}: no list *.txt there; correct the rules folder")
        single: dict[str, Tags] = {}
        phrases: dict[str, _Root] = {}
        units: dict[Tags, Tags] = {}
        for path in paths:
            for name, terms in zip((path.stem, f"{path.stem}?"), _read(path), strict=True):
                own = frozenset((f"{name}:U",))
                united = {_NONE: own}  # one object for each set of tags, which many words share
                found = dict.fromkeys(_add_phrases(terms, name, phrases), own)
                for word in single.keys() & found.keys():
                    others = single[word]
                    found[word] = united.get(others) or united.setdefault(others, others | own)
                single.update(found)
                units |= {tags: frozenset(tag.removesuffix(":U") for tag in tags) for tags in united.values()}
        return Dictionaries(tuple(p.stem for p in paths), single, phrases, units, load_senses(rules))

    def without_lists(self, *names: str) -> "Dictionaries":
        """The same dictionaries without these lists, for an ablation."""
        return replace(self, hidden=self.hidden | {*names})

    def tag_tokens(self, doc: Document) -> tuple[Tags, ...]:
        """For each token the lists of the longest term that contains it.

        The tag is ``city:U`` for a term of one token, ``city:B`` for the first token of a longer term and ``city:I``
        for its other tokens; ``city?:U`` for an ambiguous term. The tags of a token depend on at most ``LONGEST`` words
        on either side.
        """
        words = doc.folded_tokens
        get = self.single.get
        out = [get(word, _NONE) for word in words]
        longer = [e for e in self._phrases(doc, words) if e.last - e.first > 1]
        for entry in sorted(longer, key=lambda e: (e.last - e.first, -e.first)):
            lists = {list_of_tag(name) for name in entry.lists}
            for at in range(entry.first, entry.last):
                mark = "B" if at == entry.first else "I"
                rest = (tag for tag in out[at] if list_of_tag(tag) not in lists)
                out[at] = frozenset((*rest, *(f"{name}:{mark}" for name in entry.lists)))
        return tuple(map(self._shown, out)) if self.hidden else tuple(out)

    def find_entries(self, doc: Document) -> Iterator[DictionaryEntry]:
        """Every term in the document by position, shorter terms first. Entries may overlap."""
        if self.hidden:
            shown = (
                replace(each, lists=self._shown(each.lists)) for each in replace(self, hidden=_NONE).find_entries(doc)
            )
            yield from (each for each in shown if each.lists)
            return
        words = doc.folded_tokens
        phrases = list(self._phrases(doc, words))
        at = 0
        for first, word in enumerate(words):
            tags = self.single.get(word)
            if tags:
                yield DictionaryEntry(first, first + 1, self._units[tags])
            while at < len(phrases) and phrases[at].first == first:
                yield phrases[at]
                at += 1

    def lists_of(self, term: str) -> Tags:
        """The marked lists that contain exactly ``term``."""
        folded = fold_accents(term)
        words = [folded] if folded.isascii() and folded.isalpha() else _pieces(folded)
        if len(words) == 1:
            return self._shown(self._units.get(self.single.get(words[0], _NONE), _NONE))
        root = self.phrases.get(words[0]) if words else None
        if root is None:
            return _NONE
        node: _Node | None = root.expand()
        for word in words[1:]:
            node = node.get(word) if node is not None else None
        return self._shown(node.lists) if node is not None else _NONE

    def _shown(self, lists: Tags) -> Tags:
        return frozenset(name for name in lists if list_of_tag(name) not in self.hidden) if self.hidden else lists

    def _phrases(self, doc: Document, words: Sequence[str]) -> Iterator[DictionaryEntry]:
        """Terms of several words: for each first token the longest term of each list."""
        followed = words[1:]  # a term of several words has a word after its first one
        for first, root in enumerate(map(self.phrases.get, words[:-1])):
            if root is not None:
                node = root.expand() if root.terms else root
                if followed[first] in node or followed[first] in _SKIPPED:
                    yield from _find_longest(node, first, words, doc)


def _find_longest(root: _Node, first: int, words: Sequence[str], doc: Document) -> Iterator[DictionaryEntry]:
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
    found: list[DictionaryEntry] = []
    for last, lists in reversed(ends):
        fresh = frozenset(name for name in lists if list_of_tag(name) not in seen)
        if fresh and not _ACROSS.search(doc.text, doc.tokens[first][0], doc.tokens[last - 1][1]):
            seen |= {list_of_tag(name) for name in fresh}
            found.append(DictionaryEntry(first, last, fresh))
    yield from reversed(found)


def read_terms(path: Path, *, ambiguous: bool = True) -> frozenset[str]:
    """The terms of a list file, with or without the ambiguous ones.

    Raises ``ConfigurationError`` for an invalid file.
    """
    plain, marked = _read(path)
    return frozenset((*plain, *marked)) if ambiguous else frozenset(plain)


def _read(path: Path) -> tuple[Sequence[str], Sequence[str]]:
    """The unambiguous and the ambiguous terms of a list.

    Raises ``ConfigurationError`` for an invalid file.
    """
    try:
        state = path.stat()
    except OSError as problem:
        raise ConfigurationError(f"{path}: cannot be read as UTF-8 ({type(problem).__name__})") from None
    return _read_version(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _read_version(path: Path, *_version: int) -> tuple[Sequence[str], Sequence[str]]:
    """The terms of a list. The dictionaries, the rules and the lists of words read some lists in turn."""
    lines = read_lines(path)
    head = next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))
    terms = lines[head:]
    if not terms:
        raise ConfigurationError(f"{path}: the list is empty: add a term or remove the file")
    first, *marked = "\n".join(("", *terms)).split(f"\n{AMBIGUOUS}")
    bare = "\n".join((first, *marked))[1:].split("\n") if marked else terms
    joined = "".join(bare)
    doubtful: Iterable[int] = range(len(bare))
    if joined.isascii() and joined == joined.lower() and all(map(lt, bare, bare[1:])):
        # In a sorted list of ASCII without capitals only a term with other characters than letters can have a fault.
        others = () if joined.isalpha() else filterfalse(str.isalpha, bare)
        doubtful = (bisect_left(bare, term) for term in others if not _is_simple_phrase(term))
    for at in doubtful:
        _check(f"{path}:{head + 1 + at}", bare[at], bare[at - 1] if at else "")
    ambiguous = [text.partition("\n")[0] for text in marked]
    return list(filterfalse(frozenset(ambiguous).__contains__, bare)) if marked else bare, ambiguous


def _is_simple_phrase(term: str) -> bool:
    """True for ASCII words without capitals that single blanks separate, if there are not too many words."""
    return term.replace(" ", "").isalnum() and term.count(" ") < LONGEST and term[0] > " " < term[-1]


def _check(place: str, term: str, last: str) -> None:
    """Raises ``ConfigurationError`` if ``term`` is invalid or does not follow ``last``."""
    fault = ""
    if term != fold_accents(term).strip() or term.startswith(("#", AMBIGUOUS)):
        fault = "the term is not folded: write it in lower case without accents and outer blanks, or remove it"
    elif not 1 <= len(_WORD.findall(term)) <= LONGEST:
        fault = f"the term needs 1 to {LONGEST} words"
    elif term == last:
        fault = "the term occurs twice: remove one"
    elif term < last:
        fault = "the term is out of order: sort the list"
    if fault:
        raise ConfigurationError(f"{place}: {fault}")


def _pieces(term: str) -> list[str]:
    return [t for t in _PIECE.findall(term) if t not in _SKIPPED]


def _add_phrases(terms: Sequence[str], name: str, roots: dict[str, _Root]) -> list[str]:
    """Add the terms of several tokens under their first tokens. Returns the terms of one token."""
    single = list(filter(str.isalpha, terms))
    for term in filterfalse(str.isalpha, terms) if len(single) < len(terms) else ():
        first, _, rest = term.partition(" ")
        if not (first.isalpha() and rest[:1].isalnum()):
            first, *others = _pieces(term)
            if not others:
                single.append(first)
                continue
        root = roots.get(first)
        if root is None:
            root = roots[first] = _Root()
        root.terms.append((name, term))
    return single


_WORD_LISTS = ("common-word", "rare-word", "abbreviation", "shorthand", "drug", "gene", "organism", "device", "eponym")


def load_words(rules: Path) -> frozenset[str]:
    """Every ordinary and clinical word of the dictionaries in folder ``rules``, also those inside longer terms.

    A list that is not there is skipped: it only makes fewer words known.
    """
    paths = (rules / "dictionary" / f"{name}.txt" for name in _WORD_LISTS)
    found: set[str] = set()
    for terms in chain.from_iterable(_read(path) for path in paths if path.exists()):
        found.update(filter(str.isalpha, terms))
        found.update(_WORD.findall("\n".join(filterfalse(str.isalpha, terms))))
    return frozenset(found)


@lru_cache(maxsize=1)
def _read_nicknames() -> "NickNamer":
    from nicknames import NickNamer  # noqa: PLC0415 - takes 20 ms, and most notes ask for no nickname

    return NickNamer()


@lru_cache(maxsize=8192)
def find_nicknames(name: str) -> frozenset[str]:
    """The nicknames of a given name, in lower case (Robert: bob, rob and others)."""
    return frozenset(str(nick) for nick in _read_nicknames().nicknames_of(name))


_NICKNAMES = TypeAdapter(dict[str, tuple[str, ...]])


def load_nicknames(rules: Path) -> Mapping[str, frozenset[str]]:
    """The nicknames of ``nicknames.toml`` in folder ``rules`` by given name, both folded; none without the file."""
    path = rules / "nicknames.toml"
    found = read_toml(path, _NICKNAMES) if path.exists() else {}
    return MappingProxyType({name: frozenset(nicks) for name, nicks in found.items()})


def are_nicknames(a: str, b: str) -> bool:
    """True if one of two given names is a nickname of the other."""
    return b in find_nicknames(a) or a in find_nicknames(b)
