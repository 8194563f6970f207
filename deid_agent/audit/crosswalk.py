"""Writes the crosswalk of a project, finds the records of codes in it, and opens them in one step for each custodian.

A crosswalk is a trail like that of the audit, and so is the record that a custodian keeps of the openings. The first of
two custodians makes a half-opened file, which holds the boxes of the second one: JSON lines, a head and one line for
each record.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import orjson

from deid_agent.agent import DEFAULT_PROJECT, Outcome, PrivateKey, open_box, read_pairs
from deid_agent.audit.faults import Fields, int_member, read_fields
from deid_agent.audit.reading import TrailEntry, entry_remarks, read_entries, texts_in
from deid_agent.audit.storage import CROSSWALK_VERSION, CrosswalkEntry, LineKind, line_prefix, segment_files
from deid_agent.audit.trail import AuditTrail
from deid_agent.model import ATTACHMENT_URL_SOURCE, HOST_SOURCE, ConfigurationError, CrosswalkError

CROSSWALK_BUILD: Final = "crosswalk"
"""The member of the build of a segment that describes a crosswalk: its project, and the ids of its keys."""
CROSSWALKS_BUILD: Final = "crosswalks"
"""The member of the build of an audit that names the projects with a crosswalk, and the ids of its keys."""
_HALF: Final = "half-opened"
_FIELDS: Final = frozenset({"structure", ATTACHMENT_URL_SOURCE, HOST_SOURCE})
"""The sources of values in fields: only these get link codes. In text the same method masks."""


@dataclass(frozen=True, slots=True)
class CrosswalkTrail:
    """Implements ``CrosswalkLog`` for one project."""

    trail: AuditTrail
    project: str
    generation: int

    async def append(self, records: Sequence[tuple[str, bytes]]) -> None:
        """See ``CrosswalkLog.append``."""
        await self.trail.append([CrosswalkEntry(self.project, self.generation, *record) for record in records])

    async def close(self) -> None:
        """Close the trail. Safe to call twice."""
        await self.trail.close()


@dataclass(frozen=True, slots=True)
class SealedRecord:
    """The box of one record, the wanted ``codes`` in it, and the ids of the keys that open it from now on.

    ``place`` is segment and line, or the line of a half-opened file.
    """

    project: str
    generation: int
    record: str
    codes: tuple[str, ...]
    keys: tuple[str, ...]
    sealed: str = field(repr=False)
    place: str

    def opened(self, key: PrivateKey) -> bytes:
        """The content of the box. Raises ``CrosswalkError``."""
        try:
            return open_box(self.sealed, key)
        except CrosswalkError as problem:
            raise CrosswalkError(f"{self.place}: {problem}") from None


def find_records(folders: Iterable[Path], codes: Collection[str]) -> Iterator[SealedRecord]:
    """The records of a crosswalk that have one of ``codes``. Does not verify it: a line that cannot be read is skipped.

    Raises ``ConfigurationError`` for a folder that cannot be read, and for a line of a later release.
    """
    wanted = frozenset(codes)
    for folder in folders:
        for place, item, build in _read_lines(folder):
            if int_member(item, "v") > CROSSWALK_VERSION:
                raise ConfigurationError(f"{place}: is a line of a later release of deid-agent")
            if common := tuple(code for code in texts_in(item.get("codes")) if code in wanted):
                yield _read_record(item, common, _keys_of(build), place)


def _read_lines(folder: Path) -> Iterator[tuple[str, Fields, object]]:
    """Place and members of each line with pairs, and the build of its segment."""
    kept = (line_prefix(LineKind.SEGMENT), line_prefix(LineKind.CROSSWALK))
    try:
        for path in segment_files(folder).values():
            build: object = {}
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    fields = read_fields(line) if line.startswith(kept) else {}
                    if fields.get("kind") == LineKind.SEGMENT:
                        build = fields.get("build")
                    elif fields:
                        yield f"{path}:{number}", fields, build
    except OSError as error:
        raise ConfigurationError(f"crosswalk folder {folder}: {error.filename or ''} {error.strerror}") from None


def _read_record(item: Mapping[str, object], codes: Sequence[str], keys: Sequence[str], place: str) -> SealedRecord:
    generation = item.get("generation")
    return SealedRecord(
        str(item.get("project")),
        generation if isinstance(generation, int) else 0,
        str(item.get("record")),
        tuple(codes),
        tuple(keys),
        str(item.get("sealed")),
        place,
    )


def _keys_of(build: object) -> tuple[str, ...]:
    return texts_in(_member(build, CROSSWALK_BUILD).get("seal_to"))


def _member(build: object, name: str) -> Mapping[str, object]:
    """An object in a build; an empty one if it has none of this name."""
    found = build.get(name) if isinstance(build, dict) else None
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class HalfOpened:
    """A half-opened file: the codes that the first custodian was asked for, and the boxes for the second one."""

    codes: tuple[str, ...]
    crosswalks: tuple[str, ...]
    records: tuple[SealedRecord, ...]
    verified: bool = False
    """The first custodian verified the crosswalk."""

    def encode(self) -> bytes:
        """The content of the file."""
        head = {
            "kind": _HALF,
            "v": CROSSWALK_VERSION,
            "codes": self.codes,
            "crosswalks": self.crosswalks,
            "verified": self.verified,
        }
        return b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in (head, *self._lines()))

    def _lines(self) -> Iterator[Mapping[str, object]]:
        for record in self.records:
            yield {name: value for name, value in asdict(record).items() if name != "place"}


def read_half_opened(data: bytes, name: str) -> HalfOpened:
    """The content of a half-opened file. Raises ``CrosswalkError`` with the line that is not of that form."""
    records: list[SealedRecord] = []
    head: Mapping[str, object] = {}
    for number, line in enumerate(data.splitlines(), 1):
        place = f"{name}:{number}"
        try:
            fields = orjson.loads(line)
            if number == 1:
                if fields["kind"] != _HALF or fields["v"] != CROSSWALK_VERSION:
                    raise ValueError
                head = fields
            else:
                codes, keys = ([str(one) for one in fields[member]] for member in ("codes", "keys"))
                records.append(_read_record(fields, codes, keys, place))
        except (ValueError, KeyError, TypeError):
            raise CrosswalkError(f"{place}: it is not a half-opened file of this release, or it was changed") from None
    asked, trails = (texts_in(head.get(member)) for member in ("codes", "crosswalks"))
    if not asked:
        raise CrosswalkError(f"{name}: it is not a half-opened file of this release, or it was changed")
    return HalfOpened(asked, trails, tuple(records), head.get("verified") is True)


def half_open(record: SealedRecord, key: PrivateKey) -> SealedRecord:
    """The record after the first step. Raises ``CrosswalkError``."""
    return replace(record, keys=record.keys[1:], sealed=base64.b64encode(record.opened(key)).decode("ascii"))


def open_pairs(record: SealedRecord, key: PrivateKey, codes: Collection[str]) -> list[Mapping[str, object]]:
    """The rows of a record that its last key opens: one for each place of each wanted code.

    Raises ``CrosswalkError``.
    """
    content = record.opened(key)
    try:
        found = read_pairs(content)
    except CrosswalkError as problem:
        raise CrosswalkError(f"{record.place}: {problem}") from None
    return [
        {
            "code": code,
            "original": original,
            "path": path,
            "record": record.record,
            "project": record.project,
            "generation": record.generation,
            "at": found.at,
        }
        for path, original, code in found.pairs
        if code in codes
    ]


def digest_codes(codes: Iterable[str]) -> str:
    """SHA-256 of the codes in order, one a line: equal for equal requests, in both trails."""
    return hashlib.sha256("".join(f"{code}\n" for code in sorted(set(codes))).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CrosswalkCoverage:
    """The published records with link codes in an audit, against the lines of a crosswalk.

    ``before`` were published when their project had no crosswalk, or are older than the first segment that is left of
    it. ``missing`` are the coordinates of records without a line.
    """

    covered: int
    before: int
    missing: tuple[str, ...]


def compare_with_audit(crosswalk: Path, audits: Iterable[Path]) -> CrosswalkCoverage:
    """Compare all records of the project of a crosswalk. Does not verify the trails.

    The audit names the crosswalks of its time, so that lines before the first one of a crosswalk are missed too. Raises
    ``ConfigurationError`` if a trail cannot be read.
    """
    # The project of a crosswalk without a line: it was begun again after a loss, and all of its records are missing.
    records, projects, erased = set[str](), _projects_of(crosswalk), _end_of_erased(crosswalk)
    for _, item, _build in _read_lines(crosswalk):
        records.add(str(item.get("record")))
        projects.add(str(item.get("project")))
    counts, missing = Counter[str](), dict[str, None]()
    for folder in audits:
        for item in read_entries(folder):
            project = str(item.get("project", DEFAULT_PROJECT))
            if project not in projects or item.get("outcome") != Outcome.PUBLISHED or not _has_codes(item):
                continue
            if str(item.get("deid_id")) in records:
                counts["covered"] += 1
            elif project not in _member(item.get("build"), CROSSWALKS_BUILD) or _time_of(item) < erased:
                counts["before"] += 1
            else:
                missing[f"{item.get('topic')}/{item.get('partition')}/{item.get('offset')}"] = None
    return CrosswalkCoverage(counts["covered"], counts["before"], tuple(missing))


def _projects_of(folder: Path) -> set[str]:
    """The projects that the builds of the segments name."""
    found = set[str]()
    for path in segment_files(folder).values():
        with path.open("rb") as file:
            own = _member(read_fields(file.readline()).get("build"), CROSSWALK_BUILD)
        if isinstance(project := own.get("project"), str):
            found.add(project)
    return found


def _end_of_erased(folder: Path) -> float:
    """The time at which the first segment begins, if segments before it were erased; else 0."""
    number, path = next(iter(segment_files(folder).items()), (1, folder))
    if number == 1:
        return 0.0
    with path.open("rb") as file:
        return _time_of(read_fields(file.readline()))


def _time_of(item: Mapping[str, object]) -> float:
    time = item.get("time")
    return float(time) if isinstance(time, int | float) else 0.0


def _has_codes(item: TrailEntry) -> bool:
    return any(one.get("method") == "link" and one.get("source") in _FIELDS for one in entry_remarks(item))
