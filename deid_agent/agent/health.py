"""Is the agent alive, and is it doing its work?"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from deid_agent.agent.ports import Partition


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ok``, and short words for whatever is not."""

    ok: bool
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class _Progress:
    position: int = -1
    lag: int | None = None
    since: float = 0.0  # last time it moved or had nothing to do


class Health:
    """Live: the loop beats. Ready: started, assigned, workers up, positions advancing while lag is above zero.

    The last is the only sign of a consumer that is stuck inside its client (aiokafka issue 1154).
    Beats count from the first one until ``closing``: before and after nobody is there to beat, and a start or a stop
    may take its time. Reading verdicts from another thread is harmless.
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
        self._started = False
        self._stopping = False

    def beat(self) -> None:
        """The event loop came round."""
        self._beat_at = self._clock()

    def started(self) -> None:
        """The transport has started."""
        self._started = True

    def workers(self, up: int, wanted: int) -> None:
        """How many workers are ready, of how many."""
        self._up, self._wanted = up, wanted

    def assigned(self, stream: Partition) -> None:
        """A partition is ours."""
        self._progress[stream] = _Progress(since=self._clock())

    def revoked(self, stream: Partition) -> None:
        """A partition is no longer ours."""
        self._progress.pop(stream, None)

    def moved(self, stream: Partition, position: int) -> None:
        """A partition's position stands here now."""
        if (progress := self._progress.get(stream)) is not None and position != progress.position:
            progress.position, progress.since = position, self._clock()

    def lag(self, stream: Partition, lag: int | None) -> None:
        """How far a partition is behind; None where nobody knows."""
        if (progress := self._progress.get(stream)) is not None:
            if not lag or not progress.lag:
                progress.since = self._clock()
            progress.lag = lag

    def stopping(self) -> None:
        """The agent drains: alive, but not ready for more."""
        self._stopping = True

    def closing(self) -> None:
        """All is settled that could be; what remains is closing, without a beat."""
        self._stopping, self._beat_at = True, None

    def live(self) -> Verdict:
        """False where the loop has not beaten for ``beat_limit_s``."""
        late = self._beat_at is not None and self._clock() - self._beat_at > self._beat_limit_s
        return Verdict(not late, ("loop",) if late else ())

    def ready(self) -> Verdict:
        """False with every reason there is."""
        now = self._clock()
        reasons = list(self.live().reasons)
        if self._stopping or not self._started:
            return Verdict(False, (*reasons, "stopping" if self._stopping else "starting"))
        if not self._progress:
            reasons.append("unassigned")
        if self._up < self._wanted:
            reasons.append("workers")
        for stream, progress in sorted(list(self._progress.items())):
            if progress.lag and now - progress.since > self._stall_limit_s:
                reasons.append(f"stalled {stream.topic}/{stream.number}")
        return Verdict(not reasons, tuple(reasons))
