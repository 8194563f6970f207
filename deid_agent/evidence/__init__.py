"""Evidence about a feed, from its originals and outputs: leaks, attackers, utility."""

from deid_agent.evidence.attacks import ThreatResult, attack_threats
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
from deid_agent.evidence.parrot import ParrotResult, SignalResult, attack_feed, rehearse
from deid_agent.evidence.parrot_candidates import FindRanges, ParrotSignal, ParrotStrength, ParrotTools
from deid_agent.evidence.rehearsal import LeakWeights
from deid_agent.evidence.shares import SampledShare
from deid_agent.evidence.surrogates import RecallOnBoth, SurrogateQuality, compare_learned_recall, compare_recall
from deid_agent.evidence.values import ValuePair

__all__ = [
    "Alignment",
    "CrfFitter",
    "FindRanges",
    "LeakWeights",
    "Leaks",
    "LearnedFinder",
    "ParrotResult",
    "ParrotSignal",
    "ParrotStrength",
    "ParrotTools",
    "RecallOnBoth",
    "ReplacedRange",
    "SampledShare",
    "SignalResult",
    "SurrogateQuality",
    "TextPair",
    "ThreatResult",
    "ValuePair",
    "align_texts",
    "attack_feed",
    "attack_threats",
    "compare_learned_recall",
    "compare_recall",
    "count_unchanged",
    "find_leaks",
    "join_ranges",
    "learn_finder",
    "make_pair",
    "mark_replaced",
    "pair_from_trace",
    "plant_leaks",
    "rehearse",
]
