"""Leaks of a reviewed sample."""

import pytest
from support.evidence import gold, pair_of

from deid_agent.evidence.figures import EvidenceFigure
from deid_agent.evidence.leaks import estimate_leaks, examine_sample, is_unchanged, match_sample, may_stay
from deid_agent.model import ANNOTATION, ConfigurationError, PhiType, Span

KINDS = frozenset({"hospital", "street", "mr", "st", "of", "center"})


@pytest.mark.parametrize(
    ("kind", "before", "after", "leaks"),
    [
        ("PATIENT", "Zoltan Quibble", "Martin Harper", False),
        ("PATIENT", "Zoltan Quibble", "Zoltan Quibble", True),
        ("PATIENT", "Zoltan Quibble", "Martin Quibble", True),
        ("PATIENT", "Mr Quibble", "Mr Harper", False),
        ("DOCTOR", "Zoltan Quibble", "[DOCTOR]", False),
        ("HOSPITAL", "Quibble Hospital", "Harper Hospital", False),
        ("HOSPITAL", "Quibble Hospital", "Quibble Hospital", True),
        ("HOSPITAL", "Quibble Valley Zorn Hospital", "Quibble Valley Mott Hospital", True),
        ("LOCATION-OTHER", "Quibble Showground", "Harper Showground", False),
        ("STREET", "17 Quibble Street", "23 Harper Street", False),
        ("STREET", "17 Quibble Street", "17 Harper Street", False),
        ("DATE", "3/4/2019", "5/11/2019", False),
        ("DATE", "3/4/2019", "3/4/2019", True),
        ("PHONE", "(212) 555 0148", "(212) 555 0917", False),
        ("PHONE", "(212) 555 0148", "(212) 555 0148", True),
        ("PHONE", "(212) 555 0148", "(873) 555 0148", True),
        ("PHONE", "(212) 555 0148 x4", "(212) 555 0391 x4", False),
        ("SSN", "123-45-6789", "873-45-1290", False),
        ("SSN", "123-45-6789", "871-92-6789", True),
        ("MEDICALRECORD", "A-4417", "A-9023", False),
        ("EMAIL", "zquibble@mail.example", "mharper@mail.example", False),
        ("EMAIL", "zquibble@mail.example", "zquibble@post.example", True),
        ("URL", "https://www.quibble.example/a", "https://www.harper.example/a", False),
        ("URL", "https://www.quibble.example/a", "https://www.quibble.example/b", True),
        ("PROFESSION", "asbestos lagger", "asbestos baker", False),
        ("AGE", "93", "93", True),
    ],
)
def test_a_value_leaks_if_an_identifying_part_is_unchanged(kind: str, before: str, after: str, leaks: bool) -> None:
    pair = pair_of(f"seen today: {before}, stable on 5 mg.", f"seen today: {after}, stable on 5 mg.")
    at = pair.original.index(before)
    assert is_unchanged(pair, Span(at, at + len(before), PhiType(kind), ANNOTATION), KINDS) is leaks


@pytest.mark.parametrize(
    ("kind", "value", "stays"),
    [
        ("AGE", "89", True),
        ("AGE", "90", False),
        ("AGE", "ninety", False),
        ("DATE", "2019", True),
        ("DATE", "3/2019", False),
    ],
)
def test_values_that_may_stay_are_not_counted(kind: str, value: str, stays: bool) -> None:
    assert may_stay(value, PhiType(kind)) is stays


def feed(leaky: int, sound: int) -> tuple[dict[str, EvidenceFigure], tuple[str, ...]]:
    """The figures of patients with two notes each, of which ``leaky`` have one with a leak."""
    notes, pairs = [], []
    for number in range(leaky + sound):
        for turn in range(2):
            text = f"Seen [[PATIENT|Zoltan Quibble]] number {number} visit {turn}, state [[STATE|Ohio]]."
            note = gold(f"n{number}-{turn}", f"p{number}", text)
            name = "Zoltan Quibble" if number < leaky and not turn else "Martin Harper"
            notes.append(note)
            pairs.append(
                pair_of(note.annotated.text, note.annotated.text.replace("Zoltan Quibble", name), note.id, note.patient)
            )
    section = estimate_leaks(examine_sample(match_sample(notes, pairs), KINDS))
    return {each.name: each for each in section.figures}, section.findings


def test_leaks_are_counted_by_identifier_note_and_patient() -> None:
    figures, findings = feed(3, 7)
    counts = {name: (each.count, each.of) for name, each in figures.items()}
    assert counts == {
        "identifiers that leak": (3, 20),
        "notes with a leak": (3, 20),
        "patients with a leak": (3, 10),
        "patients with a leak of their name, a number or a contact": (3, 10),
        "PATIENT that leak": (3, 20),
    }
    assert findings[1] == "3 of 10 patients have a leak; with 95 % confidence at most 60.7 % of them."


def test_a_sample_without_a_leak_gives_a_bound_and_not_zero() -> None:
    figures, findings = feed(0, 25)
    assert figures["patients with a leak"].high == pytest.approx(0.1372, abs=1e-4)
    assert "at most 11.3 %" in findings[1]


def test_a_sample_of_another_feed_is_refused() -> None:
    pairs = [pair_of("Seen Zoltan Quibble.", "Seen Martin Harper.")]
    with pytest.raises(ConfigurationError, match="1 note of 2 with a text that no original has") as caught:
        match_sample([gold("a", "p", "Seen [[PATIENT|Zoltan Quibble]]."), gold("b", "p", "Saw Zyx")], pairs)
    assert "Zyx" not in str(caught.value)


def test_a_sample_without_annotations_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no annotation"):
        match_sample([gold("a", "p", "Seen today.")], [pair_of("Seen today.", "Seen today.")])


def test_annotations_keep_their_places_though_line_ends_differ() -> None:
    pair = pair_of("\r\nSeen\r\n[Zoltan Quibble] x\r\n", "\r\nSeen\r\n[Martin Harper] x\r\n")
    note = gold("a", "p", "Seen\n[[[PATIENT|Zoltan Quibble]]] x")
    ((moved, _),) = match_sample([note], [pair])
    (span,) = moved.annotated.spans
    assert pair.original[span.start : span.end] == "Zoltan Quibble"


@pytest.mark.parametrize(
    ("in_feed", "in_sample", "patient"),
    [("p1", "p7", "p1"), ("n", "p7", "p7"), ("n", "a", "n"), ("n", "", "n"), ("p1", "", "p1")],
)
def test_the_patient_is_that_of_the_feed_if_it_names_one(in_feed: str, in_sample: str, patient: str) -> None:
    for name in ("n", "n.txt"):
        pair = pair_of("Seen Zoltan Quibble.", "Seen Martin Harper.", name, in_feed)
        note = gold("a", in_sample, "Seen [[PATIENT|Zoltan Quibble]].")
        (found,) = examine_sample(match_sample([note], [pair]), KINDS)
        assert found.patient == patient


def test_leaks_of_places_are_counted_apart_from_names_and_numbers() -> None:
    pairs = [pair_of("Seen in Squonkville by Ruth Zorn.", "Seen in Squonkville by Ann Mott.")]
    note = gold("a", "p", "Seen in [[CITY|Squonkville]] by [[PATIENT|Ruth Zorn]].")
    section = estimate_leaks(examine_sample(match_sample([note], pairs), KINDS))
    counts = {each.name: (each.count, each.of) for each in section.figures}
    assert counts["patients with a leak"] == (1, 1)
    assert counts["patients with a leak of their name, a number or a contact"] == (0, 1)


def test_a_note_that_is_in_the_sample_twice_does_not_count_twice() -> None:
    """A hundred copies of one note would be a proof by repetition."""
    pair = pair_of("Seen Zoltan Quibble.", "Seen Martin Harper.", "n1")
    copies = [gold(note, "p", "Seen [[PATIENT|Zoltan Quibble]].") for note in ("x", "n1", "y")]
    with pytest.raises(ConfigurationError, match="2 notes of 3 with the text of another") as caught:
        match_sample(copies, [pair])
    assert "Quibble" not in str(caught.value)


def test_notes_of_one_text_each_have_a_pair_of_their_own() -> None:
    pairs = [pair_of("Seen Zoltan Quibble.", "Seen Martin Harper.", note) for note in ("n1", "n2")]
    notes = [gold(note, "p", "Seen [[PATIENT|Zoltan Quibble]].") for note in ("other", "n1")]
    assert {(note.id, pair.note) for note, pair in match_sample(notes, pairs)} == {("other", "n2"), ("n1", "n1")}
