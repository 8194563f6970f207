"""The attacker: reads the output feed, knows the program, the formats and the population, and has no key.

He may own a second output of the same hospital under another key, and lists of originals in order or with
frequencies. The attacks: to line surrogates up with originals, or with the other output, by their order, by
neighbours, by prefixes, by characters. Every attack also runs against a weak map, on which it
succeeds, so the tests can fail.

The remaining attack is documented: within one key an identifier keeps its surrogate (joins require it), so it
keeps its count. The same messages under two keys can be matched by counts (docs/keys.md).
"""

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from math import sqrt

import pytest
from support.id_formats import FORMATS, Format
from support.surrogates import form_of

from deid_agent.evidence.attackers import evenness, excess, ranks, spearman
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.surrogate import Scope, Surrogates
from deid_agent.surrogate.keyed import Permutation

ONE, OTHER = Surrogates(b"first key of the attack tests, 32 B"), Surrogates(b"other key of the attack tests, 32 B")
SCOPE = Scope("D", "P")
WIDE = [f for f in FORMATS if f.one_to_one and f.name not in {"SSN, last four", "extension", "CHI"}]
COUNT = 600
_NINES = str.maketrans("012345678", "9" * 9)
BAND = 4.5  # standard deviations: one false alarm in 150,000 comparisons


def made(by: Surrogates, form: Format, values: list[str]) -> list[str]:
    return [by.replace(form.type, value, kind=ValueKind.VALUE, scope=SCOPE) for value in values]


def named(name: str) -> Format:
    return next(form for form in FORMATS if form.name == name)


def class_of(text: str) -> str:
    """The properties that a surrogate may share with its original: digit, letter, case, sign, length, leading zeros.

    Of a Social Security number also whether it can have been issued.
    """
    zeros = re.sub(r"(?<![0-9])0+(?=[0-9])", lambda m: "o" * len(m[0]), "".join(c for c in text if c.isalnum()))
    return (
        f"{zeros.translate(_NINES)} {form_of(text)} {bool(re.fullmatch(r'(?:000|666|9..)-..-....|...-00-....', text))}"
    )


def originals(form: Format) -> list[str]:
    """Identifiers of one class in numeric order. The class itself is not hidden, only the member."""
    classes: dict[str, list[str]] = {}
    for value in form.originals(20 * COUNT):
        classes.setdefault(class_of(value), []).append(value)
    return sorted(max(classes.values(), key=len)[:COUNT])


@pytest.mark.parametrize("form", WIDE, ids=lambda form: form.name)
def test_order_reveals_nothing(form: Format) -> None:
    """Original against surrogate, and the two surrogates against each other: rank correlation within the null band."""
    values = originals(form)
    assert len(values) > COUNT / 3
    one, other = made(ONE, form, values), made(OTHER, form, values)
    for left, right in ((values, one), (values, other), (one, other)):
        assert abs(spearman(left, right)) < BAND / sqrt(len(values) - 1)


@pytest.mark.parametrize("form", WIDE, ids=lambda form: form.name)
def test_lining_up_by_rank_finds_no_more_than_chance(form: Format) -> None:
    """Two sorted outputs, paired by rank: one correct pair is expected by chance for any format."""
    values = originals(form)
    one, other = ranks(made(ONE, form, values)), ranks(made(OTHER, form, values))
    assert sum(a == b for a, b in zip(one, other, strict=True)) <= 8
    assert sum(a == b for a, b in zip(ranks(values), one, strict=True)) <= 8


@pytest.mark.parametrize("form", [f for f in WIDE if f.name not in {"VIN", "NINO", "UUID"}], ids=lambda form: form.name)
def test_a_surrogate_reveals_only_the_form_of_its_original(form: Format) -> None:
    """All originals of one form give surrogates of one form. (VIN: a check may be X. UUID: digits become letters.)"""
    values = list(form.originals(COUNT))
    forms: dict[str, set[str]] = {}
    for value, new in zip(values, made(ONE, form, values), strict=True):
        forms.setdefault(form_of(value), set()).add(form_of(new))
    assert all(len(found) == 1 for found in forms.values())


def test_neighbours_and_shared_prefixes_are_not_preserved() -> None:
    """For originals n and n + 1, distance and common prefix of surrogates are those of random pairs."""
    form, size, count = named("record number, 7 digits"), 9_000_000, 3_000
    values = [f"{4_471_000 + n}" for n in range(count)]
    numbers = [int(new) for new in made(ONE, form, values)]
    apart = [abs(a - b) / size for a, b in pairwise(numbers)]
    assert abs(sum(apart) / len(apart) - 1 / 3) < BAND * sqrt(1 / 18) / sqrt(len(apart) / 2)
    assert min(apart) > 1e-7, "random pairs are not adjacent either"
    first = [int(str(n)[:2]) - 10 for n in numbers]
    assert evenness(first, 90) < BAND
    assert evenness([int(str(n)[-2:]) for n in numbers], 100) < BAND
    together = sum(str(a)[:2] == str(b)[:2] for a, b in pairwise(numbers))
    assert abs(together - len(apart) / 90) < BAND * sqrt(len(apart) / 90)


def test_surrogates_under_one_key_reveal_nothing_about_another_key() -> None:
    """First and last digits under the two keys are independent: chi-square of the table of both."""
    form = named("record number, 7 digits")
    values = [f"{4_000_000 + 7 * n}" for n in range(6_000)]
    one, other = made(ONE, form, values), made(OTHER, form, values)
    for at, digits in ((0, 9), (-1, 10)):
        table = Counter((a[at], b[at]) for a, b in zip(one, other, strict=True))
        assert excess([*table.values(), *[0] * (digits**2 - len(table))], len(values) / digits**2) < BAND


def test_a_frequent_id_is_not_a_low_or_early_one() -> None:
    """A feed in which ids occur by Zipf's law: a surrogate does not reveal the frequency of its id."""
    form = named("record number, 8 digits")
    by_count = [
        f"{10_000_000 + 17 * n}" for n in range(1_500)
    ]  # the oldest numbers are the most frequent, as in practice
    feed = [value for n, value in enumerate(by_count) for _ in range(max(1, 300 // (n + 1)))]
    counts = Counter(made(ONE, form, feed))
    assert [counts[new] for new in made(ONE, form, by_count)] == [Counter(feed)[value] for value in by_count]
    for by in (ONE, OTHER):
        assert abs(spearman([f"{n:04d}" for n in range(1_500)], made(by, form, by_count))) < BAND / sqrt(1_499)


def broken(self: Permutation, x: int) -> int:
    """A weak map to the next number: one to one, never the original, of the same form."""
    return (x + 1) % self.size


@pytest.mark.parametrize("attack", [test_order_reveals_nothing, test_lining_up_by_rank_finds_no_more_than_chance])
def test_the_attacks_work_on_a_map_that_keeps_order(
    attack: Callable[[Format], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Permutation, "next", broken)
    for by in ("ONE", "OTHER"):
        monkeypatch.setitem(globals(), by, Surrogates(f"{by} key of the broken map".encode()))
    with pytest.raises(AssertionError):
        attack(named("record number, 7 digits"))


@pytest.mark.parametrize(
    "attack",
    [
        test_neighbours_and_shared_prefixes_are_not_preserved,
        test_surrogates_under_one_key_reveal_nothing_about_another_key,
        test_a_frequent_id_is_not_a_low_or_early_one,
    ],
)
def test_the_other_attacks_work_on_it_too(attack: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Permutation, "next", broken)
    for by in ("ONE", "OTHER"):
        monkeypatch.setitem(globals(), by, Surrogates(f"{by} key of the broken map".encode()))
    with pytest.raises(AssertionError):
        attack()


SAMPLES: dict[PhiType, tuple[list[str], float]] = {
    # values, and the chance that two keys agree on one of them
    PhiType.MEDICALRECORD: ([f"{10_000 + 7 * n}" for n in range(4_000)], 1 / 90_000),
    PhiType.SSN: ([f"{400 + n % 300}-{10 + n % 80}-{1_000 + n}" for n in range(2_000)], 1 / 800_000_000),
    PhiType.USERNAME: ([f"ab{n:03d}" for n in range(900)], 1 / 500_000),
    PhiType.EMAIL: ([f"ada.{n:04d}@hospital.org" for n in range(2_000)], 1 / 1e6),
    PhiType.PHONE: ([f"(617) 253-{1_000 + n}" for n in range(4_000)], 1 / 100 / 64),
    PhiType.DATE: ([f"{1 + n % 12}/{1 + n % 28}/{1950 + n % 70}" for n in range(300)], 1 / 300),
}


@pytest.mark.parametrize("type_", SAMPLES)
def test_a_guess_is_not_confirmed_without_the_key(type_: PhiType) -> None:
    """The attacker computes surrogates of all originals under another key: they match the feed only by chance."""
    values, chance = SAMPLES[type_]
    mine = [ONE.replace(type_, value, kind=ValueKind.VALUE, scope=Scope(value)) for value in values]
    theirs = [OTHER.replace(type_, value, kind=ValueKind.VALUE, scope=Scope(value)) for value in values]
    expected = len(values) * chance
    assert sum(a == b for a, b in zip(mine, theirs, strict=True)) <= expected + 5 * sqrt(expected) + 1


@pytest.mark.parametrize(
    "key",
    [
        b"first key of the attack tests, 32 ",
        b"first key of the attack tests, 32 C",
        b"first key of the attack tests, 32 B\n",
    ],
)
def test_a_truncated_or_edited_key_gives_another_map(key: bytes) -> None:
    values = [f"{10_000 + 7 * n}" for n in range(4_000)]
    form = named("record number, 5 digits")
    near = made(Surrogates(key), form, values)
    assert sum(a == b for a, b in zip(made(ONE, form, values), near, strict=True)) <= 3
    assert abs(spearman(made(ONE, form, values), near)) < BAND / sqrt(len(values) - 1)
