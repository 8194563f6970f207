"""Evidence about a feed: what originals and outputs together show about leaks, attackers and utility."""

from deid_agent.evidence.feeds import Leaks, find_leaks, mark_replaced, plant_leaks
from deid_agent.evidence.learned_finder import CrfFitter, LearnedFinder, learn_finder
from deid_agent.evidence.pairs import (
    Alignment,
    ReplacedRange,
    TextPair,
    align_texts,
    count_unchanged,
    join_ranges,
    make_pair,
    pair_from_trace,
)
from deid_agent.evidence.parrot import (
    FindRanges,
    ParrotResult,
    ParrotSignal,
    ParrotStrength,
    ParrotTools,
    SignalResult,
    attack_feed,
)
from deid_agent.evidence.shares import SampledShare

__all__ = [
    "Alignment",
    "CrfFitter",
    "FindRanges",
    "Leaks",
    "LearnedFinder",
    "ParrotResult",
    "ParrotSignal",
    "ParrotStrength",
    "ParrotTools",
    "ReplacedRange",
    "SampledShare",
    "SignalResult",
    "TextPair",
    "align_texts",
    "attack_feed",
    "count_unchanged",
    "find_leaks",
    "join_ranges",
    "learn_finder",
    "make_pair",
    "mark_replaced",
    "pair_from_trace",
    "plant_leaks",
]
