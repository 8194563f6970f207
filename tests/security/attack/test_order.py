"""The attacker A2 reads a topic without timestamps. Its order is the order of arrival, which serves as a clock.

Neighbours in a topic were sent on nearly the same day. Shifts have a known smallest value, so of many neighbours the
latest shifted date is near the true day. The bound for events does not hold here, as ``docs/threat-model.md`` states.
The bound holds for outputs in another order.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from random import Random
from statistics import median

import pytest

from deid_agent.pipeline import load_policy
from deid_agent.rules import data_folder
from deid_agent.surrogate import Scope, Surrogates

DAYS = 120
FIRST = date(2023, 3, 1)
SECRET = b"key of the attack on the order of a topic"


def shifts_of(policy: str) -> Surrogates:
    return Surrogates(SECRET, dates=load_policy(policy, data_folder("rules")).dates)


def make_topic(policy: str, per_day: int) -> list[tuple[date, date]]:
    """The true day and the published MSH-7 of each message, in the order of arrival; each patient has a few."""
    made, random = shifts_of(policy), Random(3)
    out = []
    for n in range(DAYS * per_day):
        day = FIRST + timedelta(n // per_day)
        patient = random.randrange(DAYS * per_day // 4)
        out.append((day, day + timedelta(made.shift_days(Scope(f"M{n}", f"P{patient}")))))
    return out


def guess_days(shown: Sequence[date], reach: int) -> list[date]:
    """The latest date among the neighbours of each message, plus the smallest shift, which is a day."""
    return [max(shown[max(0, n - reach) : n + reach + 1]) + timedelta(1) for n in range(len(shown))]


def errors(topic: Sequence[tuple[date, date]], reach: int) -> list[int]:
    guesses = guess_days([shown for _, shown in topic], reach)
    return [abs((guess - true).days) for (true, _), guess in zip(topic, guesses, strict=True)]


@pytest.mark.parametrize("policy", ["pseudonymised", "research"])
@pytest.mark.parametrize(("per_day", "most"), [(20, 12), (100, 4), (500, 2)])
def test_the_order_of_a_topic_reveals_the_day(policy: str, per_day: int, most: int) -> None:
    """No bound: the day of a message is known to a few days, and so is the shift of its events."""
    found = min(median(errors(make_topic(policy, per_day), reach)) for reach in (25, 50, 100, 200, 400))
    print(f"A2, order of a topic, {policy}, {per_day} messages a day: median error {found} days")  # noqa: T201
    assert found <= most


@pytest.mark.parametrize("policy", ["pseudonymised", "research"])
def test_without_the_order_the_attack_finds_nothing(policy: str) -> None:
    """The same messages in an order of their own, as in a backfill that is shuffled."""
    topic = make_topic(policy, 20)
    Random(8).shuffle(topic)
    found = min(median(errors(topic, reach)) for reach in (25, 50, 100, 200, 400))
    print(f"A2, no order, {policy}: median error {found} days")  # noqa: T201
    assert found > 25
