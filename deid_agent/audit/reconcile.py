"""Compares the input of a feed with its outputs, dead letters and trails: each record must have exactly one outcome."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.agent import Coordinates, Outcome, Partition
from deid_agent.audit.reading import read_entries


@dataclass(frozen=True, slots=True)
class AuditedRecord:
    """The last entry of a record in all trails: its outcome, and the id that its output has."""

    outcome: str
    id: str


Audited = Mapping[Partition, Mapping[int, AuditedRecord]]


@dataclass(frozen=True, slots=True)
class InputRecords:
    """The input of one partition. ``offsets`` are those that hold a record, from ``begin`` up to ``committed``.

    ``withdrawn`` are numbers that were given up for a reason that the source knows, and need no outcome.
    """

    stream: Partition
    begin: int
    committed: int
    end: int
    offsets: Sequence[int]
    withdrawn: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class FoundResults:
    """What a reader of the results sees: the number of outputs by ``deid-id``, of dead letters by record and that id.

    None if the results cannot be read, because they left over MLLP or into a folder: then the trails count alone.
    """

    outputs: Mapping[str, int] | None = None
    dead_letters: Mapping[Coordinates, Mapping[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class PartitionBalance:
    """The account of one partition. ``faults`` are offsets with what is wrong; empty if every record has one outcome.

    ``absent`` offsets hold no record and have no entry: compaction, or markers of transactions. ``vanished`` have an
    entry, but their record was compacted away since. ``expired`` entries lie before the beginning of the input.
    """

    input: InputRecords
    outcomes: Mapping[str, int]
    absent: int
    vanished: int
    expired: int
    faults: Sequence[tuple[int, str]] = field(default=())

    @property
    def pending(self) -> int:
        """Offsets that are not committed yet."""
        return max(0, self.input.end - self.input.committed)


def read_audited(
    folders: Iterable[Path], topic_ids: Mapping[str, str] | None = None
) -> dict[Partition, dict[int, AuditedRecord]]:
    """The last entry of each record, over the trails of all agents. Raises ``ConfigurationError``.

    A record that two agents processed has entries in both trails; the later one counts. In one trail the order of the
    lines counts, because a clock may be set back. ``topic_ids`` are those of the topics as they are now: entries about
    a former topic of the same name are left out. So are entries that are not of the form of an entry: verify the trails
    first.
    """
    found: dict[Partition, dict[int, tuple[float, AuditedRecord]]] = {}
    for folder in folders:
        own: dict[Partition, dict[int, tuple[float, AuditedRecord]]] = {}
        for item in read_entries(folder):
            topic, number, offset, at = (item.get(name) for name in ("topic", "partition", "offset", "time"))
            if not (isinstance(topic, str) and type(number) is int and type(offset) is int):
                continue
            known, named = (topic_ids or {}).get(topic), item.get("topic_id")
            if known and named and known != named:
                continue
            when = at if isinstance(at, int | float) else 0.0
            record = AuditedRecord(str(item.get("outcome")), str(item.get("deid_id", "")))
            own.setdefault(Partition(topic, number), {})[offset] = when, record
        for stream, entries in own.items():
            others = found.setdefault(stream, {})
            others |= {
                offset: one for offset, one in entries.items() if offset not in others or others[offset][0] <= one[0]
            }
    return {stream: {offset: record for offset, (_, record) in entries.items()} for stream, entries in found.items()}


def balance(
    records: InputRecords,
    audited: Mapping[int, AuditedRecord],
    results: FoundResults,
    *,
    id_of: Mapping[int, str],
    expired_outputs: bool = False,
) -> PartitionBalance:
    """The account of one partition. ``id_of`` are ids of records without an entry, as far as they are known.

    With ``expired_outputs`` an output that its topic no longer has is no fault.
    """
    outcomes, faults = Counter[str](), list[tuple[int, str]]()
    for offset in records.offsets:
        entry = audited.get(offset)
        problem = _problem(records.stream, offset, entry, results, id_of.get(offset, ""), expired=expired_outputs)
        if problem:
            faults.append((offset, problem))
        elif entry is not None:
            outcomes[entry.outcome] += 1
    held = set(records.offsets) | records.withdrawn
    within = [offset for offset in audited if records.begin <= offset < records.committed]
    vanished = sum(offset not in held for offset in within)
    absent = records.committed - records.begin - len(held) - vanished
    expired = sum(offset < records.begin for offset in audited)
    return PartitionBalance(records, outcomes, max(0, absent), vanished, expired, faults)


def _problem(
    stream: Partition, offset: int, entry: AuditedRecord | None, results: FoundResults, known_id: str, *, expired: bool
) -> str:
    """What is wrong with the outcome of a record; empty if it has exactly one."""
    id_ = entry.id if entry is not None and entry.id else known_id
    outputs = None if results.outputs is None else results.outputs.get(id_, 0)
    dead_letters = None
    if results.dead_letters is not None:
        ids = results.dead_letters.get(Coordinates(stream.topic, stream.number, offset), {})
        dead_letters = ids.get(id_, 0) + ids.get("", 0) if id_ else sum(ids.values())
    if entry is None:
        if outputs or dead_letters:
            return f"no audit entry, but {'an output' if outputs else 'a dead letter'}"
        return "no audit entry" if outputs is None else "no audit entry, no output, no dead letter"
    match entry.outcome:
        case Outcome.PUBLISHED:
            wanted = (1, 0)
        case Outcome.DEAD_LETTERED:
            wanted = (0, 1)
        case Outcome.SUPPRESSED | Outcome.REFUSED:
            wanted = (0, 0)
        case _:
            return "an audit entry with an unknown outcome"
    for name, count, right in (("output", outputs, wanted[0]), ("dead letter", dead_letters, wanted[1])):
        if count is not None and count != right and not (expired and name == "output" and count < right):
            return f"{entry.outcome} in the audit, but it has {count or 'no'} {name}{'s' if count > 1 else ''}"
    return ""
