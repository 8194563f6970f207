"""The changes of one message as numbers without values, for remarks and security labels."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from deid_agent.model import Remark

UNLISTED: Final = "UNLISTED"
"""The type of the remark about values that are left out unread."""
DROP: Final = "drop"
"""Their method."""
POLICY, SHAPE = "policy", "shape"
"""Their source: the policy does not publish them, or the shape of outputs does not have them."""

ChangeKey = tuple[str, str, str, str]
"""Path, PHI type, method and source of a change."""

Changes = Mapping[ChangeKey, int]
"""Number of changes by path, PHI type, method and source."""

ChangeCounts = Counter[ChangeKey]
"""``Changes`` that are still counted."""


def summarize_changes(changes: Changes) -> tuple[Remark, ...]:
    """One remark for all changes with the same path, type, method and source."""
    return tuple(Remark(*key, count=count) for key, count in changes.items())
