"""The worker for the lines of a FHIR bulk export: each line is a message with the persons to whom it refers.

A line that cannot be published is a closed code and nothing else; no exception leaves ``LineWorker``.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import orjson

from deid_agent.agent import Job, Process, Processed, Result
from deid_agent.app import WorkerFactory
from deid_agent.batch.bulk_identities import IdentityStore, StoreKey
from deid_agent.codec.fhir import FhirCodec
from deid_agent.model import Listing, MessageError, Reason
from deid_agent.pipeline import Deidentifier, MessagePlan, Recognition, strip_numbers

_OF_FIELDS = frozenset({"structure", "host", "attachment-url", "policy", "attachment", "pdf"})
"""Sources of changes that no recognizer found."""


@dataclass(frozen=True, slots=True)
class LineResult:
    """A sanitized line with its resource type, or the reason why it has none.

    ``unknown_patient`` is true if it refers to a Patient that the export does not have. ``listing`` is that of its
    patient in the scope table, if there is one. ``changes`` are the replacements by path, type, method and rule,
    ``in_texts`` those that a recognizer found, in ``words`` words of texts. ``document`` is the identity of the line.
    """

    content: bytes = field(default=b"", repr=False)
    type: str = ""
    reason: str = ""
    unknown_patient: bool = False
    listing: str = ""
    document: str = field(default="", repr=False)
    words: int = 0
    in_texts: int = 0
    changes: tuple[tuple[str, str, str, str, int], ...] = ()


_MEMBERS = [each.name for each in fields(LineResult) if each.name != "content"]


@dataclass(frozen=True, slots=True)
class LineWorkerFactory:
    """Builds the job callable of a worker for lines."""

    parts: WorkerFactory
    identities: StoreKey

    def __call__(self) -> Process:
        """The loaded job callable."""
        codec = FhirCodec(self.parts.rules)
        store = IdentityStore(self.identities, codec)
        return LineWorker(self.parts.deidentifier(), store, codec.resources, self.parts.max_bytes)


@dataclass(frozen=True, slots=True)
class LineWorker:
    """De-identifies lines in the form of jobs."""

    deidentifier: Deidentifier
    store: IdentityStore
    types: frozenset[str]
    max_bytes: int

    def __call__(self, job: Job) -> Result:
        """The results of the lines of one job."""
        return Processed(encode_results(self.process(decode_lines(job.payload))))

    def process(self, lines: Sequence[bytes]) -> list[LineResult]:
        """The result of each line, the same as for the line alone. Their texts are read together."""
        made = [self._plan(line) for line in lines]
        plans = [each for each, _ in made if isinstance(each, MessagePlan)]
        recognitions = iter(self.deidentifier.recognize(plans))
        results = []
        for plan, unknown in made:
            if isinstance(plan, MessagePlan):
                results.append(self._apply(plan, next(recognitions), unknown))
            else:
                results.append(plan)
        return results

    def _plan(self, line: bytes) -> tuple[MessagePlan | LineResult, bool]:
        self.store.unknown_patient = False
        try:
            if not line.startswith(b"{"):
                raise MessageError(Reason.MALFORMED, "line", "no JSON object")
            if len(line) > self.max_bytes:
                raise MessageError(Reason.RESOURCE, "line", "too long")
            plan = self.deidentifier.plan(line, find_known=self.store.find_known)
        except Exception as error:  # noqa: BLE001 - the boundary: a fault in one line must not affect the others
            return _refuse(error), False
        return plan, self.store.unknown_patient

    def _apply(self, plan: MessagePlan, recognition: Recognition, unknown: bool) -> LineResult:
        try:
            done = self.deidentifier.apply(plan, recognition)
            payload = done.payload
            found = orjson.loads(payload)["resourceType"]
        except Exception as error:  # noqa: BLE001 - as above
            return _refuse(error)
        # A JSON text may have line feeds between its members, but one line has none.
        named = [listing for listing, _ in plan.listings]
        listing = next((each for each in (Listing.CONFLICTING, Listing.UNLISTED) if each in named), "")
        changes = Counter[tuple[str, str, str, str]]()
        for each in done.remarks:
            changes[strip_numbers(each.path), each.type, each.method, each.source] += each.count
        return LineResult(
            payload,
            found if found in self.types else "",
            "",
            unknown,
            listing,
            plan.parts[0].message.identity,
            sum(len(text.text.split()) for text in plan.texts if not text.label),
            sum(count for (_, _, _, source), count in changes.items() if source not in _OF_FIELDS),
            tuple((*key, count) for key, count in sorted(changes.items())),
        )


def _refuse(error: Exception) -> LineResult:
    reason = error.reason if isinstance(error, MessageError) else Reason.INTERNAL
    return LineResult(reason=reason.value)


def encode_lines(lines: Sequence[bytes]) -> bytes:
    """Lines as the payload of a job."""
    return _join([len(line) for line in lines], lines)


def decode_lines(payload: bytes) -> list[bytes]:
    """The lines of ``encode_lines``."""
    sizes, content = _split(payload)
    found, at = [], 0
    for size in sizes:
        found.append(content[at : at + size])
        at += size
    return found


def encode_results(results: Sequence[LineResult]) -> bytes:
    """Results as the payload of an answer."""
    head = [[len(each.content), *(getattr(each, name) for name in _MEMBERS)] for each in results]
    return _join(head, [each.content for each in results])


def decode_results(payload: bytes) -> list[LineResult]:
    """The results of ``encode_results``."""
    head, content = _split(payload)
    found, at = [], 0
    for size, *more in head:
        more[-1] = tuple(map(tuple, more[-1]))
        found.append(LineResult(content[at : at + size], *more))
        at += size
    return found


def _join(head: object, parts: Sequence[bytes]) -> bytes:
    written = orjson.dumps(head)
    return b"".join([len(written).to_bytes(4, "big"), written, *parts])


def _split(payload: bytes) -> tuple[list[Any], bytes]:
    end = 4 + int.from_bytes(payload[:4], "big")
    return orjson.loads(payload[4:end]), payload[end:]
