"""Treatments of values that are one thing from end to end: nearly all of a message, so that nothing is built for them.

``leaves`` has those that look for parts in a value, and the list of all.
"""

import re
from collections.abc import Callable, Mapping

from deid_agent.codec.fhir.shapes import Leaf
from deid_agent.codec.fhir.sink import Frame, Sink
from deid_agent.phi import PhiType
from deid_agent.sites import Kind, Subject

Treatment = Callable[[Sink, Leaf, str, int, int, str, Frame], None]
"""Takes a value, the bytes it stands for, its path and its object."""

PEOPLE = {PhiType.PATIENT: Subject.PATIENT, PhiType.DOCTOR: Subject.PROVIDER}
DATE = re.compile(  # no part of a date can be read two ways: nothing is ever given back
    r"[0-9]{4}(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12][0-9]|3[01])"
    r"(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9}+)?+)?+(?:Z|[+-][0-9]{2}:[0-9]{2})?+)?+)?+)?+"
)
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?")
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(\.[0-9]{1,18})?([eE][-+]?[0-9]{1,3})?|true|false")
_CODE = re.compile(r"\S+")
# In Python 3.11 to look a member up in its class takes as long as a call.
_DATE, _PATIENT, _DOCTOR = PhiType.DATE, PhiType.PATIENT, PhiType.DOCTOR
_VALUE, _INSTANT, _NAME = Kind.VALUE, Kind.INSTANT, Kind.NAME


def _site(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    sink.site(path, start, end, value, leaf.type, frame, leaf.kind, PEOPLE.get(leaf.type))


def _text(sink: Sink, _leaf: Leaf, value: str, start: int, end: int, path: str, _frame: Frame) -> None:
    sink.text(path, start, end, value)


def _unless(pattern: re.Pattern[str]) -> Treatment:
    def check(sink: Sink, _leaf: Leaf, value: str, start: int, end: int, path: str, _frame: Frame) -> None:
        if not pattern.fullmatch(value):
            sink.text(path, start, end, value)

    return check


def _date(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    instant = leaf.name == "instant" and "T" in value and DATE.fullmatch(value)
    # Another way to write a date, a slip of the hand, or no date at all: what nobody can read is blanked, as in HL7.
    sink.site(path, start, end, value, _DATE, frame, _INSTANT if instant else _VALUE)


def _display(sink: Sink, _leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    role = frame.role
    if role is None:
        sink.text(path, start, end, value)
    else:
        whose = PEOPLE.get(role)
        sink.site(path, start, end, value, role, frame, _VALUE if whose is None else _NAME, whose)


def _name(sink: Sink, leaf: Leaf, value: str, start: int, end: int, path: str, frame: Frame) -> None:
    type_ = _PATIENT if frame.subject is Subject.PATIENT else _DOCTOR
    sink.site(path, start, end, value, type_, frame, Kind(leaf.name), PEOPLE[type_])


WHOLE: Mapping[str, Treatment] = {
    "site": _site,
    "text": _text,
    "number": _unless(_NUMBER),
    "code": _unless(_CODE),
    "time": _unless(_TIME),
    "date": _date,
    "instant": _date,
    "display": _display,
    "family": _name,
    "given": _name,
    "name": _name,
    "age": _text,
}

STAYS: Mapping[str, Callable[[str], object]] = {
    "number": _NUMBER.fullmatch,
    "code": _CODE.fullmatch,
    "time": _TIME.fullmatch,
}
"""What these treatments keep, asked before anything is built for them."""
