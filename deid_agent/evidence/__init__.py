"""Evidence about a feed: what originals and outputs together show about leaks, attackers and utility."""

from deid_agent.evidence.assemble import EvidenceLists, load_evidence_lists, make_sections
from deid_agent.evidence.equity import PatientGroups, read_patients
from deid_agent.evidence.figures import EvidenceFigure, EvidenceSection, exact_interval
from deid_agent.evidence.inputs import EvidenceFeed, read_feed
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
)
from deid_agent.evidence.report import SCHEMA, SCHEMA_VERSION, EvidenceReport
from deid_agent.evidence.signing import CheckedReport, verify_report, write_report

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "Alignment",
    "CheckedReport",
    "EvidenceFeed",
    "EvidenceFigure",
    "EvidenceLists",
    "EvidenceReport",
    "EvidenceSection",
    "PatientGroups",
    "ReplacedRange",
    "TextPair",
    "align_texts",
    "check_origin",
    "count_unchanged",
    "evidence_page",
    "exact_interval",
    "join_ranges",
    "load_evidence_lists",
    "make_pair",
    "make_sections",
    "read_feed",
    "read_patients",
    "verify_report",
    "write_report",
]
