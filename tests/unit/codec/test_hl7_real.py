"""Test messages of other projects: ``$DEID_SHARED/messages``."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from support.edits import apply
from support.hl7 import codec, ranges

from deid_agent.codec.hl7v2.reader import Hl7Message
from deid_agent.model.errors import MessageError
from deid_agent.model.sites import Edit

SHARED = os.environ.get("DEID_SHARED", "")
pytestmark = pytest.mark.skipif(not SHARED, reason="DEID_SHARED is not set: no real messages to read")


def parsed() -> Iterator[Hl7Message | None]:
    """Every message; None for a refused payload."""
    found = [
        f for name in ("hl7", "hl7-odd", "hl7-batch") for f in sorted((Path(SHARED) / "messages" / name).glob("*.hl7"))
    ]
    assert len(found) > 500, "DEID_SHARED names a folder without messages/hl7"
    for file in found:
        raw = file.read_bytes()
        try:
            messages = codec().parse(raw)
        except MessageError:
            yield None
            continue
        assert b"".join(m.raw for m in messages) == raw
        yield from messages


def test_every_file_parses_and_joins_to_itself() -> None:
    refused = 0
    for message in parsed():
        if message is None:
            refused += 1
            continue
        assert all(one[1] <= two[0] for one, two in pairwise(ranges(message)))
    assert refused <= 8  # a missing separator (MSH^~\\&|), four equal separators, six missing segment terminators


def test_every_value_written_as_itself_reads_as_itself() -> None:
    for message in parsed():
        if message is None:
            continue
        new = apply(message.raw, [Edit(s.start, s.end, message.encode(s.value)) for s in message.sites])
        if new != message.raw:
            (again,) = codec().parse(new)
            assert [(s.path, s.value) for s in again.sites] == [(s.path, s.value) for s in message.sites]
