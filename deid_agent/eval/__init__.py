"""Reads annotated corpora and scores a system over them. Only the command line, training and tests import this."""

from deid_agent.eval.claims import Altered, count_altered
from deid_agent.eval.convention import Convention, apply_convention, load_convention
from deid_agent.eval.counts import Criterion
from deid_agent.eval.markup import CorpusPart, LeftOut, Note, ParseLabel, map_to_2006_types, parse_label, select_part
from deid_agent.eval.page import render_page
from deid_agent.eval.readers import Corpus, CorpusFormat, read_annotated, read_json_lines
from deid_agent.eval.report import EvaluationReport, FalseAlarms, count_false_alarms, report_as_json, score_table
from deid_agent.eval.risk_control import LeakBound, LeanCurve, bound_leaks, share_leaks
from deid_agent.eval.score import (
    Comparison,
    Figure,
    Pair,
    Prf,
    RatioChange,
    Scores,
    compare_pairs,
    count_alarms,
    score_notes,
)
from deid_agent.eval.tagging import (
    ABLATED_LIST_PREFIX,
    EvaluatedSystem,
    FactLookup,
    TaggingRun,
    facts_from_profile,
    gather_patients,
    load_system,
    no_facts,
    run_system,
)

__all__ = [
    "ABLATED_LIST_PREFIX",
    "Altered",
    "Comparison",
    "Convention",
    "Corpus",
    "CorpusFormat",
    "CorpusPart",
    "Criterion",
    "EvaluatedSystem",
    "EvaluationReport",
    "FactLookup",
    "FalseAlarms",
    "Figure",
    "LeakBound",
    "LeanCurve",
    "LeftOut",
    "Note",
    "Pair",
    "ParseLabel",
    "Prf",
    "RatioChange",
    "Scores",
    "TaggingRun",
    "apply_convention",
    "bound_leaks",
    "compare_pairs",
    "count_alarms",
    "count_altered",
    "count_false_alarms",
    "facts_from_profile",
    "gather_patients",
    "load_convention",
    "load_system",
    "map_to_2006_types",
    "no_facts",
    "parse_label",
    "read_annotated",
    "read_json_lines",
    "render_page",
    "report_as_json",
    "run_system",
    "score_notes",
    "score_table",
    "select_part",
    "share_leaks",
]
