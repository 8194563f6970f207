"""Known names that are also words: they count beside the words of a person, and nowhere else."""

import pytest
from support.known import found, person

MAY = person("May", "Will")


@pytest.mark.parametrize(
    "text",
    ["she may go", "May 5", "in May", "she will", "Will call", "I may", "I MAY CALL", "it may, will see", "M.W."],
)
def test_common_words_are_not_names(text: str) -> None:
    assert found(text, *MAY) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("saw Mr. May today", "May"),
        ("Will May came", "Will May"),
        ("MAY, WILL", "MAY, WILL"),
        ("May, W. came", "May, W"),
        ("W. May came", "W. May"),
        ("Patient: May", "May"),
        ("her husband Will is", "Will"),
    ],
)
def test_common_words_with_a_cue_are_names(text: str, name: str) -> None:
    assert found(text, *MAY) == [name]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("seen by Dr. Beatrix Level Eighth - in June", ["Beatrix Level Eighth"]),
        ("Beatrix Eighth", ["Beatrix Eighth"]),
        ("Beatrix had an Eighth dose", ["Beatrix"]),
        ("Beatrix, her Eighth dose", ["Beatrix"]),
        ("BEATRIX LEVEL EIGHTH", ["BEATRIX"]),
        ("Beatrix\nLevel Eighth", ["Beatrix"]),
        ("Beatrix Visited Eighth 5", ["Beatrix"]),
        ("Level Eighth", []),
        ("on the Eighth day, the eighth dose of Eighth Street", []),
    ],
)
def test_a_common_family_name_after_a_given_and_a_middle_name(text: str, spans: list[str]) -> None:
    assert found(text, *person("Eighth", "Beatrix")) == spans
    assert found("Beatrix Level Quillon", *person("Quillon", "Beatrix Ama")) == ["Beatrix", "Quillon"]


@pytest.mark.parametrize(
    ("family", "text", "spans"),
    [
        ("Field", "Field was discharged home", ["Field"]),
        ("Field", "Field was prepped and draped. Field block", []),
        ("Price", "Price was informed of the plan", ["Price"]),
        ("Glass", "Glass dropped a cup", ["Glass"]),
        ("Brown", "Brown has jaundice. Brown sputum, Brown coloured urine", ["Brown"]),
        ("Strong", "We discussed the options and Strong prefers to wait. Strong pulses", ["Strong"]),
        ("Small", "in summary Small has done well; CT shows Small bowel obstruction", ["Small"]),
        ("Hand", "Told Hand not to lift. Fracture of Hand with angulation. Hand grip", ["Hand"]),
        ("Case", "Examination of Case showed a mass. In Case of fever. Case discussed", ["Case"]),
        ("Bell", "Counselled Bell regarding diet, no Bell palsy", ["Bell"]),
        ("Love", "Love CBC pending", ["Love"]),
        ("Brand", "Brand DNA x2\nno Brand CBC", ["Brand"]),
        ("Long", "LONG FOR DISCHARGE", ["LONG"]),
        ("Long", "LONG TERM CARE", []),
        ("Rich", "Rich: I am dizzy", ["Rich"]),
        ("Brown", "Brown: stool. The Brown was", []),
        ("Do", "surname=Do&x=1", ["Do"]),
    ],
)
def test_a_name_that_is_a_word_beside_the_words_of_a_person(family: str, text: str, spans: list[str]) -> None:
    assert found(text, *person(family, "Xanthe")) == spans


@pytest.mark.parametrize(
    ("given", "text", "spans"),
    [
        ("Mohammed", "Mo is hungry. MO paged", ["Mo"]),
        ("Edward", "Ed's wife called; pt ED visit", ["Ed"]),
        ("Kiri", "Kirri no wheeze; kiwi", ["Kirri"]),
        ("Francisco", "Paco eats well", ["Paco"]),
    ],
)
def test_short_nicknames_and_doubled_letters(given: str, text: str, spans: list[str]) -> None:
    assert found(text, *person("Quillon", given)) == spans


@pytest.mark.parametrize("family", ["Brown", "Li", "Day", "Church", "Young", "Lung"])
def test_a_common_family_name_alone_is_not_a_name(family: str) -> None:
    assert found(f"a {family.lower()} spot, {family} noted", *person(family, "Xanthe")) == []
    assert found(f"Ms. {family} came", *person(family, "Xanthe")) == [family]
