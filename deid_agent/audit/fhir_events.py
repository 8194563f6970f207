"""Entries of trails as AuditEvents of FHIR, R5 and R4, with the codes of ISO 21089.

A line of the audit is the de-identification of one record by an agent, an opening of a crosswalk a reidentification.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from deid_agent.audit.reading import TrailEntry, entry_build, entry_remarks, texts_in
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
    severity = {"system": _SEVERITY, "code": "error" if item["outcome"] in _REFUSALS else "success"}
    kind = {"code": {"coding": [{"system": _LIFECYCLE, "code": "deidentify"}]}}
    outcome = {"outcome": {"code": severity, "detail": [{"text": _outcome_text(item)}]}}
    return _event(item, kind, outcome, lambda name: {"text": name})


def audit_event_r4(item: TrailEntry) -> Mapping[str, object]:
    """An entry as an AuditEvent of FHIR R4 (and R4B). It states what that of R5 states."""
    code = _SUCCESS
    if item["outcome"] in _REFUSALS:
        code = _SERIOUS if item.get("reason") in _FAULTS else _MINOR
    kind = {"type": {"system": _LIFECYCLE, "code": "deidentify"}}
    return _event(item, kind, {"outcome": code, "outcomeDesc": _outcome_text(item)}, str)


def _event(
    item: TrailEntry, kind: Mapping[str, object], outcome: Mapping[str, object], detail_type: Callable[[str], object]
) -> Mapping[str, object]:
    """The members that both releases have. The type of a detail is a CodeableConcept in R5, a string in R4."""
    build = entry_build(item)
    agent = _agent(build)
    return {
        "resourceType": "AuditEvent",
        "id": str(item["chain"]),
        **kind,
        "action": "E",
        "recorded": _recorded(item),
        **outcome,
        "agent": [{"who": agent, "requestor": False, "policy": [_policy(build)]}],
        "source": {"observer": agent},
        "entity": [
            _entity(_record(item), [_typed(detail_type(name), value) for name, value in _details(item)]),
            _entity(_build(build), [_typed(detail_type(name), value) for name, value in _build_details(build)]),
        ],
    }


def opening_event(item: TrailEntry, *, r4: bool = False) -> Mapping[str, object]:
    """An opening as a FHIR AuditEvent, R5 or R4: a reidentification (ISO 21089) by the holder of a key."""
    build = item.get("build")
    names = ("step", "of", "codes", "found", "records", "verified", "input", "output")
    found = [(name, item[name]) for name in names if item.get(name, "") != ""]
    found += [(name, one) for name in ("projects", "crosswalks") for one in texts_in(item.get(name))]
    details = [_typed(name if r4 else {"text": name}, str(value)) for name, value in found]
    code, reason, done = (
        {"system": _LIFECYCLE, "code": "reidentify"},
        str(item.get("reason")),
        bool(item.get("records")),
    )
    key = {"identifier": {"system": "urn:deid-agent:custodian-key", "value": str(item.get("key"))}}
    agent = {"who": key, "requestor": True}
    if r4:
        stated = {
            "type": code,
            "outcome": _SUCCESS if done else _MINOR,
            "purposeOfEvent": [{"text": reason}],
        }
    else:
        severity = {"system": _SEVERITY, "code": "success" if done else "error"}
        stated = {"code": {"coding": [code]}, "outcome": {"code": severity}, "authorization": [{"text": reason}]}
    request = {"identifier": {"system": "urn:deid-agent:request", "value": str(item.get("request"))}}
    return {
        "resourceType": "AuditEvent",
        "id": str(item["chain"]),
        **stated,
        "action": "R",
        "recorded": _recorded(item),
        "agent": [agent],
        "source": {"observer": _agent(build if isinstance(build, dict) else {})},
        "entity": [{"what": request, "detail": details}],
    }


def _entity(what: object, details: Sequence[object]) -> Mapping[str, object]:
    """An entity; FHIR has no empty lists."""
    return {"what": what, "detail": details} if details else {"what": what}


def _typed(name: object, value: str) -> Mapping[str, object]:
    """A detail with its type."""
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
