"""Entries of the trail as AuditEvents of FHIR, R5 and R4: a de-identification (ISO 21089) of one record by an agent."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from deid_agent.audit.reading import TrailEntry, entry_build, entry_remarks
from deid_agent.model import Reason, format_time

_SEVERITY: Final = "http://hl7.org/fhir/issue-severity"
_LIFECYCLE: Final = "http://terminology.hl7.org/CodeSystem/iso-21089-lifecycle"
_REFUSALS: Final = frozenset({"dead_lettered", "refused"})
_SUCCESS, _MINOR, _SERIOUS = "0", "4", "8"
"""R4, AuditEvent.outcome: a message that cannot be published is a minor failure, a fault of the agent a serious one."""
_FAULTS: Final = frozenset({Reason.INTERNAL.value, Reason.POISON.value})
_MEMBERS: Final = (
    "project",
    "deid_id",
    "client",
    "input_digest",
    "output_digest",
    "output_sha256",
    "stage",
    "where",
    "replay_of",
)


def audit_event(item: TrailEntry) -> Mapping[str, object]:
    """An entry as an AuditEvent of FHIR R5."""
    build = entry_build(item)
    refused = item["outcome"] in _REFUSALS
    outcome: dict[str, object] = {
        "code": {"system": _SEVERITY, "code": "error" if refused else "success"},
        "detail": [{"text": _outcome_text(item)}],
    }
    agent = _agent(build)
    return {
        "resourceType": "AuditEvent",
        "id": str(item["chain"]),
        "code": {"coding": [{"system": _LIFECYCLE, "code": "deidentify"}]},
        "action": "E",
        "recorded": _recorded(item),
        "outcome": outcome,
        "agent": [{"who": agent, "requestor": False, "policy": [_policy(build)]}],
        "source": {"observer": agent},
        "entity": [
            _entity(_record(item), [_typed({"text": name}, value) for name, value in _details(item)]),
            _entity(_build(build), [_typed({"text": name}, value) for name, value in _build_details(build)]),
        ],
    }


def audit_event_r4(item: TrailEntry) -> Mapping[str, object]:
    """An entry as an AuditEvent of FHIR R4 (and R4B). It states what that of R5 states."""
    build = entry_build(item)
    outcome = _SUCCESS
    if item["outcome"] in _REFUSALS:
        outcome = _SERIOUS if item.get("reason") in _FAULTS else _MINOR
    agent = _agent(build)
    return {
        "resourceType": "AuditEvent",
        "id": str(item["chain"]),
        "type": {"system": _LIFECYCLE, "code": "deidentify"},
        "action": "E",
        "recorded": _recorded(item),
        "outcome": outcome,
        "outcomeDesc": _outcome_text(item),
        "agent": [{"who": agent, "requestor": False, "policy": [_policy(build)]}],
        "source": {"observer": agent},
        "entity": [
            _entity(_record(item), [_typed(name, value) for name, value in _details(item)]),
            _entity(_build(build), [_typed(name, value) for name, value in _build_details(build)]),
        ],
    }


def _entity(what: object, details: Sequence[object]) -> Mapping[str, object]:
    """An entity; FHIR has no empty lists."""
    return {"what": what, "detail": details} if details else {"what": what}


def _typed(name: object, value: str) -> Mapping[str, object]:
    """A detail. The type of one is a CodeableConcept in R5, a string in R4."""
    return {"type": name, "valueString": value}


def _outcome_text(item: TrailEntry) -> str:
    return " ".join(str(item[name]) for name in ("outcome", "reason") if name in item)


def _recorded(item: TrailEntry) -> str:
    return format_time(float(str(item["time"])), "milliseconds")


def _agent(build: Mapping[str, object]) -> Mapping[str, object]:
    return {"display": f"deid-agent {build.get('version', '')}".strip()}


def _policy(build: Mapping[str, object]) -> str:
    return f"urn:deid-agent:policy:{build.get('policy', '')}"


def _record(item: TrailEntry) -> Mapping[str, object]:
    record = f"{item['topic']}/{item['partition']}/{item['offset']}"
    return {"identifier": {"system": "urn:deid-agent:record", "value": record}}


def _build(build: Mapping[str, object]) -> Mapping[str, object]:
    return {"identifier": {"system": "urn:deid-agent:build", "value": str(build.get("id", ""))}}


def _details(item: TrailEntry) -> Iterator[tuple[str, str]]:
    for name in _MEMBERS:
        if name in item:
            yield name, str(item[name])
    for remark in entry_remarks(item):
        path, kind, method, source, count = (remark.get(n, "") for n in ("path", "type", "method", "source", "count"))
        yield "remark", f"{path}: {kind}, {method} by {source}, {count}"


def _build_details(build: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    return ((str(name), str(value)) for name, value in build.items() if name != "id")
