"""The settings of dates in a policy (``[dates]``), and what they let the readers of a feed learn."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictBool, model_validator

from deid_agent.model import ConfigurationError
from deid_agent.surrogate import DateShifts, birth_offsets, event_bases


class DateBase(StrEnum):
    """What has one secret base of date shifts, and one surrogate for each date of birth."""

    PATIENT = "patient"
    DOCUMENT = "document"


class Technical(StrEnum):
    """The treatment of technical dates: when a message or a resource was written or sent."""

    SHIFT = "shift"  # with the events of the document
    DAY = "day"  # the others keep the true time, made coarse
    WEEK = "week"
    YEAR = "year"
    DROP = "drop"


class Risk(StrEnum):
    """A combination of settings that voids a bound, by the name that ``[dates] acknowledge`` takes."""

    LINKED_BASES = "linked-bases"
    """Documents with bases of their own have identifiers in common: their dates intersect."""
    TRUE_TIMES = "true-times"
    """True technical times beside shifted events: their difference is the shift, to the precision of the time."""


def _require_days(least: int, most: int) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"must be a whole number of days from {least} to {most}")
        return value

    return check


class DatesSection(BaseModel):
    """``[dates]``. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    base: DateBase = DateBase.PATIENT
    offset_days: Annotated[int, BeforeValidator(_require_days(0, 5))] = 3
    """How far the shifts of two documents of a patient differ at most; 0 keeps the intervals between them."""
    whole_weeks: StrictBool = False
    """Shift by whole weeks, so that days of the week are kept; ``offset_days`` has then no effect."""
    max_shift_days: Annotated[int, BeforeValidator(_require_days(14, 3650))] = 550
    technical: Technical = Technical.SHIFT
    acknowledge: list[Risk] = []

    @model_validator(mode="before")
    @classmethod
    def _name_successor(cls, data: object) -> object:
        if isinstance(data, Mapping) and "scope" in data:
            raise ValueError(
                'scope is now base and offset_days: for scope = "patient" give offset_days = 0, and for '
                'scope = "document" offset_days = 3'
            )
        return data

    def shifts(self) -> DateShifts:
        """The settings of the surrogates."""
        return DateShifts(self.base is DateBase.PATIENT, self.offset_days, self.whole_weeks, self.max_shift_days)


@dataclass(frozen=True, slots=True)
class DateBounds:
    """How far the readers of a feed without its key can narrow a date, in candidate days. See docs/decisions/0014.

    ``events`` and ``births`` hold against a reader of all outputs and their metadata: for the date of an event, and for
    the birth of a patient who is an adult in every message. ``live_births`` holds against a reader who also knows when
    each message was sent; that reader knows the shift of events. A bound is 0 if a risk voids it.
    """

    shifted: bool
    events: int = 0
    births: int = 0
    live_births: int = 0
    risks: frozenset[Risk] = frozenset()

    def __str__(self) -> str:
        if not self.shifted:
            return "not shifted"
        void = f"; void by {', '.join(sorted(self.risks))}" if self.risks else ""
        return (
            f"candidate days without true times and order of arrival: {self.events} for an event, {self.births} for "
            f"the birth of an adult; with either: 0 and {self.live_births}{void}"
        )

    def require(self, acknowledged: Collection[Risk], origin: str) -> None:
        """Raises ``ConfigurationError`` if dates fall by intersection and the policy does not acknowledge it."""
        if Risk.LINKED_BASES in self.risks and Risk.LINKED_BASES not in acknowledged:
            raise ConfigurationError(
                f'{origin}: dates.base is "document" while identifiers join the documents of a patient: a date that '
                'repeats in them is found by intersection. Use base = "patient", or acknowledge = '
                f'["{Risk.LINKED_BASES}"]'
            )


def bound_dates(shifts: DateShifts, technical: Technical, *, shifted: bool, joined: bool) -> DateBounds:
    """The bounds of these settings. ``joined``: documents of a patient have names, identifiers or keys in common."""
    if not shifted:
        return DateBounds(shifted=False)
    linked = joined and not shifts.by_patient
    true_times = technical not in {Technical.SHIFT, Technical.DROP}
    risks = [risk for risk, found in ((Risk.LINKED_BASES, linked), (Risk.TRUE_TIMES, true_times)) if found]
    births = 0 if linked else len(birth_offsets())
    return DateBounds(True, 0 if risks else len(event_bases(shifts)), births, births, frozenset(risks))
