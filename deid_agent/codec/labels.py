"""Labels of identity: a value beside "SSN" or "maiden name" is an identifier, although a bare number is usually kept.

``rules/labels.toml`` has the vocabulary, in several languages, and LOINC codes. A label is the code of an observation,
the text of a questionnaire item, the name of a parameter, the URL of an extension or the column of a table. Clinical
labels have no meaning here, so their values are read as if they had none: a laboratory value is never altered.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from deid_agent.model import CATEGORY, ConfigurationError, DateKind, PhiCategory, PhiType, Subject, ValueKind

FILE = "labels.toml"
LONGEST_LABEL = 160
"""Characters of a label that are read. A longer text is no label but prose."""
AGE_PLACEHOLDER = "90"
"""Replaces an age over 89: the rule's single category of 90 or older, as a number."""
_WORDS = re.compile(r"[^\W\d_]+|\d+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBER = re.compile(r"[<>=~ ]*(\d{1,12}(?:[.,]\d{1,6})?) *\+?")
_DECIMAL = re.compile(r"[-+]?\d+[.,]\d{1,3}")
_NAME_WORD = re.compile(r"[^\W\d_][^\W\d_.'’`-]*(?:[.'’`-][^\W\d_]*)*[.,]?|[(&/)-]")
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_AGE_TEXT = re.compile(
    r"(?i)(?<!\d)\d{2,3}(?!\d)|ninet|nonagen|hundred|centenar|novent|cien|nonant|quatre-vingt|cent|neunzig|hundert"
)
_DATED = re.compile(rf"\d{{4}}|\d[/.-]\d|\b{_MONTH}\b")
_WRITTEN_DATE = re.compile(rf"\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? '?\d\d|\b\d{{1,2}}\.? {_MONTH},? \d\d")
_SENTENCE = re.compile(r"[a-z]{4}[.;:!?]\s+\S")
_PROSE = re.compile(r"[.;:!?]\s+\S|\n")
_KIN = (
    "wife|husband|mother|father|son|daughter|brother|sister|aunt|uncle|niece|nephew|spouse|grandmother|grandfather|"
    "Ehefrau|Ehemann|Mutter|Vater|Sohn|Tochter|Bruder|Schwester|esposa|esposo|madre|padre|hijo|hija|hermano|hermana|"
    "moglie|marito|figlio|figlia|mari|femme|fils|fille"
)
_CUE = re.compile(
    r"[\w.+-]@[\w-]+\.\w"  # mail
    r"|(?<![\w.-])(?:\+?\d{1,3}[ .-])?\d{3}([ .-])\d{3}\1\d{4}(?![\w.-])|\(0?\d{2,4}\) ?\d{3}[ .-]?\d{3,5}"  # telephone
    r"|(?<![\w.])\+\d{1,3}[ .-]?\(?\d{1,4}\)?[ .-]?\d{3}|(?<![\w.-])0\d{2,4}[ /]\d{3}[ \d]{2,8}(?![\w.])"
    r"|(?<![\w.-])\d{3}-\d{2}-\d{4}(?![\w-])"  # social security
    r"|(?<=\s)\+?\d{7,}(?![\w.])|(?<![\w.])\+?\d{7,}(?=\s)"
    r"|(?<![\w.-])(?:1[89]|20)\d\d[-/]\d\d?[-/]\d\d?(?!\w)"
    r"|(?<![\w./])\d{1,2}([/.-])\d{1,2}\2(?:(?:19|20)\d\d|\d\d)(?![\w./])"
    rf"|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? '?\d\d|\b\d{{1,2}}\.? {_MONTH},? \d\d"
    r"|\b(?:Dr|DR|Mr|Mrs|MRS|Ms|Miss|MISS|Prof|PROF|Herr|Frau|HERR|FRAU|Sra?|Srta|Dra|Mme|Mlle|Signora|Dott|Doctor)\b"
    r"\.? ?[^\W\d_a-z]\w"
    rf"|\b(?i:{_KIN})\b,?(?: \(|:| is| named| called| -|,)? ?[A-Z\u00c0-\u00de][^\W\d_]"
    r"|\b(?i:mrn|ssn|dob|tel|phone|fax|pager|cell|mobile|born|telefon)\b[ .:#]{0,3}[\d(+]"
    r"|\b(?i:call|contact|named?|aka|alias|lives with|seen by|reported by|signed|per|ask)\b:? "
    r"[A-Z\u00c0-\u00de][a-z\u00df-\u00ff]+ [A-Z\u00c0-\u00de]"
)
_PART = r"(?:0|[1-9][0-9]{0,2})(?:\.[0-9]{1,3})?"
_READING = re.compile(
    rf"[<>]?=? ?{_PART} ?(?:/|-|–|to) ?{_PART}"  # 8/9, 20/40, 120/80; 11-20
    r"|[acmpruy]{0,3}T(?:[0-4][a-d]?|is|X) ?N(?:[0-3][a-d]?|X) ?M(?:[01][a-d]?|X)"  # the stage of a tumor
)
_LONGEST_READING = 20
_SHORT = frozenset({"ssn", "dob", "mrn", "zip", "fax", "name", "addr"})
_OLDEST_BELOW = 89
_PEOPLE = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_PHONES = frozenset({PhiType.PHONE, PhiType.FAX})
_FEW, _SOME, _MANY = 4, 5, 7
"""Digits of the shortest identifier beside a label that is not certain, of a postal code, and of a phone number."""
_SHORTEST_IN_CAPITALS = 5
"""Letters of the shortest word in capitals that is read as a name although no list has it; fewer are an acronym."""
_NAMES = ("given-female", "given-male", "family")
SHORTEST_CUE = 8
"""No text with fewer characters has a cue of identity."""


class LabelMeaning(NamedTuple):
    """The identity that a label names. ``certain`` is true if all words of the label belong to the meaning."""

    type: PhiType
    kind: ValueKind = ValueKind.VALUE
    subject: Subject = Subject.PATIENT
    certain: bool = True

    @property
    def date_kind(self) -> DateKind:
        """The kind of a date beside the label: all labels of dates are those of births."""
        return DateKind.BIRTH if self.type is PhiType.DATE else DateKind.EVENT


class _Phrase(NamedTuple):
    words: tuple[str, ...]
    rank: int
    anywhere: bool
    meaning: LabelMeaning


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Labels:
    """The vocabulary of labels; immutable, compared by identity. The meanings of the last labels are cached."""

    phrases: Mapping[str, tuple[_Phrase, ...]]
    codes: Mapping[str, LabelMeaning]
    filler: frozenset[str]
    never: frozenset[str]
    no_age: frozenset[str]
    answers: frozenset[str]
    groups: frozenset[str]
    things: frozenset[str]
    times: frozenset[str]
    states: frozenset[str]
    names: frozenset[str]

    def of_observation(self, texts: Iterable[str], codes: Iterable[str]) -> LabelMeaning | None:
        """The meaning of an observation: of the first text that has one, else of the first code of ``[loinc]``."""
        found = next((m for text in texts if text and (m := self.of_text(text)) is not None), None)
        return found or next((self.codes[code] for code in codes if code in self.codes), None)

    @lru_cache(maxsize=8192)  # noqa: B019 - one vocabulary for each process
    def of_text(self, text: str) -> LabelMeaning | None:
        """The meaning of a label; None for a clinical label, and for any other text."""
        words = split_label(text)
        if not words or not self.never.isdisjoint(words):
            return None
        if self.phrases.keys().isdisjoint(words) and not any(map(self._split_glued, words)):
            return None
        found: list[_Phrase] = []
        rest = False
        at = 0
        while at < len(words):
            phrase = self._phrase_at(words, at)
            if phrase is None and (glued := self._split_glued(words[at])):
                words[at : at + 1] = glued
            elif phrase is None:
                rest = rest or words[at] not in self.filler
                at += 1
            else:
                found.append(phrase)
                at += len(phrase.words)
        decisive = [phrase for phrase in found if phrase.anywhere or not rest]
        if not decisive:
            return None
        meaning = min(decisive, key=lambda phrase: phrase.rank).meaning
        if meaning.type is PhiType.AGE and not self.no_age.isdisjoint(words):
            return None
        return meaning._replace(certain=False) if rest else meaning

    def _phrase_at(self, words: list[str], at: int) -> _Phrase | None:
        """The longest phrase that begins at word ``at``."""
        known = self.phrases.get(words[at], ())
        return next((phrase for phrase in known if phrase.words == tuple(words[at : at + len(phrase.words)])), None)

    def _split_glued(self, word: str) -> list[str]:
        """A word of a column such as ``homephone`` or ``patientssn`` as two words; empty if it is not one."""
        if len(word) < 7 or word in self.phrases or word in self.filler:
            return []
        for at in range(3, len(word) - 2):
            first, second = word[:at], word[at:]
            if (
                second in self.phrases
                and (len(second) > 4 or second in _SHORT)
                and (first in self.filler or first in self.phrases)
            ):
                return [first, second]
        return []

    def judge(  # noqa: PLR0911 - one arm for each sort of identity
        self, meaning: LabelMeaning, value: str
    ) -> tuple[PhiType, ValueKind] | None:
        """PHI type and kind of ``value`` beside a label of this meaning.

        None if the value does not have a form of that type ("yes", "see note", an age under 90): it is then read as
        without the label.
        """
        core = value.strip()
        digits = sum(c.isdigit() for c in core)
        letters = sum(c.isalpha() for c in core)
        if not digits and (not letters or self.is_answer(core)):
            return None
        type_ = meaning.type
        if "@" in core and " " not in core and "." in core:
            return PhiType.EMAIL, ValueKind.VALUE
        if type_ is PhiType.AGE:
            return _judge_age(core)
        if type_ is PhiType.DATE:
            fits = digits >= _FEW and len(core) <= 40 and not (digits > 8 and letters == 0 and core.isdigit())
            return (PhiType.DATE if fits else PhiType.IDNUM, ValueKind.VALUE) if digits >= _FEW else None
        if type_ in _PHONES:
            return (type_, ValueKind.VALUE) if digits >= _SOME and letters <= 15 and len(core) <= 60 else None
        if type_ in _PEOPLE:
            return _judge_name(meaning, core, digits, letters)
        if CATEGORY[type_] is PhiCategory.ID or type_ is PhiType.USERNAME:
            return (type_, ValueKind.VALUE) if _is_identifier(core, digits, certain=meaning.certain) else None
        if CATEGORY[type_] is PhiCategory.CONTACT:
            return (type_, ValueKind.VALUE) if " " not in core and ("." in core or ":" in core) else None
        return _judge_place(type_, core, digits, letters)

    def is_answer(self, text: str) -> bool:
        """True for an answer that names nobody: yes, none, unknown, not applicable."""
        low = text.casefold().strip(" .,;!-")
        words = _WORDS.findall(low)
        return low in self.answers or not words or all(word in self.answers or word in self.filler for word in words)

    def may_name_things(self, text: str) -> bool:
        """True for a label such as "Name", which heads lists of problems and drugs as well as lists of people."""
        words = split_label(text)
        return bool(words) and self.things.issuperset(words)

    def is_state(self, text: str) -> bool:
        """True for the name of a state or province of ``rules/dictionary/state.txt``."""
        return text.strip().casefold() in self.states

    def names_time(self, text: str) -> bool:
        """True for a label of a point in time, beside which ``8/9`` is a day of a month."""
        return not self.times.isdisjoint(split_label(text))

    def lists_name(self, word: str) -> bool:
        """True if ``word`` is in the lists of given and family names."""
        return word.strip().casefold() in self.names

    def reads_as_person(self, text: str) -> bool:
        """True for two to four capitalized words, none an acronym or a word of a group, religion, language or label.

        Only for fields that hold such words alone: elsewhere it is true for many clinical terms.
        """
        if text.isalpha():  # one word
            return False
        words = text.replace(",", " ").split()
        if not 2 <= len(words) <= 4 or not all(
            len(word) > 1 and _NAME_WORD.fullmatch(word) and word[0].isupper() for word in words
        ):
            return False
        if any(
            word.isupper() and len(word) < _SHORTEST_IN_CAPITALS and word.lower() not in self.names for word in words
        ):
            return False  # acronyms: NIST MPI, Maven EDSS
        known = (self.groups, self.answers, self.filler)
        return not any(part in each for word in words for part in split_label(word) for each in known)


def is_reading(text: str) -> bool:
    """True for a whole value that is a score, a ratio, a range or a stage: ``8/9``, ``11-20``, ``T2N1M0``.

    A bare day of a month has the same form, so a label may have to tell (``Labels.names_time``).
    """
    return 3 <= len(text) <= _LONGEST_READING and _READING.fullmatch(text) is not None


def has_identity_cue(text: str) -> bool:
    """True if a coded text has a telephone number, a date, a mail address, a title or a relative before a name.

    The text of a standard code ("Parkinson disease", "Candida") has none of them.
    """
    if len(text) > LONGEST_LABEL:
        return _CUE.search(text) is not None
    return len(text) >= SHORTEST_CUE and _has_cue(text)


@lru_cache(maxsize=8192)
def _has_cue(text: str) -> bool:
    return _CUE.search(text) is not None


def split_label(text: str) -> list[str]:
    """The words of a label in lower case and without accents; empty for a text that is too long for a label."""
    if len(text) > LONGEST_LABEL:
        return []
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return _WORDS.findall(_HUMP.sub(" ", text).lower())


def _judge_age(core: str) -> tuple[PhiType, ValueKind] | None:
    if found := _NUMBER.fullmatch(core):
        over = float(found[1].replace(",", ".")) > _OLDEST_BELOW
        return (PhiType.AGE, ValueKind.REDACT) if over else None
    spelled = len(core) <= 60 and _AGE_TEXT.search(core) and not _PROSE.search(core) and not _DATED.search(core)
    return (PhiType.AGE, ValueKind.VALUE) if spelled else None


def _judge_name(meaning: LabelMeaning, core: str, digits: int, letters: int) -> tuple[PhiType, ValueKind] | None:
    if digits:
        if letters > digits or digits < _FEW:
            return None
        return (PhiType.PHONE if digits >= _MANY else PhiType.IDNUM), ValueKind.VALUE
    words = core.split()
    if (
        len(words) > 6
        or len(core) > 60
        or _SENTENCE.search(core)
        or not all(_NAME_WORD.fullmatch(word) for word in words)
    ):
        return None
    if core.islower():
        return None
    kind = ValueKind.NAME if meaning.kind is ValueKind.VALUE or "," in core or len(words) > 3 else meaning.kind
    return meaning.type, kind


def _is_identifier(core: str, digits: int, *, certain: bool) -> bool:
    if len(core) > 64 or _DECIMAL.fullmatch(core) or _WRITTEN_DATE.search(core):
        return False
    words = core.split()
    if digits:
        spelled = sum(1 for word in words if len(word) > 3 and word.isalpha())
        return digits >= (1 if certain else _FEW) and len(words) <= 6 and spelled <= 1
    return certain and len(words) == 1 and 3 < len(core) <= 24


def _judge_place(type_: PhiType, core: str, digits: int, letters: int) -> tuple[PhiType, ValueKind] | None:
    words = core.split()
    if type_ is PhiType.ZIP:
        fits = len(core) <= 12 and digits >= 3
    elif type_ is PhiType.STREET:
        fits = len(core) <= 120 and len(words) <= 16 and (digits > 0 or len(words) <= 6) and letters > 0
    else:
        fits = len(core) <= 60 and len(words) <= 7 and letters > 0 and not _PROSE.search(core)
    if not fits and digits >= _SOME and letters == 0:
        return PhiType.IDNUM, ValueKind.VALUE
    return (type_, ValueKind.VALUE) if fits else None


@lru_cache(maxsize=4)
def load_labels(rules: Path) -> Labels:
    """The vocabulary of ``rules/labels.toml``. Raises ``ConfigurationError`` that names the file and the key."""
    path = rules / FILE
    try:
        file = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        reason = problem if isinstance(problem, ValueError) else "cannot be read"
        raise ConfigurationError(f"{path}: {reason}") from None
    rows = file.get("meaning", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigurationError(f"{path}: meaning must be a list of tables")
    phrases: dict[str, list[_Phrase]] = {}
    for rank, row in enumerate(rows):
        where = f"{path}: meaning {rank + 1}"
        texts = _texts(row, where)
        kind, subject = texts.get("kind", "value"), texts.get("subject", "patient")
        meaning = _parse_meaning(f"{texts.get('type', '')} {kind}", where, subject)
        if unknown := texts.keys() - {"type", "kind", "subject", "anywhere", "alone"}:
            raise ConfigurationError(f"{where}: unknown key {min(unknown)}")
        for name, anywhere in (("anywhere", True), ("alone", False)):
            for words in _phrases_of(texts.get(name, "")):
                for form in dict.fromkeys((words, ("".join(words),))):
                    phrases.setdefault(form[0], []).append(_Phrase(form, rank, anywhere, meaning))
    listed = _texts(file.get("words"), f"{path}: words")
    return Labels(
        phrases={
            first: tuple(sorted(found, key=lambda p: (-len(p.words), p.rank))) for first, found in phrases.items()
        },
        codes={
            code: _parse_meaning(word, f"{path}: loinc.{code}")
            for code, word in _texts(file.get("loinc"), f"{path}: loinc").items()
        },
        filler=frozenset(listed.get("filler", "").split()),
        never=frozenset(listed.get("never", "").split()),
        no_age=frozenset(listed.get("no_age", "").split()),
        answers=frozenset(listed.get("answers", "").split()),
        groups=frozenset(listed.get("groups", "").split())
        | _read_terms(rules / "dictionary" / "language.txt")
        | _read_terms(rules / "dictionary" / "nationality.txt"),
        things=frozenset(listed.get("things", "").split()),
        times=frozenset(listed.get("times", "").split()),
        states=_read_terms(rules / "dictionary" / "state.txt"),
        names=frozenset().union(*(_read_terms(rules / "dictionary" / f"{name}.txt") for name in _NAMES)),
    )


def _read_terms(path: Path) -> frozenset[str]:
    return frozenset(path.read_text("utf-8").splitlines()) if path.is_file() else frozenset()


def _by_length(phrase: _Phrase) -> tuple[int, int]:
    return -len(phrase.words), phrase.rank


def _texts(table: object, where: str) -> dict[str, str]:
    if not isinstance(table, dict) or not all(isinstance(text, str) for text in table.values()):
        raise ConfigurationError(f"{where}: must be a table of strings")
    return table


def _phrases_of(text: str) -> Iterator[tuple[str, ...]]:
    for phrase in text.split(","):
        if words := tuple(split_label(phrase)):
            yield words


def _parse_meaning(word: str, where: str, subject: str = "patient") -> LabelMeaning:
    type_, _, kind = word.partition(" ")
    try:
        return LabelMeaning(PhiType(type_), ValueKind(kind or "value"), Subject(subject))
    except ValueError as problem:
        raise ConfigurationError(f"{where}: {problem}; name a PHI type, a kind and a subject") from None
