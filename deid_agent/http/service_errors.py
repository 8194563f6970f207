"""Errors of the HTTP interface: closed codes, as ``application/problem+json`` (RFC 9457) or OperationOutcome.

An error names a code, a path or an offset in the message, and the record; never a value, nor the text of a library.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from deid_agent.model import Reason

FHIR_JSON: Final = "application/fhir+json"
PROBLEM_JSON: Final = "application/problem+json"
RECORD_HEADER: Final = "Deid-Record"
"""The id of the record in the audit trail."""
_SYSTEM: Final = "urn:deid-agent:error"


class FaultKind(NamedTuple):
    """The status of a code, the type of issue that FHIR has for it, and a sentence about the remedy."""

    status: int
    issue: str
    title: str


FAULTS: Final[Mapping[str, FaultKind]] = MappingProxyType(
    {
        Reason.MALFORMED.value: FaultKind(400, "structure", "The message cannot be parsed."),
        Reason.SCHEMA.value: FaultKind(400, "structure", "The schema of the record is not known."),
        Reason.UNSUPPORTED.value: FaultKind(415, "not-supported", "The message has a form that is not supported."),
        Reason.RESOURCE.value: FaultKind(413, "too-long", "The message is larger than a limit allows."),
        Reason.REJECTED.value: FaultKind(422, "business-rule", "Policy or validation does not let the result out."),
        Reason.LEAK.value: FaultKind(422, "business-rule", "An identifier would remain in the output."),
        Reason.LANGUAGE.value: FaultKind(422, "business-rule", "The policy does not allow the language of a text."),
        Reason.KEYLESS.value: FaultKind(422, "business-rule", "The output has no key."),
        Reason.POISON.value: FaultKind(500, "exception", "No worker could process the message."),
        Reason.INTERNAL.value: FaultKind(500, "exception", "The message could not be processed; report its record."),
        "BAD_REQUEST": FaultKind(400, "structure", "The request is not valid HTTP, or its body ended early."),
        "PARAMETER": FaultKind(400, "value", "A parameter of the address is unknown or has an unknown value."),
        "LOGIN": FaultKind(401, "login", "Send the token of the client as Authorization: Bearer."),
        "FORBIDDEN": FaultKind(403, "forbidden", "This client may not use the interface."),
        "BROWSER": FaultKind(403, "forbidden", "Pages of browsers may not use the interface."),
        "NOT_FOUND": FaultKind(404, "not-found", "There is no such address, project or job."),
        "METHOD": FaultKind(405, "not-supported", "The address has other methods; see the header Allow."),
        "NOT_ACCEPTABLE": FaultKind(406, "not-supported", "The answer has a media type that Accept does not list."),
        "SLOW": FaultKind(408, "timeout", "The body did not arrive in time."),
        "LENGTH": FaultKind(411, "required", "The request needs a body with Content-Length or chunks."),
        "TOO_LARGE": FaultKind(413, "too-long", "The body is larger than agent.max_message_bytes."),
        "MEDIA_TYPE": FaultKind(415, "not-supported", "The address does not take this Content-Type."),
        "ENCODING": FaultKind(415, "not-supported", "Send the body without Content-Encoding."),
        "EXPECTATION": FaultKind(417, "not-supported", "The only expectation is 100-continue."),
        "RATE": FaultKind(429, "throttled", "The client sends more records than service.records_per_s."),
        "BUSY": FaultKind(429, "throttled", "Too many requests or bytes are in process; send the request again."),
        "TRANSFER": FaultKind(
            501, "not-supported", "The only transfer coding is chunked, and not before version 1.1 of HTTP."
        ),
        "UNAVAILABLE": FaultKind(503, "transient", "The agent starts, stops or restarts a worker; send it again."),
        "LATE": FaultKind(503, "transient", "There was no result in time; send the request again."),
        "ADDRESS": FaultKind(400, "value", "The project may not read this address; see input_urls and inbox."),
        "IDEMPOTENCY": FaultKind(422, "conflict", "The Idempotency-Key belongs to another request of this client."),
        "JOBS": FaultKind(429, "throttled", "The client has too many jobs; delete one that has ended."),
        "JOB_SIZE": FaultKind(413, "too-costly", "The files are more, or larger, than a job may have."),
        "JOB_TIME": FaultKind(503, "timeout", "The job took longer than jobs.hours."),
        "STORAGE": FaultKind(500, "exception", "The outputs of the job could not be stored; inform the operator."),
        "FILE_STATUS": FaultKind(502, "not-found", "The server has no such file; redirects are not followed."),
        "FILE_ENCODING": FaultKind(502, "not-supported", "The file is compressed, or was sent with Content-Encoding."),
        "FILE_CUT": FaultKind(502, "incomplete", "The file could not be read to its end; it has no output."),
        "FILE_SLOW": FaultKind(502, "timeout", "The file did not arrive in time; it has no output."),
        "FILE_ERRORS": FaultKind(502, "too-costly", "The file has too many refused lines; it has no output."),
    }
)


class ServiceError(Exception):
    """A request that gets no result. ``code`` is a key of ``FAULTS``; ``where`` is a path or an offset.

    ``why`` is a more precise code for the log of the operator, which the client does not get.
    """

    def __init__(
        self,
        code: str,
        where: str = "",
        record: str = "",
        headers: Mapping[str, str] = MappingProxyType({}),
        why: str = "",
    ) -> None:
        super().__init__(code)
        self.code = code
        self.where = where
        self.record = record
        self.headers = headers
        self.why = why or code

    @property
    def kind(self) -> FaultKind:
        """Its status, issue and title."""
        return FAULTS[self.code]


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """An error in the form of its address, or of one line of a stream."""

    media: str
    data: bytes = field(repr=False)


def problem(error: ServiceError, line: int = 0) -> ErrorBody:
    """The error as a problem of RFC 9457, on one line. ``line`` is its line in a stream, from 1."""
    status, _, title = error.kind
    body: dict[str, object] = {"type": f"{_SYSTEM}:{error.code}", "title": title, "status": status, "code": error.code}
    for name, value in (("where", error.where), ("record", error.record), ("line", line)):
        if value:
            body[name] = value
    return ErrorBody(PROBLEM_JSON, orjson.dumps(body))


def operation_outcome(error: ServiceError, line: int = 0, file: int = 0) -> ErrorBody:
    """The error as a FHIR OperationOutcome, on one line. ``file`` is its input file in a job, from 1."""
    _, issue, title = error.kind
    details: dict[str, object] = {"coding": [{"system": _SYSTEM, "code": error.code}], "text": title}
    found: dict[str, object] = {"severity": "error", "code": issue, "details": details}
    numbers = [f"{name} {number}" for name, number in (("file", file), ("line", line)) if number]
    places = [*numbers, *([error.where] if error.where else [])]
    if places:
        found["diagnostics"] = ", ".join(places)
    body: dict[str, object] = {"resourceType": "OperationOutcome", "issue": [found]}
    if error.record:
        body = {"resourceType": "OperationOutcome", "id": error.record, "issue": [found]}
    return ErrorBody(FHIR_JSON, orjson.dumps(body))


def choose_media(accept: Sequence[str], media: Sequence[str]) -> str:
    """The first of these media types that the headers ``Accept`` allow. Raises ``ServiceError`` if they allow none."""
    chosen = next((each for each in media if is_accepted(",".join(accept), each)), None)
    if chosen is None:
        raise ServiceError("NOT_ACCEPTABLE")
    return chosen


_QUALITY_ZERO = re.compile(r";\s*q\s*=\s*0(?:\.0{0,3})?\s*(?:;|$)", re.IGNORECASE)


def is_accepted(accept: str, media: str) -> bool:
    """True if an ``Accept`` header allows a media type. The most specific entry decides (RFC 9110, 12.5.1)."""
    if not accept.strip():
        return True
    kind = media.partition("/")[0]
    allowed: dict[str, bool] = {}
    for item in accept.split(","):
        name = item.partition(";")[0].strip().lower()
        allowed[name] = allowed.get(name, False) or not _QUALITY_ZERO.search(item.strip())
    return next((allowed[name] for name in (media, f"{kind}/*", "*/*") if name in allowed), False)
