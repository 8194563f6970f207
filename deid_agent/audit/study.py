"""Counts the messages of one project in a period, by the trails of its agents, for the report of a study.

Each trail is read twice. The first reading finds records that have several entries, because they were processed again
after a crash: only the last one counts. The second one verifies the trail and counts. Memory grows with the number of
partitions and builds, and by one bit for each record.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from deid_agent.agent import DEFAULT_PROJECT, Outcome
from deid_agent.audit.faults import Fields, int_member, read_fields
from deid_agent.audit.reading import TrailReport, entry_build, entry_remarks, remark_count, verify_trail
from deid_agent.audit.storage import LineKind, line_prefix, segment_files
from deid_agent.audit.walk import TrailSegment
from deid_agent.model import ConfigurationError, PhiType, Reason, format_time

OTHER: Final = "other"
"""A type, method or reason that this release does not know. Its text is not repeated: anyone may have written it."""
LEFT_OUT: Final = "UNLISTED"
"""The type of the remark about values that the policy does not publish."""
_ENTRY = line_prefix(LineKind.ENTRY)
_REMARKS = b',"remarks":'
_TYPES: Final = frozenset({*PhiType, LEFT_OUT})
_METHODS: Final = frozenset({"surrogate", "link", "redact", "mask", "generalize", "drop"})
_REASONS: Final = frozenset(Reason)
_BITS = 2048
_MOST_PROJECTS = 1000


@dataclass(frozen=True, slots=True)
class StudyPeriod:
    """Days of UTC, both included; None is without bound."""

    first: date | None = None
    last: date | None = None

    def limits(self) -> tuple[float, float]:
        """The Unix time at which the period begins, and that at which it has ended."""
        begin, end = float("-inf"), float("inf")
        if self.first is not None:
            begin = datetime(self.first.year, self.first.month, self.first.day, tzinfo=UTC).timestamp()
        if self.last is not None:
            end = (datetime(self.last.year, self.last.month, self.last.day, tzinfo=UTC) + timedelta(1)).timestamp()
        return begin, end


@dataclass(frozen=True, slots=True)
class BuildUse:
    """One combination of program, rules, models, policy, configuration and key, and the messages that it processed."""

    build: Mapping[str, str]
    messages: int
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class StudyFigures:
    """Counts without values. ``types`` counts replaced values by PHI type and method.

    ``again`` are messages that were processed a second time after they were refused; ``superseded`` are entries of
    which a later one of the same message counts. ``changed`` are published messages with a replaced value, ``named``
    those with a replaced name or record number of a patient; None if the source does not record it.
    """

    project: str
    period: StudyPeriod
    messages: int
    first: float
    last: float
    outcomes: Mapping[str, int]
    again: int
    superseded: int
    changed: int | None
    named: int | None
    types: Mapping[str, Mapping[str, int]]
    left_out: int
    reasons: Mapping[str, int]
    builds: tuple[BuildUse, ...]
    unit: str = "message"
    """The records are messages, or rows of tables."""

    @property
    def replaced(self) -> int:
        """All replaced values."""
        return sum(sum(methods.values()) for methods in self.types.values())

    @property
    def refused(self) -> int:
        """Messages without an output because of an error."""
        return self.outcomes.get(Outcome.DEAD_LETTERED, 0) + self.outcomes.get(Outcome.REFUSED, 0)

    @property
    def policies(self) -> Mapping[str, int]:
        """Messages by policy (name and digest), the most frequent first."""
        found = Counter[str]()
        for use in self.builds:
            found[use.build.get("policy", "")] += use.messages
        return dict(found.most_common())


class _Occurrences:
    """The number of entries of each record, at a bit for each one."""

    def __init__(self) -> None:
        self._layers: list[dict[tuple[object, int], int]] = []

    def add(self, key: object, offset: int) -> None:
        chunk, bit = (key, offset // _BITS), 1 << offset % _BITS
        for layer in self._layers:
            if not layer.get(chunk, 0) & bit:
                layer[chunk] = layer.get(chunk, 0) | bit
                return
        self._layers.append({chunk: bit})

    def is_last(self, key: object, offset: int) -> bool:
        """Take one entry off. True for the last one of its record."""
        chunk, bit = (key, offset // _BITS), 1 << offset % _BITS
        for layer in reversed(self._layers):
            if layer.get(chunk, 0) & bit:
                layer[chunk] &= ~bit
                break
        return not self._layers or not self._layers[0].get(chunk, 0) & bit


def _record_of(fields: Fields, trail: int) -> tuple[tuple[object, ...], int]:
    """The place of a record, and its offset there.

    Two agents of a group may have processed one record of a Kafka topic, which has an id. Other inputs of two agents
    have nothing in common, whatever their names and numbers.
    """
    topic = str(fields.get("topic_id", ""))
    at = (topic or trail, str(fields.get("topic")), int_member(fields, "partition"))
    return at, int_member(fields, "offset")


@dataclass(slots=True)
class _Counts:
    """Counts the entries that it receives, in the order of the trails.

    ``entries`` are those of the present ``trail`` that are still to come: later ones were written since.
    """

    project: str
    period: StudyPeriod
    occurrences: _Occurrences
    trail: int = 0
    entries: int = 0
    found: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    types: dict[str, Counter[str]] = field(default_factory=dict)
    builds: dict[tuple[tuple[str, str], ...], list[float]] = field(default_factory=dict)
    projects: set[str] = field(default_factory=set)
    times: tuple[float, float] | None = None
    outside: tuple[float, float] | None = None

    def __call__(self, fields: Fields, segment: TrailSegment) -> None:
        """See ``EntryCallback``."""
        self.entries -= 1
        if self.entries < 0:  # written since the first reading
            return
        last = self.occurrences.is_last(*_record_of(fields, self.trail))
        project, at = str(fields.get("project", DEFAULT_PROJECT)), fields.get("time")
        if len(self.projects) < _MOST_PROJECTS:
            self.projects.add(project)
        if project != self.project or not isinstance(at, int | float):
            return
        begin, end = self.period.limits()
        if not begin <= at < end:
            self.outside = _widen(self.outside, at)
            return
        if not last:
            self.found["superseded"] += 1
            return
        self.times = _widen(self.times, at)
        self._count(fields, {**fields, "build": dict(segment.build)}, at)

    def _count(self, fields: Fields, item: Mapping[str, object], at: float) -> None:
        outcome = str(fields.get("outcome"))
        self.outcomes[outcome if outcome in set(Outcome) else OTHER] += 1
        self.found["again"] += "replay_of" in fields
        if "reason" in fields:
            reason = str(fields["reason"])
            self.reasons[reason if reason in _REASONS else OTHER] += 1
        values = 0
        kinds = set[str]()
        for remark in entry_remarks(item):
            kind, method = str(remark.get("type")), str(remark.get("method"))
            kind, method = kind if kind in _TYPES else OTHER, method if method in _METHODS else OTHER
            number = remark_count(remark)
            if kind == LEFT_OUT:
                self.found["left_out"] += number
                continue
            values += number
            kinds.add(kind)
            self.types.setdefault(kind, Counter())[method] += number
        self.found["changed"] += values > 0
        self.found["named"] += bool(kinds & {PhiType.PATIENT, PhiType.MEDICALRECORD})
        build = tuple((name, str(value)) for name, value in entry_build(item).items() if isinstance(value, str | int))
        use = self.builds.setdefault(build, [0, at, at])
        use[0] += 1
        use[1], use[2] = min(use[1], at), max(use[2], at)

    def figures(self) -> StudyFigures:
        """The counts. Raises ``ConfigurationError`` if there are none."""
        if not self.projects:
            raise ConfigurationError("the trail has no entry: no message was processed yet")
        if self.times is None:
            self._refuse()
        assert self.times is not None  # noqa: S101 - for the type checker
        uses = (BuildUse(dict(build), int(use[0]), use[1], use[2]) for build, use in self.builds.items())
        return StudyFigures(
            self.project,
            self.period,
            sum(self.outcomes.values()),
            *self.times,
            dict(self.outcomes),
            self.found["again"],
            self.found["superseded"],
            self.found["changed"],
            self.found["named"],
            {kind: dict(methods) for kind, methods in sort_types(self.types).items()},
            self.found["left_out"],
            dict(self.reasons.most_common()),
            tuple(sorted(uses, key=lambda use: use.first)),
        )

    def _refuse(self) -> None:
        if self.outside is not None:
            first, last = (format_time(at)[:10] for at in self.outside)
            raise ConfigurationError(
                f"no entry of the project {self.project} is in the period; its entries are of {first} to {last} (UTC)"
            )
        names = ", ".join(sorted(self.projects)[:20])
        raise ConfigurationError(f"the trail has no entry of a project {self.project}: it has {names}")


def sort_types(types: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """The most frequent type first."""
    return dict(sorted(types.items(), key=lambda item: (-sum(item[1].values()), item[0])))


def _widen(span: tuple[float, float] | None, at: float) -> tuple[float, float]:
    return (at, at) if span is None else (min(span[0], at), max(span[1], at))


def study_trails(
    folders: Sequence[Path],
    project: str,
    period: StudyPeriod,
    trusted: Collection[str] | None = None,
    kept: Path | None = None,
    check: Callable[[TrailReport], None] = lambda _: None,
) -> tuple[StudyFigures, list[TrailReport]]:
    """Verify trails as ``verify_trail`` does, and count the entries of a project in a period.

    ``kept`` are heads of a single trail. ``check`` may refuse a trail before figures are made. Raises
    ``ConfigurationError`` if nothing can be counted: no entry, none of the project, or none in the period.
    """
    counts = _Counts(project, period, _Occurrences())
    entries = [_find_occurrences(folder, trail, counts.occurrences) for trail, folder in enumerate(folders)]
    reports = []
    for trail, folder in enumerate(folders):
        counts.trail, counts.entries = trail, entries[trail]
        report = verify_trail(folder, trusted, kept, counts)
        check(report)
        if report.kind not in {None, LineKind.ENTRY}:
            raise ConfigurationError(
                f"the entries of this trail are of the kind {report.kind}: give the folder of an audit"
            )
        reports.append(report)
    try:
        return counts.figures(), reports
    except ConfigurationError as problem:
        broken = "; the trail is NOT intact, see audit verify" if any(each.faults for each in reports) else ""
        raise ConfigurationError(f"{problem}{broken}") from None


def _find_occurrences(folder: Path, trail: int, found: _Occurrences) -> int:
    """Add the occurrences of all records to ``found``. Returns the number of entries. Verifies nothing."""
    entries = 0
    try:
        for path in segment_files(folder).values():
            with path.open("rb") as file:
                for line in file:
                    if line.startswith(_ENTRY) and line.endswith(b"\n"):
                        fields = read_fields(line.partition(_REMARKS)[0] + b"}") or read_fields(line)
                        if fields:
                            entries += 1
                            found.add(*_record_of(fields, trail))
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    return entries
