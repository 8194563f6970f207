"""Evidence about a feed: what originals and outputs together show about leaks, attackers and utility."""

from deid_agent.evidence.pairs import (
    Alignment,
    ReplacedRange,
    TextPair,
    align_texts,
    count_unchanged,
    join_ranges,
    make_pair,
)

__all__ = ["Alignment", "ReplacedRange", "TextPair", "align_texts", "count_unchanged", "join_ranges", "make_pair"]
