"""Bytes written as base64 or hex, read with the way they were written, so that new bytes are written alike.

RFC 4648 (base64, section 4; the URL-safe alphabet, section 5), RFC 2045 section 6.8 (lines of 76).
"""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

LIMIT = 64 * 1024 * 1024
"""Characters of one encoded value; a longer one is refused before it is decoded."""
_BREAK = re.compile(r"\s+")
_URLSAFE = str.maketrans("-_", "+/")
_BACK = str.maketrans("+/", "-_")


class TooLongError(ValueError):
    """An encoded value is longer than ``LIMIT``."""


@dataclass(frozen=True, slots=True)
class Armor:
    """How bytes are written: ``width`` characters a line (0: all in one), what ends a line, and the alphabet."""

    width: int = 0
    newline: str = "\n"
    ends: bool = False  # a line break behind the last line too
    urlsafe: bool = False
    padded: bool = True
    lower: bool = False  # hex digits


PLAIN = Armor()


def read(value: str) -> tuple[bytes, Armor]:
    """The bytes of a base64 value, in either alphabet, padded or not, in lines or not.

    Raises ``ValueError`` for any other character, for more data behind the padding and for an impossible
    length, ``TooLongError`` past ``LIMIT``. Bytes are never dropped.
    """
    dense, armor = _dense(value)
    urlsafe = "-" in dense or "_" in dense
    if urlsafe:
        dense = dense.translate(_URLSAFE)
    missing = -len(dense) % 4
    if missing == 3 or (missing and dense.endswith("=")):
        raise ValueError("no length of base64")
    data = base64.b64decode(dense + "=" * missing, validate=True)
    padded = not missing and (dense.endswith("=") or not urlsafe)
    return data, Armor(armor.width, armor.newline, armor.ends, urlsafe, padded)


def read_hex(value: str) -> tuple[bytes, Armor]:
    """The bytes of a value in hexadecimal digits. Raises as ``read``."""
    dense, armor = _dense(value)
    return bytes.fromhex(dense), Armor(
        armor.width, armor.newline, armor.ends, lower=any("a" <= c <= "f" for c in dense)
    )


def write(data: bytes, armor: Armor) -> str:
    """``data`` as base64, in lines like those of the value that ``armor`` comes from."""
    text = base64.b64encode(data).decode("ascii")
    if armor.urlsafe:
        text = text.translate(_BACK)
    return _lined(text if armor.padded else text.rstrip("="), armor)


def write_hex(data: bytes, armor: Armor) -> str:
    """``data`` as hexadecimal digits, upper case unless there were small ones."""
    return _lined(data.hex() if armor.lower else data.hex().upper(), armor)


def deal(text: str, lengths: Sequence[int]) -> list[str]:
    """``text`` over as many places as there are ``lengths``: each takes what it held, the last all that is left."""
    out: list[str] = []
    at = 0
    for length in lengths[:-1]:
        out.append(text[at : at + length])
        at += length
    return [*out, text[at:]]


def _dense(value: str) -> tuple[str, Armor]:
    """``value`` without white space, and the lines it had."""
    if len(value) > LIMIT:
        raise TooLongError("encoded value too long")
    core = value.strip()
    found = _BREAK.search(core)
    if found is None:
        after = value[len(value.rstrip()) :]
        return core, Armor(newline=after or "\n", ends=bool(after))
    return _BREAK.sub("", core), Armor(found.start(), found[0], value[-1:].isspace())


def _lined(text: str, armor: Armor) -> str:
    lines = [text[i : i + armor.width] for i in range(0, len(text), armor.width)] if armor.width else [text]
    return armor.newline.join(lines) + (armor.newline if armor.ends else "")
