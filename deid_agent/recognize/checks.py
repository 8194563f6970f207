"""Checks that a rule may ask for by name: check digits and calendars, text in, true or false out.

Pure and total: any text gives an answer, none raises. The check digits are there for rules of one's own, for unlabelled
numbers; no packaged rule refuses a labelled one for its digit. ``deploy/rules.md`` names all.
"""

import calendar
import ipaddress
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

_NUMBER = re.compile(r"\d+")


def digits(text: str) -> str:
    """The ASCII digits of ``text``."""
    return "".join(c for c in text if c in "0123456789")


def luhn(text: str) -> bool:
    """ISO/IEC 7812-1 annex B over the digits; at least two of them."""
    numbers = [int(c) for c in digits(text)]
    if len(numbers) < 2:
        return False
    doubled = (sum(divmod(2 * n, 10)) for n in numbers[-2::-2])
    return (sum(numbers[-1::-2]) + sum(doubled)) % 10 == 0


def npi(text: str) -> bool:
    """US National Provider Identifier: ten digits, Luhn with the prefix 80840 (45 CFR 162.406)."""
    number = digits(text)
    return len(number) == 10 and number[0] in "12" and luhn("80840" + number)


def nhs(text: str) -> bool:
    """NHS number: ten digits, weights 10 to 2 modulo 11 (NHS Data Dictionary, NHS NUMBER)."""
    number = digits(text)
    if len(number) != 10:
        return False
    rest = 11 - sum(int(c) * w for c, w in zip(number, range(10, 1, -1), strict=False)) % 11
    return rest % 11 == int(number[9]) and rest != 10


def vin(text: str) -> bool:
    """Vehicle identification number: 17 signs without I, O, Q and with letters and digits (ISO 3779).

    The North American check digit is not asked for: other markets do not set it.
    """
    return (
        len(text) == 17
        and text.isascii()
        and text.isalnum()
        and not set("IOQ") & set(text.upper())
        and sum(c.isdigit() for c in text) >= 5
        and any(c.isalpha() for c in text)
    )


def ssn(text: str) -> bool:
    """Nine digits whose area, group and serial are not all zeros; 9xx numbers (ITIN) count too."""
    number = digits(text)
    return len(number) == 9 and number[:3] not in ("000",) and number[3:5] != "00" and number[5:] != "0000"


def calendar_date(text: str) -> bool:
    """True where the numbers can be a date: year, month and day in any usual order, or month and day."""
    parts = _NUMBER.findall(text)
    if len(parts) == 1 and len(parts[0]) == 8:
        whole = parts[0]
        return _is_date(whole[:4], whole[4:6], whole[6:]) or _is_date(whole[4:], whole[:2], whole[2:4])
    if len(parts) == 3:
        a, b, c = parts
        return any(_is_date(y, m, d) for y, m, d in ((c, a, b), (c, b, a), (a, b, c)))
    if len(parts) == 2:
        return any(_is_date("2000", m, d) for m, d in (parts, reversed(parts)))
    return False


def no_calendar_date(text: str) -> bool:
    """Figures that are no day, month and year in any order: for what a label says to be a date."""
    return not calendar_date(" ".join(_NUMBER.findall(text)))


def impossible_date(text: str) -> bool:
    """Written like a day, month and year, but no day of any calendar in any order (``13/45/99``, ``31.02.2019``).

    The year comes first or last and has four figures from 1850 to 2150, or two; with two one of the others can be a
    day or a month, so that three readings (``62/34/44``) are none.
    """
    parts = _NUMBER.findall(text)
    if len(parts) != 3 or calendar_date(text):
        return len(parts) == 2 and any(c.isalpha() for c in text)  # a month by name with a day past its end
    years = [part for part in (parts[0], parts[2]) if len(part) == 4]
    if years:
        return 1850 <= int(years[0]) <= 2150
    return min(int(part) for part in parts[:2]) <= 31


_MISREAD = str.maketrans("lIOo", "1100")


def misread_date(text: str) -> bool:
    """A date in which a scanner took some, but not most, figures for letters."""
    return len(digits(text)) * 2 >= len(text.replace("/", "")) and calendar_date(text.translate(_MISREAD))


def _is_date(year: str, month: str, day: str) -> bool:
    if len(year) not in (2, 4) or len(month) > 2 or len(day) > 2:
        return False
    y, m, d = int(year), int(month), int(day)
    if len(year) == 4 and not 1850 <= y <= 2150:
        return False
    return 1 <= m <= 12 and 1 <= d <= (29 if m == 2 else calendar.monthrange(2001, m)[1])


def month_year(text: str) -> bool:
    """Month and year as numbers (``10/2013``, ``6/07``): month 1 to 12."""
    parts = _NUMBER.findall(text)
    return len(parts) == 2 and 1 <= int(parts[0]) <= 12


def plausible_year(text: str) -> bool:
    """A year between 1900 and 2099."""
    return any(1900 <= int(part) <= 2099 for part in _NUMBER.findall(text) if len(part) == 4)


def plausible_age(text: str) -> bool:
    """An age up to 120, or one in words."""
    found = _NUMBER.findall(text)
    return all(int(part) <= 120 for part in found)


def ip_v6(text: str) -> bool:
    """Eight groups, or fewer with one ``::`` (RFC 4291 section 2.2); clock times have neither."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def ip_address(text: str) -> bool:
    """Four octets up to 255, not a version number that starts with zero."""
    parts = text.split(".")
    return len(parts) == 4 and all(p.isascii() and p.isdigit() and int(p) <= 255 for p in parts) and parts[0] != "0"


def not_clock_or_year(text: str) -> bool:
    """False for four bare digits that read as a clock time on the hour's fives or a recent year."""
    if not (len(text) == 4 and text.isascii() and text.isdigit()):
        return True
    clock = int(text[:2]) < 24 and int(text[2:]) < 60 and text[-1] in "05"
    return not clock and not 1950 <= int(text) <= 2030


def postcode(text: str) -> bool:
    """Letters in both halves, as no dose, level or vertebra has."""
    out, _, inward = text.partition(" ")
    halves = (out, inward) if inward else (text[:3], text[3:])
    return any(c.isalpha() for c in halves[0]) and any(c.isalpha() for c in halves[1])


def username(text: str) -> bool:
    """Four characters or more, the first a letter, two letters at least: no vertebra, lead or vitamin (``C5``)."""
    return len(text) >= 4 and text[0].isalpha() and sum(c.isalpha() for c in text) >= 2


def street_number(text: str) -> bool:
    """False for a number that is no house number: zero, or a year's worth of zeros."""
    found = _NUMBER.findall(text)
    return bool(found) and int(found[0]) > 0


def has_digit(text: str) -> bool:
    """At least one digit."""
    return any(c.isdigit() for c in text)


def at_least(count: int) -> Callable[[str], bool]:
    """A check for ``count`` digits or more."""
    return lambda text: len(digits(text)) >= count


def has_letter_and_digit(text: str) -> bool:
    """Letters and digits both."""
    return has_digit(text) and any(c.isalpha() for c in text)


def mac(text: str) -> bool:
    """Six pairs of hexadecimal figures; with dashes and no letter they are a row of numbers."""
    pairs = text.replace("-", ":").split(":")
    return len(pairs) == 6 and ("-" not in text or any(c.isalpha() for c in text))


CHECKS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "luhn": luhn,
        "npi": npi,
        "nhs": nhs,
        "vin": vin,
        "ssn": ssn,
        "calendar-date": calendar_date,
        "impossible-date": impossible_date,
        "no-calendar-date": no_calendar_date,
        "month-year": month_year,
        "misread-date": misread_date,
        "plausible-year": plausible_year,
        "plausible-age": plausible_age,
        "ip-address": ip_address,
        "has-digit": has_digit,
        "two-digits": at_least(2),
        "three-digits": at_least(3),
        "four-digits": at_least(4),
        "five-digits": at_least(5),
        "seven-digits": at_least(7),
        "not-clock-year": not_clock_or_year,
        "ip-v6": ip_v6,
        "postcode": postcode,
        "username": username,
        "street-number": street_number,
        "mac": mac,
        "letter-and-digit": has_letter_and_digit,
    }
)
"""Every check by the name that rule files use."""
