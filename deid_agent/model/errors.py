"""The errors that this package raises on purpose.

    DeidError
    ├── ConfigurationError          a call, setting, rule, model or key is wrong: the agent does not start
    ├── MessageError                one message cannot be processed: it becomes a dead letter with a ``Reason``
    │   └── LeftOutError            the settings leave one message out: it has no output, and is no dead letter
    ├── DeadLetterError             one dead letter cannot be opened or replayed: the others continue
    ├── CrosswalkError              one line of a crosswalk, or a half-opened file, cannot be opened
    └── TransportError              the broker, folder, receiver, schema registry or audit file failed
        ├── TransientError          nothing was committed: retry
        │   ├── AssignmentLostError the assignment has ended: wait for a new one
        │   └── UncertainCommitError    the commit may have happened: a retry may duplicate it
        └── UnsafeError             going on could lose or duplicate a record: the agent stops
            └── UndeliverableError  the receiver does not accept the output of one record: the record is refused
                ├── OversizeError   the output is too large
                ├── RejectedError   the receiver rejects the output permanently
                └── KeylessError    the output has no key and its topic is compacted

No error contains text of a message: only coordinates, paths, rule ids and reason codes.
"""

import traceback
from collections.abc import Iterator
from enum import StrEnum
from pathlib import PurePath
from typing import ClassVar


class Reason(StrEnum):
    """Why a message was refused. Dead letters, metrics and remarks use only these values."""

    MALFORMED = "MALFORMED"
    UNSUPPORTED = "UNSUPPORTED"
    RESOURCE = "RESOURCE"
    REJECTED = "REJECTED"
    KEYLESS = "KEYLESS"
    LEAK = "LEAK"
    LANGUAGE = "LANGUAGE"
    SCHEMA = "SCHEMA"
    POISON = "POISON"
    INTERNAL = "INTERNAL"


class DeidError(Exception):
    """The base class of all errors of this package."""


class ConfigurationError(DeidError):
    """A call, setting, rule, model or key is wrong. ``str()`` is one line that names it and the remedy."""


class MessageError(DeidError):
    """One message cannot be processed.

    ``where`` is a path or a byte offset in the message (``PID-7``, ``byte 120``) and never a value.
    """

    def __init__(self, reason: Reason, where: str, detail: str = "") -> None:
        super().__init__(reason, where, detail)
        self.reason = reason
        self.where = where
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.where}" + (f": {self.detail}" if self.detail else "")


class LeftOutError(MessageError):
    """The settings leave one message out. ``where`` is the path of the element that decided."""

    def __init__(self, where: str, detail: str) -> None:
        super().__init__(Reason.REJECTED, where, detail)


class DeadLetterError(DeidError):
    """One dead letter cannot be read, opened or replayed. ``str()`` is the reason; the caller names the dead letter."""


class CrosswalkError(DeidError):
    """A line of a crosswalk, or a half-opened file, cannot be opened. ``str()`` is the reason, without a value."""


class TransportError(DeidError):
    """The broker, folder, receiver, schema registry or audit file failed."""


class TransientError(TransportError):
    """A retry may succeed; nothing was committed."""


class AssignmentLostError(TransientError):
    """The assignment has ended: another consumer owns the partition, or the MLLP connection is closed.

    Nothing was committed, and retries in this assignment cannot succeed.
    """


class UncertainCommitError(TransientError):
    """The response to a commit was lost. A retry may succeed, and may duplicate the commit."""


class UnsafeError(TransportError):
    """Going on could lose or duplicate a record. The agent stops with exit code 3."""


class UndeliverableError(UnsafeError):
    """The receiver does not accept the output of the record at ``offset``, which may be refused instead.

    No later record of the batch was committed. If no caller refuses the record, the error stops the agent as any
    ``UnsafeError`` does.
    """

    reason: ClassVar[Reason]

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.offset = offset


class OversizeError(UndeliverableError):
    """The output is larger than the receiver accepts."""

    reason = Reason.RESOURCE


class RejectedError(UndeliverableError):
    """The receiver rejected this output permanently."""

    reason = Reason.REJECTED


class KeylessError(UndeliverableError):
    """The output has no key, and its topic is compacted and takes only messages with keys."""

    reason = Reason.KEYLESS


def describe_exception(error: BaseException) -> str:
    """The class of an exception and the line of code that raised it: ``KeyError at hl7v2.py:120``.

    The text of an unexpected exception often quotes its input, so the result does not contain it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return type(error).__name__ + place


def leading_error(group: BaseException) -> DeidError:
    """The error of a group (or a single error) that determines how the agent ends.

    An ``UnsafeError`` takes precedence over other errors of this package. An unexpected exception becomes an
    ``UnsafeError`` without its text.
    """
    leaves = list(_leaves(group))
    for kind in (UnsafeError, DeidError):
        for error in leaves:
            if isinstance(error, kind):
                return error
    return UnsafeError(f"unexpected error in the agent ({describe_exception(leaves[0])}): please report it")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 message`` or ``2 messages``, for the texts of errors and commands; ``plural`` if it is not noun + s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
