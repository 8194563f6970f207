"""Places in JSON: pointers (RFC 6901) in which ``*`` stands for any member or item."""

import re
from collections.abc import Iterable

Pointer = tuple[str, ...]
Place = tuple[str | int, ...]
"""The place of a value in a record. An item of a list has its number."""
ANY = "*"
_POINTER = re.compile(r"(?:/(?:[^/~]|~[01])*)*")


def parse_pointer(text: str) -> Pointer:
    """The tokens of a JSON pointer. Raises ``ValueError`` if it is not empty and does not begin with a slash."""
    if not _POINTER.fullmatch(text):
        raise ValueError('write a JSON pointer such as "/payload/after", or "" for the whole record')
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:])


def sort_by_precision(pointers: Iterable[Pointer]) -> tuple[Pointer, ...]:
    """``pointers`` so that the first one that matches a place counts: of two, the one with the later star."""
    return tuple(sorted(pointers, key=lambda pointer: [token == ANY for token in pointer]))


def matches_place(at: Place, pointer: Pointer) -> bool:
    """True if ``pointer`` is the place of the value."""
    return len(at) == len(pointer) and all(one in (ANY, str(token)) for token, one in zip(at, pointer, strict=True))


def leads_to(at: Place, pointer: Pointer) -> bool:
    """True if ``pointer`` is the place of something inside the value."""
    return len(at) < len(pointer) and matches_place(at, pointer[: len(at)])


def names_place(at: Place, pointer: Pointer) -> bool:
    """True if ``pointer`` is the place of the value or of something inside it, and gives its last token itself."""
    return len(at) <= len(pointer) and matches_place(at, pointer[: len(at)]) and pointer[len(at) - 1] != ANY


def show_place(at: Place, pointers: Iterable[Pointer]) -> str:
    """``at`` as a pointer. A key that no pointer gives is a star: it may be an identifier. An item is ``*[3]``."""
    known = tuple(pointers)
    shown = (
        str(token)
        if any(names_place(at[: n + 1], each) for each in known)
        else ANY
        if isinstance(token, str)
        else f"*[{token}]"
        for n, token in enumerate(at)
    )
    return "".join(f"/{token.replace('~', '~0').replace('/', '~1')}" for token in shown)
