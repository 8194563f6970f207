"""Applies edits to a message."""

from collections.abc import Sequence

from deid_agent.model.sites import Edit, apply_edits


def apply(raw: bytes, edits: Sequence[Edit]) -> bytes:
    """``raw`` with every edit applied."""
    return apply_edits(raw, edits)[0]
