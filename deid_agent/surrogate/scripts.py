"""Names in scripts other than Latin."""

from functools import lru_cache

from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.lists import Lists
from deid_agent.surrogate.shape import fold, in_case_of

_RANGES = (
    ("greek", 0x0370, 0x03FF),
    ("cyrillic", 0x0400, 0x052F),
    ("armenian", 0x0530, 0x058F),
    ("hebrew", 0x0590, 0x05FF),
    ("arabic", 0x0600, 0x077F),
    ("devanagari", 0x0900, 0x097F),
    ("bengali", 0x0980, 0x09FF),
    ("gujarati", 0x0A80, 0x0AFF),
    ("tamil", 0x0B80, 0x0BFF),
    ("thai", 0x0E00, 0x0E7F),
    ("georgian", 0x10A0, 0x10FF),
    ("hangul", 0x1100, 0x11FF),
    ("kana", 0x3040, 0x30FF),
    ("han", 0x3400, 0x9FFF),
    ("hangul", 0xAC00, 0xD7AF),
)


def script_of(word: str) -> str | None:
    """The script that the word's first letter is written in; None for Latin and for scripts without a list."""
    point = ord(word[0]) if word else 0
    if point < 0x0370:
        return None
    return next((name for name, first, last in _RANGES if first <= point <= last), None)


def script_word(key: Key, lists: Lists, domain: str, script: str, word: str, part: str) -> str:
    """A name of that script: ``part`` is family, given, or whole (family and given name without a space)."""
    if part == "whole" and script in ("han", "hangul") and len(word) > 1:
        double = len(word) > 2 and lists.has("family", fold(word[:2]))
        cut = 2 if double else 1
        family = _drawn(key, lists, domain, script, "family", word[:cut])
        return family + _drawn(key, lists, domain, script, _gender(key, lists, domain, word[cut:]), word[cut:])
    if part == "whole":
        part = "family" if lists.has("family", fold(word)) else "given"
    gender = part if part == "family" else _gender(key, lists, domain, word)
    return _drawn(key, lists, domain, script, gender, word)


def _gender(key: Key, lists: Lists, domain: str, word: str) -> str:
    folded = fold(word)
    female, male = lists.has("female", folded), lists.has("male", folded)
    if female != male:
        return "female" if female else "male"
    return ("female", "male")[key.index(2, domain, "gender", folded)]


@lru_cache(maxsize=8192)
def _drawn(key: Key, lists: Lists, domain: str, script: str, part: str, word: str) -> str:
    pool = lists.pools[script, part].words
    folded = fold(word)
    alike = [name for name in pool if len(name) == len(word)]
    choice = alike if len(alike) > 1 else list(pool)
    at = key.index(len(choice), domain, part, folded)
    new = choice[at]
    return in_case_of(word, new if fold(new) != folded else choice[(at + 1) % len(choice)])
