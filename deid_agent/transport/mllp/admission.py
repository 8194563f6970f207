"""Which connection gives way to a new sender if all slots are in use: progress of a block, and the choice itself.

Nothing is lost when a connection gives way: no message of it is being processed, so its sender has no acknowledgment
and sends again. Pure functions and values; the clock is the caller's.
"""

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

GRACE_S: Final = 1.0
"""A new connection, and a block that is not further behind than this, give way to no other of their own address."""

CROWDED: Final = 10
CROWDED_S: Final = 5.0
"""If senders wait for a slot, a block more than ``CROWDED_S`` behind ``CROWDED`` times the slowest rate gives way."""


class GaveWay(StrEnum):
    """Why a connection was closed for another sender. The order is the order in which connections give way."""

    SLOW = "slow"
    """It is inside a block and more than ``GRACE_S`` behind the slowest permitted rate."""

    UNPROVEN = "unproven"
    """It is idle and has never sent a message."""

    IDLE = "idle"
    LONG = "long"
    """It is inside a block, at a permitted rate, but too slow while others wait (``CROWDED``)."""

    SHARE = "share"
    """Its address has more connections than that of the new sender."""

    BUSY = "busy"
    """The same, and all of them process messages: it is closed once those are answered."""


@dataclass(slots=True)
class Progress:
    """How far a sender is behind the slowest permitted rate inside a block.

    Each byte pays for ``1 / rate`` seconds, at most up to the present: a burst gives no credit for a later silence.
    """

    rate: float
    since: float | None = None
    """When the block began; None between blocks."""

    size: int = 0
    _paid: float = 0.0
    _paid_crowded: float = 0.0

    def begin(self, now: float) -> None:
        """A block has begun."""
        self.since, self._paid, self._paid_crowded, self.size = now, now, now, 0

    def receive(self, now: float, size: int) -> None:
        """More bytes of the block arrived."""
        self._paid = min(now, self._paid + size / self.rate)
        self._paid_crowded = min(now, self._paid_crowded + size / (self.rate * CROWDED))
        self.size += size

    def end(self) -> None:
        """The block is complete."""
        self.since = None

    def excuse(self, now: float) -> None:
        """The agent has not read for a while. That time is not the sender's."""
        if self.since is not None:
            self.begin(now)

    def behind_s(self, now: float) -> float:
        """Seconds of silence that the bytes of the block do not pay for; 0 between blocks."""
        return 0.0 if self.since is None else now - self._paid

    def behind_crowded_s(self, now: float) -> float:
        """The same for ``CROWDED`` times the rate."""
        return 0.0 if self.since is None else now - self._paid_crowded

    def bytes_per_s(self, now: float) -> float:
        """The mean rate of this block."""
        return 0.0 if self.since is None else self.size / max(now - self.since, GRACE_S)


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """What the choice needs of one connection."""

    number: int
    peer: str
    busy: bool
    """A message of it is being processed or waits for its acknowledgment."""

    receiving: bool
    """It is inside a block."""

    behind_s: float
    behind_crowded_s: float
    bytes_per_s: float
    quiet_s: float
    """Time since its last message, or since it connected."""

    proven: bool
    """A message of it was accepted."""

    leaving: bool = False
    """It closes once its messages are answered."""


def peer_of(address: object) -> str:
    """The address that connections are counted by: of IPv6 the /64 network, which one host usually has to itself."""
    host = str(address[0]) if isinstance(address, tuple) and address else ""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return host


def choose_connection(
    states: Sequence[ConnectionState], peer: str, patience_s: float, *, own_only: bool = False
) -> tuple[int, GaveWay] | None:
    """The connection that gives way to a new one of ``peer``; None if it has to wait.

    The address with the most connections comes first, but none with fewer than ``peer`` would have. A connection that
    has been idle for ``patience_s`` gives way to anybody. ``own_only`` leaves other addresses alone.
    """
    counts = Counter(state.peer for state in states)
    own = counts[peer]
    allowed = [state for state in states if not state.leaving and (state.peer == peer or not own_only)]
    stale = [
        (-counts[state.peer], order, state.number, reason)
        for state in allowed
        if counts[state.peer] > own or state.peer == peer
        for reason, order in _staleness(state)
    ]
    if stale:
        _, _, number, reason = min(stale)
        return number, reason
    idle = [(-s.quiet_s, s.number) for s in allowed if not s.busy and not s.receiving and s.quiet_s >= patience_s]
    if idle:
        return min(idle)[1], GaveWay.IDLE
    larger = [state for state in allowed if counts[state.peer] > own + 1 and state.peer != peer]
    if not larger:
        return None
    most = max(counts[state.peer] for state in larger)
    larger = [state for state in larger if counts[state.peer] == most]
    open_ = [(state.bytes_per_s, state.number) for state in larger if not state.busy]
    if open_:
        return min(open_)[1], GaveWay.SHARE
    return min(state.number for state in larger), GaveWay.BUSY


_ORDER: Final = tuple(GaveWay)


def _staleness(state: ConnectionState) -> Sequence[tuple[GaveWay, tuple[int, float]]]:
    """Why this connection may give way to any sender, with its place in the order; nothing if it may not."""
    if state.busy:
        return ()
    if not state.receiving:
        reason, key = GaveWay.IDLE if state.proven else GaveWay.UNPROVEN, -state.quiet_s
        found = state.proven or state.quiet_s > GRACE_S
    elif state.behind_s > GRACE_S:
        reason, key, found = GaveWay.SLOW, -state.behind_s, True
    else:
        reason, key, found = GaveWay.LONG, state.bytes_per_s, state.behind_crowded_s > CROWDED_S
    return ((reason, (_ORDER.index(reason), key)),) if found else ()
