"""Surrogates: realistic replacements of the same shape, stable within their scope, derived from one secret only."""

from deid_agent.surrogate.calendars import ADULT_BIRTH_DAYS, ADULT_DAYS, DateShifts, birth_offsets, event_bases
from deid_agent.surrogate.dates import connects_days
from deid_agent.surrogate.lists import list_words, load_lists, pin_names
from deid_agent.surrogate.methods import RESTRICTED_ZIP3, Period, coarsen_date, generalize, mask
from deid_agent.surrogate.numeric_dates import detect_day_first
from deid_agent.surrogate.people import NamedPerson, Scope
from deid_agent.surrogate.surrogates import Surrogates

__all__ = [
    "ADULT_BIRTH_DAYS",
    "ADULT_DAYS",
    "RESTRICTED_ZIP3",
    "DateShifts",
    "NamedPerson",
    "Period",
    "Scope",
    "Surrogates",
    "birth_offsets",
    "coarsen_date",
    "connects_days",
    "detect_day_first",
    "event_bases",
    "generalize",
    "list_words",
    "load_lists",
    "mask",
    "pin_names",
]
