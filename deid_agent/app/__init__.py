"""The composition root: ``WorkerFactory`` builds de-identifiers from settings, ``JobRunner`` runs a worker's jobs.

``bound_file`` has the leak bound of the profile ``budget``, ``drift`` compares a feed with its sample.
"""

from deid_agent.app.bound_file import (
    BUDGET,
    BoundFile,
    BoundSystem,
    BudgetRow,
    check_lean,
    choose_bound,
    make_claim,
    parse_profile,
    read_bound,
)
from deid_agent.app.document_counts import NOTE, DocumentCounter
from deid_agent.app.drift import (
    FEWEST_DOCUMENTS,
    DriftReference,
    FeatureCounts,
    WindowComparison,
    add_document,
    compare_window,
    empty_window,
)
from deid_agent.app.job_runner import AuditDigester, JobRunner, ProjectRunner, remark_dict, remarks_json
from deid_agent.app.worker_factory import ProjectParts, WorkerFactory, make_factory

__all__ = [
    "BUDGET",
    "FEWEST_DOCUMENTS",
    "NOTE",
    "AuditDigester",
    "BoundFile",
    "BoundSystem",
    "BudgetRow",
    "DocumentCounter",
    "DriftReference",
    "FeatureCounts",
    "JobRunner",
    "ProjectParts",
    "ProjectRunner",
    "WindowComparison",
    "WorkerFactory",
    "add_document",
    "check_lean",
    "choose_bound",
    "compare_window",
    "empty_window",
    "make_claim",
    "make_factory",
    "parse_profile",
    "read_bound",
    "remark_dict",
    "remarks_json",
]
