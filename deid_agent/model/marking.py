"""What is added to FHIR outputs: security labels and a Provenance, and the origin that the Provenance states."""

from dataclasses import dataclass
from enum import StrEnum

from deid_agent.model.headers import NO_TIME


class ProvenanceMode(StrEnum):
    """Where the Provenance of an output goes."""

    NONE = "none"
    BUNDLE = "bundle"  # one more entry of a Bundle
    TOPIC = "topic"  # a record of a topic of its own


@dataclass(frozen=True, slots=True)
class Marking:
    """The additions of a project."""

    labels: bool = False
    provenance: ProvenanceMode = ProvenanceMode.NONE

    @property
    def adds_nothing(self) -> bool:
        """True if outputs leave as they are."""
        return not self.labels and self.provenance is ProvenanceMode.NONE


@dataclass(frozen=True, slots=True)
class Origin:
    """The ``deid-id`` of a record, and its time as the policy shows it: in milliseconds, or ``NO_TIME``."""

    id: str
    time_ms: int = NO_TIME
