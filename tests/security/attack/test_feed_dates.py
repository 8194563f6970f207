"""Readers of a whole feed: they know the program, its windows and its exclusions, and have no key.

A2 has every output of a patient, joined by the surrogate of its number. A3 also knows when each message was sent. Both
compute exactly the days that agree with everything they have read; the bounds are those of docs/decisions/0014. The
windows are repeated here, so that a change of the program does not change them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache

import pytest
from support.surrogates import ROOT

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.evidence.attackers import BIRTHS, allowed, bases, birth_candidates, evenness, event_candidates
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import DateKind, Site
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import Method, Policy, compile_policy, load_policy
from deid_agent.pipeline.policy_dates import Risk
from deid_agent.pipeline.replacement import Replacer
from deid_agent.surrogate import Scope, Surrogates

SECRET = b"key of the attack tests on feeds"
BOUND = 180
PATIENTS = 12
MESSAGES = (10, 80, 500)
FIRST = date(2021, 1, 4)


@cache
def replacer(**dates: object) -> Replacer:
    """The default policy, with other settings of ``[dates]``."""
    return _replacer(compile_policy({"name": "t", "default": "surrogate", "dates": dates}, "t"))


def _replacer(policy: Policy) -> Replacer:
    return Replacer(policy, Surrogates(SECRET, dates=policy.dates))


@dataclass(frozen=True, slots=True)
class Message:
    """The dates of one output, and the true ones that the readers do not have."""

    born: date
    repeated: date
    sent: date
    true_sent: date = field(repr=False)


@dataclass(frozen=True, slots=True)
class Patient:
    number: int
    born: date = field(repr=False)
    repeated: date = field(default=date(2020, 6, 15), repr=False)

    def outputs(self, program: Replacer, count: int, every: int = 3) -> list[Message]:
        """The published output of ``count`` messages; the last ones of 500 are four years after the first."""
        found = []
        for n in range(count):
            sent = FIRST + timedelta(every * n)
            scope = Scope(
                f"MSG{self.number}-{n}",
                f"P{self.number}",
                reference=sent,
                births=frozenset({self.born}),
                today=sent,
            )
            dates = ((self.born, DateKind.BIRTH), (self.repeated, DateKind.EVENT), (sent, DateKind.TECHNICAL))
            new = (program.replace_site(_site(day, kind), Method.SURROGATE, scope) for day, kind in dates)
            birth, event, written = map(_day, new)
            found.append(Message(birth, event, written, sent))
        return found


def _site(day: date, kind: DateKind) -> Site:
    return Site("PID-7", 0, 8, PhiType.DATE, value=f"{day:%Y%m%d}", date_kind=kind)


def _day(text: str) -> date:
    return date(int(text[:4]), int(text[4:6]), int(text[6:8]))


def adults() -> list[Patient]:
    return [Patient(n, date(1931 + 5 * n, 1 + n, 3 + 2 * n)) for n in range(PATIENTS)]


def report(subject: str, sizes: Sequence[int], bound: int) -> None:
    print(f"{subject}: {min(sizes)} to {max(sizes)} candidate days, bound {bound}")  # noqa: T201 - the figure of the test


@pytest.mark.parametrize("count", MESSAGES)
def test_birth_dates_hold_against_intersection(count: int) -> None:
    sizes = []
    for patient in adults():
        found = birth_candidates(m.born for m in patient.outputs(replacer(), count))
        assert patient.born in found
        sizes.append(len(found))
    report(f"A2, birth, {count} messages", sizes, BOUND)
    assert min(sizes) >= BOUND


@pytest.mark.parametrize("count", MESSAGES)
@pytest.mark.parametrize("offset", [3, 0])
def test_event_dates_hold_against_intersection(count: int, offset: int) -> None:
    sizes = []
    for patient in adults():
        outputs = patient.outputs(replacer(offset_days=offset), count)
        found = event_candidates((m.repeated for m in outputs), offset)
        assert patient.repeated in found
        sizes.append(len(found))
    report(f"A2, event, {count} messages, offset {offset}", sizes, BOUND)
    assert min(sizes) >= BOUND


@cache
def deidentifier() -> Deidentifier:
    rules = ROOT / "rules"
    policy = load_policy("pseudonymised", rules)
    return WorkerFactory(rules, SecretKey(SECRET), policy, system="rules").deidentifier()


def hl7(patient: Patient, n: int, sent: date) -> bytes:
    lines = (
        f"MSH|^~\\&|A|B|C|D|{sent:%Y%m%d}134009+0100||ADT^A01|M{patient.number}-{n}|P|2.5.1",
        f"EVN|A01|{sent:%Y%m%d}134010",
        f"PID|1||{4000000 + patient.number}^^^GEN^MR||Okafor^Ada||{patient.born:%Y%m%d}|F",
        f"PV1|1|I|{'|' * 41}{patient.repeated:%Y%m%d}",
        f"OBX|1|TX|11506-3^Note^LN||DOB {patient.born:%m/%d/%Y}, born in {patient.born:%B %Y}. In since "
        f"{patient.repeated:%m/%d/%Y}.||||||F|||{sent:%Y%m%d}",
    )
    return "".join(f"{line}\r" for line in lines).encode()


def test_whole_messages_reveal_no_more_than_their_dates() -> None:
    """MSH-7, EVN-2, PID-7, PV1-44, OBX-14 and a note: every date of a message moves by one shift or is the birth."""
    for patient in adults()[:4]:
        outputs = []
        for n in range(40):
            sent = FIRST + timedelta(11 * n)
            out = deidentifier().message(hl7(patient, n, sent)).payload.decode().split("\r")
            fields = [line.split("|") for line in out]
            written, entered, note = _day(fields[0][6]), _day(fields[1][2]), fields[4][5]
            born, event, seen = _day(fields[2][7]), _day(fields[3][44]), _day(fields[4][14])
            assert written == entered == seen
            assert note == f"DOB {born:%m/%d/%Y}, born in {born:%B %Y}. In since {event:%m/%d/%Y}."
            assert sent - written == patient.repeated - event
            outputs.append(Message(born, event, written, sent))
        assert patient.born in birth_candidates(m.born for m in outputs)
        assert patient.repeated in event_candidates((m.repeated for m in outputs), 3)
        assert len(birth_candidates(m.born for m in outputs)) >= BOUND
        assert len(event_candidates((m.repeated for m in outputs), 3)) >= BOUND


def test_the_bounds_of_the_policies_are_those_of_the_attacker() -> None:
    for name, offset in (("pseudonymised", 3), ("research", 0)):
        bounds = load_policy(name, ROOT / "rules").date_bounds
        assert (bounds.events, bounds.births) == (len(bases(offset)), len(BIRTHS))
        assert min(bounds.events, bounds.births, bounds.live_births) >= BOUND
        assert not bounds.risks


def test_an_intersection_finds_the_day_if_documents_have_bases_of_their_own() -> None:
    """The attack works: this is why the policy needs an acknowledgement."""
    policy = compile_policy(
        {"name": "t", "default": "surrogate", "dates": {"base": "document", "acknowledge": ["linked-bases"]}}, "t"
    )
    sizes, births = [], []
    for patient in adults():
        outputs = patient.outputs(_replacer(policy), 80)
        windows = ({m.repeated + timedelta(days) for days in allowed()} for m in outputs)
        sizes.append(len(set.intersection(*windows)))
        births.append(len(birth_candidates(m.born for m in outputs)))
    assert sorted(sizes)[PATIENTS // 2] <= 3
    assert sorted(births)[PATIENTS // 2] <= 12
    assert policy.date_bounds.risks == {Risk.LINKED_BASES}
    assert (policy.date_bounds.events, policy.date_bounds.births) == (0, 0)


def test_offsets_that_avoid_whole_weeks_one_by_one_would_reveal_the_base() -> None:
    """This is why the base has the exclusions: an offset that never occurs would reveal the weeks."""

    def naive(base: int, document: int) -> int:
        offsets = [n for n in range(4) if (base + n) % 7]
        return base + offsets[document % len(offsets)]

    shifts = {naive(104, n) for n in range(80)}
    seen = {shift - min(shifts) for shift in shifts}
    fit = [b for b in range(1, 548) if {naive(b, n) - min(naive(b, m) for m in range(8)) for n in range(8)} == seen]
    assert len(fit) < BOUND


@pytest.mark.parametrize("offset", [3, 0])
def test_no_offset_is_missing_and_all_are_even(offset: int) -> None:
    """An offset that some bases never have would narrow the base down."""
    program = replacer(offset_days=offset).surrogates
    for patient in range(40):
        shifts = {program.shift_days(Scope(f"d{n}", f"P{patient}")) for n in range(80)}
        assert max(shifts) - min(shifts) == offset
        assert len(shifts) == offset + 1
    lowest = [-max(program.shift_days(Scope(f"d{n}", f"P{p}")) for n in range(40)) for p in range(20 * 232)]
    assert set(lowest) == set(bases(offset))
    assert abs(evenness(lowest, len(bases(offset)))) < 4.5


@pytest.mark.parametrize("count", MESSAGES)
def test_birth_dates_hold_against_a_reader_who_knows_the_times(count: int) -> None:
    """A3: the true times give each shift exactly, and the base to the day. The offset of a birth depends on neither.

    ``test_the_offset_of_a_birth_does_not_depend_on_the_base`` checks the second sentence.
    """
    sizes = []
    for patient in adults():
        outputs = patient.outputs(replacer(), count)
        shifts = {(m.true_sent - m.sent).days for m in outputs}
        assert {m.repeated + timedelta((m.true_sent - m.sent).days) for m in outputs} == {patient.repeated}
        fit = [base for base in bases(3) if all(base <= shift <= base + 3 for shift in shifts)]
        assert fit  # the reader has the base, which does not reveal the birth
        sizes.append(len(birth_candidates(m.born for m in outputs)))
    report(f"A3, birth, {count} messages", sizes, BOUND)
    assert min(sizes) >= BOUND


def test_the_offset_of_a_birth_does_not_depend_on_the_base() -> None:
    """Over patients the table of both, in eighths of their ranges, is even."""
    program, cells = replacer(offset_days=0), []
    for n in range(6_400):
        patient = Patient(n, date(1950, 1, 1) + timedelta(n % 9_000))
        (message,) = patient.outputs(program, 1)
        base, own = (patient.repeated - message.repeated).days, (message.born - patient.born).days
        cells.append((bases(0).index(base) * 8 // 469, BIRTHS.index(own) * 8 // 362))
    assert abs(evenness(cells, 64)) < 4.5


@pytest.mark.parametrize(("technical", "precision"), [("day", 1), ("week", 7), ("year", 366)])
def test_true_times_beside_shifted_dates_reveal_only_the_shift_of_events(technical: str, precision: int) -> None:
    """MSH-7 as day, week or year of the true time: the events of one message fall to that precision, births do not."""
    program = replacer(technical=technical)
    sizes, births = [], []
    for patient in adults():
        outputs = patient.outputs(program, 1)
        (message,) = outputs
        true = {message.sent + timedelta(n) for n in range(precision)}
        recent = (patient.repeated - message.repeated).days  # the surrogate of a date of the day of sending
        shown = message.true_sent - timedelta(recent)
        fit = {(day - shown).days for day in true} & set(range(1, 551))
        assert recent in fit
        sizes.append(len(fit))
        births.append(len(birth_candidates(m.born for m in patient.outputs(program, 80))))
    report(f"A2 with times by {technical}, event", sizes, 0)
    assert max(sizes) <= precision
    assert min(births) >= BOUND
    assert program.policy.date_bounds.risks == {Risk.TRUE_TIMES}
    assert program.policy.date_bounds.events == 0


def test_times_by_year_hold_for_no_patient_who_is_seen_over_a_new_year() -> None:
    """The true years of 130 messages, three days apart: the base is between the last of one and the first of the next.

    So true times are a risk at any precision, and the bound of the policy is 0.
    """
    sizes = []
    for patient in adults():
        outputs = patient.outputs(replacer(technical="year"), 130)
        moved = [m.true_sent + (m.repeated - patient.repeated) for m in outputs]  # shifted days of events of each day
        fit = [
            base
            for base in bases(3)
            if all(
                any((d + timedelta(base + n)).year == m.sent.year for n in range(4))
                for d, m in zip(moved, outputs, strict=True)
            )
        ]
        sizes.append(len(fit))
    report("A2 with times by year, event, 130 messages", sizes, 0)
    assert max(sizes) <= 12


def test_a_shifted_or_dropped_time_reveals_nothing() -> None:
    """MSH-7 moves with the events, to the day: its difference to any of them is the true one."""
    for patient in adults():
        for message in patient.outputs(replacer(), 80):
            assert message.true_sent - message.sent == patient.repeated - message.repeated
    dropped = replacer(technical="drop")
    site = _site(FIRST, DateKind.TECHNICAL)
    assert dropped.replace_site(site, Method.SURROGATE, Scope("d", "P1")) == site.blank


AGES = ((20, 232, 1), (100, 232, 12), (700, 300, 50), (3_000, 400, 170), (6_500, 400, 170))
"""Days of life at the first of four messages, and the candidate days of A2 and A3 at least."""


@pytest.mark.parametrize(("age", "without_times", "with_times"), AGES)
def test_birth_dates_of_children_hold_as_documented(age: int, without_times: int, with_times: int) -> None:
    window = next((widest for below, widest in ((28, 0), (365, 7), (1096, 30), (6575, 90)) if age < below), 0)
    offsets = [n for n in range(-window, window + 1) if abs(n) > 1] or [0]
    hidden, live = [], []
    for n in range(PATIENTS):
        patient = Patient(100 + n, FIRST - timedelta(age))
        outputs = patient.outputs(replacer(), 4, every=1)
        assert all(m.born <= m.sent for m in outputs), "no birth is after the message"
        agree = {
            m.born + timedelta(base + late - own)
            for m in outputs[:1]
            for base in bases(3)
            for late in (range(4) if age < 28 else range(1))
            for own in offsets
        }
        assert patient.born in agree
        hidden.append(len(agree))
        shift = (outputs[0].true_sent - outputs[0].sent).days
        near = [shift] if age < 28 else range(shift - 3, shift + 1)
        live.append(len({outputs[0].born + timedelta(base - own) for base in near for own in offsets}))
    report(f"A2, birth, {age} days of life", hidden, without_times)
    report(f"A3, birth, {age} days of life", live, with_times)
    assert min(hidden) >= without_times
    assert min(live) >= with_times


@pytest.mark.parametrize(("offset", "left"), [(3, 77), (0, 78)])
def test_a_clinic_that_is_closed_on_weekends_leaves_the_documented_candidates(offset: int, left: int) -> None:
    """A4: no visit of the patient was on a weekend. This reveals the base modulo seven, and nothing about the birth."""
    sizes = []
    for patient in adults():
        outputs = [m for m in patient.outputs(replacer(offset_days=offset), 200, every=1) if m.true_sent.weekday() < 5]
        latest = max(m.repeated for m in outputs)  # the date that repeats gives the differences of the shifts
        fit = [
            base
            for base in bases(offset)
            if all((latest + timedelta(base) + (m.sent - m.repeated)).weekday() < 5 for m in outputs)
        ]
        assert min((m.true_sent - m.sent).days for m in outputs) in fit
        sizes.append(len(fit))
        assert len(birth_candidates(m.born for m in outputs)) >= BOUND
    report(f"A4 with weekends, event, offset {offset}", sizes, left)
    assert min(sizes) >= left - 1
