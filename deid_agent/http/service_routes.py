"""The table of routes of the HTTP interface: addresses, media types and parameters, for handlers and for OpenAPI."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deid_agent.agent import Task
from deid_agent.http.service_errors import FHIR_JSON

JSON: Final = "application/json"
TEXT: Final = "text/plain"
FHIR_XML: Final = "application/fhir+xml"
PDF: Final = "application/pdf"
DOCUMENTS: Final = (PDF, "text/html", "application/rtf", "text/rtf", TEXT)
FORM: Final = "application/x-www-form-urlencoded"
ND_JSON: Final = ("application/x-ndjson", "application/jsonl", "application/fhir+ndjson")
MESSAGES: Final = (
    "x-application/hl7-v2+er7",
    "application/hl7-v2",
    "application/hl7-v2+xml",
    FHIR_JSON,
    JSON,
    FHIR_XML,
    "application/xml",
    "text/xml",
    *ND_JSON,
)
_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii"})


class BodyForm(StrEnum):
    """The use of a body by its route."""

    NONE = "none"
    MESSAGE = "message"
    TEXT = "text"
    STREAM = "stream"
    OPERATION = "operation"
    DOCUMENT = "document"
    FORM = "form"


@dataclass(frozen=True, slots=True)
class Route:
    """One address. ``takes`` are its media types; an answer has that of the request, unless ``gives`` names others.

    ``task`` is that of a FHIR operation.

    ``query`` lists parameters with their values. A ``public`` route needs no login and holds nothing of the agent's.
    ``accepted``: it may answer 202, without a body.
    """

    name: str
    method: str
    path: str
    summary: str
    form: BodyForm = BodyForm.NONE
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    query: tuple[tuple[str, tuple[str, ...]], ...] = ()
    public: bool = False
    task: str = ""
    accepted: bool = False

    @property
    def fhir(self) -> bool:
        """True if its errors are OperationOutcomes."""
        return is_fhir(self.path)


def is_fhir(path: str) -> bool:
    """True for addresses of the FHIR interface."""
    return path == "/fhir" or path.startswith("/fhir/")


ROUTES: Final = (
    Route(
        "messages",
        "POST",
        "/v1/projects/{project}/messages",
        "De-identify one message. The content decides its format; the answer has the media type of the request.",
        BodyForm.MESSAGE,
        MESSAGES,
    ),
    Route(
        "text",
        "POST",
        "/v1/projects/{project}/text",
        "De-identify a note, or a note on each line of JSON lines.",
        BodyForm.TEXT,
        (TEXT, JSON, *ND_JSON[:2]),
        (TEXT, JSON, *ND_JSON[:2]),
        (("spans", ("only",)), ("offsets", ("utf16",))),
    ),
    Route(
        "stream",
        "POST",
        "/v1/projects/{project}/stream",
        "De-identify a message on each line: a line for a line, in order, of any number.",
        BodyForm.STREAM,
        ND_JSON,
    ),
    Route(
        "documents",
        "POST",
        "/v1/projects/{project}/documents",
        "De-identify a document. A PDF is answered with its text.",
        BodyForm.DOCUMENT,
        DOCUMENTS,
    ),
    Route("projects", "GET", "/v1/projects", "List the projects of the client.", gives=(JSON,)),
    Route("openapi", "GET", "/openapi.json", "This description.", gives=(JSON,), public=True),
    Route(
        "de-identify",
        "POST",
        "/fhir/{project}/$de-identify",
        "De-identify a FHIR resource in JSON or XML, or the Bundle in Parameters (DARTS $de-identify).",
        BodyForm.OPERATION,
        (FHIR_JSON, JSON, FHIR_XML),
        task=Task.OPERATION,
        accepted=True,
    ),
    Route(
        "pseudonymize",
        "POST",
        "/fhir/{project}/$pseudonymize",
        "Replace identifiers by the surrogates of the project, with algorithm and key also by a digest.",
        BodyForm.OPERATION,
        (FHIR_JSON, JSON),
        task=Task.PSEUDONYMIZE,
    ),
    Route(
        "psuedonymize",
        "POST",
        "/fhir/{project}/$psuedonymize",
        "The operation $pseudonymize as DARTS spells it.",
        BodyForm.OPERATION,
        (FHIR_JSON, JSON),
        task=Task.PSUEDONYMIZE,
    ),
    Route(
        "anonymize",
        "POST",
        "/fhir/{project}/$anonymize",
        "Count the patients of a Bundle by age group and gender, where the project allows it.",
        BodyForm.OPERATION,
        (FHIR_JSON, JSON),
        task=Task.ANONYMIZE,
    ),
    Route(
        "job",
        "GET",
        "/fhir/{project}/jobs/{job}",
        "The progress of a job (202), or its files: a manifest of FHIR Bulk Data Access, or Parameters.",
        gives=(JSON, FHIR_JSON),
        accepted=True,
    ),
    Route("job-delete", "DELETE", "/fhir/{project}/jobs/{job}", "Cancel a job and remove its files.", accepted=True),
    Route("job-file", "GET", "/fhir/{project}/jobs/{job}/{number}.ndjson", "A file of a job.", gives=(ND_JSON[2],)),
    Route(
        "metadata",
        "GET",
        "/fhir/{project}/metadata",
        "The CapabilityStatement of the FHIR interface.",
        gives=(FHIR_JSON, JSON),
    ),
    Route(
        "smart-configuration",
        "GET",
        "/.well-known/smart-configuration",
        "How clients get access tokens (SMART).",
        gives=(JSON,),
        public=True,
    ),
    Route(
        "fhir-smart-configuration",
        "GET",
        "/fhir/{project}/.well-known/smart-configuration",
        "How clients get access tokens for a project (SMART). The answer is the same whether or not it exists.",
        gives=(JSON,),
        public=True,
    ),
    Route(
        "token",
        "POST",
        "/token",
        "Get an access token for a client assertion (SMART Backend Services).",
        BodyForm.FORM,
        (FORM,),
        (JSON,),
        public=True,
    ),
)
SMART_ROUTES: Final = frozenset({"smart-configuration", "fhir-smart-configuration", "token"})
"""The routes that exist with ``[service.smart]`` only; ``token`` only in mode self."""
PUBLIC: Final = frozenset(route.name for route in ROUTES if route.public)


def select_routes(smart: Collection[str]) -> Sequence[Route]:
    """The routes of an interface that has these of ``SMART_ROUTES``."""
    return [route for route in ROUTES if route.name not in SMART_ROUTES or route.name in smart]


def media_type(content_type: str) -> tuple[str, bool]:
    """The media type of a ``Content-Type`` header in lower case, and whether its charset is one that is read.

    A message in another charset states that itself (MSH-18, the XML declaration); a header that differs from it would
    be believed by nobody.
    """
    name, *parameters = content_type.split(";")
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset" and value.strip().strip('"').lower() not in _CHARSETS:
            return name.strip().lower(), False
    return name.strip().lower(), True
