"""The OpenAPI 3.1 description and the CapabilityStatement, made of the table of routes."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from deid_agent import __version__
from deid_agent.http.service_errors import FAULTS, FHIR_JSON, PROBLEM_JSON, RECORD_HEADER
from deid_agent.http.service_routes import JSON, TEXT, BodyForm, Route

_REFS: Final = "#/components/schemas/{model}"
_GET_FAULTS: Final = (401, 403, 404, 406)
_POST_FAULTS: Final = (400, 401, 403, 404, 406, 408, 411, 413, 415, 422, 429, 500, 503)
_DATE: Final = "2026-11-27"


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


def openapi(routes: Sequence[Route], max_bytes: int) -> Mapping[str, object]:
    """The OpenAPI 3.1 description of the routes."""
    _, schemas = models_json_schema([(model, "serialization") for model in _MODELS], ref_template=_REFS)
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
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}, "certificate": {"type": "mutualTLS"}},
        },
        "security": [{"token": []}, {"certificate": []}, {}],
    }


def _operation(route: Route) -> Mapping[str, object]:
    parameters: list[Mapping[str, object]] = []
    if "{project}" in route.path:
        schema = {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"}
        parameters.append({"name": "project", "in": "path", "required": True, "schema": schema})
    for name, values in route.query:
        schema_of: Mapping[str, object] = {"type": "string", "enum": list(values)}
        parameters.append({"name": name, "in": "query", "required": False, "schema": schema_of})
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
    if route.form not in {BodyForm.NONE, BodyForm.STREAM}:
        schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
        done["headers"] = {RECORD_HEADER: {"description": "The record in the audit trail.", "schema": schema}}
    body = {"$ref": _REFS.format(model="ServiceProblem")}
    error = {FHIR_JSON: {"schema": {"type": "object"}}} if route.fhir else {PROBLEM_JSON: {"schema": body}}
    statuses = () if route.public else _POST_FAULTS if route.takes else _GET_FAULTS
    responses: dict[str, object] = {"200": done}
    for status in (*statuses, *((406,) if route.public else ())):
        titles = [kind.title for kind in FAULTS.values() if kind.status == status]
        responses[str(status)] = {"description": " ".join(titles), "content": error}
    return responses


def _schema(route: Route, media: str) -> Mapping[str, object]:
    if route.form is BodyForm.TEXT and media == JSON:
        return {"schema": {"$ref": _REFS.format(model="ServiceNote")}}
    return {"schema": {"type": "object"} if media in {JSON, FHIR_JSON} else {"type": "string"}}


def _result_schema(route: Route, media: str) -> Mapping[str, object]:
    if route.name == "projects":
        return {"schema": {"$ref": _REFS.format(model="ServiceProjects")}}
    if route.form is BodyForm.TEXT and media == JSON:
        return {"schema": {"$ref": _REFS.format(model="SanitizedNote")}}
    return {"schema": {"type": "string"} if media == TEXT or media not in {JSON, FHIR_JSON} else {"type": "object"}}


def capability_statement(project: str) -> Mapping[str, object]:
    """The CapabilityStatement. It names the one operation of DARTS that exists, and claims no conformance."""
    return {
        "resourceType": "CapabilityStatement",
        "status": "active",
        "date": _DATE,
        "kind": "instance",
        "software": {"name": "deid-agent", "version": __version__},
        "implementation": {"description": f"De-identification, project {project}"},
        "fhirVersion": "4.0.1",
        "format": ["json"],
        "rest": [
            {
                "mode": "server",
                "operation": [
                    {
                        "name": "de-identify",
                        "definition": "http://hl7.org/fhir/us/darts/OperationDefinition/de-identify",
                        "documentation": "Takes a resource, or Parameters with identifiableData. No files.",
                    }
                ],
            }
        ],
    }
