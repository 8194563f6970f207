"""Makes the sections of a report from a feed, a reviewed sample and a table of patients."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.eval import Note
from deid_agent.evidence.attack_sections import absent_attacks, attack_sample, attack_threat_model
from deid_agent.evidence.cells import count_quasi_identifiers
from deid_agent.evidence.equity import PatientGroups, absent_equity, compare_groups
from deid_agent.evidence.figures import EvidenceSection
from deid_agent.evidence.inputs import EvidenceFeed
from deid_agent.evidence.leaks import NO_SAMPLE, estimate_leaks, examine_sample, match_sample
from deid_agent.evidence.messages import compare_results
from deid_agent.evidence.parrot_candidates import ParrotTools
from deid_agent.evidence.utility import ClinicalTerms, ItemCounts, load_clinical_terms, measure_utility
from deid_agent.model import PhiType
from deid_agent.pipeline import Method, Policy
from deid_agent.rules import load_lexicons, read_terms
from deid_agent.surrogate import RESTRICTED_ZIP3

_KINDS = ("generic-place", "site-kind", "name-title", "name-particle")
_PLACE_KINDS = ("hospital-kind", "organization-kind")
_STREETS = re.findall(
    r"\w+",
    "street st avenue ave road rd drive dr lane ln boulevard blvd court ct place pl way highway hwy apt apartment "
    "suite unit floor north south east west box po",
)


@dataclass(frozen=True, slots=True)
class EvidenceLists:
    """The word lists of a report. ``kinds`` are words that surrogates keep, ``professions`` those to search for."""

    kinds: frozenset[str] = field(repr=False)
    professions: ClinicalTerms = field(repr=False)
    terms: ClinicalTerms = field(repr=False)


def load_evidence_lists(rules: Path) -> EvidenceLists:
    """The lists of a rules folder and the clinical terms. Raises ``ConfigurationError`` for an invalid list."""
    lexicons, folder = load_lexicons(rules), rules / "dictionary"
    kinds = set(_STREETS).union(*(lexicons.get(name, frozenset()) for name in _KINDS))
    for name in _PLACE_KINDS:
        kinds.update(word for term in read_terms(folder / f"{name}.txt") for word in term.split())
    professions = ClinicalTerms.of(read_terms(folder / "profession.txt"))
    return EvidenceLists(frozenset(kinds), professions, load_clinical_terms())


def make_sections(
    feed: EvidenceFeed,
    lists: EvidenceLists,
    sample: Sequence[Note] = (),
    patients: PatientGroups | None = None,
    policy: Policy | None = None,
    tools: ParrotTools | str = "not asked for",
    seed: int = 1,
) -> list[EvidenceSection]:
    """The sections, in the order of the report. ``tools`` are the means of attackers, or the reason for no attack.

    Raises ``ConfigurationError`` if the sample or the patients are not those of the feed.
    """
    leaks, equity = NO_SAMPLE, absent_equity("no --sample was given")
    attacks = absent_attacks(str(tools) if sample and isinstance(tools, str) else "no --sample was given")
    if sample:
        matched = match_sample(sample, feed.pairs)
        examined = examine_sample(matched, lists.kinds)
        leaks = estimate_leaks(examined)
        equity = absent_equity("no --patients were given")
        if patients is not None:
            equity = compare_groups(examined, patients, seed)
        if isinstance(tools, ParrotTools):
            attacks = attack_sample(matched, tools, seed)
    results = ItemCounts()
    for _, before, after in feed.messages:
        compare_results(before, after, results)
    coarse = policy is not None and policy.method(PhiType.DATE, "") is not Method.SURROGATE
    return [
        leaks,
        *attacks,
        attack_threat_model(feed.pairs, seed),
        equity,
        measure_utility(feed.pairs, lists.terms, results if feed.messages else None),
        count_quasi_identifiers(
            feed.pairs, feed.messages, lists.professions, RESTRICTED_ZIP3, feed.patients, coarse_dates=coarse
        ),
    ]
