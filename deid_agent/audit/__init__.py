"""The audit trail on disk: a folder of chained, signed lines; ``docs/audit.md`` describes the form."""

from deid_agent.audit.examine import examine_trail
from deid_agent.audit.faults import TrailFault
from deid_agent.audit.fhir_events import audit_event, audit_event_r4
from deid_agent.audit.merkle import Frontier, leaf_hash
from deid_agent.audit.proofs import CheckedProof, ProofError, check_proof, prove_entry, prove_growth, read_proof
from deid_agent.audit.reading import (
    EntryFilter,
    TrailEntry,
    TrailReport,
    entry_build,
    entry_remarks,
    first_public_key,
    read_entries,
    read_last_batches,
    remark_count,
    value_counts,
    verify_trail,
)
from deid_agent.audit.reconcile import (
    AuditedRecord,
    FoundResults,
    InputRecords,
    PartitionBalance,
    balance,
    read_audited,
)
from deid_agent.audit.storage import LineKind, Signer, is_public_key, line_prefix, segment_files
from deid_agent.audit.targets import TargetKeys, read_target_keys
from deid_agent.audit.trail import AuditTrail, TrailSettings
from deid_agent.audit.witness import Witness, WitnessFile, WitnessPlace, WitnessServer

__all__ = [
    "AuditTrail",
    "AuditedRecord",
    "CheckedProof",
    "EntryFilter",
    "FoundResults",
    "Frontier",
    "InputRecords",
    "LineKind",
    "PartitionBalance",
    "ProofError",
    "Signer",
    "TargetKeys",
    "TrailEntry",
    "TrailFault",
    "TrailReport",
    "TrailSettings",
    "Witness",
    "WitnessFile",
    "WitnessPlace",
    "WitnessServer",
    "audit_event",
    "audit_event_r4",
    "balance",
    "check_proof",
    "entry_build",
    "entry_remarks",
    "examine_trail",
    "first_public_key",
    "is_public_key",
    "leaf_hash",
    "line_prefix",
    "prove_entry",
    "prove_growth",
    "read_audited",
    "read_entries",
    "read_last_batches",
    "read_proof",
    "read_target_keys",
    "remark_count",
    "segment_files",
    "value_counts",
    "verify_trail",
]
