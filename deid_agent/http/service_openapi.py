"""The OpenAPI 3.1 description and the CapabilityStatement, made of the table of routes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from deid_agent import __version__
from deid_agent.http.service_errors import FAULTS, FHIR_JSON, PROBLEM_JSON, RECORD_HEADER
from deid_agent.http.service_routes import JSON, SMART_ROUTES, TEXT, BodyForm, Route
from deid_agent.http.smart_service import ASSERTION_TYPE, OAUTH_ERRORS

_REFS: Final = "#/components/schemas/{model}"
_GET_FAULTS: Final = (401, 403, 404, 406)
_POST_FAULTS: Final = (400, 401, 403, 404, 406, 408, 411, 413, 415, 422, 429, 500, 503)
_TOKEN_FAULTS: Final[Mapping[int, Sequence[str]]] = {
    status: [text for other, text in OAUTH_ERRORS.values() if other == status]
    for status in sorted({status for status, _ in OAUTH_ERRORS.values()})
}
_DATE: Final = "2026-11-27"
_SECURITY_SYSTEM: Final = "http://terminology.hl7.org/CodeSystem/restful-security-service"
_NO_FILES: Final = "Takes a resource, or Parameters with identifiableData. No files."
_IN_PATH: Final = {
    "project": "^[a-z0-9][a-z0-9_-]{0,62}$",
    "job": "^[0-9a-f]{32}$",
    "number": "^[1-9][0-9]{0,3}$",
}
_KICK_OFF: Final = (
    {
        "name": "Prefer",
        "in": "header",
        "required": False,
        "description": "respond-async begins a job; Parameters with addresses of files always do",
        "schema": {"type": "string"},
    },
    {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "the same key and body give the same job, for 24 hours",
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    },
)


class ServiceProblem(BaseModel):
    """An error (RFC 9457). It holds no value of a message."""

    model_config = ConfigDict(title="Problem")

    type: str = Field(description="urn:deid-agent:error: and the code")
    title: str = Field(description="a sentence about the code")
    status: int = Field(description="the status of the response, or of this line of a stream")
    code: str = Field(description="the reason", json_schema_extra={"enum": [*sorted(FAULTS)]})
    where: str | None = Field(default=None, description="a path or an offset in the message")
    record: str | None = Field(default=None, description="the id of the record in the audit trail")
    line: int | None = Field(default=None, description="the number of the line in a stream")


class ServiceNote(BaseModel):
    """A note with what is known of its patient."""

    model_config = ConfigDict(title="Note")

    id: str = Field(description="returned unchanged; notes of one id have one date shift")
    text: str
    context: dict[str, object] | None = Field(default=None, description="names and numbers that the note may contain")
    patient_id: str | None = None


class ServiceSpan(BaseModel):
    """A finding in the original text, as half-open offsets."""

    model_config = ConfigDict(title="Span")

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    type: str
    source: str = Field(description="the rule or model that found it")


class SanitizedNote(BaseModel):
    """A sanitized note, without the text if spans=only."""

    id: str
    text: str | None = None
    spans: list[ServiceSpan]


class ServiceTokenRequest(BaseModel):
    """A request for an access token (SMART Backend Services)."""

    model_config = ConfigDict(title="TokenRequest")

    grant_type: str = Field(json_schema_extra={"enum": ["client_credentials"]})
    client_assertion_type: str = Field(json_schema_extra={"enum": [ASSERTION_TYPE]})
    client_assertion: str = Field(description="a JWT that the client has signed, for one use", max_length=8192)
    scope: str = Field(description="deid/PROJECT.deidentify, for several projects with spaces between them")


class ServiceToken(BaseModel):
    """An access token."""

    model_config = ConfigDict(title="Token")

    access_token: str
    token_type: str
    expires_in: int = Field(description="seconds")
    scope: str = Field(description="the projects that it is for")


class ServiceTokenError(BaseModel):
    """A request for a token that gets none (RFC 6749, 5.2)."""

    model_config = ConfigDict(title="TokenError")

    error: str = Field(json_schema_extra={"enum": [*sorted(OAUTH_ERRORS)]})
    error_description: str


class ServiceProject(BaseModel):
    """A project: its policy with the digest, and the id of its key."""

    name: str
    policy: str
    digest: str
    key: str


class ServiceProjects(BaseModel):
    """The projects of the client."""

    projects: list[ServiceProject]


_MODELS: Final = (ServiceProblem, ServiceNote, SanitizedNote, ServiceProjects)
_TOKEN_MODELS: Final = (ServiceTokenRequest, ServiceToken, ServiceTokenError)


def openapi(routes: Sequence[Route], max_bytes: int, token_url: str | None = None) -> Mapping[str, object]:
    """The OpenAPI 3.1 description of the routes. ``token_url`` gives out tokens, if any does."""
    models = [*_MODELS, *(_TOKEN_MODELS if any(route.form is BodyForm.FORM for route in routes) else ())]
    _, schemas = models_json_schema([(model, "serialization") for model in models], ref_template=_REFS)
    schemes: dict[str, object] = {
        "token": {"type": "http", "scheme": "bearer"},
        "certificate": {"type": "mutualTLS"},
    }
    if token_url is not None:
        flow = {"tokenUrl": token_url, "scopes": {"deid/*.deidentify": "all projects of the client"}}
        schemes["smart"] = {"type": "oauth2", "flows": {"clientCredentials": flow}}
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "deid-agent",
            "version": __version__,
            "description": f"De-identifies messages and notes. A body has at most {max_bytes} bytes.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": schemes,
        },
        "security": [*({each: []} for each in schemes), {}],
    }


def _operation(route: Route) -> Mapping[str, object]:
    parameters: list[Mapping[str, object]] = []
    for name, pattern in _IN_PATH.items():
        if f"{{{name}}}" in route.path:
            schema = {"type": "string", "pattern": pattern}
            parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    for name, values in route.query:
        schema_of: Mapping[str, object] = {"type": "string", "enum": list(values)}
        parameters.append({"name": name, "in": "query", "required": False, "schema": schema_of})
    if route.accepted and route.takes:
        parameters += _KICK_OFF
    operation: dict[str, object] = {"operationId": route.name, "summary": route.summary}
    if parameters:
        operation["parameters"] = parameters
    if route.takes:
        operation["requestBody"] = {"required": True, "content": {each: _schema(route, each) for each in route.takes}}
    if route.public:
        operation["security"] = []
    operation["responses"] = _responses(route)
    return operation


def _responses(route: Route) -> Mapping[str, object]:
    gives = {each: _result_schema(route, each) for each in route.gives or route.takes}
    done: dict[str, object] = {"description": "The result.", "content": gives}
    if route.form not in {BodyForm.NONE, BodyForm.STREAM, BodyForm.FORM}:
        schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
        done["headers"] = {RECORD_HEADER: {"description": "The record in the audit trail.", "schema": schema}}
    body = {"$ref": _REFS.format(model="ServiceProblem")}
    error = {FHIR_JSON: {"schema": {"type": "object"}}} if route.fhir else {PROBLEM_JSON: {"schema": body}}
    statuses: Sequence[int] = () if route.public else _POST_FAULTS if route.takes else _GET_FAULTS
    responses: dict[str, object] = {} if route.method == "DELETE" else {"200": done}
    if route.accepted:
        responses["202"] = {"description": "The job is in progress, or deleted."}
    if route.form is BodyForm.FORM:
        statuses = (403, 500)
        for status, texts in _TOKEN_FAULTS.items():
            schema_of = {"schema": {"$ref": _REFS.format(model="ServiceTokenError")}}
            responses[str(status)] = {"description": " ".join(texts), "content": {JSON: schema_of}}
    elif route.public:
        statuses = (404,) if "{project}" in route.path else () if route.name in SMART_ROUTES else (406,)
    if route.name == "job":
        statuses = (*statuses, 500, 503)
    for status in statuses:
        titles = [kind.title for kind in FAULTS.values() if kind.status == status]
        responses[str(status)] = {"description": " ".join(titles), "content": error}
    return responses


def _schema(route: Route, media: str) -> Mapping[str, object]:
    if route.form is BodyForm.FORM:
        return {"schema": {"$ref": _REFS.format(model="ServiceTokenRequest")}}
    if route.form is BodyForm.TEXT and media == JSON:
        return {"schema": {"$ref": _REFS.format(model="ServiceNote")}}
    return {"schema": {"type": "object"} if media in {JSON, FHIR_JSON} else {"type": "string"}}


def _result_schema(route: Route, media: str) -> Mapping[str, object]:
    if route.name == "projects":
        return {"schema": {"$ref": _REFS.format(model="ServiceProjects")}}
    if route.form is BodyForm.FORM:
        return {"schema": {"$ref": _REFS.format(model="ServiceToken")}}
    if route.form is BodyForm.TEXT and media == JSON:
        return {"schema": {"$ref": _REFS.format(model="SanitizedNote")}}
    return {"schema": {"type": "string"} if media == TEXT or media not in {JSON, FHIR_JSON} else {"type": "object"}}


_DARTS: Final = "http://hl7.org/fhir/us/darts"
_DARTS_OPERATIONS: Final = frozenset({"de-identify", "psuedonymize", "anonymize"})
"""The operations of a DARTS service, as DARTS spells them."""


def instantiates_darts(taking_files: Collection[str]) -> bool:
    """True if a service may claim conformance with DARTS: all three operations are among those that take files."""
    return set(taking_files) >= _DARTS_OPERATIONS


def capability_statement(project: str, *, smart: bool = False, files: bool = False) -> Mapping[str, object]:
    """The CapabilityStatement. It names the operations of DARTS that exist, and claims no more than they do."""
    taken = "Takes a resource, or Parameters with identifiableData or identifiableDataFileUrls."
    operations = {  # the code of an operation and its documentation
        "de-identify": taken if files else _NO_FILES,
        "psuedonymize": "Takes a resource, or Parameters with identifiableData; algorithm and key where the project "
        "allows them. Also as $pseudonymize. No files.",
        "anonymize": "Counts of patients by age group and gender in groups of a least size, where the project sets "
        "one. No files.",
    }
    canonical = f"{_DARTS}/CapabilityStatement/darts-service-provider"
    security = {"service": [{"coding": [{"system": _SECURITY_SYSTEM, "code": "SMART-on-FHIR"}]}]}
    return {
        "resourceType": "CapabilityStatement",
        "status": "active",
        "date": _DATE,
        "kind": "instance",
        **({"instantiates": [canonical]} if instantiates_darts({"de-identify"} if files else ()) else {}),
        "software": {"name": "deid-agent", "version": __version__},
        "implementation": {"description": f"De-identification, project {project}"},
        "fhirVersion": "4.0.1",
        "format": ["json"],
        "rest": [
            {
                "mode": "server",
                **({"security": security} if smart else {}),
                "operation": [
                    {"name": name, "definition": f"{_DARTS}/OperationDefinition/{name}", "documentation": text}
                    for name, text in operations.items()
                ],
            }
        ],
    }
