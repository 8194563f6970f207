"""The attacks of the threat model (A1 to A4) on a feed whose originals are known, each beside the promised bound.

An attacker reads outputs only, and knows the program and its windows; the originals judge the guesses. The numbers of
``line`` are those of ``docs/threat-model.md``. A bound is broken only if the interval of resampled patients lies beyond
it: a small feed cannot prove that a bound holds, and ``least`` is the number of subjects below which none is judged.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from statistics import median
from typing import Final

import numpy as np

from deid_agent.evidence.attackers import (
    DAYS,
    HOLIDAYS,
    Cue,
    allowed,
    birth_candidates,
    event_candidates,
    falls_on,
    guess_by_rank,
    guess_by_sign,
    is_weekday,
)
from deid_agent.evidence.feeds import split_patients
from deid_agent.evidence.pairs import TextPair
from deid_agent.evidence.shares import SampledShare, resample_patients, share_of
from deid_agent.evidence.values import (
    DatePair,
    ValuePair,
    find_dates,
    group_by_patient,
    list_dates,
    list_names,
    list_values,
    unchanged_dates,
)
from deid_agent.model import PhiType

CANDIDATES: Final = 180
"""The candidate days that the threat model promises to leave."""
NAMES: Final = 1.5
"""The promised success with names, as a multiple of chance."""
_REACH = 3  # days between the shifts of two documents of a patient
_ADULT = 6575  # days of life
_NEAR = 12  # characters between a date and a word about it
_ANY_CUE = re.compile("|".join([*map(re.escape, HOLIDAYS), *(day[:3] for day in DAYS)]))
_NO_NUMBERS = frozenset({PhiType.DATE, PhiType.PHONE, PhiType.FAX, PhiType.ZIP, PhiType.AGE})
_FEW_DIGITS = 5
_LEAST = {"names": 50, "numbers": 20, "patients": 10}


@dataclass(frozen=True, slots=True)
class ThreatResult:
    """The success of one attack on ``subjects`` documents, patients or values, beside chance and the promised bound.

    ``success`` is a share; ``smallest`` and ``middle`` are numbers of candidates, if the attack leaves candidates.
    ``holds`` is None if the attack has too few subjects.
    """

    attack: str
    attacker: str
    line: int
    unit: str
    subjects: int
    success: SampledShare | None
    chance: float
    bound: float
    least: int = 1
    smallest: int | None = None
    middle: float | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the promise of the threat model holds for this feed, as far as it shows."""
        if self.success is None or self.subjects < self.least:
            return None
        return self.success.value <= self.bound or (self.bound > 0 and self.success.low <= self.bound)

    def as_json(self) -> dict[str, object]:
        """The members as JSON."""
        return {
            "attack": self.attack,
            "attacker": self.attacker,
            "threat_model_line": self.line,
            "unit": self.unit,
            "subjects": self.subjects,
            "success": self.success.as_json() if self.success else None,
            "chance": round(self.chance, 4),
            "bound": round(self.bound, 4),
            "smallest_candidates": self.smallest,
            "median_candidates": self.middle,
            "holds": self.holds,
        }


def attack_threats(
    pairs: Sequence[TextPair], fields: Iterable[ValuePair] = (), seed: int = 1
) -> tuple[ThreatResult, ...]:
    """The attacks on a feed of texts and of the ``fields`` of its messages, in the order of the threat model."""
    known = tuple(fields)
    values, dates = [*list_values(pairs), *known], list(list_dates(pairs, known))
    return (
        attack_calendar(pairs, dates, seed),
        attack_kept_dates(pairs, dates, seed),
        attack_births(dates, seed),
        attack_events(dates, seed),
        attack_number_order(values, seed),
        attack_common_shift(dates, seed),
        *attack_names(values, seed),
    )


def attack_calendar(pairs: Sequence[TextPair], dates: Sequence[DatePair], seed: int = 1) -> ThreatResult:
    """A1: holidays and weekdays beside a date leave the shifts that make them true; a guess among these."""
    shifts = _document_shifts(dates)
    rows = []
    for pair in pairs:
        if pair.note in shifts:
            rows.append((pair.patient, _guess_shift(pair.output, shifts[pair.note]), 1.0))
    chance = 1 / len(allowed())
    return _result("calendar", "A1", 2, "documents", rows, chance, 1.5 * chance, seed, _LEAST["patients"])


def attack_kept_dates(pairs: Sequence[TextPair], dates: Sequence[DatePair], seed: int = 1) -> ThreatResult:
    """A1: a whole date that did not move, in a document whose other dates moved."""
    shifts = _document_shifts(dates)
    rows = [(p.patient, float(bool(unchanged_dates(p))), 1.0) for p in pairs if shifts.get(p.note)]
    return _result("kept dates", "A1", 3, "documents", rows, 0.0, 0.0, seed)


def attack_births(dates: Sequence[DatePair], seed: int = 1) -> ThreatResult:
    """A2: intersect the published births of an adult over all documents. A success leaves too few candidates."""
    sizes: list[tuple[str, int]] = []
    events = {each.document: each.true for each in dates if not each.birth}
    for patient, own in group_by_patient(dates).items():
        for true in sorted({each.true for each in own if each.birth}):
            shown = {
                each.shown
                for each in own
                if each.birth and each.true == true and (events.get(each.document, date.max) - true).days >= _ADULT
            }
            if shown:
                found = birth_candidates(shown)
                sizes.append((patient, 1 if shown == {true} else len(found) if true in found else len(allowed())))
    return _candidates("births by intersection", "A2", 17, sizes, seed)


def attack_events(dates: Sequence[DatePair], seed: int = 1) -> ThreatResult:
    """A2: intersect the surrogates of a day that occurs in several documents of a patient."""
    sizes: list[tuple[str, int]] = []
    for patient, own in group_by_patient(dates).items():
        by_day: dict[date, dict[str, date]] = defaultdict(dict)
        for each in own:
            if not each.birth:
                by_day[each.true][each.document] = each.shown
        left = [_event_days(day, set(shown.values())) for day, shown in sorted(by_day.items()) if len(shown) > 1]
        if left:
            sizes.append((patient, min(left)))
    return _candidates("events by intersection", "A2", 18, sizes, seed)


def attack_common_shift(dates: Sequence[DatePair], seed: int = 1) -> ThreatResult:
    """A4: the shift of one patient, from one true date, is tried on the others; a success is within three days."""
    by_patient: dict[str, list[int]] = defaultdict(list)
    for each in dates:
        if not each.birth:
            by_patient[each.patient].append((each.true - each.shown).days)
    shifts = {patient: round(median(found)) for patient, found in sorted(by_patient.items())}
    ordered = np.array(list(shifts.values()), np.int64)
    rows = [
        (patient, float((np.abs(ordered - shift) <= _REACH).sum() - 1), float(len(shifts) - 1))
        for patient, shift in shifts.items()
        if len(shifts) > 1
    ]
    every = np.array(allowed(), np.int64)
    chance = float(np.mean([(np.abs(every - one) <= _REACH).sum() / len(every) for one in every]))
    return _result("shift of another patient", "A4", 28, "patients", rows, chance, 3 * chance, seed, _LEAST["patients"])


def attack_number_order(values: Sequence[ValuePair], seed: int = 1) -> ThreatResult:
    """A2: line surrogates of numbers of one form up with originals by their order. A few pairs agree by chance.

    Telephone numbers and postal codes are left out: parts of them are shared on purpose.
    """
    forms: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for each in values:
        if sum(map(str.isdigit, each.original)) > _FEW_DIGITS and each.type not in _NO_NUMBERS:
            forms[_form(each.original)].setdefault(each.original, (each.output, each.patient))
    rows: list[tuple[str, float, float]] = []
    for form in sorted(forms):
        found = sorted(forms[form].items())
        order = sorted(range(len(found)), key=lambda at: found[at][1][0])
        if len(found) >= _LEAST["numbers"]:
            rows += [(found[at][1][1], float(place == at), 1.0) for place, at in enumerate(order)]
    groups = sum(len(each) >= _LEAST["numbers"] for each in forms.values())
    chance = groups / len(rows) if rows else 0.0
    bound = max(8 / len(rows), 3 * chance) if rows else 0.0
    return _result("order of numbers", "A2", 27, "numbers", rows, chance, bound, seed, _LEAST["numbers"])


def _form(number: str) -> str:
    """The form that a surrogate may share with its number: signs, letters, and zeros that begin a run of digits."""
    return re.sub(r"(?<!\d)(0*)(\d*)", lambda run: "0" * len(run[1]) + "9" * len(run[2]), number)


def attack_names(values: Sequence[ValuePair], seed: int = 1) -> tuple[ThreatResult, ...]:
    """A4: initials and names, guessed from frequencies, and names of patients by those of others.

    The attacker has the originals of half of the patients. In the last attack he also has their surrogates: those of a
    patient must not help with another. Clinicians have one surrogate in the whole feed, so that attack needs the types
    of the values.
    """
    words = sorted({*list_names(values)})
    patients = sorted({*list_names(each for each in values if each.type == PhiType.PATIENT and each.typed)})
    return (
        _attack_names("initials", 35, words, lambda word: word[0], (lambda word: word[0],), seed),
        _attack_names("names by frequency", 36, words, str, (lambda word: word[0], lambda word: str(len(word))), seed),
        _attack_names("names by other patients", 36, patients, str, (str,), seed),
    )


def _attack_names(
    name: str,
    line: int,
    words: Sequence[tuple[str, str, str]],
    part: Callable[[str], str],
    signs: Sequence[Callable[[str], str]],
    seed: int,
) -> ThreatResult:
    """The best guess at the ``part`` of originals, by each sign of a surrogate and by the ranks of frequencies."""
    halves = split_patients([TextPair("", patient, "", "") for patient, _, _ in words], seed)
    known, attacked = ([words[at] for at in half] for half in halves)
    if not known or not attacked:
        return _result(name, "A4", line, "names", [], 0.0, 0.0, seed, _LEAST["names"])
    learned = [[(part(old), sign(new)) for _, old, new in known] for sign in signs]
    tried = [[(part(old), sign(new)) for _, old, new in attacked] for sign in signs]
    originals = [part(old) for _, old, _ in attacked]
    guesses = [guess_by_sign(one, other) for one, other in zip(learned, tried, strict=True)]
    shown = [(old, part(new)) for old, (_, _, new) in zip(originals, attacked, strict=True)]
    guesses.append(guess_by_rank(shown, Counter(part(old) for _, old, _ in known)))
    guesses.append([old == new for old, new in shown])  # surrogates that keep it
    best = max(guesses, key=sum)
    rows = [(patient, float(right), 1.0) for (patient, _, _), right in zip(attacked, best, strict=True)]
    chance = max(Counter(originals).values()) / len(attacked)
    return _result(name, "A4", line, "names", rows, chance, NAMES * chance, seed, _LEAST["names"])


def _document_shifts(dates: Iterable[DatePair]) -> Mapping[str, int]:
    """The days by which most events of each document moved back."""
    found: dict[str, list[int]] = defaultdict(list)
    for each in dates:
        if not each.birth:
            found[each.document].append((each.true - each.shown).days)
    return {document: Counter(shifts).most_common(1)[0][0] for document, shifts in found.items()}


def _guess_shift(text: str, shift: int) -> float:
    """The probability of the true shift for a reader who believes the words beside the dates of an output."""
    every = allowed()
    fit, low = set(every), text.lower()
    for begin, end, day in find_dates(text):
        for cue in _cues_beside(low, begin, end):
            agree = {s for s in fit if day.toordinal() + s <= date.max.toordinal() and cue(day + timedelta(s))}
            fit = agree or fit
    return (shift in fit) / len(fit)


def _cues_beside(low: str, begin: int, end: int) -> list[Cue]:
    before = low[max(0, begin - _NEAR - 16) : begin].rpartition("\n")[2]
    after = low[end : end + _NEAR + 16].partition("\n")[0]
    found: list[Cue] = []
    if not _ANY_CUE.search(f"{before} {after}"):
        return found
    for name, holiday in HOLIDAYS.items():
        if re.search(rf"\b{re.escape(name)}\W{{1,3}}\Z", before) or re.match(rf"\W{{1,3}}{re.escape(name)}\b", after):
            found.append(falls_on(holiday))
    for number, word in enumerate(DAYS):
        day = rf"{word[:3]}(?:{word[3:]})?"
        if re.search(rf"\b{day}\W{{1,3}}\Z", before) or re.match(rf"\W{{1,3}}{day}\b", after):
            found.append(is_weekday(number))
    return found


def _event_days(true: date, shown: set[date]) -> int:
    """The candidate days of an event; all shifts if the true day is not among them."""
    near = (max(shown) - min(shown)).days <= _REACH
    if shown == {true}:
        return 1
    if near:
        found = event_candidates(shown, _REACH) or event_candidates(shown, 0)
    else:
        found = set.intersection(*({day + timedelta(shift) for shift in allowed()} for day in shown))
    return len(found) if true in found else len(allowed())


def _candidates(attack: str, attacker: str, line: int, sizes: Sequence[tuple[str, int]], seed: int) -> ThreatResult:
    rows = [(patient, float(size < CANDIDATES), 1.0) for patient, size in sizes]
    found = _result(attack, attacker, line, "patients", rows, 0.0, 0.0, seed)
    counts = [size for _, size in sizes]
    return replace(found, smallest=min(counts), middle=median(counts)) if counts else found


def _result(
    attack: str,
    attacker: str,
    line: int,
    unit: str,
    rows: Sequence[tuple[str, float, float]],
    chance: float,
    bound: float,
    seed: int,
    least: int = 1,
) -> ThreatResult:
    """The result of an attack whose ``rows`` are patient, successes and trials."""
    if not rows:
        return ThreatResult(attack, attacker, line, unit, 0, None, chance, bound, least)
    place = {patient: at for at, patient in enumerate(sorted({patient for patient, _, _ in rows}))}
    table = np.array([(place[patient], right, of) for patient, right, of in rows], np.float64)
    weights = resample_patients(len(place), seed)
    right, of = (weights @ np.bincount(table[:, 0].astype(np.int64), table[:, at], len(place)) for at in (1, 2))
    return ThreatResult(attack, attacker, line, unit, len(rows), share_of(right, of), chance, bound, least)
