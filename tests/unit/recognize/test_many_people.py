"""Messages that name hundreds of people: each is found, and the cost is linear in the message."""

import sys
from pathlib import Path
from types import FrameType

import pytest

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact, Subject, ValueKind
from deid_agent.model.text import Document
from deid_agent.recognize.registry import assemble_recognizers, load_rules

(KNOWN,) = assemble_recognizers(load_rules(Path(__file__).resolve().parents[3] / "rules"), "known")
GIVEN = ("Zoriana", "Thaddeus", "Hope", "Will")


def family(number: int) -> str:
    letters = "bdfgklmnprst"
    return "Ov" + "".join(letters[number // 12**n % 12] * 2 + "ae"[number % 2] for n in range(3))


def message(people: int) -> tuple[tuple[Fact, ...], list[str]]:
    """Facts of so many patients, and one narrative about each."""
    facts: list[Fact] = []
    notes = []
    for n in range(people):
        values = {
            "PATIENT": GIVEN[n % 4],
            "PHONE": f"740-{100 + n:03}-{2000 + 7 * n}",
            "EMAIL": f"{family(n).lower()}@quenby.example",
            "STREET": f"{n + 3} Windermere Hollow",
            "CITY": "Quenby",
        }
        facts.append(Fact(PhiType.PATIENT, ValueKind.FAMILY, Subject.PATIENT, str(n), family(n)))
        for kind, value in values.items():
            how = ValueKind.GIVEN if kind == "PATIENT" else ValueKind.VALUE
            facts.append(Fact(PhiType(kind), how, Subject.PATIENT, str(n), value))
        notes.append(
            f"{GIVEN[n % 4]} {family(n)} of {n + 3} Windermere Hollow, Quenby is better; {family(n)[:-1]}x too. "
            f"Call {values['PHONE']} or {values['EMAIL']}. {GIVEN[n % 4][0]}.O. agreed."
        )
    return tuple(facts), notes


def texts(note: str, facts: tuple[Fact, ...]) -> set[str]:
    return {note[s.start : s.end] for s in KNOWN.recognize(Document(note, facts))}


@pytest.mark.parametrize("number", [0, 1, 2, 3, 96, 97, 98, 99])
def test_each_is_found_among_a_hundred(number: int) -> None:
    facts, notes = message(100)
    whole = f"{GIVEN[number % 4]} {family(number)}"
    phone = f"740-{100 + number:03}-{2000 + 7 * number}"
    email, misspelled = f"{family(number).lower()}@quenby.example", f"{family(number)[:-1]}x"
    wanted = {whole, phone, email, misspelled, f"{number + 3} Windermere Hollow", "Quenby"}
    assert wanted <= texts(notes[number], facts)


def test_a_part_of_many_people_is_found_alone() -> None:
    facts, _ = message(100)
    assert texts("then Zoriana came, A. Thaddeus and Mr. Will too; it will hope", facts) == {
        "Zoriana",
        "Thaddeus",
        "Will",
    }


def test_two_common_words_are_a_name_only_of_a_person_with_both() -> None:
    many = [Fact(PhiType.PATIENT, ValueKind.GIVEN, Subject.PATIENT, str(n), "Hope") for n in range(40)]
    many += [Fact(PhiType.PATIENT, ValueKind.FAMILY, Subject.PATIENT, str(n), "Young") for n in range(20, 60)]
    assert texts("then Hope Young left", tuple(many)) == {"Hope Young"}
    apart = [fact for fact in many if not 20 <= int(fact.group) < 40]
    assert texts("then Hope Young left", tuple(apart)) == set()


def calls(people: int) -> int:
    """The number of function calls for all narratives of the message."""
    facts, notes = message(people)
    documents = [Document(note, facts) for note in notes]
    count = 0

    def step(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(step)
    try:
        for document in documents:
            list(KNOWN.recognize(document))
    finally:
        sys.setprofile(None)
    return count


def test_four_times_the_people_cost_four_times_as_much() -> None:
    calls(4)  # builds the caches of the process
    assert calls(400) < 5 * calls(100)
