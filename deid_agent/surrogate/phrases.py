"""Names of places and bodies: word by word, kind words kept, numbers replaced, all else as it stands."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.lists import Lists
from deid_agent.surrogate.names import core_of, drawn, image
from deid_agent.surrogate.numbers import other_digits
from deid_agent.surrogate.scripts import script_of, script_word
from deid_agent.surrogate.shape import fold, in_case_of
from deid_agent.surrogate.words import Word, words_of

_NUMBER = re.compile(r"(?i)(\d+)((?:st|nd|rd|th)(?![^\W\d_]))?")
_VOWEL = re.compile(r"[AEIOUY]")


@dataclass(frozen=True, slots=True)
class Phrase:
    """How one kind of name is replaced. ``kept`` are folded words that stay where another word names."""

    key: Key = field(repr=False)
    lists: Lists = field(repr=False)
    domain: str = field(repr=False)
    kept: Collection[str] = field(repr=False)
    endings: tuple[str, ...] = field(default=(), repr=False)
    abbreviation_endings: tuple[str, ...] = field(default=(), repr=False)
    initials: int = 5  # letters that initials in capitals have at most where nothing stands beside them

    def replaced(self, value: str) -> str:
        """``value`` with every word that is not kept replaced; the first, where all of them are and no number is."""
        words = [w for w in words_of(value) if not _in_ordinal(value, w)]
        naming = [w for w in words if fold(w.text) not in self.kept]
        if not naming and words and not re.search(r"\d", value):
            naming = words[:1]
        starts = {w.start for w in naming}
        last = naming[-1].start if naming else -1
        out: list[str] = []
        at = 0
        for word in words:
            out.append(self._numbers(value[at : word.start]))
            short = _is_short(word.text, value, self.initials)
            out.append(self._word(word, short, word.start == last) if word.start in starts else word.text)
            at = word.start + len(word.text)
        return "".join([*out, self._numbers(value[at:])])

    def _word(self, word: Word, short: bool, last: bool) -> str:
        script = script_of(word.text)
        if script is not None:
            return script_word(self.key, self.lists, self.domain, script, word.text, "family")
        if short:
            return self._abbreviation(word.text)
        before, core, after = core_of(word.text)
        folded = fold(core)
        if not folded or not folded[0].isalpha():
            return before + in_case_of(core, image(self.key, self.domain, "")) + after
        name = drawn(self.key, self.lists, self.domain, "family", "en", folded)
        if last and self.endings:
            name += self.endings[self.key.index(len(self.endings), self.domain, "ending", folded)]
        return before + in_case_of(core, name) + after

    def _abbreviation(self, word: str) -> str:
        """Initials: letter by letter as first letters are mapped; a last H or MC stays, as Hospital does."""
        end = next((e for e in self.abbreviation_endings if word.upper().endswith(e) and len(e) < len(word)), "")
        head = word[: len(word) - len(end)]
        new = "".join(in_case_of(c, image(self.key, self.domain, fold(c)[:1].upper())) for c in head)
        return new + word[len(head) :]

    def _numbers(self, text: str) -> str:
        return _NUMBER.sub(lambda m: self._ordinal(m[1], m[2]) if m[2] else self._digits(m[1]), text)

    def _ordinal(self, digits: str, suffix: str) -> str:
        new = self._digits(digits)
        tail = "th" if new[-2:] in ("11", "12", "13") else {"1": "st", "2": "nd", "3": "rd"}.get(new[-1], "th")
        return new + (tail.upper() if suffix.isupper() else tail)

    def _digits(self, digits: str) -> str:
        return other_digits(self.key, self.domain, digits)


def _in_ordinal(value: str, word: Word) -> bool:
    return word.text.lower() in ("st", "nd", "rd", "th") and word.start > 0 and value[word.start - 1].isdigit()


def _is_short(word: str, value: str, alone: int) -> bool:
    """True for initials: one letter, or up to five capitals that are not just part of a line in capitals.

    In such a line those without a vowel are initials; where they are the whole value, those of up to ``alone`` too.
    """
    if len(word) == 1:
        return True
    if len(word) > 5 or not word.isascii() or not word.isupper():
        return False
    return not value.isupper() or not _VOWEL.search(word) or (word == value and len(word) <= alone)
