"""Entries of a trail for people and programs: read, chosen, and in the form of FHIR. Verify the trail first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson

from deid_agent.audit.folder import segments
from deid_agent.audit.lines import Kind, start_of
from deid_agent.errors import ConfigurationError

_SEGMENT, _ENTRY = start_of(Kind.SEGMENT), start_of(Kind.ENTRY)
_SEVERITY = "http://hl7.org/fhir/issue-severity"
_LIFECYCLE = "http://terminology.hl7.org/CodeSystem/iso-21089-lifecycle"
_COUNT = 1 << 32
"""More than any message has places: a sum of forged counts is still a number of JSON."""

Item = Mapping[str, object]
"""Members of an entry; ``build`` is what its segment says, ``place`` is segment and line."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which entries are wanted; what is not said wants all."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    outcome: str | None = None
    reason: str | None = None

    def takes(self, item: Item) -> bool:
        """True where the entry is wanted."""
        wanted = {name: getattr(self, name) for name in ("topic", "partition", "offset", "outcome", "reason")}
        return all(value is None or item.get(name) == value for name, value in wanted.items())


def read(folder: Path, choice: Choice | None = None) -> Iterator[Item]:
    """The entries in the order of the trail. Does not verify; ``ConfigurationError`` where a line can't be read."""
    choice = choice or Choice()
    try:
        for path in segments(folder).values():
            build: object = {}
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if not line.endswith(b"\n") or not line.startswith((_SEGMENT, _ENTRY)):
                        continue
                    fields = orjson.loads(line)
                    if fields["kind"] == Kind.SEGMENT:
                        build = fields["build"]
                    elif choice.takes(fields):
                        yield {**fields, "build": build, "place": f"{path.name}:{number}"}
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise ConfigurationError(f"audit folder {folder}: {path.name}:{number} cannot be read; verify it") from None


def counts(item: Item) -> Iterator[tuple[str, int]]:
    """How many values of which type each remark of the entry stands for."""
    for remark in remarks(item):
        yield str(remark.get("type")), count_of(remark)


def remarks(item: Item) -> list[dict[str, object]]:
    """The remarks of an entry that have the form of one. Others no agent wrote, and ``verify`` tells of their line."""
    found = item.get("remarks")
    return [remark for remark in found if isinstance(remark, dict)] if isinstance(found, list) else []


def count_of(remark: Mapping[str, object]) -> int:
    """How many values a remark stands for; 0 where it says nothing that could be true."""
    count = remark.get("count")
    return count if type(count) is int and 0 < count <= _COUNT else 0


def audit_event(item: Item) -> Mapping[str, object]:
    """An entry as a FHIR R5 AuditEvent: a de-identification (ISO 21089) of one record by this agent."""
    build = item["build"] if isinstance(item["build"], dict) else {}
    record = f"{item['topic']}/{item['partition']}/{item['offset']}"
    refused = item["outcome"] == "dead_lettered"
    outcome: dict[str, object] = {
        "code": {"system": _SEVERITY, "code": "error" if refused else "success"},
        "detail": [{"text": " ".join(str(item[name]) for name in ("outcome", "reason") if name in item)}],
    }
    agent = {"display": f"deid-agent {build.get('version', '')}".strip()}
    details = [
        _detail(name, item[name])
        for name in ("input_digest", "output_digest", "stage", "where", "replay_of")
        if name in item
    ]
    for remark in remarks(item):
        path, kind, method, source, count = (remark.get(n, "") for n in ("path", "type", "method", "source", "count"))
        details.append(_detail("remark", f"{path}: {kind}, {method} by {source}, {count}"))
    return {
        "resourceType": "AuditEvent",
        "id": str(item["chain"]),
        "code": {"coding": [{"system": _LIFECYCLE, "code": "deidentify"}]},
        "action": "E",
        "recorded": datetime.fromtimestamp(float(str(item["time"])), UTC).isoformat(timespec="milliseconds"),
        "outcome": outcome,
        "agent": [{"who": agent, "requestor": False, "policy": [f"urn:deid-agent:policy:{build.get('policy', '')}"]}],
        "source": {"observer": agent},
        "entity": [
            {"what": {"identifier": {"system": "urn:deid-agent:record", "value": record}}, "detail": details},
            {
                "what": {"identifier": {"system": "urn:deid-agent:build", "value": str(build.get("id", ""))}},
                "detail": [_detail(str(name), value) for name, value in build.items() if name != "id"],
            },
        ],
    }


def _detail(name: str, value: object) -> Mapping[str, object]:
    return {"type": {"text": name}, "valueString": str(value)}
