"""Where ``rules/`` and ``models/`` are: flag, environment, packaged copy, checkout.

The build maps the two top-level folders into the wheel; in a checkout they stand beside the package.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from deid_agent.errors import ConfigurationError

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str, given: str | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder ``rules`` or ``models``: ``given``, else ``$DEID_RULES`` / ``$DEID_MODELS``, else our own.

    Raises ``ConfigurationError`` where the chosen one is no folder: a wrong choice never falls back.
    """
    variable = f"DEID_{name.upper()}"
    chosen = given or environ.get(variable)
    if chosen:
        path = Path(chosen)
        if not path.is_dir():
            raise ConfigurationError(f"{name} folder {chosen}: no such folder; correct the setting or ${variable}")
        return path
    for path in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if path.is_dir():
            return path
    raise ConfigurationError(f"{name} folder: none in the package; reinstall, or set ${variable}")


def digest(root: Path) -> str:
    """SHA-256 (hex) over the names and contents of all files below ``root``: one number that names a rule set."""
    total = hashlib.sha256()
    try:
        for path in sorted(p for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")):
            data = path.read_bytes()
            total.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
            total.update(data)
    except OSError as problem:
        raise ConfigurationError(f"{problem.filename}: cannot be read ({type(problem).__name__})") from None
    return total.hexdigest()
