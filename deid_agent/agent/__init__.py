"""The lifecycle of records: parallelism, order, offsets, retries and dead letters. Knows no HL7 and no PHI.

The life of a record: a ``Transport`` delivers it to the ``Runner``, which passes it to the ``PartitionProcessor`` of
its partition (partition.py). The processor notes its offset in the ``PartitionLedger`` and submits it to an
``Executor`` (worker_pool.py), where a worker process runs the de-identification and returns a ``Result``. Records may
finish in any order. The ledger releases the finished prefix only; for that batch the processor appends ``AuditEntry``
values to the audit log and then calls ``Transport.commit``, which makes outputs, dead letters and the new position
durable. A record that no worker can process becomes a dead letter; nothing is dropped silently.

To add a transport, implement ``Transport`` (ports.py); see ``deid_agent.transport``.

Most names are imported on first use: a worker process and the commands that run no agent need only a few.
"""

from typing import TYPE_CHECKING

from deid_agent import lazy_names
from deid_agent.agent.job import (
    DEFAULT_PROJECT,
    MEDIA_HEADER,
    Completed,
    DocumentCounts,
    Executor,
    Factory,
    Job,
    NoteOption,
    Process,
    Processed,
    Refused,
    Result,
    Suppressed,
    Task,
    WorkerSettings,
    result_from_error,
)
from deid_agent.agent.ports import (
    AssignmentListener,
    AuditEntry,
    Coordinates,
    DeadLetter,
    FinishedRecord,
    Headers,
    KnowsLag,
    KnowsOutage,
    Outcome,
    Output,
    Partition,
    Record,
    Request,
    Transport,
    cut_torn_line,
    sync_folder,
)

if TYPE_CHECKING:
    from deid_agent.agent.crosswalk import MOST_CUSTODIANS, OpenedPairs, PairSealer, open_box, read_pairs
    from deid_agent.agent.dead_letter_keys import (
        KeyUse,
        PrivateKey,
        PublicKey,
        generate_keys,
        load_private_key,
        load_public_key,
        parse_private_key,
    )
    from deid_agent.agent.dead_letter_records import (
        UNSEALED,
        DamagedDeadLetter,
        DeadLetterFilter,
        DeadLetterHead,
        DeadLetterSealer,
        DeadLetterStore,
        FoundDeadLetter,
        NumberRange,
        RecordForm,
        ReplayChooser,
        ReplayReport,
        dead_letter_summary,
        open_dead_letter,
        parse_coordinates,
        read_dead_letter_head,
    )
    from deid_agent.agent.health import Health, HealthStatus
    from deid_agent.agent.outcomes import DEID_ID, DeadLetterLimit, Lineage, OutputMarks, read_lineage, replay_headers
    from deid_agent.agent.positions import AuditedBatch, AuditHistory, ResumeFrom, last_batches
    from deid_agent.agent.runner import Runner
    from deid_agent.agent.runner_context import RunnerSettings
    from deid_agent.agent.worker_pool import InlineExecutor, WorkerPool

__all__ = [
    "DEFAULT_PROJECT",
    "DEID_ID",
    "MEDIA_HEADER",
    "MOST_CUSTODIANS",
    "UNSEALED",
    "AssignmentListener",
    "AuditEntry",
    "AuditHistory",
    "AuditedBatch",
    "Completed",
    "Coordinates",
    "DamagedDeadLetter",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterHead",
    "DeadLetterLimit",
    "DeadLetterSealer",
    "DeadLetterStore",
    "DocumentCounts",
    "Executor",
    "Factory",
    "FinishedRecord",
    "FoundDeadLetter",
    "Headers",
    "Health",
    "HealthStatus",
    "InlineExecutor",
    "Job",
    "KeyUse",
    "KnowsLag",
    "KnowsOutage",
    "Lineage",
    "NoteOption",
    "NumberRange",
    "OpenedPairs",
    "Outcome",
    "Output",
    "OutputMarks",
    "PairSealer",
    "Partition",
    "PrivateKey",
    "Process",
    "Processed",
    "PublicKey",
    "Record",
    "RecordForm",
    "Refused",
    "ReplayChooser",
    "ReplayReport",
    "Request",
    "Result",
    "ResumeFrom",
    "Runner",
    "RunnerSettings",
    "Suppressed",
    "Task",
    "Transport",
    "WorkerPool",
    "WorkerSettings",
    "cut_torn_line",
    "dead_letter_summary",
    "generate_keys",
    "last_batches",
    "load_private_key",
    "load_public_key",
    "open_box",
    "open_dead_letter",
    "parse_coordinates",
    "parse_private_key",
    "read_dead_letter_head",
    "read_lineage",
    "read_pairs",
    "replay_headers",
    "result_from_error",
    "sync_folder",
]

_LAZY = {
    "crosswalk": ("MOST_CUSTODIANS", "OpenedPairs", "PairSealer", "open_box", "read_pairs"),
    "dead_letter_keys": (
        "KeyUse",
        "PrivateKey",
        "PublicKey",
        "generate_keys",
        "load_private_key",
        "load_public_key",
        "parse_private_key",
    ),
    "dead_letter_records": (
        "UNSEALED",
        "DamagedDeadLetter",
        "DeadLetterFilter",
        "DeadLetterHead",
        "DeadLetterSealer",
        "DeadLetterStore",
        "FoundDeadLetter",
        "NumberRange",
        "RecordForm",
        "ReplayChooser",
        "ReplayReport",
        "dead_letter_summary",
        "open_dead_letter",
        "parse_coordinates",
        "read_dead_letter_head",
    ),
    "outcomes": (
        "DEID_ID",
        "DeadLetterLimit",
        "Lineage",
        "OutputMarks",
        "read_lineage",
        "replay_headers",
    ),
    "health": (
        "Health",
        "HealthStatus",
    ),
    "runner_context": ("RunnerSettings",),
    "positions": (
        "AuditHistory",
        "AuditedBatch",
        "ResumeFrom",
        "last_batches",
    ),
    "runner": ("Runner",),
    "worker_pool": (
        "InlineExecutor",
        "WorkerPool",
    ),
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _LAZY)
