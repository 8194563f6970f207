"""Attack on names: a reader of a whole feed who knows how frequent names are (A4), and can run the program with a key
of his own. That run reveals the likely originals of a surrogate.

Bound: 1.5 times chance at initials and at surnames, most of all the frequent ones. Chance is the best guess without the
surrogates. The length class, which a surrogate keeps on purpose, is included in the success.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from deid_agent.evidence.attackers import guess_by_rank, guess_by_sign
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.rules import data_folder
from deid_agent.surrogate import NamedPerson, Scope, Surrogates
from deid_agent.surrogate.lists import load_lists
from deid_agent.surrogate.names import classify_length

PATIENTS = 5000
BOUND = 1.5
LISTS = load_lists(data_folder("rules"))
# Shares in percent of the most frequent surnames of the census of 2010, and a tail drawn from the lists.
FREQUENT = {
    "Smith": 0.83, "Johnson": 0.66, "Williams": 0.55, "Brown": 0.49, "Jones": 0.48, "Garcia": 0.40, "Miller": 0.39,
    "Davis": 0.38, "Rodriguez": 0.37, "Martinez": 0.36, "Hernandez": 0.35, "Lopez": 0.30, "Gonzalez": 0.29,
    "Wilson": 0.27, "Anderson": 0.27, "Thomas": 0.26, "Taylor": 0.25, "Moore": 0.25, "Jackson": 0.24, "Martin": 0.24,
    "Lee": 0.24, "Perez": 0.23, "Thompson": 0.23, "White": 0.22, "Harris": 0.21, "Nguyen": 0.15,
}  # fmt: skip
ORIGIN = LISTS.origin_of
Name = tuple[str, str]
Feeds = tuple[list[tuple[Name, Name]], list[tuple[Name, Name]]]


def make_feed(seed: int, secret: bytes) -> list[tuple[Name, Name]]:
    """The names of patients, and their surrogates, each in a scope of its own."""
    rng = random.Random(seed)
    tail = sorted(set(LISTS.pools["en", "family"].words) - FREQUENT.keys())
    weights = [*FREQUENT.values(), *[(100 - sum(FREQUENT.values())) / len(tail)] * len(tail)]
    families = rng.choices([*FREQUENT, *tail], weights, k=PATIENTS)
    givens = [rng.choice(LISTS.pools["en", rng.choice(("female", "male"))].words) for _ in range(PATIENTS)]
    made = Surrogates(secret)
    out = []
    for n, name in enumerate(zip(givens, families, strict=True)):
        scope = Scope(f"d{seed}-{n}", f"p{seed}-{n}", people=(NamedPerson(*name),))
        given = made.replace(PhiType.PATIENT, name[0], kind=ValueKind.GIVEN, scope=scope)
        family = made.replace(PhiType.PATIENT, name[1], kind=ValueKind.FAMILY, scope=scope)
        out.append((name, (given, family)))
    return out


@pytest.fixture(scope="module")
def feeds() -> Feeds:
    """A feed of the attacker's own, and the feed that he attacks."""
    return make_feed(1, b"the key of the attacker, his own"), make_feed(2, b"the key of the hospital, secret")


def success(known: Sequence[tuple[str, str]], attacked: Sequence[tuple[str, str]]) -> float:
    """The share of originals that the best guess learned from ``known`` gets right, of pairs (original, sign)."""
    return sum(guess_by_sign(known, attacked)) / len(attacked)


def by_rank(attacked: Sequence[tuple[str, str]], expected: Counter[str]) -> float:
    """As ``success``, by the ranks of the frequencies."""
    return sum(guess_by_rank(attacked, expected)) / len(attacked)


@pytest.mark.parametrize("part", [0, 1], ids=["given", "family"])
def test_initials_are_at_chance(feeds: Feeds, part: int, record_property: Callable[[str, object], None]) -> None:
    known, attacked = ([(old[part][0], new[part][0]) for old, new in feed] for feed in feeds)
    chance = max(Counter(old for old, _ in attacked).values()) / PATIENTS
    found = max(success(known, attacked), by_rank(attacked, Counter(old for old, _ in known)))
    record_property("figure", f"initials read: {found:.3f}, chance {chance:.3f}, bound {BOUND * chance:.3f}")
    assert found <= BOUND * chance


def test_surnames_are_at_chance(feeds: Feeds, record_property: Callable[[str, object], None]) -> None:
    known, attacked = ([(old[1], new[1]) for old, new in feed] for feed in feeds)

    def guess(sign: Callable[[str], str]) -> float:
        return success([(old, sign(new)) for old, new in known], [(old, sign(new)) for old, new in attacked])

    chance = max(Counter(old for old, _ in attacked).values()) / PATIENTS
    found = max(
        by_rank(attacked, Counter(old for old, _ in known)),
        guess(lambda new: f"{ORIGIN.get(('family', new.lower()), 'en')} {classify_length(new)}"),
        guess(lambda new: new[0]),
        guess(lambda new: str(classify_length(new))),
        guess(lambda new: new),
    )
    record_property("figure", f"surnames read: {found:.4f}, chance {chance:.4f}, bound {BOUND * chance:.4f}")
    assert found <= BOUND * chance


def test_staff_of_one_surname_are_not_linked() -> None:
    made = Surrogates(b"the key of the hospital, secret")
    names = [f"{given} Smith" for given in LISTS.pools["en", "female"].words[:200]]
    new = [made.replace(PhiType.DOCTOR, name, kind=ValueKind.NAME, scope=Scope("d")).split()[1] for name in names]
    assert Counter(new).most_common(1)[0][1] < 10
