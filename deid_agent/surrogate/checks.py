"""Checksums of identifiers that other systems verify."""

import re

NPI = "npi"
NHS = "nhs"
VIN = "vin"
DEA = "dea"
HEXADECIMAL = "hex"
MBI = "mbi"
VIN_FORM = "vin-form"
NONE = ""

_VIN_VALUES = dict(zip("ABCDEFGHJKLMNPRSTUVWXYZ", [*range(1, 9), *range(1, 6), 7, 9, *range(2, 10)], strict=True))
_VIN_WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
_VIN_FORM = re.compile(r"[A-HJ-NPR-Z0-9]{8}[0-9X][A-HJ-NPR-Z0-9]{8}")
_MBI_LETTER = "[AC-HJKMNP-RT-Y]"
_MBI_FORM = re.compile(  # Medicare beneficiary identifier: letters that are no digits, no check digit (CMS, 2017)
    rf"[1-9]{_MBI_LETTER}(?:[0-9]|{_MBI_LETTER})[0-9]{_MBI_LETTER}(?:[0-9]|{_MBI_LETTER})[0-9]{_MBI_LETTER}{{2}}[0-9]{{2}}"
)
_DEA_FORM = re.compile(r"[A-Z]{2}[0-9]{7}")
_HEX_FORM = re.compile(r"(?![A-F]{1,3}[0-9]+\Z)(?=.*[0-9])(?=.*[A-F])[0-9A-F]{12,}")  # not AB0004471902


def scheme(text: str) -> str:
    """The scheme whose checksum or form ``text`` (digits and capital letters) satisfies, the first that fits."""
    if len(text) == 10 and text.isdigit():
        return NPI if is_npi(text) else NHS if is_nhs(text) else NONE
    if len(text) == 9 and is_dea(text):
        return DEA
    if len(text) == 17 and is_vin(text):
        return VIN
    return HEXADECIMAL if _HEX_FORM.fullmatch(text) else _form(text)


def _form(text: str) -> str:
    """Forms that say which letters may stand where, without a checksum (a VIN of another continent, or mistyped)."""
    if len(text) == 11 and _MBI_FORM.fullmatch(text):
        return MBI
    return VIN_FORM if len(text) == 17 and not text.isdigit() and _VIN_FORM.fullmatch(text) else NONE


def is_npi(text: str) -> bool:
    """National Provider Identifier: ten digits, first 1 or 2, Luhn after the prefix 80840 (45 CFR 162.406)."""
    if text[0] not in "12":
        return False
    total = 24 + int(text[9])
    for place, digit in enumerate(text[:9]):
        value = int(digit) * (1 if place % 2 else 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def is_nhs(text: str) -> bool:
    """NHS number (England, Wales) and CHI number (Scotland): weights 10 to 2, modulus 11.

    A CHI number begins with a day of birth, DDMMYY; no other number begins with 0. A record number that is filled
    up with zeros would else be taken for one in one case of eleven, and not join with itself without them.
    """
    if text[0] == "0" and not (text[1] != "0" and 1 <= int(text[2:4]) <= 12):
        return False
    total = sum(int(digit) * weight for digit, weight in zip(text[:9], range(10, 1, -1), strict=True))
    return (11 - total % 11) % 11 == int(text[9])


def is_dea(text: str) -> bool:
    """DEA registration: two letters, seven digits, the last of which checks the others (21 CFR 1301)."""
    if not _DEA_FORM.fullmatch(text):
        return False
    digits = [int(c) for c in text[2:]]
    return (sum(digits[0:6:2]) + 2 * sum(digits[1:6:2])) % 10 == digits[6]


def is_vin(text: str) -> bool:
    """Vehicle identification number with its check digit in place nine (49 CFR 565.15)."""
    if not _VIN_FORM.fullmatch(text):
        return False
    values = (_VIN_VALUES[c] if c.isalpha() else int(c) for c in text)
    rest = sum(value * weight for value, weight in zip(values, _VIN_WEIGHTS, strict=True)) % 11
    return text[8] == ("X" if rest == 10 else str(rest))
