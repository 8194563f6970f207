"""The composition root: ``WorkerFactory`` builds de-identifiers from settings, ``JobRunner`` runs a worker's jobs."""

from deid_agent.app.job_runner import AuditDigester, JobRunner, ProjectRunner, remark_dict, remarks_json
from deid_agent.app.worker_factory import ProjectParts, WorkerFactory, make_factory

__all__ = [
    "AuditDigester",
    "JobRunner",
    "ProjectParts",
    "ProjectRunner",
    "WorkerFactory",
    "make_factory",
    "remark_dict",
    "remarks_json",
]
