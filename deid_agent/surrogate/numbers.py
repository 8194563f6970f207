"""Identifiers: format-preserving, injective, never the original.

Two spellings of one identifier (123-45-6789, 123456789; ab12, AB12) map to the same characters: the map works on
letters (in upper case) and digits only, and punctuation and case are restored afterwards. So are the leading zeros of
every run of digits: 0004471902 and 4471902 map to 000x and x. There is one map for all identifier types, so that
references, record keys and narratives join in any spelling. Two identifiers of one form (punctuation, zeros, shape)
never collide: the zeros are kept, and the characters after them are mapped by a permutation (``keyed.Permutation``).
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod

from deid_agent.rules import HEXADECIMAL, MBI, NPI, VIN, VIN_FORM, checksum_scheme
from deid_agent.surrogate.keyed import KeyedHash
from deid_agent.surrogate.shape import is_same_text

_DIGITS = "0123456789"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HEX = "0123456789ABCDEF"
_VIN_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"
_MBI_LETTERS = "ACDEFGHJKMNPQRTUVWXY"
_CHUNK = 48  # characters permuted at once: keeps halves of the network below 128 bits

_RUNS = re.compile(r"[0-9]+|[A-Z]+")
_UUID = re.compile(r"(?i)((?:urn:uuid:)?)([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_OID = re.compile(r"((?:urn:oid:)?[0-2](?:\.(?:0|[1-9][0-9]*)){2})((?:\.(?:0|[1-9][0-9]*))+)")
_SSN = re.compile(r"[0-9]{3}(?:([-. ]?)[0-9]{2}\1|\s{0,2}-\s{0,2}[0-9]{2}\s{0,2}-\s{0,2})[0-9]{4}")
_SIN = re.compile(r"[0-9]{3}[ -][0-9]{3}[ -][0-9]{3}")
_LAST_FOUR = re.compile(r"[^0-9A-WYZa-wyz]*[0-9]{4}")
_NINO = re.compile(r"(?i)(?:[A-Z]{2}([ -]?[0-9]{2}){3}[ -]?[A-D]|[DFIQUV][A-Z]([ -]?[0-9]{2}){3}[ -]?[A-Z])")
_NINO_ISSUED = ("ABCEGHJKLMNOPRSTWXYZ", _LETTERS, *[_DIGITS] * 6, "ABCD")
_NINO_NEVER = ("DFIQUV", _LETTERS, *[_DIGITS] * 6, _LETTERS)  # no National Insurance number begins with these


def replace_identifier(key: KeyedHash, value: str, domain: str = "id") -> str:
    """An identifier of the same shape: digit for digit, letter for letter, leading zeros kept.

    A valid checksum stays valid (NPI, DEA, NHS/CHI, VIN), and a VIN or a Medicare number gets only letters that it may
    have. Hexadecimal stays hexadecimal, a UUID keeps its version and variant, and an OID keeps its first three arcs.
    The map is injective per shape. The result differs from any ``value`` that has a letter or digit.
    """
    if found := _UUID.fullmatch(value):
        return found[1] + _uuid(key, found[2], domain)
    if found := _OID.fullmatch(value):
        return found[1] + _oid(key, found[2], domain)
    characters = "".join(c for c in value if c.isalnum())
    if not characters:
        return value
    if not characters.isascii():
        return _fill_other_scripts(key, value, domain)
    return weave(value, _permute_in_class(key, characters.upper(), domain))


def replace_ssn(key: KeyedHash, value: str) -> str:
    """A number of the same kind, one to one: issuable for issuable, unissuable for unissuable.

    The last four digits alone (``xxx-xx-1234``) agree with the last four of the whole number. Area and group are mapped
    by a permutation that depends on them. The surrogate of a Canadian number (3-3-3) begins with 0, and that of a
    National Insurance number with a letter that no issued one begins with, so neither belongs to anybody. The Canadian
    map is one to one among numbers with a valid check digit. There are too few Social Security numbers that were never
    issued to do the same.
    """
    if _SSN.fullmatch(value):
        digits = "".join(c for c in value if c.isdigit())
        return weave(value, _area_and_group(key, digits) + _last_four(key, digits[5:]))
    if _SIN.fullmatch(value):
        digits = "".join(c for c in value[1:] if c.isdigit())
        return weave(value, f"0{key.permutation(10**8, 'sin').next(int(digits)):08d}")
    if _LAST_FOUR.fullmatch(value):
        return value[:-4] + _last_four(key, value[-4:])
    if _NINO.fullmatch(value):
        text = "".join(c for c in value if c.isalnum()).upper()
        at, _ = _rank(text, _NINO_NEVER if text[0] in _NINO_NEVER[0] else _NINO_ISSUED)
        # The ranks of issued numbers are a subset of the ranks of the others, so the permutation is one to one on them.
        return weave(value, _unrank(key.permutation(prod(map(len, _NINO_NEVER)), "nino").next(at), _NINO_NEVER))
    return replace_identifier(key, value)


def replace_digits(key: KeyedHash, domain: str, digits: str) -> str:
    """The same number of digits, chosen by key: for house numbers and similar values that need not be one to one.

    Leading zeros stay, and the first other digit is not zero. The result differs from ``digits``.
    """
    if len(digits) > _CHUNK or not digits.isascii():
        return replace_identifier(key, digits, domain)
    zeros = min(len(digits) - len(digits.lstrip("0")), len(digits) - 1)
    width = len(digits) - zeros
    least, size = (10 ** (width - 1), 9 * 10 ** (width - 1)) if digits[zeros] != "0" else (0, 10)
    at = key.index(size, "digits", domain, digits)
    if least + at == int(digits):
        at = (at + 1) % size
    return "0" * zeros + str(least + at)


def weave(value: str, characters: str) -> str:
    """``value`` with ``characters`` for its letters and digits, in their case."""
    source = iter(characters)
    return "".join((_cased(next(source), c) if c.isalnum() else c) for c in value)


def _cased(new: str, old: str) -> str:
    return new.lower() if old.islower() else new


def _last_four(key: KeyedHash, digits: str) -> str:
    """The surrogate of the last four digits. It is never 0000, which no issued number has."""
    permutation = key.permutation(10_000, "ssn-serial")
    return f"{permutation.next(int(digits)) or permutation.next(0):04d}"


def _area_and_group(key: KeyedHash, digits: str) -> str:
    """The first five of nine digits, by the permutation of the last four."""
    permutation = key.permutation(100_000, f"ssn:{digits[5:]}")
    at = int(digits[:5])
    issuable = _issuable(at)
    while True:
        at = permutation.next(at)
        if _issuable(at) is issuable:
            return f"{at:05d}"


def _issuable(area_and_group: int) -> bool:
    """False for area 000, 666 and 900 to 999 and for group 00 (SSA, since the randomization of 2011)."""
    area, group = divmod(area_and_group, 100)
    return 0 < area < 900 and area != 666 and group != 0


def _uuid(key: KeyedHash, value: str, domain: str) -> str:
    text = value.replace("-", "").upper()
    alphabets = [_HEX] * 32
    alphabets[12], alphabets[16] = text[12], text[16]
    mapped = _permute(key, text, alphabets, f"{domain}:uuid")
    new = f"{mapped[:8]}-{mapped[8:12]}-{mapped[12:16]}-{mapped[16:20]}-{mapped[20:]}"
    return new if value.isupper() else new.lower()


def _oid(key: KeyedHash, arcs: str, domain: str) -> str:
    text = arcs.replace(".", "")
    alphabets: list[str] = []
    for arc in arcs[1:].split("."):
        alphabets += [_DIGITS] if len(arc) == 1 else ["123456789"] + [_DIGITS] * (len(arc) - 1)
    tweak = f"{domain}:oid:" + ".".join(str(len(arc)) for arc in arcs[1:].split("."))
    return weave(arcs, _permute(key, text, alphabets, tweak))


@lru_cache(maxsize=65_536)
def _permute_in_class(key: KeyedHash, text: str, domain: str) -> str:
    """``text`` (ASCII digits and capital letters), mapped by the permutation of its class.

    A class is a checksum scheme (or none) within the texts of one shape. A text that satisfies a scheme is mapped with
    its zeros in place. Any other text is mapped without leading zeros and has the class of the rest. The walk visits
    only texts that satisfy no scheme once the zeros are restored, so that the map is one to one there too.
    """
    kind = checksum_scheme(text)
    runs = _RUNS.findall(text)
    zeros = [0 if run.isalpha() else min(len(run) - len(run.lstrip("0")), len(run) - 1) for run in runs]
    if kind or not any(zeros):
        return _permute_class(key, text, domain, kind, lambda new: checksum_scheme(new) == kind)

    def padded(new: str) -> str:
        out, at = "", 0
        for run, count in zip(runs, zeros, strict=True):
            out, at = f"{out}{'0' * count}{new[at : at + len(run) - count]}", at + len(run) - count
        return out

    core = "".join(run[count:] for run, count in zip(runs, zeros, strict=True))
    own = checksum_scheme(core)
    return padded(
        _permute_class(
            key, core, domain, own, lambda new: checksum_scheme(new) == own and not checksum_scheme(padded(new))
        )
    )


def _permute_class(key: KeyedHash, text: str, domain: str, kind: str, keep: Callable[[str], bool]) -> str:
    alphabets = _alphabets(text, kind)
    return _permute(key, text, alphabets, f"{domain}:{kind}:{_shape(text, alphabets)}", keep)


def _alphabets(text: str, kind: str) -> list[str]:
    """For each position of ``text`` the characters that are allowed there."""
    if kind == VIN:
        letters = [_VIN_LETTERS if c.isalpha() else _DIGITS for c in text]
        return [*letters[:8], _DIGITS + "X", *letters[9:]]
    if kind == VIN_FORM:
        letters = [_VIN_LETTERS if c.isalpha() else _DIGITS for c in text]
        return [*letters[:8], text[8] if text[8] == "X" else _DIGITS, *letters[9:]]
    if kind == MBI:
        return ["123456789", *(_MBI_LETTERS if c.isalpha() else _DIGITS for c in text[1:])]
    out: list[str] = []
    for run in _RUNS.findall(text):
        if run.isalpha():
            out += ["ABCDEF" if kind == HEXADECIMAL else _LETTERS] * len(run)
            continue
        zeros = min(len(run) - len(run.lstrip("0")), len(run) - 1)
        first = _DIGITS if zeros == len(run) - 1 else "123456789"
        out += ["0"] * zeros + [first] + [_DIGITS] * (len(run) - zeros - 1)
    if kind == NPI:
        out[0] = "12"
    return out


def _shape(text: str, alphabets: Sequence[str]) -> str:
    """The shape as text: ``A`` letter, ``9`` digit, ``0`` kept zero, ``1`` digit other than zero."""
    marks = {1: "0", 9: "1", 10: "9", 11: "V", 2: "N"}
    return "".join(marks.get(len(a), "A") for a in alphabets) + f":{len(text)}"


def _permute(
    key: KeyedHash,
    text: str,
    alphabets: Sequence[str],
    tweak: str,
    keep: Callable[[str], bool] = lambda _: True,
) -> str:
    """``text`` mapped by the permutation over its alphabets, repeated until ``keep`` is true of the result.

    A long text is mapped piece by piece, each with a tweak of the pieces before it. That is still one to one: the first
    piece can be inverted alone, then the second, and so on.
    """
    if len(text) <= _CHUNK:
        return _walk_cycle(key, text, alphabets, tweak, keep)
    out: list[str] = []
    before = tweak = key.digest(tweak).hex()
    for at in range(0, len(text), _CHUNK):
        piece = slice(at, at + _CHUNK)
        fixed = all(len(alphabet) == 1 for alphabet in alphabets[piece])
        out.append(text[piece] if fixed else _walk_cycle(key, text[piece], alphabets[piece], before, lambda _: True))
        before = f"{tweak}:{key.digest(before, text[piece]).hex()}"
    return "".join(out)


def _walk_cycle(key: KeyedHash, text: str, alphabets: Sequence[str], tweak: str, keep: Callable[[str], bool]) -> str:
    at, size = _rank(text, alphabets)
    permutation = key.permutation(size, tweak)
    start = at
    while True:
        at = permutation.next(at)
        new = _unrank(at, alphabets)
        if at == start:  # the class has one value (an all-zero number): leave the class, keep the shape
            return _unrank(permutation.next(at), alphabets)
        if keep(new):
            return new


def _rank(text: str, alphabets: Sequence[str]) -> tuple[int, int]:
    """The rank of ``text`` among all texts over ``alphabets``, and their number."""
    at, size = 0, 1
    for c, alphabet in zip(text, alphabets, strict=True):
        at = at * len(alphabet) + alphabet.index(c)
        size *= len(alphabet)
    return at, size


def _unrank(number: int, alphabets: Sequence[str]) -> str:
    """The text over ``alphabets`` with this rank."""
    out: list[str] = []
    for alphabet in reversed(alphabets):
        number, place = divmod(number, len(alphabet))
        out.append(alphabet[place])
    return "".join(reversed(out))


def _fill_other_scripts(key: KeyedHash, value: str, domain: str) -> str:
    """For identifiers in other scripts: each letter and digit is chosen by key. It is not proven to be injective."""
    salt = 0
    while True:
        new = "".join(
            _other_character(c, key.number(domain, "fill", value, str(i), str(salt))) if c.isalnum() else c
            for i, c in enumerate(value)
        )
        if not is_same_text(new, value):
            return new
        salt += 1


def _other_character(char: str, choice: int) -> str:
    decimal = unicodedata.decimal(char, -1)
    if decimal >= 0:
        return chr(ord(char) - decimal + choice % 10)
    letter = _LETTERS[choice % 26]
    return letter if char.isupper() else letter.lower()
