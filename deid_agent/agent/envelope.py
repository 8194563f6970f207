"""A whole record as one string of bytes, so that a dead letter can be put back as it was.

One line of JSON (here two), a line feed, then the payload byte for byte:

    {"v": 1, "at": "adt/0/7", "key": "TVJOMQ==", "headers": [["trace", "MQ=="]], "time": 1700000000000,
     "tombstone": false}

``key`` and header values are base64 (RFC 4648), ``key`` and ``time`` (milliseconds since 1970) may be null.
``at`` names the record, so that a letter whose headers were exchanged is found out.
"""

import base64
import binascii
from typing import Final

import orjson

from deid_agent.agent.ports import Coordinates, Record
from deid_agent.errors import LetterError

VERSION: Final = 1


def pack(record: Record) -> bytes:
    """The record in an envelope."""
    return head_line(record) + record.payload


def head_line(record: Record) -> bytes:
    """All of the envelope but the payload, its line feed included."""
    head = {
        "v": VERSION,
        "at": str(record.coordinates),
        "key": None if record.key is None else _text(record.key),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "time": record.timestamp_ms,
        "tombstone": record.tombstone,
    }
    return orjson.dumps(head) + b"\n"


def unpack(data: bytes, at: Coordinates) -> Record:
    """The record of an envelope. Raises ``LetterError`` where it is damaged, or of another record than ``at``."""
    line, end, payload = data.partition(b"\n")
    try:
        head = orjson.loads(line)
        if head["v"] != VERSION:
            raise LetterError("its envelope is of another release")
        record = Record(
            coordinates=at,
            payload=payload,
            key=None if head["key"] is None else _bytes(head["key"]),
            headers=tuple((str(name), _bytes(value)) for name, value in head["headers"]),
            timestamp_ms=None if head["time"] is None else int(head["time"]),
            tombstone=bool(head["tombstone"]),
        )
        named = head["at"]
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        raise LetterError("its envelope is damaged") from None
    if not end or (record.tombstone and payload):
        raise LetterError("its envelope is damaged")
    if named != str(at):
        raise LetterError("it holds another record than its headers say")
    return record


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
