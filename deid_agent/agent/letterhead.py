"""How a refused record is kept: its headers, in the clear and without a value, and its body, sealed or not."""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deid_agent.agent import envelope
from deid_agent.agent.deadletter import letter_headers, safe_path
from deid_agent.agent.letterkeys import PrivateKey, PublicKey
from deid_agent.agent.lineage import REPLAY_OF, lineage_of
from deid_agent.agent.ports import Coordinates, DeadLetter, Headers, Record
from deid_agent.errors import LetterError

_CONNECT: Final = "__connect.errors."
_FORM: Final = "deid.letter.form"
_KEY: Final = "deid.letter.key"
_TIME: Final = "deid.letter.time"
_BUILD: Final = "deid.build."
_WORD = re.compile(r"[A-Za-z0-9_.:+-]{0,64}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # what Kafka allows
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class Form(StrEnum):
    """What a letter's body is."""

    SEALED = "sealed-1"
    """The envelope, deflated and sealed to a public key."""

    PLAIN = "plain"
    """The envelope in the clear; in a folder the file as it came."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps refused records: sealed to ``public``, or in the clear where there is none.

    ``build`` names what the agent ran with (versions and digests); ``clock`` gives seconds since 1970.
    """

    public: PublicKey | None = None
    build: tuple[tuple[str, str], ...] = ()
    clock: Callable[[], float] = time.time

    @property
    def form(self) -> Form:
        return Form.PLAIN if self.public is None else Form.SEALED

    def headers(self, record: Record, letter: DeadLetter) -> Headers:
        """Codes, coordinates and versions; never a value."""
        ours = [(_FORM, self.form.value), (_TIME, str(int(self.clock() * 1000)))]
        if self.public is not None:
            ours.append((_KEY, self.public.id))
        ours += [(_BUILD + name, value) for name, value in self.build]
        said = letter_headers(record.coordinates, letter, lineage_of(record))
        return (*said, *((name, value.encode()) for name, value in ours))

    def body(self, record: Record) -> bytes:
        """The whole record, sealed or in the clear. Takes about a second for 50 MB: call it from a thread."""
        if self.public is None:
            return envelope.pack(record)
        return self.public.seal(envelope.head_line(record), record.payload)


PLAIN: Final = Keeper()
"""Keeps everything in the clear: for tests and demonstrations."""


@dataclass(frozen=True, slots=True)
class LetterHead:
    """What a letter's headers say. Every member has the form that the agent gives it: nothing else gets through."""

    at: Coordinates
    code: str
    stage: str
    fault: str
    where: str
    attempts: int
    version: str
    form: Form
    key: str
    time_ms: int
    first: Coordinates | None
    build: tuple[tuple[str, str], ...]


def read_head(headers: Iterable[tuple[str, bytes]]) -> LetterHead:
    """The head of a letter. Raises ``LetterError`` where the headers are not those of a letter of ours."""
    said = {name: value.decode("ascii", "replace") for name, value in headers}
    try:
        return LetterHead(
            at=Coordinates(
                _fit(_TOPIC, said[_CONNECT + "topic"]),
                int(_fit(_NUMBER, said[_CONNECT + "partition"])),
                int(_fit(_NUMBER, said[_CONNECT + "offset"])),
            ),
            code=_fit(_WORD, said["deid.error.code"]),
            stage=_fit(_WORD, said[_CONNECT + "stage"]),
            fault=_fit(_WORD, said[_CONNECT + "exception.class.name"]),
            where=safe_path(said["deid.error.where"]),
            attempts=int(_fit(_NUMBER, said["deid.attempts"])),
            version=_fit(_WORD, said["deid.version"]),
            form=Form(said[_FORM]),
            key=_fit(_WORD, said.get(_KEY, "")),
            time_ms=int(_fit(_NUMBER, said[_TIME])),
            first=coordinates_of(said[REPLAY_OF]) if REPLAY_OF in said else None,
            build=tuple(
                (name.removeprefix(_BUILD), value)
                for name, value in said.items()
                if name.startswith(_BUILD) and _WORD.fullmatch(name) and _WORD.fullmatch(value)
            ),
        )
    except (KeyError, ValueError):
        raise LetterError("its headers are not those of a letter of this program") from None


def coordinates_of(text: str) -> Coordinates:
    """``topic/partition/offset`` read back. Raises ``ValueError`` without a copy of the text."""
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    return Coordinates(_fit(_TOPIC, topic), int(_fit(_NUMBER, partition)), int(_fit(_NUMBER, offset)))


def open_letter(head: LetterHead, body: bytes, private: PrivateKey | None, most: int) -> Record:
    """The record in a letter, at most about ``most`` bytes. Raises ``LetterError`` where it cannot be had."""
    if head.form is Form.SEALED:
        if private is None:
            raise LetterError(f"it is sealed to key {head.key}: give --private-key")
        if private.id != head.key:
            raise LetterError(f"it is sealed to key {head.key}, the key given is {private.id}")
        body = private.open(body, most)
    return envelope.unpack(body, head.at)


def _fit(form: "re.Pattern[str]", text: str) -> str:
    if not form.fullmatch(text):
        raise ValueError
    return text
