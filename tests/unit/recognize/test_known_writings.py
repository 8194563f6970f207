"""Known people in every writing that a careless author or system makes: nothing of them stays."""

from collections.abc import Iterator

import pytest

from deid_agent.model import Document, Fact, PhiType, Subject, ValueKind
from deid_agent.recognize.registry import assemble_recognizers, load_rules
from deid_agent.rules import data_folder

(KNOWN,) = assemble_recognizers(load_rules(data_folder("rules")), "known")
PEOPLE = (
    ("Ada", "Okafor"),
    ("Zoriana", "Quixwell"),
    ("Siobhan", "O'Leary"),
    ("Jürgen", "Müller-Lüdenscheidt"),
    ("Willem", "van der Berg"),
    ("Yusuf", "al-Rashid"),
    ("Hassan", "bin Laith"),
    ("Alasdair", "McTavish"),
    ("Clement", "St. Clair"),
    ("Xiaoming", "Zhang"),
    ("Łukasz", "Wójcik"),
    ("Søren", "Kjærgård"),
    ("D'Andre", "D'Souza"),
    ("Josphat", "Ng'ang'a"),
    ("Rosamund", "Castlereagh"),
    ("Katherine", "Parkinson"),
)
SENTENCES = (
    "seen {} today",
    "{}'s wound",
    "the {}s came",
    "{} 12",
    "{} L hip",
    "{}, R knee",
    "Mrs. {}'s disease",
    "Mr {} syndrome",
    "{}: no pain",
    "BB {} fed well",
    "Baby boy {} fed well",
    "Twin A {} fed well",
    "B/O {} fed well",
    "Dup {} MRN 7",
)


def writings(given: str, family: str) -> Iterator[str]:
    """The name as a person or system writes it."""
    glued = "".join(c for c in family if c.isalpha())
    first = "".join(c for c in given if c.isalpha())
    yield from (family, family.upper(), family.lower(), given, f"{given} {family}", f"{family}, {given}")
    yield from (f"{family.upper()},{given.upper()}", f"{family}^{given}", f"{family}/{given}", f"{given}\n{family}")
    yield from (f"{given[0]}. {family}", f"{family}, {given[0]}.", glued, glued.lower(), f"{first}{glued}")
    yield from (f"{glued}{first}", f"{glued.lower()}_{first.lower()}", f"{first}.{glued}")
    yield from (family.replace("'", sign) for sign in "’‘`´ʼ " if "'" in family)
    yield from (f"{given} {family}".replace("-", sign) for sign in " ‐" if "-" in family)
    half = len(family) // 2
    if family[half - 1 : half + 1].isalpha() and len(glued) > 5:
        yield from (f"{family[:half]}{cut}{family[half:]}" for cut in ("-\n", "\n", " "))
    yield " ".join(glued)


def misspellings(family: str) -> Iterator[str]:
    """The name with one typing error inside a word."""
    for at in range(1, len(family) - 2):
        before, letter, other = family[at - 1 : at + 2]
        if before.isalpha() and letter.isalpha() and other.isalpha():
            yield family[:at] + family[at + 1 :]
            yield family[:at] + letter + family[at:]
            yield family[:at] + "x" + family[at + 1 :]
            if letter != other:
                yield family[:at] + other + letter + family[at + 2 :]


def leaks(text: str, name: str, given: str, family: str) -> bool:
    facts = tuple(
        Fact(PhiType.PATIENT, kind, Subject.PATIENT, "p", value)
        for kind, value in ((ValueKind.GIVEN, given), (ValueKind.FAMILY, family))
    )
    covered = {at for span in KNOWN.recognize(Document(text, facts)) for at in range(span.start, span.end)}
    start = text.index(name)
    return any(text[at].isalnum() and at not in covered for at in range(start, start + len(name)))


@pytest.mark.parametrize(("given", "family"), PEOPLE)
def test_writings_of_a_known_person(given: str, family: str) -> None:
    texts = [(SENTENCES[0].format(name), name) for name in writings(given, family)]
    texts += [(sentence.format(family), family) for sentence in SENTENCES]
    assert [text for text, name in texts if leaks(text, name, given, family)] == []


@pytest.mark.parametrize(("given", "family"), PEOPLE)
def test_misspellings_of_a_known_person(given: str, family: str) -> None:
    names = [form for name in misspellings(family) for form in (name, name.lower())]
    leaked = {name for name in names if leaks(f"seen {name} today", name, given, family)}
    assert len(leaked) <= 0.02 * len(names), sorted(leaked)
