"""The optional folder of public messages beside a checkout."""

import os
from pathlib import Path

import pytest

VARIABLE = "DEID_SHARED"


def shared(*parts: str) -> Path:
    """A folder below ``$DEID_SHARED``; skips with the reason if there is none."""
    root = os.environ.get(VARIABLE, "")
    path = Path(root, *parts)
    if not root or not path.is_dir():
        # The messages of others are not part of a checkout, so nothing makes this a failure; CI sets the variable where
        # they are.
        pytest.skip(f"{VARIABLE} names no folder with {'/'.join(parts)}: nothing to walk")
    return path
