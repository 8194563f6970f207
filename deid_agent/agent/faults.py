"""Unexpected exceptions told without their text, which often quotes the input."""

import traceback
from collections.abc import Iterator
from pathlib import PurePath

from deid_agent.errors import DeidError, UnsafeError


def describe(error: BaseException) -> str:
    """Class name and the line of code it came from, as in ``KeyError at hl7v2.py:120``."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return type(error).__name__ + place


def leading(group: BaseException) -> DeidError:
    """The error that decides how the agent ends, out of a group (or a lone one).

    An ``UnsafeError`` goes first; one that nobody expected becomes an ``UnsafeError`` without its text.
    """
    leaves = list(_leaves(group))
    for kind in (UnsafeError, DeidError):
        for error in leaves:
            if isinstance(error, kind):
                return error
    return UnsafeError(f"the agent met a fault of its own ({describe(leaves[0])}): please report it")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
