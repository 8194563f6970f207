"""Identifiers: format-preserving, injective, never the original.

Two spellings of one identifier (123-45-6789, 123456789; ab12, AB12) map to the same
characters: the map works on letters and digits alone, letters in upper case, and
punctuation and case are put back afterwards. So are the leading zeros of every run of digits: 0004471902 and
4471902 map to 000x and x. It is one map for all identifier types, so that references, record keys and narrative
join however they were typed. Two identifiers of one form (signs, zeros, shape) never meet: the zeros are kept and
what follows them goes through a permutation (``keyed.Permutation``); so two that differ still differ.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod

from deid_agent.surrogate.checks import HEXADECIMAL, MBI, NPI, VIN, VIN_FORM, scheme
from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.shape import same

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


def identifier(key: Key, value: str, domain: str = "id") -> str:
    """An identifier of the same shape: digit for digit, letter for letter, leading zeros kept.

    Checksums that were right are right again (NPI, DEA, NHS/CHI, VIN), and so are the letters that a VIN or a Medicare
    number may have; hexadecimal stays hexadecimal, a UUID a UUID of its version and variant, an OID an OID under its
    first three arcs. Injective per shape; differs from ``value`` wherever that holds a letter or digit.
    """
    if found := _UUID.fullmatch(value):
        return found[1] + _uuid(key, found[2], domain)
    if found := _OID.fullmatch(value):
        return found[1] + _oid(key, found[2], domain)
    characters = "".join(c for c in value if c.isalnum())
    if not characters:
        return value
    if not characters.isascii():
        return _filled(key, value, domain)
    return weave(value, _mapped(key, characters.upper(), domain))


def social_security(key: Key, value: str) -> str:
    """A number of the same kind, one to one: issuable for issuable, unissuable for unissuable.

    The last four alone (``xxx-xx-1234``) agree with the last four of the whole number; area and group go through a
    permutation that depends on them. A Canadian number (3-3-3) begins with 0, a National Insurance number with a
    letter that none begins with, so these two name nobody; the former is one to one among numbers whose last
    digit checks the others. There are not enough Social Security numbers that were never issued for that.
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
        at, _ = _place(text, _NINO_NEVER if text[0] in _NINO_NEVER[0] else _NINO_ISSUED)
        # Counted, the issued ones are a part of those that never were, and a permutation of these is one to one on it.
        return weave(value, _written(key.permutation(prod(map(len, _NINO_NEVER)), "nino").next(at), _NINO_NEVER))
    return identifier(key, value)


def other_digits(key: Key, domain: str, digits: str) -> str:
    """As many digits, chosen by key: for house numbers and the like, which need not be one to one.

    Leading zeros stay, the first other digit is no zero; never the original.
    """
    if len(digits) > _CHUNK or not digits.isascii():
        return identifier(key, digits, domain)
    zeros = min(len(digits) - len(digits.lstrip("0")), len(digits) - 1)
    width = len(digits) - zeros
    least, size = (10 ** (width - 1), 9 * 10 ** (width - 1)) if digits[zeros] != "0" else (0, 10)
    at = key.index(size, "digits", domain, digits)
    if least + at == int(digits):
        at = (at + 1) % size
    return "0" * zeros + str(least + at)


def weave(value: str, characters: str) -> str:
    """``characters`` in place of the letters and digits of ``value``, in their case."""
    source = iter(characters)
    return "".join((_cased(next(source), c) if c.isalnum() else c) for c in value)


def _cased(new: str, old: str) -> str:
    return new.lower() if old.islower() else new


def _last_four(key: Key, digits: str) -> str:
    """0000 ends no number: what would become it goes one step further."""
    permutation = key.permutation(10_000, "ssn-serial")
    return f"{permutation.next(int(digits)) or permutation.next(0):04d}"


def _area_and_group(key: Key, digits: str) -> str:
    """The first five of nine digits through the permutation of their last four."""
    permutation = key.permutation(100_000, f"ssn:{digits[5:]}")
    at = int(digits[:5])
    issuable = _issuable(at)
    while True:
        at = permutation.next(at)
        if _issuable(at) is issuable:
            return f"{at:05d}"


def _issuable(area_and_group: int) -> bool:
    """No area 000, 666 or 900 to 999, no group 00 (SSA, since the randomization of 2011)."""
    area, group = divmod(area_and_group, 100)
    return 0 < area < 900 and area != 666 and group != 0


def _uuid(key: Key, value: str, domain: str) -> str:
    text = value.replace("-", "").upper()
    alphabets = [_HEX] * 32
    alphabets[12], alphabets[16] = text[12], text[16]
    mapped = _permuted(key, text, alphabets, f"{domain}:uuid")
    new = f"{mapped[:8]}-{mapped[8:12]}-{mapped[12:16]}-{mapped[16:20]}-{mapped[20:]}"
    return new if value.isupper() else new.lower()


def _oid(key: Key, arcs: str, domain: str) -> str:
    text = arcs.replace(".", "")
    alphabets: list[str] = []
    for arc in arcs[1:].split("."):
        alphabets += [_DIGITS] if len(arc) == 1 else ["123456789"] + [_DIGITS] * (len(arc) - 1)
    tweak = f"{domain}:oid:" + ".".join(str(len(arc)) for arc in arcs[1:].split("."))
    return weave(arcs, _permuted(key, text, alphabets, tweak))


@lru_cache(maxsize=65_536)
def _mapped(key: Key, text: str, domain: str) -> str:
    """``text`` (ASCII digits and capital letters) through the permutation of its class.

    A class is a checksum scheme (or none) within the texts of one shape. A text that satisfies a scheme as it
    stands keeps its zeros in place; any other is mapped without them and is of the class of what is left. The
    walk stays among texts whose zeros, put back, make no checksum right, so it is one to one there too.
    """
    kind = scheme(text)
    runs = _RUNS.findall(text)
    zeros = [0 if run.isalpha() else min(len(run) - len(run.lstrip("0")), len(run) - 1) for run in runs]
    if kind or not any(zeros):
        return _in_class(key, text, domain, kind, lambda new: scheme(new) == kind)

    def padded(new: str) -> str:
        out, at = "", 0
        for run, count in zip(runs, zeros, strict=True):
            out, at = f"{out}{'0' * count}{new[at : at + len(run) - count]}", at + len(run) - count
        return out

    core = "".join(run[count:] for run, count in zip(runs, zeros, strict=True))
    own = scheme(core)
    return padded(_in_class(key, core, domain, own, lambda new: scheme(new) == own and not scheme(padded(new))))


def _in_class(key: Key, text: str, domain: str, kind: str, keep: Callable[[str], bool]) -> str:
    alphabets = _alphabets(text, kind)
    return _permuted(key, text, alphabets, f"{domain}:{kind}:{_shape(text, alphabets)}", keep)


def _alphabets(text: str, kind: str) -> list[str]:
    """For every place of ``text`` the characters that may stand there."""
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
    """The class of shapes as text: ``A`` letter, ``9`` digit, ``0`` kept zero, ``1`` digit that is not zero."""
    marks = {1: "0", 9: "1", 10: "9", 11: "V", 2: "N"}
    return "".join(marks.get(len(a), "A") for a in alphabets) + f":{len(text)}"


def _permuted(
    key: Key,
    text: str,
    alphabets: Sequence[str],
    tweak: str,
    keep: Callable[[str], bool] = lambda _: True,
) -> str:
    """``text`` through the permutation over its alphabets, walked on until ``keep`` holds.

    Long texts go piece by piece, each under a tweak of what stood before it: still
    one to one, since the first piece can be inverted alone, then the second, and so on.
    """
    if len(text) <= _CHUNK:
        return _walked(key, text, alphabets, tweak, keep)
    out: list[str] = []
    before = tweak = key.digest(tweak).hex()
    for at in range(0, len(text), _CHUNK):
        piece = slice(at, at + _CHUNK)
        fixed = all(len(alphabet) == 1 for alphabet in alphabets[piece])
        out.append(text[piece] if fixed else _walked(key, text[piece], alphabets[piece], before, lambda _: True))
        before = f"{tweak}:{key.digest(before, text[piece]).hex()}"
    return "".join(out)


def _walked(key: Key, text: str, alphabets: Sequence[str], tweak: str, keep: Callable[[str], bool]) -> str:
    at, size = _place(text, alphabets)
    permutation = key.permutation(size, tweak)
    start = at
    while True:
        at = permutation.next(at)
        new = _written(at, alphabets)
        if at == start:  # a class of one value (an all-zero number): leave the class, not the shape
            return _written(permutation.next(at), alphabets)
        if keep(new):
            return new


def _place(text: str, alphabets: Sequence[str]) -> tuple[int, int]:
    """Which of all texts over ``alphabets`` this one is, and how many there are."""
    at, size = 0, 1
    for c, alphabet in zip(text, alphabets, strict=True):
        at = at * len(alphabet) + alphabet.index(c)
        size *= len(alphabet)
    return at, size


def _written(number: int, alphabets: Sequence[str]) -> str:
    out: list[str] = []
    for alphabet in reversed(alphabets):
        number, place = divmod(number, len(alphabet))
        out.append(alphabet[place])
    return "".join(reversed(out))


def _filled(key: Key, value: str, domain: str) -> str:
    """For identifiers with other scripts: each letter and digit chosen by key; not injective by proof."""
    salt = 0
    while True:
        new = "".join(
            _other(c, key.number(domain, "fill", value, str(i), str(salt))) if c.isalnum() else c
            for i, c in enumerate(value)
        )
        if not same(new, value):
            return new
        salt += 1


def _other(char: str, choice: int) -> str:
    decimal = unicodedata.decimal(char, -1)
    if decimal >= 0:
        return chr(ord(char) - decimal + choice % 10)
    letter = _LETTERS[choice % 26]
    return letter if char.isupper() else letter.lower()
