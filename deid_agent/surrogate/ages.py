"""Ages: as they are under 90; 90 for all above (45 CFR 164.514(b)(2)(i)(C))."""

import re

OLDEST = 90
_NUMBER = re.compile(
    r"(?<![\d.,])\d{2,3}(?![\d.,]*\d)(?!\s*(?:['’]?s\b|m\b|mo|w\b|wk|week|month|d\b|day|h\b|hr|hour|min))", re.I
)
_ONES = "one|two|three|four|five|six|seven|eight|nine"
_WORDS = re.compile(
    rf"(?:one|a)[\s-]+hundred(?:[\s-]+(?:and[\s-]+)?[a-z]+)?|hundred|ninety(?P<tie>[\s-]+)(?:{_ONES})\b", re.I
)


def age(value: str) -> str:
    """``value`` with every age over 89 years as 90 in the same writing; decades (late 90s) stay."""
    value = _NUMBER.sub(lambda m: str(OLDEST) if int(m[0]) > OLDEST else m[0], value)
    return _WORDS.sub(lambda m: _cased(m[0]), value)


def is_over_89(value: str) -> bool:
    """True where an age of 90 or more stands in ``value``."""
    number = any(int(m[0]) >= OLDEST for m in _NUMBER.finditer(value))
    return number or bool(re.search(r"(?i)ninet|hundred|centenarian|\b9\ds\b", value))


def _cased(original: str) -> str:
    if original.isupper():
        return "NINETY"
    return "Ninety" if original[0].isupper() else "ninety"
