"""The audit trail on disk: a folder of chained, signed lines; ``docs/audit.md`` describes the form."""

from deid_agent.audit.reading import (
    EntryFilter,
    TrailEntry,
    TrailReport,
    audit_event,
    entry_remarks,
    read_entries,
    read_last_batches,
    remark_count,
    value_counts,
    verify_trail,
)
from deid_agent.audit.storage import LineKind, Signer, is_public_key, line_prefix, segment_files
from deid_agent.audit.trail import AuditTrail, TrailSettings, examine_trail
from deid_agent.audit.walk import TrailFault

__all__ = [
    "AuditTrail",
    "EntryFilter",
    "LineKind",
    "Signer",
    "TrailEntry",
    "TrailFault",
    "TrailReport",
    "TrailSettings",
    "audit_event",
    "entry_remarks",
    "examine_trail",
    "is_public_key",
    "line_prefix",
    "read_entries",
    "read_last_batches",
    "remark_count",
    "segment_files",
    "value_counts",
    "verify_trail",
]
