"""The settings of the runner, and the parts that its partition processors share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deid_agent.agent.health import Health
from deid_agent.agent.job import Executor, Processed
from deid_agent.agent.outcomes import DeadLetterLimit, OutputMarks
from deid_agent.agent.ports import AuditLog, CrosswalkLog, Transport
from deid_agent.model import ConfigurationError
from deid_agent.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Limits and times of the agent. Records and bytes are per partition, ``_s`` are seconds.

    ``drain_s`` is the single deadline of a revocation or a stop. It must stay well below the group's rebalance timeout.
    Work that has begun is committed by then, or left to the next owner. A stop keeps the last part of it (``leave_s``)
    for leaving the group. A commit that takes longer than ``commit_timeout_s`` stops the agent, because its outcome is
    unknown.
    """

    poll_limit: int = 128
    max_in_flight: int = 512
    max_in_flight_bytes: int = 64 << 20
    batch_records: int = 100
    linger_s: float = 0.05
    drain_s: float = 20.0
    start_timeout_s: float = 60.0
    poll_timeout_s: float = 60.0
    commit_timeout_s: float = 60.0
    stop_timeout_s: float = 30.0
    retry_first_s: float = 0.1
    retry_most_s: float = 30.0
    beat_s: float = 1.0
    dead_letters: DeadLetterLimit = field(default_factory=DeadLetterLimit)

    def __post_init__(self) -> None:
        if self.poll_limit < 1 or self.batch_records < 1 or self.max_in_flight_bytes < 1:
            raise ConfigurationError("poll limit, batch size and bytes in flight must be at least 1")
        if self.max_in_flight < 2 * self.poll_limit:
            raise ConfigurationError("records in flight must be at least twice the poll limit")
        if self.linger_s < 0 or self.drain_s < 0 or not 0 < self.retry_first_s <= self.retry_most_s:
            raise ConfigurationError("linger and drain must not be negative, retry times must rise from above 0")

    @property
    def leave_s(self) -> float:
        """The part of ``drain_s`` that a stop keeps for leaving the group and closing connections."""
        return min(2.0, self.drain_s / 4)

    def delay_s(self, attempt: int) -> float:
        """The delay after the ``attempt``-th failure in a row."""
        return min(self.retry_most_s, self.retry_first_s * 2.0 ** min(attempt - 1, 32))


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """The parts that all partition processors of one agent share.

    ``marks`` are those of every topic that ``projects`` does not name. ``on_published`` receives each result whose
    output is durable. ``crosswalks`` are those of the projects that have one; an agent without projects has the name
    ``default``.
    """

    transport: Transport
    executor: Executor
    audit: AuditLog
    settings: RunnerSettings
    telemetry: Telemetry
    health: Health
    marks: OutputMarks
    on_published: Callable[[Processed], None] | None = None
    projects: Mapping[str, OutputMarks] = field(default_factory=dict)
    crosswalks: Mapping[str, CrosswalkLog] = field(default_factory=dict)
