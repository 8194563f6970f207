"""Where an output may stand: a relative name that never leaves its folder."""

import os
from collections.abc import Callable
from pathlib import Path

_LONGEST = 255  # bytes of one component on the usual file systems


def relative_name(key: bytes | None, offset: int) -> bytes:
    """The name that a key asks for, or ``record-<offset>`` where it asks for anything but a plain path below."""
    parts = (key or b"").split(b"/")
    plain = all(part not in {b"", b".", b".."} and b"\0" not in part and len(part) <= _LONGEST for part in parts)
    hidden = any(part.startswith(b".") for part in parts)
    return b"/".join(parts) if plain and not hidden else b"record-%d" % offset


def distinct_name(name: bytes, offset: int, taken: Callable[[bytes], bool]) -> bytes:
    """``name``, or with ``~<offset>`` before its ending where another record has it already."""
    folder, slash, last = name.rpartition(b"/")
    while taken(folder + slash + last):
        stem, dot, ending = last.rpartition(b".") if b"." in last[1:] else (last, b"", b"")
        suffix = b"~%d" % offset
        last = stem[: _LONGEST - len(suffix + dot + ending)] + suffix + dot + ending
    return folder + slash + last


def inside(root: Path, name: bytes) -> Path | None:
    """The path of ``name`` under ``root``; None where a link or a file in the way leads elsewhere."""
    path = root / os.fsdecode(name)
    at = root
    for part in path.relative_to(root).parts[:-1]:
        at = at / part
        if at.is_symlink() or (at.exists() and not at.is_dir()):
            return None
    return None if path.is_dir() and not path.is_symlink() else path
