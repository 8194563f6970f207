"""What codecs offer for replacement, written into the message."""

from collections.abc import Sequence

from deid_agent.sites import Edit, place


def apply(raw: bytes, edits: Sequence[Edit]) -> bytes:
    """``raw`` with every edit in place."""
    return place(raw, edits)[0]
