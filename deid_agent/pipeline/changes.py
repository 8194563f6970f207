"""The changes of one message: their numbers, for remarks and security labels, and the link codes for a crosswalk.

Only ``LinkPairs`` has originals.
"""

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

LinkPairs = dict[tuple[str, str, str], None]
"""Path, original and code of each link code, each once and in order. The originals are PHI."""


def summarize_changes(changes: Changes) -> tuple[Remark, ...]:
    """One remark for all changes with the same path, type, method and source."""
    return tuple(Remark(*key, count=count) for key, count in changes.items())
