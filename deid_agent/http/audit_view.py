"""The audit for the console: the newest matching entries, and the verification of the chain.

The functions block, so the console calls them in a thread. Both are bounded, because a trail may have a hundred
gigabytes. The commands ``deid-agent audit`` have no such bounds.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from deid_agent.audit import (
    EntryFilter,
    LineKind,
    entry_build,
    entry_remarks,
    line_prefix,
    remark_count,
    segment_files,
    verify_trail,
)
from deid_agent.model import ConfigurationError

PAGE_ENTRIES = 50
MAX_SEARCH_BYTES = 128 << 20
"""Bytes that one search reads, from the newest segment backward. The next page continues there."""
MAX_VERIFY_BYTES = 256 << 20
"""The largest trail that the console verifies."""
_MAX_FAULTS = 50
_SEGMENT, _ENTRY = line_prefix(LineKind.SEGMENT), line_prefix(LineKind.ENTRY)

_TEXT_FIELDS: tuple[str, ...] = ("topic", "project", "outcome", "reason", "where", "stage", "replay_of")
_TEXT_FIELDS += ("topic_id", "deid_id", "input_digest", "output_digest", "output_sha256", "chain", "segment")
_NUMBER_FIELDS = ("time", "partition", "offset", "attempts", "line")


@dataclass(frozen=True, slots=True)
class AuditCursor:
    """The position at which a search continues: only entries before this line of this segment are read."""

    segment: int
    line: int


@dataclass(frozen=True, slots=True)
class AuditMatches:
    """Matching entries, newest first.

    ``more`` is the position at which the next page continues; None if the trail was read to its start. ``bytes`` is
    the size of the segments that were read.
    """

    entries: tuple[Mapping[str, object], ...]
    more: AuditCursor | None
    bytes: int


def search_entries(
    folder: Path, choice: EntryFilter, before: AuditCursor | None = None, max_bytes: int = MAX_SEARCH_BYTES
) -> AuditMatches:
    """Find the newest matching entries, without verifying them.

    Raises ``ConfigurationError`` if the trail cannot be read.
    """
    found: list[Mapping[str, object]] = []
    read = 0
    fragments = _required_fragments(choice)
    try:
        for number, path in sorted(segment_files(folder).items(), reverse=True):
            if before is not None and (number, 1) >= (before.segment, before.line):
                continue
            end = before.line if before is not None and number == before.segment else None
            newest = list(_search_segment(path, fragments, choice, end, PAGE_ENTRIES - len(found)))
            read += path.stat().st_size
            found += reversed(newest)
            if len(found) >= PAGE_ENTRIES:
                return AuditMatches(tuple(found), AuditCursor(number, int(str(found[-1]["line"]))), read)
            if read >= max_bytes and number > 1:
                return AuditMatches(tuple(found), AuditCursor(number, 1), read)
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    return AuditMatches(tuple(found), None, read)


def _search_segment(
    path: Path, fragments: list[bytes], choice: EntryFilter, end: int | None, most: int
) -> deque[Mapping[str, object]]:
    """The last ``most`` matching entries of a segment before line ``end``, oldest first.

    Lines without all ``fragments`` are skipped before they are parsed, which is most of the work saved.
    """
    kept: deque[Mapping[str, object]] = deque(maxlen=most)
    build: object = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if end is not None and number >= end:
                break
            if number == 1 and line.startswith(_SEGMENT):
                build = _parse_object(line).get("build", {})
            if not line.startswith(_ENTRY) or not line.endswith(b"\n") or not all(part in line for part in fragments):
                continue
            fields = _parse_object(line)
            if fields and choice.matches(fields):
                kept.append({**fields, "build": build, "segment": path.name, "line": number})
    return kept


def _required_fragments(choice: EntryFilter) -> list[bytes]:
    """Byte strings that the line of every matching entry contains."""
    names = ("topic", "partition", "offset", "outcome", "reason")
    conditions = ((name, getattr(choice, name)) for name in names)
    return [b'"%s":%s' % (name.encode(), orjson.dumps(value)) for name, value in conditions if value is not None]


def _parse_object(line: bytes) -> Mapping[str, object]:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def entry_fields(entry: Mapping[str, object]) -> dict[str, object]:
    """The members of an entry that the page shows, each with the type that the page expects.

    A forged entry may have members of other types; those are left out, so that one bad line hides no other entry.
    """
    found = entry_remarks(entry)
    return {
        "outcome": "",
        **{name: value for name in _TEXT_FIELDS if isinstance(value := entry.get(name), str)},
        **{name: value for name in _NUMBER_FIELDS if isinstance(value := entry.get(name), int | float)},
        "build": _text_members(entry_build(entry)),
        "remarks": [{**_text_members(remark), "count": remark_count(remark)} for remark in found],
        "replaced": sum(map(remark_count, found)),
    }


def _text_members(value: object) -> dict[str, str]:
    return {name: text for name, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}


def verify_chain(folder: Path, public_key: str) -> dict[str, object]:
    """Verify the trail. ``public_key`` is this agent's key; the report names every other key that signed.

    Raises ``ConfigurationError`` if the trail cannot be read or is larger than ``MAX_VERIFY_BYTES``.
    """
    size = sum(_segment_sizes(folder))
    if size > MAX_VERIFY_BYTES:
        raise ConfigurationError(
            f"the trail has {size >> 20} MiB; the console verifies up to {MAX_VERIFY_BYTES >> 20} MiB: "
            f"run deid-agent audit verify FOLDER"
        )
    report = verify_trail(folder)
    return {
        "whole": not report.faults,
        "faults": [
            {"code": f.code.value, "where": f.where, "record": f.coordinates, "detail": f.detail}
            for f in report.faults[:_MAX_FAULTS]
        ],
        "more_faults": max(0, len(report.faults) - _MAX_FAULTS),
        "warnings": [{"code": f.code.value, "where": f.where, "detail": f.detail} for f in report.warnings],
        "segments": report.segments,
        "lines": report.lines,
        "entries": report.entries,
        "checkpoints": report.checkpoints,
        "bytes": size,
        "keys": [{"key": key, "ours": key == public_key} for key in report.keys],
        "streams": [
            {
                "stream": name,
                "entries": stream.entries,
                "first": stream.first,
                "last": stream.last,
                "absent": stream.absent,
                "repeated": stream.repeated,
            }
            for name, stream in sorted(report.streams.items())
        ],
    }


def _segment_sizes(folder: Path) -> Iterator[int]:
    try:
        yield from (path.stat().st_size for path in segment_files(folder).values())
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.strerror}") from None
