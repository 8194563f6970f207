"""Checks of identifiers and dates: check digits, forms and calendars.

``CHECKS`` has the checks that a rule file may name: from the text of a span to true or false. They accept any text and
never raise. The check digits are for custom rules about unlabelled numbers; no packaged rule rejects a labelled number
because of its check digit. ``docs/rules.md`` documents every check.

``checksum_scheme`` names the scheme that an identifier satisfies, so that a surrogate can satisfy the same scheme.
"""

import calendar
import ipaddress
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

NPI = "npi"
NHS = "nhs"
VIN = "vin"
DEA = "dea"
HEXADECIMAL = "hex"
MBI = "mbi"
VIN_FORM = "vin-form"
NO_SCHEME = ""

_VIN_VALUES = dict(zip("ABCDEFGHJKLMNPRSTUVWXYZ", [*range(1, 9), *range(1, 6), 7, 9, *range(2, 10)], strict=True))
_VIN_WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
_VIN_FORM = re.compile(r"[A-HJ-NPR-Z0-9]{8}[0-9X][A-HJ-NPR-Z0-9]{8}")
_MBI_LETTER = "[AC-HJKMNP-RT-Y]"  # without the letters that look like digits
_MBI_FORM = re.compile(  # Medicare beneficiary identifier, which has no check digit (CMS, 2017)
    rf"[1-9]{_MBI_LETTER}(?:[0-9]|{_MBI_LETTER})[0-9]{_MBI_LETTER}(?:[0-9]|{_MBI_LETTER})[0-9]{_MBI_LETTER}{{2}}[0-9]{{2}}"
)
_WRITTEN_DATE = re.compile(
    r"(?:19|20)[0-9]{2}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[1-9]|[12][0-9]|3[01])-(?:0[1-9]|[12][0-9]|3[01])-(?:19|20)[0-9]{2}"
)
_DEA_FORM = re.compile(r"[A-Z]{2}[0-9]{7}")
_HEX_FORM = re.compile(r"(?![A-F]{1,3}[0-9]+\Z)(?=.*[0-9])(?=.*[A-F])[0-9A-F]{12,}")  # not AB0004471902


def checksum_scheme(text: str) -> str:
    """The first scheme whose checksum or form ``text`` (digits and capital letters) satisfies, or ``NO_SCHEME``."""
    if len(text) == 10 and text.isdigit():
        return NPI if is_npi(text) else NHS if is_nhs(text) else NO_SCHEME
    if len(text) == 9 and is_dea(text):
        return DEA
    if len(text) == 17 and is_vin(text):
        return VIN
    if _HEX_FORM.fullmatch(text):
        return HEXADECIMAL
    if len(text) == 11 and _MBI_FORM.fullmatch(text):
        return MBI
    # The form of a VIN without a valid check digit: from another continent, or mistyped.
    return VIN_FORM if len(text) == 17 and not text.isdigit() and _VIN_FORM.fullmatch(text) else NO_SCHEME


def is_npi(text: str) -> bool:
    """Return true if ten digits are a US National Provider Identifier.

    The first digit is 1 or 2, and the Luhn sum includes the prefix 80840 (45 CFR 162.406).
    """
    if text[0] not in "12":
        return False
    total = 24 + int(text[9])
    for place, digit in enumerate(text[:9]):
        value = int(digit) * (1 if place % 2 else 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def is_nhs(text: str) -> bool:
    """Return true if ten digits are an NHS number (England, Wales) or a CHI number (Scotland).

    A CHI number begins with a date of birth, DDMMYY, and no other number begins with 0. Without this condition one of
    eleven record numbers with leading zeros would count as an NHS number, and would no longer match the same record
    number without the zeros.
    """
    if text[0] == "0" and not (text[1] != "0" and 1 <= int(text[2:4]) <= 12):
        return False
    return _has_nhs_check_digit(text)


def is_dea(text: str) -> bool:
    """Return true for a DEA registration: two letters and seven digits, the last a check digit (21 CFR 1301)."""
    if not _DEA_FORM.fullmatch(text):
        return False
    digits = [int(c) for c in text[2:]]
    return (sum(digits[0:6:2]) + 2 * sum(digits[1:6:2])) % 10 == digits[6]


def is_vin(text: str) -> bool:
    """Return true for a vehicle identification number with a valid check digit in position nine (49 CFR 565.15)."""
    if not _VIN_FORM.fullmatch(text):
        return False
    values = (_VIN_VALUES[c] if c.isalpha() else int(c) for c in text)
    rest = sum(value * weight for value, weight in zip(values, _VIN_WEIGHTS, strict=True)) % 11
    return text[8] == ("X" if rest == 10 else str(rest))


def _has_nhs_check_digit(text: str) -> bool:
    """Weights 10 to 2, modulus 11 (NHS Data Dictionary, NHS NUMBER)."""
    total = sum(int(digit) * weight for digit, weight in zip(text[:9], range(10, 1, -1), strict=True))
    return (11 - total % 11) % 11 == int(text[9])


# The checks of rule files.

_NUMBER = re.compile(r"\d+")
_MISREAD = str.maketrans("lIOo", "1100")


def _digits(text: str) -> str:
    return "".join(c for c in text if c in "0123456789")


def _passes_luhn(text: str) -> bool:
    """ISO/IEC 7812-1 annex B over the digits, of which there are at least two."""
    numbers = [int(c) for c in _digits(text)]
    if len(numbers) < 2:
        return False
    doubled = (sum(divmod(2 * n, 10)) for n in numbers[-2::-2])
    return (sum(numbers[-1::-2]) + sum(doubled)) % 10 == 0


def _contains_npi(text: str) -> bool:
    number = _digits(text)
    return len(number) == 10 and is_npi(number)


def _contains_nhs_number(text: str) -> bool:
    number = _digits(text)
    return len(number) == 10 and _has_nhs_check_digit(number)


def _looks_like_vin(text: str) -> bool:
    """17 letters and digits without I, O and Q (ISO 3779), at least five of them digits.

    The check digit is not verified: only North America requires it.
    """
    return (
        len(text) == 17
        and text.isascii()
        and text.isalnum()
        and not set("IOQ") & set(text.upper())
        and sum(c.isdigit() for c in text) >= 5
        and any(c.isalpha() for c in text)
    )


def _is_ssn(text: str) -> bool:
    """Nine digits whose area, group and serial number are not all zeros. Numbers 9xx (ITIN) are included."""
    number = _digits(text)
    return len(number) == 9 and number[:3] != "000" and number[3:5] != "00" and number[5:] != "0000"


def _is_calendar_date(text: str) -> bool:
    """The numbers can be a date: year, month and day in any usual order, or month and day."""
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


def _is_date(year: str, month: str, day: str) -> bool:
    if len(year) not in (2, 4) or len(month) > 2 or len(day) > 2:
        return False
    y, m, d = int(year), int(month), int(day)
    if len(year) == 4 and not 1850 <= y <= 2150:
        return False
    return 1 <= m <= 12 and 1 <= d <= (29 if m == 2 else calendar.monthrange(2001, m)[1])


def _is_no_calendar_date(text: str) -> bool:
    """The numbers are no date in any order, although a label announces a date."""
    return not _is_calendar_date(" ".join(_NUMBER.findall(text)))


def _is_impossible_date(text: str) -> bool:
    """The text has the form of a date, but no order gives a date of the calendar (``13/45/99``, ``31.02.2019``).

    The year is the first or the last number. It has four digits from 1850 to 2150, or two digits. With a two-digit year
    one of the other numbers must be a possible day or month, which excludes three readings (``62/34/44``).
    """
    parts = _NUMBER.findall(text)
    if len(parts) != 3 or _is_calendar_date(text):
        return len(parts) == 2 and any(c.isalpha() for c in text)  # a named month with a day past its end
    years = [part for part in (parts[0], parts[2]) if len(part) == 4]
    if years:
        return 1850 <= int(years[0]) <= 2150
    return min(int(part) for part in parts[:2]) <= 31


def _is_misread_date(text: str) -> bool:
    """A date in which a scanner has read some digits, but less than half of them, as letters."""
    return len(_digits(text)) * 2 >= len(text.replace("/", "")) and _is_calendar_date(text.translate(_MISREAD))


def _is_month_and_year(text: str) -> bool:
    """Month and year as numbers (``10/2013``, ``6/07``), month 1 to 12."""
    parts = _NUMBER.findall(text)
    return len(parts) == 2 and 1 <= int(parts[0]) <= 12


def _has_plausible_year(text: str) -> bool:
    """A year from 1900 to 2099."""
    return any(1900 <= int(part) <= 2099 for part in _NUMBER.findall(text) if len(part) == 4)


def _has_plausible_age(text: str) -> bool:
    """An age up to 120, or an age in words."""
    return all(int(part) <= 120 for part in _NUMBER.findall(text))


def _is_ip_v6(text: str) -> bool:
    """Eight groups, or fewer with one ``::`` (RFC 4291 section 2.2); a clock time has neither."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_ip_v4(text: str) -> bool:
    """Four octets up to 255; a first octet of zero indicates a version number."""
    parts = text.split(".")
    return len(parts) == 4 and all(p.isascii() and p.isdigit() and int(p) <= 255 for p in parts) and parts[0] != "0"


def _is_no_clock_or_year(text: str) -> bool:
    """False for four digits that can be a clock time in steps of five minutes, or a recent year."""
    if not (len(text) == 4 and text.isascii() and text.isdigit()):
        return True
    clock = int(text[:2]) < 24 and int(text[2:]) < 60 and text[-1] in "05"
    return not clock and not 1950 <= int(text) <= 2030


def _is_postcode(text: str) -> bool:
    """Letters in both halves. No dose, level or vertebra has that form."""
    out, _, inward = text.partition(" ")
    halves = (out, inward) if inward else (text[:3], text[3:])
    return any(c.isalpha() for c in halves[0]) and any(c.isalpha() for c in halves[1])


def _is_username(text: str) -> bool:
    """At least four characters, a letter first, and at least two letters: no vertebra, lead or vitamin (``C5``)."""
    return len(text) >= 4 and text[0].isalpha() and sum(c.isalpha() for c in text) >= 2


def _has_street_number(text: str) -> bool:
    """The first number is not zero."""
    found = _NUMBER.findall(text)
    return bool(found) and int(found[0]) > 0


def _has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)


def _has_digits(count: int) -> Callable[[str], bool]:
    """A check for at least ``count`` digits."""
    return lambda text: len(_digits(text)) >= count


def _is_written_date(text: str) -> bool:
    """A year, month and day in this or the reverse order, with hyphens: ``2023-06-24``. A visit has dates too."""
    return _WRITTEN_DATE.fullmatch(text) is not None


def _has_letter_and_digit(text: str) -> bool:
    return _has_digit(text) and any(c.isalpha() for c in text)


def _is_mac_address(text: str) -> bool:
    """Six pairs of hexadecimal digits. With dashes and without a letter they are a row of numbers."""
    pairs = text.replace("-", ":").split(":")
    return len(pairs) == 6 and ("-" not in text or any(c.isalpha() for c in text))


CHECKS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "luhn": _passes_luhn,
        "npi": _contains_npi,
        "nhs": _contains_nhs_number,
        "vin": _looks_like_vin,
        "ssn": _is_ssn,
        "calendar-date": _is_calendar_date,
        "impossible-date": _is_impossible_date,
        "no-calendar-date": _is_no_calendar_date,
        "month-year": _is_month_and_year,
        "misread-date": _is_misread_date,
        "plausible-year": _has_plausible_year,
        "plausible-age": _has_plausible_age,
        "ip-address": _is_ip_v4,
        "has-digit": _has_digit,
        "two-digits": _has_digits(2),
        "three-digits": _has_digits(3),
        "four-digits": lambda text: _has_digits(4)(text) and not _is_written_date(text),
        "five-digits": _has_digits(5),
        "seven-digits": _has_digits(7),
        "not-clock-year": _is_no_clock_or_year,
        "ip-v6": _is_ip_v6,
        "postcode": _is_postcode,
        "username": _is_username,
        "street-number": _has_street_number,
        "mac": _is_mac_address,
        "letter-and-digit": _has_letter_and_digit,
    }
)
"""Every check by its name in rule files."""
