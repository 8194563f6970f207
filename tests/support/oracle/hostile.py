"""The hostile messages, with the identifiers that each plants, and the share that survives.

108 messages: the templates of ``hostile_hl7`` and ``hostile_fhir``, each with several casts of persons.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from random import Random
from xml.sax.saxutils import escape

from support.oracle.hostile_fhir import CDA_TEMPLATES, FHIR_TEMPLATES
from support.oracle.hostile_hl7 import HL7_TEMPLATES
from support.oracle.judge import Sanitize
from support.oracle.people import Person, invent
from support.oracle.search import Reading, fold

MESSAGES = 108
_MARK = re.compile(r"«([a-z]+)\.([a-z]+)»|‹(\d)\.([a-z]+)›")
_CASTS = ("latin", "latin with marks")
_TEMPLATES = (
    *(("hl7", text) for text in HL7_TEMPLATES),
    *(("fhir", text) for text in FHIR_TEMPLATES),
    *(("cda", text) for text in CDA_TEMPLATES),
)


@dataclass(frozen=True, slots=True)
class HostilePlant:
    """One planted identifier; ``structured`` if the structure decides, else narrative without another mention."""

    structured: bool
    role: str
    attribute: str
    needles: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class HostileMessage:
    """A message with its plants; ``name`` is its format, template and cast."""

    name: str
    raw: bytes = field(repr=False)
    plants: tuple[HostilePlant, ...]


def make_hostile(people: int = 0) -> Iterator[HostileMessage]:
    """The messages. Another value of ``people`` gives the same templates with other persons."""
    for number, (form, template) in enumerate(islice(cycle(_TEMPLATES), MESSAGES)):
        yield _fill(form, template, number, people)


def _fill(form: str, template: str, number: int, people: int) -> HostileMessage:
    plants: list[HostilePlant] = []
    cast = number // len(_TEMPLATES)
    script = _CASTS[cast % len(_CASTS)]

    def put(found: re.Match[str]) -> str:
        structured = found[1] is not None
        role, attribute = (found[1], found[2]) if structured else (found[3], found[4])
        person = invent(Random(f"hostile/{number}/{role}/{people}"), script)
        value, needles = _value(person, attribute)
        plants.append(HostilePlant(structured, role, attribute, tuple(fold(needle) for needle in needles)))
        return escape(value) if form == "cda" else value

    text = _MARK.sub(put, template)
    raw = text.replace("\n", "\r") if form == "hl7" else text
    return HostileMessage(f"{form} {number % len(_TEMPLATES)}/{cast}", raw.encode(), tuple(plants))


def _value(person: Person, attribute: str) -> tuple[str, tuple[str, ...]]:
    """The text of an attribute and the texts that may not survive."""
    match attribute:
        case "name":
            return f"{person.given} {person.family}", (person.given, person.family)
        case "dob" | "isodob" | "usdob":
            form = {"dob": "%Y%m%d", "isodob": "%Y-%m-%d", "usdob": "%m/%d/%Y"}[attribute]
            return person.born.strftime(form), (person.born.strftime(form),)
        case _:
            value = str(getattr(person, attribute))
            return value, (value,)


@dataclass(slots=True)
class Score:
    """Planted identifiers and survivors; ``lost`` has the message, role and attribute of each survivor."""

    structured: int = 0
    narrative: int = 0
    structured_lost: list[str] = field(default_factory=list)
    narrative_lost: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def score(first: Sanitize, second: Sanitize) -> Score:
    """The score of the hostile messages; a needle that is gone under the second key was a surrogate."""
    result = Score()
    messages = list(make_hostile())
    raws = [message.raw for message in messages]
    for message, one, two in zip(messages, _run(first, raws), _run(second, raws), strict=True):
        if isinstance(one, str) or isinstance(two, str):
            result.refused += [f"{message.name}: {why}" for why in (one, two) if isinstance(why, str)]
            continue
        readings = (Reading(one), Reading(two))
        for plant in message.plants:
            held = any(all(reading.holds(needle) for reading in readings) for needle in plant.needles)
            lost = result.structured_lost if plant.structured else result.narrative_lost
            result.structured += plant.structured
            result.narrative += not plant.structured
            if held:
                lost.append(f"{message.name} {plant.role}.{plant.attribute}")
    return result


def _run(sanitize: Sanitize, raws: Sequence[bytes]) -> list[bytes | str]:
    return [output for at in range(0, len(raws), 12) for output in sanitize(raws[at : at + 12])]
