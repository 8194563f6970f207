"""The health of the agent: whether it is alive, and whether it makes progress."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from deid_agent.agent.ports import Partition


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """``ok``, and a short code for each reason if it is not. ``notes`` are faults that do not stop messages."""

    ok: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Progress:
    position: int = -1
    lag: int | None = None
    since: float = 0.0  # the last time the position moved or there was nothing to do


class Health:
    """Liveness and readiness of the agent.

    Live: the event loop beats. Ready: started, assigned, the broker answers, all workers up, and every position
    advances while its lag is above zero. The last condition is the only sign of a consumer that is stuck inside its
    client (aiokafka issue 1154). Beats count from the first one until ``closing``, since starting and stopping may take
    longer than a beat. Another thread may read the status at any time.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        beat_limit_s: float = 15.0,
        stall_limit_s: float = 300.0,
    ) -> None:
        self._clock = clock
        self._beat_limit_s = beat_limit_s
        self._stall_limit_s = stall_limit_s
        self._beat_at: float | None = None
        self._up = 0
        self._wanted = 1
        self._progress: dict[Partition, _Progress] = {}
        self._outage = ""
        self._notes: dict[str, str] = {}
        self._started = False
        self._stopping = False

    def beat(self) -> None:
        """The event loop has run."""
        self._beat_at = self._clock()

    def started(self) -> None:
        """The transport has started."""
        self._started = True

    def workers(self, up: int, wanted: int) -> None:
        """Note how many workers are ready, and how many there should be."""
        self._up, self._wanted = up, wanted

    def outage(self, code: str) -> None:
        """Note what does not answer; empty if all is well."""
        self._outage = code

    def assigned(self, stream: Partition) -> None:
        """A partition was assigned."""
        self._progress[stream] = _Progress(since=self._clock())

    def revoked(self, stream: Partition) -> None:
        """A partition was revoked."""
        self._progress.pop(stream, None)

    def moved(self, stream: Partition, position: int) -> None:
        """The position of a partition is now ``position``."""
        if (progress := self._progress.get(stream)) is not None and position != progress.position:
            progress.position, progress.since = position, self._clock()

    def lag(self, stream: Partition, lag: int | None) -> None:
        """Note the lag of a partition; None if unknown."""
        if (progress := self._progress.get(stream)) is not None:
            if not lag or not progress.lag:
                progress.since = self._clock()
            progress.lag = lag

    def note(self, name: str, problem: str) -> None:
        """Note a fault that does not stop messages; an empty ``problem`` removes it."""
        self._notes = {**self._notes, name: problem}

    def stopping(self) -> None:
        """The agent drains: it is alive but no longer ready."""
        self._stopping = True

    def closing(self) -> None:
        """Everything that could be committed is committed. Closing follows, without beats."""
        self._stopping, self._beat_at = True, None

    def live(self) -> HealthStatus:
        """Not ok if the loop has not beaten for ``beat_limit_s``."""
        late = self._beat_at is not None and self._clock() - self._beat_at > self._beat_limit_s
        return HealthStatus(not late, ("loop",) if late else ())

    def ready(self) -> HealthStatus:
        """Not ok if at least one reason exists; lists all of them."""
        now = self._clock()
        reasons = list(self.live().reasons)
        notes = tuple(f"{name}: {problem}" for name, problem in self._notes.items() if problem)
        if self._stopping or not self._started:
            return HealthStatus(False, (*reasons, "stopping" if self._stopping else "starting"), notes)
        if not self._progress:
            reasons.append("unassigned")
        if self._outage:
            reasons.append(self._outage)
        if self._up < self._wanted:
            reasons.append("workers")
        for stream, progress in sorted(list(self._progress.items())):
            if progress.lag and now - progress.since > self._stall_limit_s:
                reasons.append(f"stalled {stream}")
        return HealthStatus(not reasons, tuple(reasons), notes)
