"""Ages: as they are under 90; 90 for all above (45 CFR 164.514(b)(2)(i)(C))."""

import re

OLDEST = 90
_NUMBER = re.compile(
    r"(?<![\d.,])\d{2,3}(?:[.,]\d+)?(?![\d.,]*\d)"  # 92.5 is over 89; no version 92.5.1
    r"(?!\s*(?:['’]?s\b|(?-i:[mwdh])\b|mo|wk|week|month|day|hr|hour|min))",  # 92 m are months, 92 M is a man
    re.I,
)
_ONES = "one|two|three|four|five|six|seven|eight|nine"
_WORDS = re.compile(
    rf"(?:one|a)[\s-]+hundred(?:[\s-]+(?:and[\s-]+)?[a-z]+)?|hundred|ninety(?P<tie>[\s-]+)(?:{_ONES})\b", re.I
)


def age(value: str) -> str:
    """``value`` with every age over 89 years as 90 in the same writing; decades (late 90s) stay."""
    value = _NUMBER.sub(lambda m: str(OLDEST) if _years(m) > OLDEST else m[0], value)
    return _WORDS.sub(lambda m: _cased(m[0]), value)


def is_over_89(value: str) -> bool:
    """True where an age of 90 or more stands in ``value``."""
    number = any(_years(m) >= OLDEST for m in _NUMBER.finditer(value))
    return number or bool(re.search(r"(?i)ninet|hundred|centenarian|\b9\ds\b", value))


def _years(found: "re.Match[str]") -> float:
    return float(found[0].replace(",", "."))


def _cased(original: str) -> str:
    if original.isupper():
        return "NINETY"
    return "Ninety" if original[0].isupper() else "ninety"
