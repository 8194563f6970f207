"""The payloads of requests that are not messages: notes in JSON, and the input of FHIR operations.

Parameters are cut and joined by byte ranges, because a JSON library would write the decimal ``1.10`` as ``1.1``.
"""

from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from deid_agent.codec import FHIR_NAMESPACE, JsonRange, read_ranges, read_root
from deid_agent.model import MessageError, Reason
from deid_agent.pipeline.facts import facts_from_context
from deid_agent.pipeline.notes import DeidentifiedText, TextRequest
from deid_agent.pipeline.policy import Policy

SAFE_HARBOR_CODE = "HHS_SAFE_HARBOR_DETERMINISTIC_METHOD"
"""The only policy code of DARTS; it names the shipped policy ``safe-harbor``."""
_DATA, _POLICY = "identifiableData", "policy"
_SPACES = bytes.maketrans(b"\r\n", b"  ")


@dataclass(frozen=True, slots=True)
class NoteLine:
    """A note in JSON: its id, the request and the context that it states."""

    id: str = field(repr=False)
    request: TextRequest
    context: Mapping[str, object] = field(default_factory=dict, repr=False)


def read_note_line(line: bytes) -> NoteLine:
    """The note of a JSON object ``{"id", "text", "context"?, "patient_id"?}``. Raises ``MessageError(MALFORMED)``."""
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as problem:
        raise MessageError(Reason.MALFORMED, f"column {problem.colno}", "not JSON") from None
    if not isinstance(data, dict):
        raise MessageError(Reason.MALFORMED, "line", "not an object")
    for member in ("id", "text"):
        if member not in data:
            raise MessageError(Reason.MALFORMED, member, "is missing; each line needs id and text")
        if not isinstance(data[member], str):
            raise MessageError(Reason.MALFORMED, member, "must be a string")
    context, patient = data.get("context"), data.get("patient_id")
    context = {} if context is None else context
    if not isinstance(context, dict):
        raise MessageError(Reason.MALFORMED, "context", "must be an object")
    if patient is not None and not isinstance(patient, str):
        raise MessageError(Reason.MALFORMED, "patient_id", "must be a string")
    request = TextRequest(data["text"], data["id"], patient, facts_from_context(context))
    return NoteLine(data["id"], request, context)


def read_plain_note(payload: bytes) -> NoteLine:
    """The note of a text in UTF-8. Raises ``MessageError(MALFORMED)``."""
    try:
        return NoteLine("", TextRequest(payload.decode("utf-8-sig")))
    except UnicodeDecodeError as problem:
        raise MessageError(Reason.MALFORMED, f"byte {problem.start}", "not UTF-8") from None


def write_note_line(
    id_: str, done: DeidentifiedText, *, spans_only: bool, original: str = "", utf16: bool = False
) -> bytes:
    """A note as a JSON object. With ``utf16`` the offsets count units of UTF-16 in ``original``."""
    place = _utf16_places(original, done) if utf16 else None
    spans = [
        {
            "start": s.start if place is None else place[s.start],
            "end": s.end if place is None else place[s.end],
            "type": s.type.value,
            "source": str(s.source),
        }
        for s in done.spans
    ]
    return orjson.dumps({"id": id_, "spans": spans} if spans_only else {"id": id_, "text": done.text, "spans": spans})


def _utf16_places(text: str, done: DeidentifiedText) -> dict[int, int]:
    """The offset in UTF-16 of each end of a span: a character beyond U+FFFF takes two units."""
    places, before, units = dict[int, int](), 0, 0
    for at in sorted({end for span in done.spans for end in (span.start, span.end)}):
        units += at - before + sum(char > "\uffff" for char in text[before:at])
        places[at], before = units, at
    return places


@dataclass(frozen=True, slots=True)
class OperationInput:
    """The resource of a call of ``$de-identify``; ``enveloped`` if Parameters were around it."""

    resource: bytes = field(repr=False)
    enveloped: bool

    @property
    def on_one_line(self) -> "OperationInput":
        """The resource without an envelope and line breaks, which are white space in valid JSON."""
        return OperationInput(self.resource.translate(_SPACES), False)

    def restore(self, sanitized: bytes) -> bytes:
        """The output of the operation: Parameters for Parameters, a resource for a resource."""
        return wrap_output(sanitized, "de-identifiedData" if self.enveloped else "")


def wrap_output(resource: bytes, output: str) -> bytes:
    """The resource as the output parameter of this name; unchanged if there is no name."""
    if not output:
        return resource
    head = b'{"resourceType":"Parameters","parameter":[{"name":"' + output.encode("ascii") + b'","resource":'
    return head + resource + b"}]}"


def read_operation(payload: bytes, policy: Policy) -> OperationInput:
    """The resource in a payload that is one, or Parameters with ``identifiableData``.

    Raises ``MessageError``: MALFORMED for another form, UNSUPPORTED for addresses of files, for another policy than
    that of the project, and for parameters that the operation does not have. None may be ignored: a caller would
    believe that it was obeyed.
    """
    call = read_call(payload, (_POLICY,))
    if call is None:
        return OperationInput(payload, False)
    for path, wanted in call.values:
        _check_policy(wanted, policy, path)
    return OperationInput(call.resource, True)


@dataclass(frozen=True, slots=True)
class OperationCall:
    """Parameters of an operation: ``identifiableData``, and the other values in order, each with its path.

    ``names`` are the names of the other values.
    """

    resource: bytes = field(repr=False)
    values: tuple[tuple[str, object], ...] = field(repr=False)
    names: tuple[str, ...] = ()


def read_call(payload: bytes, known: Sequence[str]) -> OperationCall | None:
    """The Parameters of a call; None for a resource, and for Parameters that are data and no call.

    ``known`` are the names of parameters beside ``identifiableData``; each is a string. Raises ``MessageError`` as
    ``read_operation``.
    """
    tree = _read_resource(payload)
    if tree["resourceType"] != "Parameters":
        return None
    root = _members(read_ranges(payload), "Parameters")
    if not _is_call(tree, known):
        return None
    if unknown := sorted(root.keys() - {"resourceType", "parameter", "id", "meta"}):
        raise MessageError(Reason.UNSUPPORTED, "Parameters", f"{len(unknown)} unknown members")
    found: JsonRange | None = None
    values, names = list[tuple[str, object]](), list[str]()
    for number, (item, place) in enumerate(zip(tree["parameter"], root["parameter"].items or (), strict=True)):
        path = f"Parameters.parameter[{number}]"
        members = _members(place, path)
        match item:
            case {"name": "identifiableData", "resource": {"resourceType": str()}} if len(members) == 2:
                if found is not None:
                    raise MessageError(Reason.MALFORMED, path, "a second identifiableData")
                found = members["resource"]
            case {"name": str(name)} if (
                name in known and len(members) == 2 and members.keys() <= {"name", "valueString", "valueCode"}
            ):
                values.append((path, item.get("valueString", item.get("valueCode"))))
                names.append(name)
            case _:
                detail = f"another parameter than {', '.join((_DATA, *known))}"
                raise MessageError(Reason.UNSUPPORTED, path, detail)
    if found is None:
        raise MessageError(Reason.MALFORMED, "Parameters.parameter", "no identifiableData")
    return OperationCall(payload[found.start : found.end], tuple(values), tuple(names))


def check_line(line: bytes, type_: str) -> None:
    """Raise ``MessageError`` unless a line of a file is a FHIR resource of this type, as the file promises."""
    if _read_resource(line.removeprefix(BOM_UTF8))["resourceType"] != type_:
        raise MessageError(Reason.UNSUPPORTED, "resourceType", "another type than that of the file")


def check_xml_resource(payload: bytes) -> None:
    """Raise ``MessageError`` unless a payload begins as a resource in FHIR XML. Parameters are read as JSON only."""
    root = read_root(payload)
    if root is None:
        raise MessageError(Reason.MALFORMED, "/", "not XML")
    if root[1] != FHIR_NAMESPACE or root[0] == "Parameters":
        raise MessageError(Reason.UNSUPPORTED, "/", "not a resource in FHIR XML")


def _read_resource(payload: bytes) -> dict[str, Any]:
    try:
        tree = orjson.loads(payload)
    except orjson.JSONDecodeError as problem:
        raise MessageError(Reason.MALFORMED, f"column {problem.colno}", "not JSON") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("resourceType"), str):
        raise MessageError(Reason.MALFORMED, "resourceType", "not a FHIR resource")
    return tree


def policy_names(policy: Policy) -> tuple[str, ...]:
    """The names by which a caller may state the policy in use."""
    return (policy.name, SAFE_HARBOR_CODE) if policy.name == "safe-harbor" else (policy.name,)


def _is_call(tree: Mapping[str, object], known: Sequence[str]) -> bool:
    """True if Parameters are the input of the operation; other Parameters are a resource like any other."""
    items = tree.get("parameter")
    names = [item.get("name") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return any(name in names for name in (_DATA, *known, "identifiableDataFileUrls"))


def _members(place: JsonRange, path: str) -> dict[str, JsonRange]:
    """The members of an object. A name that comes twice is refused: readers differ about which one counts."""
    members = place.members or []
    found = {name: value for name, _, value in members}
    if len(found) != len(members):
        raise MessageError(Reason.MALFORMED, path, "a member comes twice")
    return found


def _check_policy(wanted: object, policy: Policy, path: str) -> None:
    if wanted not in policy_names(policy):
        raise MessageError(Reason.UNSUPPORTED, path, "the project has another policy")
