"""A client of a schema registry with Confluent's HTTP interface: schemas by id, and their ids under other subjects.

A ``SchemaRegistry`` belongs to one thread. Its requests run in another one, so that a registry that hangs cannot hold
up a worker until its deadline: past ``patience_s`` the caller gets ``TransientError`` and asks again later.
"""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

from deid_agent.model import MessageError, Reason, TransientError
from deid_agent.schemas.registry_http import (
    RegisteredSchema,
    RegistryOptions,
    RegistrySession,
    SchemaNotFoundError,
    SchemaRejectedError,
)

_UNKNOWN_S = 10.0
"""How long an unknown id is not asked for again."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
"""Pauses after a failure, in which no request is sent."""
_SLOW = "the schema registry has not answered yet"

_Key = tuple[str, int]
"""The subject ("" for the schema itself) and the id of an answer."""
_Answer = RegisteredSchema | int


@dataclass(slots=True)
class SchemaRegistry:
    """Asks one registry. ``patience_s`` is the longest wait for an answer; None waits for the timeout of a request.

    Raises ``ConfigurationError`` if a file of the options cannot be used.
    """

    options: RegistryOptions
    patience_s: float | None = None
    clock: Callable[[], float] = monotonic
    _session: RegistrySession = field(init=False, repr=False)
    _found: "OrderedDict[_Key, _Answer]" = field(default_factory=OrderedDict, repr=False)
    _unknown: dict[_Key, float] = field(default_factory=dict, repr=False)
    _pending: "dict[_Key, Future[_Answer]]" = field(default_factory=dict, repr=False)
    _thread: ThreadPoolExecutor | None = field(default=None, repr=False)
    _closed_until: float = 0.0
    _failures: int = 0
    _problem: str = ""

    def __post_init__(self) -> None:
        self._session = RegistrySession(self.options)

    def schema(self, id_: int) -> RegisteredSchema:
        """The schema with an id.

        Raises ``TransientError`` if the registry does not answer, and ``MessageError(SCHEMA)`` if it has no such id.
        """
        try:
            found = self._get(("", id_), lambda: self._session.schema(id_))
        except SchemaNotFoundError:
            raise MessageError(Reason.SCHEMA, "byte 1", "the schema registry has no schema with this id") from None
        if not isinstance(found, RegisteredSchema):
            raise TypeError("an id in place of a schema")
        return found

    def register(self, subject: str, id_: int) -> int:
        """The id under ``subject`` of the schema with an id; the registry adds it to the subject if it is new there.

        Raises as ``schema``, and ``MessageError(SCHEMA)`` if the subject does not accept the schema.
        """
        schema = self.schema(id_)
        try:
            found = self._get((subject, id_), lambda: self._session.register(subject, schema))
        except (SchemaNotFoundError, SchemaRejectedError):
            detail = "the schema registry does not accept this schema under the output subject"
            raise MessageError(Reason.SCHEMA, "byte 1", detail) from None
        if not isinstance(found, int):
            raise TypeError("a schema in place of an id")
        return found

    def latest(self, subject: str) -> tuple[int, RegisteredSchema] | None:
        """The id and the newest schema of a subject; None if the registry has no such subject.

        Raises ``TransientError``.
        """
        try:
            return self._session.latest(subject)
        except SchemaNotFoundError:
            return None

    def probe(self) -> str:
        """The schema types of the registry. Raises ``TransientError`` with the fault."""
        return self._session.types()

    def _get(self, key: _Key, ask: Callable[[], _Answer]) -> _Answer:
        if key in self._found:
            self._found.move_to_end(key)
            return self._found[key]
        now = self.clock()
        if self._unknown.get(key, now) > now:
            raise SchemaNotFoundError
        if self._closed_until > now:
            raise TransientError(self._problem)
        asked = self._pending.get(key)
        if asked is None:
            for other, each in list(self._pending.items()):
                if each.done():  # keep a late answer: its record may come only after this one
                    with suppress(TransientError, SchemaNotFoundError, SchemaRejectedError):
                        self._take(other, each, 0.0)
            if self._pending:  # another request hangs: one wait for it was enough
                raise TransientError(_SLOW)
            self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="schemas")
            asked = self._pending[key] = self._thread.submit(ask)
            return self._take(key, asked, self.patience_s)
        return self._take(key, asked, 0.0)

    def _take(self, key: _Key, asked: "Future[_Answer]", wait_s: float | None) -> _Answer:
        """The answer to a request. Keeps it, or notes the failure."""
        try:
            found = asked.result(wait_s)
        except TimeoutError:
            raise TransientError(_SLOW) from None
        except TransientError as problem:
            del self._pending[key]
            self._failures += 1
            pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 16))
            self._closed_until, self._problem = self.clock() + pause, str(problem)
            raise
        except (SchemaNotFoundError, SchemaRejectedError):
            del self._pending[key]
            self._failures = 0
            if len(self._unknown) >= self.options.cache:
                self._unknown.clear()
            self._unknown[key] = self.clock() + _UNKNOWN_S
            raise
        del self._pending[key]
        self._failures = 0
        self._found[key] = found
        if len(self._found) > self.options.cache:
            self._found.popitem(last=False)
        return found
