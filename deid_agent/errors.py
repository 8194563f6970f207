"""Every error this package raises on purpose.

    DeidError
    ├── ConfigurationError      the call, a setting, a rule, a model or the key is wrong: the agent does not start
    ├── MessageError            one message cannot be processed: it goes to the dead letters with a ``Reason``
    ├── LetterError             one dead letter cannot be opened or put back: it is named, the others go on
    └── TransportError          the outside failed
        ├── TransientError      try again: nothing was settled
        │   ├── LostError       the partition has another owner now: only a new assignment helps
        │   └── DoubtError      it may have happened and nobody says so: trying again may double it
        └── UnsafeError         going on could lose or double a record: the agent stops
            └── UnwantedError   the outside does not take the output of one record: it is refused instead
                ├── OversizeError   it is too large
                └── RejectedError   its receiver says no, for good

No error carries text of a message: coordinates, paths, rule ids and reason codes only.
"""

from enum import StrEnum
from typing import ClassVar


class Reason(StrEnum):
    """Why a message was refused; the closed list that dead letters, metrics and remarks use."""

    MALFORMED = "MALFORMED"
    UNSUPPORTED = "UNSUPPORTED"
    RESOURCE = "RESOURCE"
    REJECTED = "REJECTED"
    LEAK = "LEAK"
    POISON = "POISON"
    INTERNAL = "INTERNAL"


class DeidError(Exception):
    """The root; catch this to catch all of them."""


class ConfigurationError(DeidError):
    """A call, setting, rule, model or key is wrong.

    ``str()`` is one line that names the thing and what to do about it.
    """


class MessageError(DeidError):
    """One message cannot be processed.

    ``where`` is a path or a byte offset in the message (``PID-7``, ``byte 120``), never a value.
    """

    def __init__(self, reason: Reason, where: str, detail: str = "") -> None:
        super().__init__(reason, where, detail)
        self.reason = reason
        self.where = where
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.where}" + (f": {self.detail}" if self.detail else "")


class LetterError(DeidError):
    """One dead letter cannot be read, opened or put back; ``str()`` says why, whoever reports it names the letter."""


class TransportError(DeidError):
    """The outside (broker, folder, audit file) failed."""


class TransientError(TransportError):
    """Worth another try; nothing was settled."""


class LostError(TransientError):
    """The partition went to another owner: nothing was settled, and trying again within this assignment is idle."""


class DoubtError(TransientError):
    """Worth another try, though it may have happened: the answer got lost."""


class UnsafeError(TransportError):
    """Going on could lose or double a record; the agent stops with exit code 3."""


class UnwantedError(UnsafeError):
    """The outside does not take the output of the record at ``offset``; its outcome may be changed to a refusal.

    Nothing behind it in its batch was settled. Without anybody who refuses the record it is an ``UnsafeError``.
    """

    reason: ClassVar[Reason]

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.offset = offset


class OversizeError(UnwantedError):
    """The output is larger than the outside takes."""

    reason = Reason.RESOURCE


class RejectedError(UnwantedError):
    """The receiver said of this output that it will never take it."""

    reason = Reason.REJECTED
