"""The shape of outputs: a pure pass over each sanitized message, behind the leak guard.

The only shape is ``dapl``, the de-identified resources of HL7's DAPL. It sees no original, except for the ages.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING

from deid_agent.codec import EnvelopeCodec
from deid_agent.model import ConfigurationError, MessageError, PhiType, Reason
from deid_agent.pipeline.plans import PartPlan
from deid_agent.pipeline.policy import Method, Policy

if TYPE_CHECKING:
    from deid_agent.codec.fhir import DaplForm


class ShapeName(StrEnum):
    """The shapes of outputs."""

    NONE = "none"
    DAPL = "dapl"


class RestrictedZip(StrEnum):
    """The treatment of patients whose ZIP prefix has few people."""

    MASK = "mask"  # 00000
    DROP = "drop"  # they are left out, with the resources about them


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """The settings of a shape. ``age_date`` is the day of the ages; None is that of each message."""

    name: ShapeName = ShapeName.NONE
    on_restricted_zip: RestrictedZip = RestrictedZip.MASK
    age_date: date | None = None

    def check(self, policy: Policy) -> "ShapeOptions":
        """The same options. Raises ``ConfigurationError`` if the policy's outputs cannot have this shape."""
        if self.name is ShapeName.NONE:
            return self
        if policy.published is not None:
            raise ConfigurationError(
                f"shape: the policy {policy.name} publishes listed paths, and a shape decides that itself: "
                "use a policy without [publish], such as safe-harbor"
            )
        if policy.types.get(PhiType.DATE, policy.default) is not Method.GENERALIZE:
            raise ConfigurationError(
                f"shape: DAPL has years and ages, and the policy {policy.name} does not generalize dates: "
                "use safe-harbor, or a policy with DATE = generalize"
            )
        return self


NO_SHAPE = ShapeOptions()
"""Outputs keep the form of their messages."""


@dataclass(frozen=True, slots=True)
class OutputShape:
    """Gives sanitized messages the form of DAPL."""

    form: "DaplForm"
    age_date: date | None = None

    def write(self, part: PartPlan, sanitized: bytes) -> tuple[bytes, Counter[str]]:
        """A message in its shape, with the number of elements that were left out, by path. An envelope has no shape.

        Raises ``MessageError(UNSUPPORTED)`` if it has no such form, and ``LeftOutError`` if its patient is left out.
        """
        from deid_agent.codec.fhir import find_ages  # noqa: PLC0415 - a command that reads notes does not need it

        if isinstance(part.codec, EnvelopeCodec):
            return sanitized, Counter()
        if part.codec.name != "fhir":
            raise MessageError(Reason.UNSUPPORTED, "byte 0", "the shape of outputs is one of FHIR in JSON")
        return self.form.write(sanitized, find_ages(part.message.raw, self.age_date or _find_day(part)))


def _find_day(part: PartPlan) -> date:
    """The day on which a message was written, or that of processing. Periods and orders may end in the future."""
    written, today = part.scope.today or part.scope.reference, date.today()
    return today if written is None else min(written, today)
