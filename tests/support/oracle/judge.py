"""Runs messages through a de-identifier and decides which planted identifiers survive.

An identifier survives if its needle is in the output of its own carrier, or elsewhere in the output but in no carrier.
Two more runs of such a message separate leaks from coincidences: under another key (a needle that is gone there was a
surrogate that equals the identifier), and with other persons (a needle that is there as well belongs to the
surroundings). A refused message is no leak, and hides nothing: its plants are judged in messages of one plant each.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from support.oracle.carriers import Message, known_identifiers, make_message
from support.oracle.people import Kind, Person
from support.oracle.search import Reading, fold

Sanitize = Callable[[Sequence[bytes]], Sequence[bytes | str]]
"""The output of each message, or the reason for which it was refused."""
_BATCH = 48


@dataclass(frozen=True, slots=True)
class Case:
    """One case, by its coordinates and its class. ``plant`` is -1 for an identifier of the structured part."""

    seed: int
    number: int
    plant: int
    form: str
    role: str
    script: str
    kind: str
    carrier: str
    writing: str
    encoding: str
    charset: str
    needles: tuple[str, ...] = field(repr=False)

    @property
    def coordinates(self) -> str:
        """``--show`` prints the case with these coordinates."""
        return f"{self.seed}/{self.number}/{self.plant}"

    @property
    def names(self) -> str:
        """The class of the case in one line."""
        parts = (self.form, self.carrier, self.kind, self.writing, self.encoding, self.script, self.role, self.charset)
        return " / ".join(parts)


@dataclass(slots=True)
class Tally:
    """Cases, survivors, refusals and coincidences. ``axes`` and ``failed`` count by class on each axis."""

    survivors: list[Case] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    by_chance: int = 0
    messages: int = 0
    total: int = 0
    axes: dict[str, Counter[str]] = field(default_factory=dict)
    failed: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, case: Case) -> None:
        """Count a case on each axis."""
        self.total += 1
        _count(self.axes, case)

    def fail(self, case: Case) -> None:
        """Count a survivor."""
        self.survivors.append(case)
        _count(self.failed, case)

    def merge(self, other: "Tally") -> None:
        """Add the counts of ``other``."""
        self.survivors += other.survivors
        self.refused += other.refused
        self.by_chance += other.by_chance
        self.messages += other.messages
        self.total += other.total
        for mine, theirs in ((self.axes, other.axes), (self.failed, other.failed)):
            for axis, counts in theirs.items():
                mine.setdefault(axis, Counter()).update(counts)

    def table(self) -> str:
        """The cases and survivors of each class, axis by axis."""
        lines = []
        for axis, counts in self.axes.items():
            lines.append(f"{axis:<34}{'cases':>10}{'survive':>9}")
            failed = self.failed.get(axis, Counter())
            lines += [f"  {name:<32}{count:>10,}{failed[name]:>9,}" for name, count in sorted(counts.items())]
        lines += [f"refused {count:>6,}  {why}" for why, count in self.refused.most_common(12)]
        lines.append(
            f"{self.total:,} cases in {self.messages:,} messages: {len(self.survivors):,} survive, "
            f"{self.by_chance:,} by chance, {self.refused.total():,} messages refused"
        )
        return "\n".join(lines)


def _count(axes: dict[str, Counter[str]], case: Case) -> None:
    for axis, name in (
        ("format", case.form),
        ("carrier", f"{case.form}: {case.carrier}"),
        ("writing", f"{group_kind(case.kind)}: {case.writing}"),
        ("encoding", case.encoding),
        ("script", case.script if case.kind == Kind.NAME else "not a name"),
        ("kind", f"{case.role}: {case.kind}"),
        ("charset", case.charset),
    ):
        axes.setdefault(axis, Counter())[name] += 1


def group_kind(kind: str) -> str:
    """``number`` for all kinds of numbers, else the kind."""
    return "number" if kind in {Kind.MRN, Kind.SSN, Kind.ACCOUNT, Kind.PHONE} else kind


def structured_needles(person: Person, kind: Kind) -> tuple[str, ...]:
    """The folded texts of an identifier that a structured field holds."""
    match kind:
        case Kind.NAME:
            return fold(person.family), fold(person.given)
        case Kind.BIRTH:
            return (fold(f"{person.born:%Y%m%d}"),)
        case _:
            return (fold(person.value(kind)),)


def list_cases(message: Message, seed: int, number: int) -> Iterator[Case]:
    """The cases of a message: its structured identifiers, then its plants."""
    charset = f"{message.declared or '-'} as {message.charset}" if message.form == "hl7" else "utf-8"

    def case(plant: int, role: str, kind: Kind, carrier: str, writing: str, encoding: str, *needles: str) -> Case:
        script = message.people[role].script
        return Case(seed, number, plant, message.form, role, script, kind, carrier, writing, encoding, charset, needles)

    for role, kind in known_identifiers(message.form):
        needles = structured_needles(message.people[role], kind)
        yield case(-1, role, kind, "structured", "plain", "none", *needles)
    for n, each in enumerate(message.plants):
        yield case(n, each.role, each.kind, each.carrier, each.writing, each.encoding, *each.written.needles)


class Judge:
    """Judges the messages of a seed. ``others`` gives the same de-identifier with two other keys.

    Two keys do not suffice: of 2,565 messages one has a surrogate that contains an original under both.
    """

    def __init__(self, first: Sanitize, others: Callable[[], Sequence[Sanitize]], seed: int) -> None:
        self._first, self._others, self._seed = first, others, seed

    def run(self, numbers: Iterable[int]) -> Tally:
        """The tally of the messages ``numbers``."""
        tally = Tally()
        every = list(numbers)
        for at in range(0, len(every), _BATCH):
            batch = [(number, make_message(self._seed, number)) for number in every[at : at + _BATCH]]
            outputs = self._first([message.render() for _, message in batch])
            for (number, message), output in zip(batch, outputs, strict=True):
                self._judge(message, number, output, tally)
        return tally

    def _judge(self, message: Message, number: int, output: bytes | str, tally: Tally) -> None:
        cases = list(list_cases(message, self._seed, number))
        tally.messages += 1
        for case in cases:
            tally.add(case)
        if isinstance(output, str):
            tally.refused[f"{message.form}: {output}"] += 1
            for n in range(len(message.plants)):
                (alone,) = self._first([message.render((n,))])
                if isinstance(alone, bytes):
                    self._confirm(message, number, find_survivors(message, cases, alone), tally, (n,))
            return
        found = find_survivors(message, cases, output)
        if found:
            self._confirm(message, number, found, tally)

    def _confirm(
        self, message: Message, number: int, found: list[Case], tally: Tally, chosen: Sequence[int] | None = None
    ) -> None:
        """Count those of ``found`` that are no coincidence."""
        other = next(m for k in range(1, 99) if not _share_names(m := make_message(self._seed, number, k), message))
        if other.charset != message.charset:
            other = replace(other, declared=message.declared, charset=message.charset)
        (around,) = self._first([other.render(chosen)])
        surroundings = read_output(other, around) if isinstance(around, bytes) else {}
        leaks = set(found)
        for other_key in self._others():
            (again,) = other_key([message.render(chosen)])
            if isinstance(again, bytes):
                leaks &= set(find_survivors(message, found, again))
        for case in found:
            here = surroundings.get(case.plant)
            if case in leaks and not (here and any(here.holds(needle) for needle in case.needles)):
                tally.fail(case)
            else:
                tally.by_chance += 1


def _share_names(one: Message, two: Message) -> bool:
    names = [{part for p in m.people.values() for part in (p.family, p.given)} for m in (one, two)]
    return not names[0].isdisjoint(names[1])


def read_output(message: Message, output: bytes) -> dict[int, Reading]:
    """The readings of the output by plant; -1 is the structured part."""
    return {n: Reading(part, message.charset) for n, part in message.split(output).items()}


def find_survivors(message: Message, cases: Sequence[Case], output: bytes) -> list[Case]:
    """The cases of which a needle is in the output."""
    whole = Reading(output, message.charset)
    held = {needle for case in cases for needle in case.needles if whole.holds(needle)}
    suspects = [case for case in cases if held.intersection(case.needles)]
    if not suspects:
        return []
    parts = read_output(message, output)
    found = []
    for case in suspects:
        part = parts.get(case.plant, whole)
        if any(part.holds(needle) for needle in case.needles):
            found.append(case)
    placed = {needle for case in found for needle in case.needles}
    return [*found, *(case for case in suspects if case not in found and not placed.intersection(case.needles))]
