"""What the agent audits, and where it goes: one entry per record, durable before the record settles. Never a value.

A record that was audited and then not settled (a crash between the two) comes
again and is audited again: the last line of its coordinates is the one that counts.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from deid_agent.agent.ports import Coordinates, Outcome


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of one record. ``remarks`` is a JSON array on one line, as the worker wrote it.

    ``replay_of`` is where a record first stood that was put back from the dead letters.
    """

    coordinates: Coordinates
    outcome: Outcome
    reason: str = ""
    where: str = ""
    stage: str = ""
    attempts: int = 1
    input_digest: str = ""
    output_digest: str = ""
    remarks: bytes = field(default=b"[]", repr=False)
    replay_of: Coordinates | None = None


class AuditLog(Protocol):
    """Where entries go."""

    async def append(self, entries: Sequence[Entry]) -> Sequence[bytes]:
        """Make the entries durable, in order; ``UnsafeError`` where that fails, and then nothing may settle.

        Returns the line of each as it stands in the trail, without its end; nothing where no lines are kept.
        """

    async def close(self) -> None:
        """Close; safe to call twice."""


def mend(file: int) -> int:
    """Cut a last line without an end off an open file of lines; how many bytes went."""
    size = os.fstat(file).st_size
    end = size
    while end > 0:
        begin = max(0, end - 65536)
        at = os.pread(file, end - begin, begin).rfind(b"\n")
        if at >= 0:
            end = begin + at + 1
            break
        end = begin
    if end != size:
        os.ftruncate(file, end)
        os.fsync(file)
    return size - end
