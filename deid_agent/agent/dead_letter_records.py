"""The stored form of dead letters, and how they are read, filtered and replayed.

A dead letter consists of headers in the clear, which never hold a value, and a body: the whole record in an envelope,
sealed to a public key unless none is configured. The envelope is one line of JSON (wrapped here), a line feed, and the
unchanged payload:

    {"v": 1, "at": "adt/0/7", "key": "TVJOMQ==", "headers": [["trace", "MQ=="]], "time": 1700000000000,
     "tombstone": false}

``key`` and header values are base64 (RFC 4648); ``key`` and ``time`` (milliseconds since 1970) may be null. ``at``
names the record, so that a dead letter with the headers of another one is detected.
"""

import base64
import binascii
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

import orjson

from deid_agent.agent.dead_letter_keys import PrivateKey, PublicKey
from deid_agent.agent.outcomes import DEID_ID, REPLAY_OF, dead_letter_headers, read_lineage, safe_path
from deid_agent.agent.ports import Coordinates, DeadLetter, Headers, Record
from deid_agent.model import DeadLetterError, format_time

VERSION: Final = 1


def pack_envelope(record: Record) -> bytes:
    """The record in an envelope."""
    return envelope_header(record) + record.payload


def envelope_header(record: Record) -> bytes:
    """The envelope without the payload, including the line feed."""
    head = {
        "v": VERSION,
        "at": str(record.coordinates),
        "key": None if record.key is None else _encode_base64(record.key),
        "headers": [[name, _encode_base64(value)] for name, value in record.headers],
        "time": record.timestamp_ms,
        "tombstone": record.tombstone,
    }
    return orjson.dumps(head) + b"\n"


def unpack_envelope(data: bytes, at: Coordinates) -> Record:
    """The record in an envelope.

    Raises ``DeadLetterError`` if the envelope is damaged or holds another record than ``at``.
    """
    line, end, payload = data.partition(b"\n")
    try:
        head = orjson.loads(line)
        if head["v"] != VERSION:
            raise DeadLetterError("its envelope is of another release")
        record = Record(
            coordinates=at,
            payload=payload,
            key=None if head["key"] is None else _decode_base64(head["key"]),
            headers=tuple((str(name), _decode_base64(value)) for name, value in head["headers"]),
            timestamp_ms=None if head["time"] is None else int(head["time"]),
            tombstone=bool(head["tombstone"]),
        )
        named = head["at"]
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        raise DeadLetterError("its envelope is damaged") from None
    if not end or (record.tombstone and payload):
        raise DeadLetterError("its envelope is damaged")
    if named != str(at):
        raise DeadLetterError("it holds another record than its headers name")
    return record


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_CONNECT: Final = "__connect.errors."
_FORM: Final = "deid.dead-letter.form"
_KEY: Final = "deid.dead-letter.key"
_TIME: Final = "deid.dead-letter.time"
_TOPIC_ID: Final = "deid.topic-id"
_BUILD: Final = "deid.build."
_WORD = re.compile(r"[A-Za-z0-9_.:+-]{0,64}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # the names that Kafka allows
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class RecordForm(StrEnum):
    """The form of a dead letter's body."""

    SEALED = "sealed-1"
    """The envelope, deflated and sealed to a public key."""

    PLAIN = "plain"
    """The envelope in the clear. In a folder, the file itself."""


@dataclass(frozen=True, slots=True)
class DeadLetterSealer:
    """Builds dead letters: sealed to ``public``, or in the clear without a key.

    ``build`` lists the versions and digests that the agent runs with, and ``builds`` what differs for the records of a
    topic; ``clock`` returns seconds since 1970.
    """

    public: PublicKey | None = None
    build: tuple[tuple[str, str], ...] = ()
    clock: Callable[[], float] = time.time
    builds: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    @property
    def form(self) -> RecordForm:
        return RecordForm.PLAIN if self.public is None else RecordForm.SEALED

    def headers(self, record: Record, dead_letter: DeadLetter) -> Headers:
        """The headers of a dead letter: codes, coordinates and versions, never a value."""
        own = [(_FORM, self.form.value), (_TIME, str(int(self.clock() * 1000)))]
        if self.public is not None:
            own.append((_KEY, self.public.id))
        if record.topic_id:
            own.append((_TOPIC_ID, record.topic_id))
        own += [(_BUILD + name, value) for name, value in self._build_of(record.coordinates.topic)]
        values = dead_letter_headers(record.coordinates, dead_letter, read_lineage(record))
        return (*values, *((name, value.encode()) for name, value in own))

    def _build_of(self, topic: str) -> Iterable[tuple[str, str]]:
        own = self.builds.get(topic)
        return self.build if own is None else {**dict(self.build), **dict(own)}.items()

    def body(self, record: Record) -> bytes:
        """The body with the whole record, sealed or in the clear. Takes about a second for 50 MB: call it from a
        thread.
        """
        if self.public is None:
            return pack_envelope(record)
        return self.public.seal(envelope_header(record), record.payload)


UNSEALED: Final = DeadLetterSealer()
"""Builds dead letters in the clear, for tests and demonstrations."""


@dataclass(frozen=True, slots=True)
class DeadLetterHead:
    """The headers of a dead letter, parsed. Each member is checked against the form that the agent writes.

    ``id`` is the ``deid-id`` of the record. It tells a record from one of a former topic with the same coordinates, and
    is empty in a folder. ``topic_id`` is empty if the source has no such id.
    """

    at: Coordinates
    code: str
    stage: str
    fault: str
    where: str
    attempts: int
    version: str
    form: RecordForm
    key: str
    time_ms: int
    first: Coordinates | None
    build: tuple[tuple[str, str], ...]
    id: str = ""
    topic_id: str = ""


def read_dead_letter_head(headers: Iterable[tuple[str, bytes]]) -> DeadLetterHead:
    """Parse the headers of a dead letter. Raises ``DeadLetterError`` if this program did not write them."""
    values = {name: value.decode("ascii", "replace") for name, value in headers}
    try:
        return DeadLetterHead(
            at=Coordinates(
                _require_match(_TOPIC, values[_CONNECT + "topic"]),
                int(_require_match(_NUMBER, values[_CONNECT + "partition"])),
                int(_require_match(_NUMBER, values[_CONNECT + "offset"])),
            ),
            code=_require_match(_WORD, values["deid.error.code"]),
            stage=_require_match(_WORD, values[_CONNECT + "stage"]),
            fault=_require_match(_WORD, values[_CONNECT + "exception.class.name"]),
            where=safe_path(values["deid.error.where"]),
            attempts=int(_require_match(_NUMBER, values["deid.attempts"])),
            version=_require_match(_WORD, values["deid.version"]),
            form=RecordForm(values[_FORM]),
            key=_require_match(_WORD, values.get(_KEY, "")),
            time_ms=int(_require_match(_NUMBER, values[_TIME])),
            first=parse_coordinates(values[REPLAY_OF]) if REPLAY_OF in values else None,
            build=tuple(
                (name.removeprefix(_BUILD), value)
                for name, value in values.items()
                if name.startswith(_BUILD) and _WORD.fullmatch(name) and _WORD.fullmatch(value)
            ),
            id=_require_match(_WORD, values.get(DEID_ID, "")),
            topic_id=_require_match(_WORD, values.get(_TOPIC_ID, "")),
        )
    except (KeyError, ValueError):
        raise DeadLetterError("its headers were not written by this program") from None


def parse_coordinates(text: str) -> Coordinates:
    """Parse ``topic/partition/offset``. Raises ``ValueError`` whose text does not quote the input."""
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    return Coordinates(
        _require_match(_TOPIC, topic), int(_require_match(_NUMBER, partition)), int(_require_match(_NUMBER, offset))
    )


def open_dead_letter(head: DeadLetterHead, body: bytes, private: PrivateKey | None, max_bytes: int) -> Record:
    """The record in a dead letter, up to about ``max_bytes``. Raises ``DeadLetterError`` if it cannot be opened."""
    if head.form is RecordForm.SEALED:
        if private is None:
            raise DeadLetterError(f"it is sealed to key {head.key}: give --private-key")
        if private.id != head.key:
            raise DeadLetterError(f"it is sealed to key {head.key}, the key given is {private.id}")
        body = private.open(body, max_bytes)
    return unpack_envelope(body, head.at)


def _require_match(form: "re.Pattern[str]", text: str) -> str:
    if not form.fullmatch(text):
        raise ValueError
    return text


Opener = Callable[[PrivateKey | None], Record]


@dataclass(frozen=True, slots=True)
class FoundDeadLetter:
    """A readable dead letter. ``location`` identifies it in its store; ``replayed`` counts its replays so far.

    ``open_record(private)`` returns the original record, or raises ``DeadLetterError``.
    """

    head: DeadLetterHead
    location: str
    replayed: int
    open_record: Opener = field(repr=False)


@dataclass(frozen=True, slots=True)
class DamagedDeadLetter:
    """An entry among the dead letters that cannot be read, and the reason."""

    location: str
    problem: str


ReplayChooser = Callable[[FoundDeadLetter | DamagedDeadLetter], Record | None]
"""Returns the record of a dead letter that is to be replayed, or None to skip it."""
ReplayReport = Callable[[FoundDeadLetter, str], None]
"""Receives each chosen dead letter with the reason why it was not replayed; an empty string if it was."""


class DeadLetterStore(Protocol):
    """The dead letters of one agent. They are read one by one: at most one body is in memory.

    All methods raise ``ConfigurationError`` if the dead letters cannot be reached, and ``UnsafeError`` if the store
    fails later.
    """

    def dead_letters(self) -> AsyncIterator[FoundDeadLetter | DamagedDeadLetter]:
        """Yield all dead letters, in order per partition."""

    async def replay(self, choose: ReplayChooser, report: ReplayReport) -> None:
        """Put the records that ``choose`` returns back into their input, each once, and mark their dead letters.

        A record and its mark are written both or neither. Only one replay can run: a second one either fences the first
        (``UnsafeError``) or is refused.
        """


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Whole numbers from ``first`` to ``last``, both included. None is no bound."""

    first: int | None = None
    last: int | None = None

    def contains(self, number: int) -> bool:
        return (self.first is None or self.first <= number) and (self.last is None or number <= self.last)


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects dead letters that match every member. An empty member matches all."""

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    offsets: tuple[NumberRange, ...] = ()
    codes: frozenset[str] = frozenset()
    times_ms: NumberRange = NumberRange()

    @property
    def everything(self) -> bool:
        """True if no condition is set."""
        return self == DeadLetterFilter()

    def matches(self, head: DeadLetterHead) -> bool:
        """True if the dead letter matches."""
        return (
            (not self.topics or head.at.topic in self.topics)
            and (not self.partitions or head.at.partition in self.partitions)
            and (not self.offsets or any(numbers.contains(head.at.offset) for numbers in self.offsets))
            and (not self.codes or head.code in self.codes)
            and self.times_ms.contains(head.time_ms)
        )


def dead_letter_summary(found: FoundDeadLetter) -> dict[str, object]:
    """A dead letter as JSON for ``dead-letters list --json`` and the console: coordinates and codes, no value."""
    head = found.head
    return {
        "record": str(head.at),
        "code": head.code,
        "stage": head.stage,
        "fault": head.fault,
        "where": head.where,
        "attempts": head.attempts,
        "version": head.version,
        "build": dict(head.build),
        "refused": format_time(head.time_ms // 1000),
        "form": head.form.value,
        "key": head.key or None,
        "letter": found.location,
        "replayed": found.replayed,
        "replay_of": None if head.first is None else str(head.first),
    }
