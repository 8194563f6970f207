"""The lists of a site folder: one value a line, as people write it, in ``lists/<TYPE>.txt``.

Names of people are indexed by the last word of the family name, other values by their first word. A value is split into
its parts when a text contains that word: most of 100,000 names are in no text. Values are compared token by token,
without case, accents and the signs of ``SKIPPED``.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deid_agent.model import ConfigurationError, PhiType, fold_accents
from deid_agent.rules.files import Lexicon

PEOPLE: Final = frozenset({PhiType.DOCTOR, PhiType.PATIENT})
MOST_LINES: Final = 1_000_000
LONGEST_VALUE: Final = 120
"""Characters of a value."""
SKIPPED: Final = frozenset(".-'’\u2010\u2011\u2012\u2013\u2212")
"""Signs that do not count inside of a value."""
SHORTEST_NUMBER: Final = 5
"""Digits of a value without a letter: shorter ones are results and doses too."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_DIRECTIONS = dict.fromkeys((0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF))
"""Marks of the direction of writing: spreadsheets put them around values, and texts do not repeat them."""
_LETTERS = re.compile(r"[^\W\d_]+")
_PIECE = re.compile(r"\d+|[^\W\d_]+|\S")
_SUFFIXES = frozenset({"jr", "sr", "ii", "iii", "iv"})
_CREDENTIALS = frozenset(
    {
        *("md", "do", "rn", "np", "pa", "phd", "mbbs", "msw", "lcsw", "pharmd", "dpt", "pt", "ot", "frcp", "frcs"),
        *("facs", "facc", "mph", "msn", "bsn", "crna", "aprn", "dnp", "lpn", "cnm", "dds", "dmd"),
    }
)
_BEFORE_NAME = frozenset(["dr", "drs", "doctor", "prof", "professor", "mr", "mrs", "ms", "miss", "mx", "sir"])


@dataclass(frozen=True, slots=True)
class Family:
    """The people of one family name: its folded words, and the given names and initials that occur with it."""

    words: tuple[str, ...] = field(repr=False)
    given: frozenset[str] = field(repr=False)
    initials: frozenset[str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class NameIndex:
    """Names of people by the last word of the family name. ``particles`` belong to the family name after them."""

    values: Mapping[str, Sequence[str]] = field(repr=False)
    particles: Lexicon = field(repr=False)
    _families: dict[str, Mapping[str, tuple[Family, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def families(self, word: str, before: str) -> Iterator[Family]:
        """The families whose name ends with the folded ``word``, the longest names first.

        ``before`` is the word in front of it: of thousands of double names in one word few have that one too.
        """
        found = self._families.get(word)
        if found is None:  # two threads that build it at once build the same
            found = self._families[word] = self._build(self.values.get(word, ()))
        yield from found.get(before, ())
        yield from found.get("", ()) if before else ()

    def _build(self, values: Iterable[str]) -> Mapping[str, tuple[Family, ...]]:
        given: dict[tuple[str, ...], set[str]] = {}
        initials: dict[tuple[str, ...], set[str]] = {}
        for value in values:
            words, names = split_name(value, self.particles)
            given.setdefault(words, set()).update(name for name in names if len(name) > 1)
            initials.setdefault(words, set()).update(name[0] for name in names[:1])
        found: dict[str, list[Family]] = {}
        for words in sorted(given, key=lambda each: (-len(each), each)):
            family = Family(words, frozenset(given[words]), frozenset(initials[words]))
            found.setdefault(words[-2] if len(words) > 1 else "", []).append(family)
        return {before: tuple(families) for before, families in found.items()}


class _Node(dict[str, "_Node"]):
    """The next tokens of terms. ``ends`` if a term ends here."""

    __slots__ = ("ends",)

    def __init__(self) -> None:
        self.ends = False


@dataclass(frozen=True, slots=True)
class TermIndex:
    """Values other than names of people, by their first token."""

    values: Mapping[str, Sequence[str]] = field(repr=False)
    _roots: dict[str, _Node] = field(default_factory=dict, init=False, repr=False, compare=False)

    def longest(self, tokens: Sequence[str], first: int) -> int:
        """The index after the last token of the longest value that begins at token ``first``; 0 if there is none."""
        node = self._roots.get(tokens[first])
        if node is None:
            node = self._roots[tokens[first]] = self._build(tokens[first])
        at, end = first + 1, first + 1 if node.ends else 0
        while at < len(tokens):
            below = node.get(tokens[at])
            if below is None and tokens[at] in SKIPPED:
                at += 1
                continue
            if below is None:
                break
            node, at = below, at + 1
            if node.ends:
                end = at
        return end

    def _build(self, word: str) -> _Node:
        root = _Node()
        for value in self.values.get(word, ()):
            node = root
            for token in _pieces(value)[1:]:
                node = node.setdefault(token, _Node())
            node.ends = True
        return root


@dataclass(frozen=True, slots=True)
class SiteLists:
    """The lists of all site folders by type. ``starts`` are the words by which they are indexed."""

    names: Mapping[PhiType, NameIndex] = field(default_factory=dict, repr=False)
    terms: Mapping[PhiType, TermIndex] = field(default_factory=dict, repr=False)
    starts: frozenset[str] = field(default=frozenset(), repr=False)


def split_name(value: str, particles: Lexicon = frozenset()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folded words of the family name and of the given names of ``Keller, Ruth M`` or ``Dr. Ruth M Keller, MD``."""
    parts: list[list[str]] = []
    for part in value.split(","):
        words = part.split()
        while words and _is_no_name(words, value, len(parts), len(parts[0]) if parts else 0):
            words.pop()
        if words:
            parts.append([fold_accents(word) for word in words])
    if not parts:
        return (), ()
    first, *others = parts
    if others:
        return _words(first), _words(others[0])
    while len(first) > 1 and first[0].strip(".") in _BEFORE_NAME:
        first = first[1:]
    at = len(first) - 1
    while at > 0 and (first[at - 1].strip(".'’") in particles and len(first[at - 1].strip(".")) > 1):
        at -= 1
    return _words(first[at:]), _words(first[:at])


def _is_no_name(words: Sequence[str], value: str, at: int, words_before: int) -> bool:
    """Return true if the last word of part ``at`` of a value is a suffix or a credential: ``Minh Do`` is a name."""
    last = words[-1].replace(".", "").partition("-")[0].lower()
    if last not in _CREDENTIALS:
        return last in _SUFFIXES
    if not value.isupper():
        return words[-1].isupper() and at + len(words) > 1
    return at > 1 or (at == 1 and words_before > 1) or (at == 0 and len(words) > 2)


def _words(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(_LETTERS.findall(" ".join(parts)))


def _pieces(value: str) -> list[str]:
    """The tokens of a value, as ``Document.folded_tokens`` has them, from its first letter or digit on."""
    found = [token for token in _PIECE.findall(fold_accents(value)) if token not in SKIPPED]
    while found and not found[0].isalnum():
        found.pop(0)
    return found


def index_values(path: Path, kind: PhiType, into: dict[str, list[str]]) -> None:
    """Add the values of a list file to ``into``, by the word that ``NameIndex`` or ``TermIndex`` has.

    Raises ``ConfigurationError`` with the file and the line, without the value, for a line that is no value.
    """
    people = kind in PEOPLE
    for number, value in read_values(path):
        if people:
            last = value.partition(",")[0].rsplit(None, 1)[-1] if value[0] != "," else ""
            key = last.lower() if last.isascii() and last.isalpha() else ""
            if not key or key in _SUFFIXES or key in _CREDENTIALS:
                key = (split_name(value)[0] or ("",))[-1]
        else:
            first = value.split(None, 1)[0]
            key = first.lower() if first.isascii() and first.isalpha() else ""
            if not key or key == value.lower():
                key = _check_term(value, _pieces(value))
        if not key:
            what = "has no family name" if people else f"has no letter and fewer than {SHORTEST_NUMBER} digits"
            raise ConfigurationError(f"{path}:{number}: the value {what}: correct or remove the line")
        into.setdefault(key, []).append(value)


def _check_term(value: str, pieces: Sequence[str]) -> str:
    digits = sum(c.isdigit() for c in value)
    letters = sum(c.isalpha() for c in value)
    return pieces[0] if pieces and (letters + digits > 1 if letters else digits >= SHORTEST_NUMBER) else ""


def read_values(path: Path) -> Iterator[tuple[int, str]]:
    """The values of a list file with their line numbers; empty lines and lines that begin with ``#`` are none.

    Raises ``ConfigurationError`` with the file and the line, without the value.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{path}: cannot be read as UTF-8 ({type(problem).__name__})") from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ").split("\n")
    if len(lines) > MOST_LINES + 1:
        raise ConfigurationError(f"{path}: more than {MOST_LINES} lines: divide the list, or leave out what is rare")
    plain, empty = text.isascii(), True
    for number, line in enumerate(lines, 1):
        value = (line if plain else line.translate(_DIRECTIONS)).strip()
        if not value or value[0] == "#":
            continue
        empty = False
        if not value.isprintable() and _CONTROL.search(value):
            raise ConfigurationError(f"{path}:{number}: a control character: correct or remove the line")
        if len(value) > LONGEST_VALUE:
            raise ConfigurationError(f"{path}:{number}: more than {LONGEST_VALUE} characters: write one value a line")
        yield number, value
    if empty:
        raise ConfigurationError(f"{path}: the list is empty: add a value or remove the file")


def plain_form(text: str) -> str:
    """``text`` without case and accents, its words divided by single blanks."""
    return " ".join(fold_accents(text).split())


def fits(value: str, kind: PhiType) -> bool:
    """Return true if a list of this type may have the value."""
    if not value or value[0] == "#" or len(value) > LONGEST_VALUE or _CONTROL.search(value):
        return False
    if kind in PEOPLE:
        return bool(split_name(value)[0])
    return bool(_check_term(value, _pieces(value)))


def merge_values(path: Path, values: Iterable[str]) -> tuple[int, int]:
    """Add ``values`` to a list file, sorted, mode 0600. Returns how many are new, and how many it has now.

    Values that differ only in case, accents or blanks are one. Comments at the beginning of the file remain. Raises
    ``ConfigurationError`` for a file that is no list.
    """
    head: list[str] = []
    old: list[str] = []
    if path.exists():
        old = [value for _, value in read_values(path)]
        for line in path.read_text("utf-8-sig").splitlines():
            if not line.startswith("#"):
                break
            head.append(line)
    merged: dict[str, str] = {}
    for value in (*old, *sorted(values)):
        merged.setdefault(plain_form(value), value)
    lines = [*head, *(value for _, value in sorted(merged.items()))]
    write_private(path, "".join(f"{line}\n" for line in lines))
    return len(merged) - len(set(map(plain_form, old))), len(merged)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read; the old file remains if that fails. Folders have mode 0700."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=".", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
