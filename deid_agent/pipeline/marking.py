"""Additions to the FHIR outputs of one record: security labels by what was done, and the Provenance of the record.

Both are made of the finished output, behind the leak guard. They contain codes, the policy and references that the
output itself has; nothing of an original.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote
from uuid import UUID

import orjson

from deid_agent import __version__
from deid_agent.codec import (
    DATA_ABSENT_REASON,
    SECURITY_LABELS,
    ResourceRange,
    find_base,
    insert_all,
    list_resources,
    list_targets,
    place_entry,
    place_labels,
)
from deid_agent.model import DroppedRanges, Marking, Origin, ProvenanceMode, RecordTime, format_time
from deid_agent.pipeline.changes import Changes
from deid_agent.pipeline.leak_guard import GUARD_SOURCE
from deid_agent.pipeline.plans import PartPlan
from deid_agent.pipeline.policy import Method, Policy

PSEUDONYMIZED, REDACTED, ABSTRACTED = SECURITY_LABELS
_LABEL_OF: Final[Mapping[str, str]] = {
    Method.SURROGATE: PSEUDONYMIZED,
    Method.LINK: PSEUDONYMIZED,
    Method.MASK: REDACTED,
    Method.REDACT: REDACTED,
    Method.GENERALIZE: ABSTRACTED,
}
"""The label of each method. The removal of unlisted values (``drop``) is found by their place."""
_LAST_MS: Final = 253_402_300_799_999
_LIFECYCLE: Final = "http://terminology.hl7.org/CodeSystem/iso-21089-lifecycle"
_PARTICIPANT: Final = "http://terminology.hl7.org/CodeSystem/provenance-participant-type"


@dataclass(slots=True)
class Marker:
    """Adds to the outputs of one record, and collects what its Provenance is about. Used once."""

    marking: Marking
    policy: Policy
    origin: Origin | None = None
    _targets: dict[str, None] = field(default_factory=dict, repr=False)
    _pseudonymized: bool = False
    _bundles: int = 0

    def label(self, plan: PartPlan, output: bytes, changes: Changes, prefix: str) -> bytes:
        """The output of a message with its security labels. Paths of ``changes`` begin with ``prefix``.

        Formats other than FHIR JSON get none.
        """
        if not self.marking.labels or not self._marks(plan):
            return output
        found = list_resources(output)
        labels = _find_labels(plan, found, changes, len(prefix))
        return insert_all(output, filter(None, map(place_labels, found, labels)))

    def add_provenance(self, plan: PartPlan, output: bytes, changes: Changes) -> bytes:
        """The output of a message with its Provenance, or as it is: then ``provenance`` gives that of the record."""
        if self.marking.provenance is ProvenanceMode.NONE or not self._marks(plan):
            return output
        found = list_resources(output)
        pseudonymized = any(_LABEL_OF.get(method) == PSEUDONYMIZED for _, _, method, _ in changes)
        if self.marking.provenance is ProvenanceMode.BUNDLE:
            entry = self._make_entry(found, pseudonymized)
            return output if entry is None else insert_all(output, [entry])
        self._targets |= dict.fromkeys(list_targets(found))
        self._pseudonymized |= pseudonymized
        return output

    def _marks(self, plan: PartPlan) -> bool:
        return plan.codec.name == "fhir" and not self.policy.changes_nothing

    def provenance(self) -> bytes:
        """The Provenance of the record for a topic; empty if there is none."""
        if not self._targets or self.origin is None:
            return b""
        return self._write(self.origin.id, list(self._targets), pseudonymized=self._pseudonymized)

    def _make_entry(self, found: Sequence[ResourceRange], pseudonymized: bool) -> tuple[int, bytes] | None:
        """The entry of a Bundle. Each Bundle of a batch has an id of its own."""
        targets = list_targets(found)
        if self.origin is None or not targets:
            return None
        id_ = self.origin.id if not self._bundles else f"{self.origin.id}.{self._bundles}"
        resource = self._write(id_, targets, pseudonymized=pseudonymized)
        uuid = UUID(int=int(self.origin.id, 16) ^ self._bundles, version=4)
        base = find_base(found)
        entry = place_entry(found[0], resource, f"{base}/Provenance/{id_}" if base else f"urn:uuid:{uuid}")
        self._bundles += entry is not None
        return entry

    def _write(self, id_: str, targets: Iterable[str], *, pseudonymized: bool) -> bytes:
        policy = f"urn:deid-agent:policy:{quote(self.policy.name, safe='')}:{self.policy.digest[:16]}"
        activity = "pseudonymize" if pseudonymized else "deidentify"
        return orjson.dumps(
            {
                "resourceType": "Provenance",
                "id": id_,
                "target": [{"reference": each} for each in targets],
                **self._recorded(),
                "policy": [policy],
                "activity": {"coding": [{"system": _LIFECYCLE, "code": activity}]},
                "agent": [
                    {
                        "type": {"coding": [{"system": _PARTICIPANT, "code": "assembler"}]},
                        "who": {"display": f"deid-agent {__version__}"},
                    }
                ],
            }
        )

    def _recorded(self) -> Mapping[str, object]:
        """The time of the record, as coarse as the policy shows it; the reason if it shows none."""
        time_ms = -1 if self.origin is None else self.origin.time_ms
        if 0 <= time_ms <= _LAST_MS:
            return {"recorded": format_time(time_ms / 1000, "milliseconds")}
        reason = "masked" if self.policy.record_time is RecordTime.NONE else "unknown"
        return {"_recorded": {"extension": [{"url": DATA_ABSENT_REASON, "valueCode": reason}]}}


def _find_labels(plan: PartPlan, outputs: Sequence[ResourceRange], changes: Changes, prefix: int) -> Sequence[set[str]]:
    """The labels of each resource of an output, by what was done in it. A Bundle has those of its entries too."""
    dropped = plan.dropped
    # An allow-list policy removes resources, so that their numbers differ before and after.
    inputs = list_resources(plan.message.raw) if dropped.ranges else outputs
    kept = [n for n, each in enumerate(inputs) if not dropped.cover(*each.span)]
    if len(kept) != len(outputs):
        raise ValueError("the resources of the output are not those of the message")
    labels: list[set[str]] = [set() for _ in outputs]
    before = {inputs[n].path: index for index, n in enumerate(kept)}
    after = {each.path: index for index, each in enumerate(outputs)}
    for path, _, method, source in changes:
        if label := _LABEL_OF.get(method):
            labels[_find_owner(path[prefix:], after if source == GUARD_SOURCE else before)].add(label)
    places = {n: index for index, n in enumerate(kept)}
    for owner in _owners_of_dropped(inputs, dropped):
        while owner not in places:
            owner = inputs[owner].parent or 0  # noqa: PLW2901 - up to the Bundle that is left
        labels[places[owner]].add(REDACTED)
    for resource, codes in zip(reversed(outputs), reversed(labels), strict=True):
        if resource.parent is not None:
            labels[resource.parent] |= codes
    return labels


def _find_owner(path: str, paths: Mapping[str, int]) -> int:
    """The index of the resource of a path: that of the longest path in ``paths`` above it."""
    while path and path not in paths:
        path = path[: max(path.rfind("."), path.rfind("["), path.rfind("/"), 0)]
    return paths.get(path, 0)


def _owners_of_dropped(inputs: Sequence[ResourceRange], dropped: DroppedRanges) -> set[int]:
    """The indexes of the innermost resources out of which something was dropped."""
    order = sorted(range(len(inputs)), key=lambda n: inputs[n].span)
    starts = [inputs[n].span[0] for n in order]
    owners = set()
    for each in dropped.ranges:
        owner = order[max(0, bisect_right(starts, each.start) - 1)]
        while inputs[owner].span[1] <= each.start:
            owner = inputs[owner].parent or 0
        owners.add(owner)
    return owners
