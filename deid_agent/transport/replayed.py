"""Files that were put back: where they stand in the input folder, and which record they make.

``deid-replay/<first>.<letter>.<attempts>.<time>/<name>``: the offset at which the file was first seen, the offset of
its letter, how often it was tried, and how often this letter had been put back before. The name stays the
record's key, so the output stands where it belongs. The path is the same whenever the same step is
repeated, so a replay that was cut off and started again makes no second record.
"""

import re
from typing import Final

from deid_agent.agent.lineage import headers_of_replay, lineage_of
from deid_agent.agent.ports import Coordinates, Record

FOLDER: Final = "deid-replay"
_PLACE = re.compile(rb"deid-replay/([0-9]{1,19})\.[0-9]{1,19}\.([0-9]{1,6})\.[0-9]{1,6}/(.+)", re.DOTALL)


def place_of(record: Record, attempts: int, replayed: int) -> bytes:
    """The relative name under which a record of a folder is put back."""
    first = lineage_of(record).first or record.coordinates
    step = f"{first.offset}.{record.coordinates.offset}.{attempts}.{replayed}"
    return f"{FOLDER}/{step}/".encode() + (record.key or b"")


def record_of(at: Coordinates, name: bytes, payload: bytes, timestamp_ms: int) -> Record:
    """The record that a file makes: its name is the key; a file that was put back has its own name, and headers."""
    match = _PLACE.fullmatch(name)
    if match is None:
        return Record(at, payload, name, (), timestamp_ms)
    first = Record(Coordinates(at.topic, at.partition, int(match[1])), b"")
    return Record(at, payload, match[3], headers_of_replay(first, int(match[2])), timestamp_ms)
