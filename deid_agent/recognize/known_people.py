"""The people in the structured part of a message, in the form in which the name finders search for them.

One group of facts gives one person: family names, given names and initials. Nicknames of a given name count as given
names.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from deid_agent.model import (
    ConfigurationError,
    Document,
    Fact,
    PhiType,
    Source,
    SourceKind,
    Span,
    Subject,
    ValueKind,
    fold_accents,
)
from deid_agent.recognize.name_contexts import InitialsContexts, PersonContexts
from deid_agent.rules import Lexicon, Ruleset, find_nicknames, load_nicknames

_FORMS = ("name", "initials", "date", "number", "value", "place")
KNOWN_SOURCES: Mapping[tuple[Subject, str], Source] = {
    (subject, form): Source(SourceKind.KNOWN, f"{subject.value}-{form}") for subject in Subject for form in _FORMS
}
"""The source of known PHI by the subject of the fact and the form in which the text repeats it."""
_SUBJECTS = {source: subject for (subject, _), source in KNOWN_SOURCES.items()}


def subject_of(source: Source) -> Subject:
    """The subject of a source of known PHI. Raises ``KeyError`` for any other source."""
    return _SUBJECTS[source]


@dataclass(frozen=True, slots=True)
class NameLexicons:
    """The word lists and contexts that distinguish names from words (files of ``rules``)."""

    common: Lexicon = field(repr=False)
    particles: Lexicon = field(repr=False)
    titles: Lexicon = field(repr=False)
    not_initials: Lexicon = field(repr=False)
    site_kinds: Lexicon = field(repr=False)
    headings: Lexicon = field(repr=False)
    person: PersonContexts
    initials: InitialsContexts
    nicknames: Mapping[str, frozenset[str]] = field(repr=False)
    """Nicknames in addition to those of the library (``rules/nicknames.toml``)."""
    words: Lexicon = field(default=frozenset(), repr=False)
    """Every ordinary and clinical word: no misspelling of a short name. Empty: short names are not misspelt."""

    @staticmethod
    def of(rules: Ruleset, words: Lexicon = frozenset()) -> "NameLexicons":
        """The lists of a rule set. Raises ``ConfigurationError`` with the name of a missing list or context."""
        try:
            common, particles, titles, not_initials, site_kinds, headings = (rules.lexicons[name] for name in _LISTS)
        except KeyError as fault:
            raise ConfigurationError(f"rules/lexicon: known PHI needs the list {fault.args[0]}.txt") from None
        return NameLexicons(
            common=common,
            particles=particles,
            titles=titles,
            not_initials=not_initials,
            site_kinds=site_kinds,
            headings=headings,
            person=PersonContexts.of(rules),
            initials=InitialsContexts.of(rules),
            nicknames=load_nicknames(rules.folder),
            words=words,
        )

    def nicknames_of(self, name: str) -> frozenset[str]:
        """The nicknames of the folded given name by which a note may call the person."""
        return find_nicknames(name) | self.nicknames.get(name, frozenset())

    def is_distinctive(self, word: str) -> bool:
        """Return true if the folded ``word`` is a name even on its own: long enough, no common word, no particle."""
        return len(word) > 2 and word not in self.common and word not in self.particles

    def is_unknown(self, word: str) -> bool:
        """Return true if the folded ``word`` is certainly no ordinary or clinical word of English."""
        return bool(self.words) and word.isascii() and word not in self.words and word not in self.common


_LISTS = ("common", "name-particle", "name-title", "not-initials", "site-kind", "heading")


@dataclass(frozen=True, slots=True)
class Person:
    """One person: folded name parts, initials of the given names, and names joined without a blank."""

    type: PhiType
    subject: Subject
    family: frozenset[str] = field(repr=False)
    given: frozenset[str] = field(repr=False)
    initials: tuple[str, ...] = field(repr=False)
    joined: frozenset[str] = field(default=frozenset(), repr=False)
    compounds: frozenset[tuple[str, ...]] = field(default=frozenset(), repr=False)
    """The words of each name of several words: ``van der berg``, ``o leary``."""

    @property
    def source(self) -> Source:
        return KNOWN_SOURCES[self.subject, "name"]


def build_people(facts: Sequence[Fact], words: NameLexicons, *, nicknames: bool = True) -> tuple[Person, ...]:
    """The persons of the facts, one for each group, type and subject, in the order of their first fact.

    Persons with the same names are included once.
    """
    groups: dict[tuple[str, PhiType, Subject], list[Fact]] = {}
    for fact in facts:
        if fact.kind in (ValueKind.FAMILY, ValueKind.GIVEN, ValueKind.NAME):
            groups.setdefault((fact.group, fact.type, fact.subject), []).append(fact)
    built = (_person(kind, subject, group, words, nicknames) for (_, kind, subject), group in groups.items())
    return tuple(dict.fromkeys(person for person in built if person.family or person.given))


def _person(kind: PhiType, subject: Subject, facts: Iterable[Fact], words: NameLexicons, nicknames: bool) -> Person:
    family: list[str] = []
    given: list[str] = []
    compounds: set[tuple[str, ...]] = set()
    for fact in facts:
        first, last = fact.value, ""
        if fact.kind is ValueKind.FAMILY:
            first, last = "", fact.value
        elif fact.kind is ValueKind.NAME:
            last, _, first = fact.value.partition(",")
            if all(fold_accents(word.strip(".,")) in words.titles for word in first.split()):
                first, last = _split(last, words)
        family += _parts(last, words)
        given += _parts(first, words)
        compounds |= {*_compounds(last), *_compounds(first)}
        family += ("".join(each) for each in _compounds(last) if len("".join(each)) >= _SHORTEST_DOUBLE)
    letters = tuple(w[0] for w in given if w[0].isalpha())
    nicks = {nick for word in given if nicknames and len(word) > 2 for nick in words.nicknames_of(word)}
    full = frozenset(w for w in given if len(w) > 1) | frozenset(n for n in nicks if len(n) > 1 and n.isalpha())
    full |= frozenset(a + b for a, b in pairwise(given) if min(len(a), len(b)) > 2 and len(a + b) >= _SHORTEST_DOUBLE)
    joined = frozenset(name for name in _join_names(family, given, words) if name not in words.words)
    names = frozenset(w for w in family if len(w) > 1)
    return Person(kind, subject, names, full, letters, joined, frozenset(compounds))


def _compounds(name: str) -> Iterator[tuple[str, ...]]:
    """The words of ``name`` if they are several; apostrophes, hyphens and blanks divide them."""
    for written in dict.fromkeys((name, unicodedata.normalize("NFC", name).translate(_WITHOUT_UMLAUTS))):
        words = tuple(fold_accents(word) for word in _LETTERS.findall(APOSTROPHES.sub("'", written)))
        if 1 < len(words) <= _MOST_WORDS:
            yield words


def _join_names(family: Sequence[str], given: Sequence[str], words: NameLexicons) -> Iterator[str]:
    """The joined forms of a name in addresses and user names (``quixwellzoriana``, ``zquixwell``)."""
    for last in family:
        for first in given:
            apart = words.is_distinctive(first), words.is_distinctive(last)
            least = _SHORTEST_JOINED - words.is_unknown(first + last)
            if len(first) > 2 < len(last) and any(apart) and len(first + last) + all(apart) > least:
                yield from (first + last, last + first)
        if len(given) > 1:
            yield from ("".join((*given, last)), "".join((last, *given)))
            letters = "".join(first[0] for first in given)
            logins = (last + letters, letters + last)
            yield from (name for name in logins if len(name) >= _SHORTEST_LOGIN and words.is_unknown(name))
        if given and len(last) > 4 and words.is_distinctive(last):
            first = given[0]
            yield from (first[0] + last, last + first[0])
            yield from (first[:n] + last for n in (2, 3) if len(first) > n)
            if len(given) > 1:
                yield first[0] + given[1][0] + last


_SHORTEST_LOGIN = 5
"""A family name with all initials (``gohhm``) has so many letters."""
_SHORTEST_JOINED = 7
"""Two joined names must have more letters than this, or as many if neither is a word."""
_MOST_WORDS = 5
_LONGEST = 64
_LETTERS = re.compile(r"[^\W\d_]+")
APOSTROPHES = re.compile("[\u02b9-\u02bf\u2018\u2019\u2032`\u00b4]")
"""Letters and signs that are written for an apostrophe: the okina of Kealiʻi is a letter."""
_SHORTEST_DOUBLE = 6
"""Two given names without a blank (``Meiling``) are one name if it has so many letters."""
_WITHOUT_UMLAUTS = str.maketrans(
    {
        **{"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"},
        **{"Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "Å": "Aa", "Ø": "Oe"},
    }
)


def _split(name: str, lists: NameLexicons) -> tuple[str, str]:
    """The given and the family part of a name in reading order; particles belong to the family name."""
    words = [w for w in name.split() if fold_accents(w.strip(".,")) not in lists.titles]
    at = len(words) - 1
    while at > 1 and fold_accents(words[at - 1]) in lists.particles:
        at -= 1
    return " ".join(words[:at]), " ".join(words[at:])


def _parts(name: str, lists: NameLexicons) -> Iterator[str]:
    """The folded words of a name; for ``O'Leary`` and ``Al-Rashid`` also the joined form; ``mueller`` for Müller."""
    if not name.isascii() and (spelt := unicodedata.normalize("NFC", name).translate(_WITHOUT_UMLAUTS)) != name:
        yield from _parts(spelt, lists)
    for chunk in name.split():
        words = [fold_accents(chunk[a:b]) for a, b in Document(chunk).tokens if chunk[a].isalpha()]
        # Do, Ma and Pa are Asian family names: a complete field of two letters is no title
        yield from (w for w in words if w not in lists.titles or (name == chunk and len(w) == 2))
        if len(words) > 1:
            yield "".join(words)


# Names in Han, Hangul and kana, which are written without blanks: they are found as strings and not as words.
#
# The forms of a person are: family and given name together, with or without a blank or a middle dot between them;
# either name alone if it has at least two characters (a Hangul name only at the start of a word and before a particle
# or the end of the word); and a family name of one character before a form of address (``王先生``, ``김 환자``).
# A single character is an ordinary word.

_EAST_ASIAN = "\u3005\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
_NAME = re.compile(rf"[{_EAST_ASIAN}\U00020000-\U0003134f]{{1,12}}")
_ANY = re.compile(rf"[{_EAST_ASIAN}\U00020000-\U0003134f]")
_HANGUL = re.compile(r"[\uac00-\ud7a3]{2,}")
_PARTICLE = re.compile(
    r"(?:은|는|이|가|을|를|의|에게|에|께서|께|와|과|도|만|씨|님|군|양|환자|아|야)?"
    r"(?:은|는|이|가|을|를|의|에게|께서|께)?(?![\uac00-\ud7a3])"
)
_ADDRESS = re.compile(
    r" ?(?:先生|女士|小姐|太太|医生|醫生|医师|醫師|主任|患者|同志|さん|さま|様|氏|殿|くん|君|ちゃん|医師|"
    r"씨|님|군|양|환자|선생|여사|교수|의사)"
)
_NAME_SEPARATORS = ("", " ", "\u3000", "·", "・", "，", ", ", ",")


@dataclass(frozen=True, slots=True)
class _Form:
    """One string to find, with the type and subject of its spans."""

    text: str = field(repr=False)
    type: PhiType
    subject: Subject
    whole: bool = False
    """Family and given name together, which count in any context."""


@dataclass(frozen=True, slots=True)
class EastAsianNameFinder:
    """Finds names in Han, Hangul and kana; ``forms`` are indexed by their first two characters."""

    forms: Mapping[str, Sequence[_Form]] = field(repr=False)

    @classmethod
    def from_facts(cls, facts: Sequence[Fact]) -> "EastAsianNameFinder":
        """The finder of the names among ``facts``."""
        groups: dict[tuple[str, PhiType, Subject], tuple[list[str], list[str]]] = {}
        for fact in facts:
            if fact.kind in (ValueKind.FAMILY, ValueKind.GIVEN, ValueKind.NAME) and not fact.value.isascii():
                family, given = groups.setdefault((fact.group, fact.type, fact.subject), ([], []))
                words = _NAME.findall(unicodedata.normalize("NFC", fact.value))
                (given if fact.kind is ValueKind.GIVEN else family).extend(words)
        forms: dict[str, dict[_Form, None]] = {}
        for (_, kind, subject), (family, given) in groups.items():
            whole = [a + separator + b for a in family for b in given for separator in _NAME_SEPARATORS]
            found = [_Form(text, kind, subject, whole=True) for text in whole]
            found += [_Form(text, kind, subject) for text in (*family, *(g for g in given if len(g) > 1))]
            for form in found:
                forms.setdefault(form.text[:2], {})[form] = None
        return cls({key: sorted(own, key=lambda form: -len(form.text)) for key, own in forms.items()})

    def proves_absence(self, doc: Document, *, in_rows: bool) -> bool:  # noqa: ARG002
        """See ``KnownRecognizer.proves_absence``."""
        return not self.forms or doc.text.isascii()

    def find(self, doc: Document) -> Iterator[Span]:
        """The spans of the names: the longest form at each position, and none inside another."""
        if not self.forms:
            return
        text = doc.text
        covered: dict[tuple[PhiType, Subject], int] = {}
        for found in _ANY.finditer(text):
            at = found.start()
            for form in (*self.forms.get(text[at : at + 2], ()), *self.forms.get(text[at], ())):
                of, end = (form.type, form.subject), at + len(form.text)
                if at >= covered.get(of, 0) and text.startswith(form.text, at) and _is_in_context(form, text, at):
                    covered[of] = end
                    yield Span(at, end, form.type, KNOWN_SOURCES[form.subject, "name"])


def _is_in_context(form: _Form, text: str, at: int) -> bool:
    end = at + len(form.text)
    if form.whole:
        return True
    if len(form.text) == 1:
        return _ADDRESS.match(text, end) is not None
    if _HANGUL.fullmatch(form.text):
        return not (at and _HANGUL.match(text[at - 1] * 2)) and _PARTICLE.match(text, end) is not None
    return True
