"""Evidence about a feed, from its originals and outputs: leaks, attackers, equity and utility."""

from deid_agent.evidence.assemble import EvidenceLists, load_evidence_lists, make_sections
from deid_agent.evidence.attacks import ThreatResult, attack_threats
from deid_agent.evidence.equity import PatientGroups, read_patients
from deid_agent.evidence.feeds import Leaks, find_leaks, mark_replaced, plant_leaks
from deid_agent.evidence.figures import EvidenceFigure, EvidenceSection, exact_interval
from deid_agent.evidence.inputs import EvidenceFeed, read_feed
from deid_agent.evidence.learned_finder import CrfFitter, LearnedFinder, learn_finder
from deid_agent.evidence.origin import check_origin
from deid_agent.evidence.page import evidence_page
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
from deid_agent.evidence.report import SCHEMA, SCHEMA_VERSION, EvidenceReport
from deid_agent.evidence.shares import SampledShare
from deid_agent.evidence.signing import CheckedReport, refuse_report, verify_report, write_report
from deid_agent.evidence.surrogates import RecallOnBoth, SurrogateQuality, compare_learned_recall, compare_recall
from deid_agent.evidence.values import ValuePair

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "Alignment",
    "CheckedReport",
    "CrfFitter",
    "EvidenceFeed",
    "EvidenceFigure",
    "EvidenceLists",
    "EvidenceReport",
    "EvidenceSection",
    "FindRanges",
    "LeakWeights",
    "Leaks",
    "LearnedFinder",
    "ParrotResult",
    "ParrotSignal",
    "ParrotStrength",
    "ParrotTools",
    "PatientGroups",
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
    "check_origin",
    "compare_learned_recall",
    "compare_recall",
    "count_unchanged",
    "evidence_page",
    "exact_interval",
    "find_leaks",
    "join_ranges",
    "learn_finder",
    "load_evidence_lists",
    "make_pair",
    "make_sections",
    "mark_replaced",
    "pair_from_trace",
    "plant_leaks",
    "read_feed",
    "read_patients",
    "refuse_report",
    "rehearse",
    "verify_report",
    "write_report",
]
