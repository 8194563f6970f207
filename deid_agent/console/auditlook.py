"""The audit for the console: the newest entries that fit, and whether the chain holds. Blocking: for a thread.

Both are bounded: a trail may have a hundred gigabytes, and whoever needs all of it has the command line.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from deid_agent.audit.entries import Choice, count_of, remarks
from deid_agent.audit.folder import segments
from deid_agent.audit.lines import Kind, start_of
from deid_agent.audit.verify import verify
from deid_agent.errors import ConfigurationError

PAGE = 50
LOOKED_AT = 128 << 20
"""Bytes that one search reads, from the newest backward; the next page goes on from there."""
VERIFIED = 256 << 20
"""Bytes up to which a trail is verified here."""
_FAULTS = 50
_SEGMENT, _ENTRY = start_of(Kind.SEGMENT), start_of(Kind.ENTRY)

_TEXTS: tuple[str, ...] = ("topic", "outcome", "reason", "where", "stage", "replay_of")
_TEXTS += ("input_digest", "output_digest", "chain", "segment")
_NUMBERS = ("time", "partition", "offset", "attempts", "line")


@dataclass(frozen=True, slots=True)
class Cursor:
    """Only what stands before this line of this segment is looked at."""

    segment: int
    line: int


@dataclass(frozen=True, slots=True)
class Found:
    """Entries, the newest first; ``more`` is where a next page goes on, None where the trail was read to its start."""

    entries: tuple[Mapping[str, object], ...]
    more: Cursor | None
    bytes: int


def search(folder: Path, choice: Choice, before: Cursor | None = None, most: int = LOOKED_AT) -> Found:
    """The newest entries that fit. Does not verify. Raises ``ConfigurationError`` where the trail cannot be read."""
    found: list[Mapping[str, object]] = []
    read = 0
    wanted = _wanted(choice)
    try:
        for number, path in sorted(segments(folder).items(), reverse=True):
            if before is not None and (number, 1) >= (before.segment, before.line):
                continue
            end = before.line if before is not None and number == before.segment else None
            newest = list(_tail(path, wanted, choice, end, PAGE - len(found)))
            read += path.stat().st_size
            found += reversed(newest)
            if len(found) >= PAGE:
                return Found(tuple(found), Cursor(number, int(str(found[-1]["line"]))), read)
            if read >= most and number > 1:
                return Found(tuple(found), Cursor(number, 1), read)
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.filename or ''} {error.strerror}") from None
    return Found(tuple(found), None, read)


def _tail(path: Path, wanted: list[bytes], choice: Choice, end: int | None, most: int) -> deque[Mapping[str, object]]:
    """The last entries of a segment that fit; of most lines the first bytes are enough to pass them over."""
    kept: deque[Mapping[str, object]] = deque(maxlen=most)
    build: object = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if end is not None and number >= end:
                break
            if number == 1 and line.startswith(_SEGMENT):
                build = _object(line).get("build", {})
            if not line.startswith(_ENTRY) or not line.endswith(b"\n") or not all(part in line for part in wanted):
                continue
            fields = _object(line)
            if fields and choice.takes(fields):
                kept.append({**fields, "build": build, "segment": path.name, "line": number})
    return kept


def _wanted(choice: Choice) -> list[bytes]:
    names = ("topic", "partition", "offset", "outcome", "reason")
    said = ((name, getattr(choice, name)) for name in names)
    return [b'"%s":%s' % (name.encode(), orjson.dumps(value)) for name, value in said if value is not None]


def _object(line: bytes) -> Mapping[str, object]:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def told(entry: Mapping[str, object]) -> dict[str, object]:
    """An entry as the page shows it, of this form whatever was forged: one bad line must not hide fifty good ones."""
    found = remarks(entry)
    return {
        "outcome": "",
        **{name: value for name in _TEXTS if isinstance(value := entry.get(name), str)},
        **{name: value for name in _NUMBERS if isinstance(value := entry.get(name), int | float)},
        "build": _texts(entry.get("build")),
        "remarks": [{**_texts(remark), "count": count_of(remark)} for remark in found],
        "replaced": sum(map(count_of, found)),
    }


def _texts(value: object) -> dict[str, str]:
    return {name: text for name, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}


def status(folder: Path, public: str) -> dict[str, object]:
    """Is the chain whole? ``public`` is the key that this agent signs with; others that signed are named.

    Raises ``ConfigurationError`` where the trail cannot be read, or is too large to be verified here.
    """
    size = sum(_sizes(folder))
    if size > VERIFIED:
        raise ConfigurationError(
            f"the trail has {size >> 20} MiB, more than the {VERIFIED >> 20} that are verified here; "
            f"run: deid-agent audit verify FOLDER"
        )
    report = verify(folder)
    return {
        "whole": not report.faults,
        "faults": [
            {"code": f.code.value, "where": f.where, "record": f.coordinates, "detail": f.detail}
            for f in report.faults[:_FAULTS]
        ],
        "more_faults": max(0, len(report.faults) - _FAULTS),
        "doubts": [{"code": f.code.value, "where": f.where, "detail": f.detail} for f in report.doubts],
        "segments": report.segments,
        "lines": report.lines,
        "entries": report.entries,
        "checkpoints": report.checkpoints,
        "bytes": size,
        "keys": [{"key": key, "ours": key == public} for key in report.keys],
        "streams": [
            {
                "stream": name,
                "entries": one.entries,
                "first": one.first,
                "last": one.last,
                "absent": one.absent,
                "repeated": one.repeated,
            }
            for name, one in sorted(report.streams.items())
        ],
    }


def _sizes(folder: Path) -> Iterator[int]:
    try:
        yield from (path.stat().st_size for path in segments(folder).values())
    except OSError as error:
        raise ConfigurationError(f"audit folder {folder}: {error.strerror}") from None
