"""The attacker A2: reads a whole topic with its headers and timestamps, and a second feed of the same input.

Without the key, ids of outputs join nothing, and a timestamp shows the day, the year or nothing. Each attack also
runs on metadata as published by version 0.1 and succeeds there, so the tests can fail.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from random import Random
from statistics import median

import pytest
from support.surrogates import ROOT

from deid_agent.agent import Coordinates, Output, OutputMarks, Record
from deid_agent.agent.job import Completed, Processed, job_for
from deid_agent.agent.outcomes import finish_record
from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.evidence.attackers import spearman
from deid_agent.model import NO_TIME, RecordTime
from deid_agent.pipeline.policy import load_policy

RULES = ROOT / "rules"
KEYS = (b"first key of the attack on metadata", b"other key of the attack on metadata")
COUNT = 300
LEAST_CANDIDATES = 180
Figure = Callable[[str, object], None]


@dataclass(frozen=True)
class PlainMarks(OutputMarks):
    """Metadata as version 0.1 published it."""

    def id_of(self, coordinates: Coordinates, topic_id: str = "") -> str:
        return str(coordinates)


def moments() -> Sequence[datetime]:
    random = Random(7)
    begin = datetime(2023, 1, 1, tzinfo=UTC)
    return sorted(begin + timedelta(seconds=random.randrange(365 * 86_400)) for _ in range(COUNT))


def records() -> Sequence[Record]:
    """A topic with one message for each moment; some were replayed after a refusal."""
    random = Random(11)
    out = []
    for offset, moment in enumerate(moments()):
        text = (
            f"MSH|^~\\&|A|B|C|D|{moment:%Y%m%d%H%M%S}||ADT^A08|M{offset}|P|2.5\r"
            f"PID|1||{4471000 + offset}^^^HOSP^MR||Quill^Ada||19570422|F\r"
        )
        trace, span = random.getrandbits(128), random.getrandbits(64)
        replayed = (("deid-replay-of", f"adt/0/{offset - 1}".encode()),) if offset % 10 == 9 else ()
        headers = (
            ("traceparent", f"00-{trace:032x}-{span:016x}-01".encode()),
            ("tracestate", f"v={trace:x}".encode()),
            ("deid-id", f"adt/0/{offset}".encode()),
            *replayed,
        )
        time_ms = round(moment.timestamp() * 1000)
        out.append(Record(Coordinates("adt", 0, offset), text.encode(), b"k", headers, time_ms))
    return out


@lru_cache
def processed(secret: bytes, policy: str) -> Sequence[Processed]:
    worker = WorkerFactory(RULES, SecretKey(secret), load_policy(policy, RULES), system="patterns")()
    found = [worker(job_for(record)) for record in records()]
    assert all(isinstance(each, Processed) for each in found)
    return [each for each in found if isinstance(each, Processed)]


def outputs(policy: str, marks: OutputMarks) -> Sequence[Output]:
    done = zip(records(), processed(marks.secret, policy), strict=True)
    finished = [finish_record(record, Completed(result), marks).output for record, result in done]
    return [output for output in finished if output is not None]


def joined(one: Sequence[Output], other: Sequence[Output]) -> int:
    """The outputs of the first feed that share a header value with the right output of the second and with no other."""
    by_value: dict[tuple[str, bytes], list[int]] = {}
    for number, output in enumerate(other):
        for header in output.headers:
            by_value.setdefault(header, []).append(number)
    return sum(any(by_value.get(header) == [number] for header in output.headers) for number, output in enumerate(one))


@pytest.mark.parametrize("policy", sorted(path.stem for path in (RULES / "policies").glob("*.toml")))
def test_no_shipped_policy_that_changes_anything_lists_a_trace(policy: str) -> None:
    listed = load_policy(policy, RULES).headers
    assert (not listed & {"traceparent", "tracestate"}) or policy == "keep"


def test_two_feeds_under_two_keys_do_not_join_by_their_headers(record_property: Figure) -> None:
    one, other = (outputs("pseudonymised", OutputMarks(key)) for key in KEYS)
    record_property("figure", f"joined by headers: {joined(one, other)} of {COUNT} (bound: 0)")
    assert joined(one, other) == 0
    again = outputs("pseudonymised", OutputMarks(KEYS[0]))
    assert [o.headers for o in again] == [o.headers for o in one], "a redelivery has the same ids"
    plain = [outputs("pseudonymised", PlainMarks(key)) for key in KEYS]
    assert joined(*plain) == COUNT, "the attack works on coordinates in clear"


def test_record_ids_reveal_neither_position_nor_order() -> None:
    ids = [[dict(o.headers)["deid-id"].decode() for o in outputs("pseudonymised", OutputMarks(key))] for key in KEYS]
    everything = b"".join(value for o in outputs("pseudonymised", OutputMarks(KEYS[0])) for _, value in o.headers)
    assert b"adt" not in everything
    width = 4 / COUNT**0.5  # four standard deviations of the rank correlation of independent orders
    assert abs(spearman(ids[0], [f"{n:04}" for n in range(COUNT)])) < width
    assert abs(spearman(ids[0], ids[1])) < width


def shifted_days(found: Sequence[Output]) -> Sequence[date]:
    return [datetime.strptime(o.payload.split(b"|")[6][:8].decode(), "%Y%m%d").date() for o in found]


def true_days(time: RecordTime, output: Output) -> range | None:
    """The days (ordinals) on which the record can have come, by its timestamp; None for any day."""
    if output.timestamp_ms == NO_TIME:
        return None
    first = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=output.timestamp_ms)).date()
    last = first.replace(month=12, day=31) if time is RecordTime.YEAR else first + timedelta(max(1, time.span_days) - 1)
    return range(first.toordinal(), last.toordinal() + 1)


def candidates(time: RecordTime, found: Sequence[Output]) -> Sequence[int]:
    """The number of shifts that an output leaves possible, for an attacker who knows the window of all shifts."""
    truth = [moment.date().toordinal() for moment in moments()]
    shown = [day.toordinal() for day in shifted_days(found)]
    window = range(1, max(t - s for t, s in zip(truth, shown, strict=True)) + 1)
    counts = []
    for output, day in zip(found, shown, strict=True):
        days = true_days(time, output)
        counts.append(len(window) if days is None else sum(day + shift in days for shift in window))
    return counts


@pytest.mark.parametrize("time", RecordTime)
def test_a_timestamp_beside_msh_7_leaves_the_documented_shifts_open(time: RecordTime, record_property: Figure) -> None:
    """The bound holds without timestamps. One of a year leaves fewer candidates near the turn of the year."""
    counts = candidates(time, outputs("pseudonymised", OutputMarks(KEYS[0], time)))
    below = sum(count < LEAST_CANDIDATES for count in counts) / COUNT
    exact = sum(count == 1 for count in counts) / COUNT
    figure = f"median {median(counts)} candidate shifts, {below:.0%} below {LEAST_CANDIDATES}, {exact:.0%} exact"
    record_property("figure", f"{time}: {figure}")
    if time is RecordTime.NONE:
        assert min(counts) >= LEAST_CANDIDATES
    elif time is RecordTime.YEAR:
        assert median(counts) >= LEAST_CANDIDATES
        assert exact <= 0.02
    elif time is RecordTime.WEEK:
        assert exact <= 0.05
    else:
        assert exact >= 0.9, "promised: none, see the threat model"


def test_no_time_of_day_is_in_a_coarse_timestamp() -> None:
    for time in (RecordTime.DAY, RecordTime.WEEK, RecordTime.YEAR):
        found = outputs("pseudonymised", OutputMarks(KEYS[0], time))
        assert all(output.timestamp_ms % 86_400_000 == 0 for output in found)


def test_safe_harbor_has_no_date_element_finer_than_a_year_in_its_metadata() -> None:
    policy = load_policy("safe-harbor", RULES)
    found = outputs("safe-harbor", OutputMarks(KEYS[0], policy.record_time))
    days = {datetime.fromtimestamp(output.timestamp_ms / 1000, UTC).date() for output in found}
    assert days == {date(2023, 1, 1)}
    assert {name for output in found for name, _ in output.headers} == {"deid-id", "deid-replay-of"}
    assert all(output.key is None for output in found)
