"""A dead letter keeps the complete record, sealed or in the clear."""

import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.public import PublicKey, SealedBox

from deid_agent.agent.dead_letter_keys import PrivateKey
from deid_agent.agent.dead_letter_records import (
    DeadLetterSealer,
    RecordForm,
    envelope_header,
    open_dead_letter,
    pack_envelope,
    read_dead_letter_head,
    unpack_envelope,
)
from deid_agent.agent.ports import Coordinates, DeadLetter, Record
from deid_agent.model.errors import DeadLetterError, Reason

AT = Coordinates("adt.raw", 2, 7)
DEAD_LETTER = DeadLetter(Reason.MALFORMED, "parse", "MSH-2", 3)
PRIVATE = PrivateKey(bytes(range(32)))
OTHER = PrivateKey(bytes(range(1, 33)))
MOST = 1 << 20
NAMES = st.text(st.characters(codec="utf-8"), max_size=20)

records = st.builds(
    Record,
    coordinates=st.builds(Coordinates, st.just("adt.raw"), st.integers(0, 99), st.integers(0, 2**62)),
    payload=st.binary(max_size=400),
    key=st.none() | st.binary(max_size=40),
    headers=st.lists(st.tuples(NAMES, st.binary(max_size=40)), max_size=4).map(tuple),
    timestamp_ms=st.none() | st.integers(0, 2**53),
) | st.builds(
    Record, coordinates=st.just(AT), payload=st.just(b""), key=st.none() | st.binary(), tombstone=st.just(True)
)


@given(records)
def test_an_envelope_gives_its_record_back(record: Record) -> None:
    assert unpack_envelope(pack_envelope(record), record.coordinates) == record
    assert pack_envelope(record).endswith(record.payload)


@given(records)
@settings(max_examples=30)
def test_a_dead_letter_gives_its_record_back(record: Record) -> None:
    for sealer in (DeadLetterSealer(), DeadLetterSealer(PRIVATE.public)):
        head = read_dead_letter_head(sealer.headers(record, DEAD_LETTER))
        assert head.at == record.coordinates
        assert open_dead_letter(head, sealer.body(record), PRIVATE, MOST) == record


@given(records, st.integers(0), st.integers(1, 255))
@settings(max_examples=50)
def test_a_change_of_any_byte_of_a_sealed_dead_letter_is_detected(record: Record, location: int, change: int) -> None:
    sealer = DeadLetterSealer(PRIVATE.public)
    head, body = read_dead_letter_head(sealer.headers(record, DEAD_LETTER)), bytearray(sealer.body(record))
    body[location % len(body)] ^= change
    with pytest.raises(DeadLetterError, match="damaged"):
        open_dead_letter(head, bytes(body), PRIVATE, MOST)


RECORD = Record(AT, b"PID|1||Okonkwo", b"Okonkwo", (("patient", b"Okonkwo"),), 1_700_000_000_000)


def test_a_sealed_dead_letter_reveals_nothing() -> None:
    sealer = DeadLetterSealer(PRIVATE.public)
    values = b"".join(name.encode() + value for name, value in sealer.headers(RECORD, DEAD_LETTER)) + sealer.body(
        RECORD
    )
    assert b"Okonkwo" not in values
    assert sealer.body(RECORD) != sealer.body(RECORD), "equal messages must not be recognizable"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:40],
        lambda data: data.replace(b'"v":1', b'"v":2'),
        lambda data: data.replace(b'"key":"', b'"key":"*'),
        lambda data: data.replace(b'"time"', b'"tome"'),
        lambda data: data.replace(b"\n", b" "),
        lambda data: data.replace(b'"tombstone":false', b'"tombstone":true'),
        lambda data: b"[]\n" + data,
        lambda data: b"",
    ],
)
def test_a_damaged_envelope_is_reported_without_its_content(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(DeadLetterError, match="envelope") as caught:
        unpack_envelope(damage(pack_envelope(RECORD)), AT)
    assert "Okonkwo" not in str(caught.value)


def test_exchanged_headers_of_a_dead_letter_are_detected() -> None:
    sealer = DeadLetterSealer(PRIVATE.public)
    other = replace(RECORD, coordinates=Coordinates("adt.raw", 2, 8))
    head = read_dead_letter_head(sealer.headers(other, DEAD_LETTER))
    with pytest.raises(DeadLetterError, match="another record"):
        open_dead_letter(head, sealer.body(RECORD), PRIVATE, MOST)


def test_the_wrong_key_is_named_and_no_key_too() -> None:
    sealer = DeadLetterSealer(PRIVATE.public)
    head = read_dead_letter_head(sealer.headers(RECORD, DEAD_LETTER))
    with pytest.raises(DeadLetterError, match=f"sealed to key {PRIVATE.id}, the key given is {OTHER.id}"):
        open_dead_letter(head, sealer.body(RECORD), OTHER, MOST)
    with pytest.raises(DeadLetterError, match="give --private-key"):
        open_dead_letter(head, sealer.body(RECORD), None, MOST)


def test_a_bomb_is_not_inflated() -> None:
    body = PRIVATE.public.seal(envelope_header(RECORD), bytes(5 * MOST))
    assert len(body) < 50_000
    with pytest.raises(DeadLetterError, match=f"more than {MOST} bytes"):
        PRIVATE.open(body, MOST)


def test_a_truncated_or_extended_stream_is_damaged() -> None:
    whole = zlib.compress(b"x" * 1000, 1)
    for data in (whole[:-2], whole + b"more"):
        with pytest.raises(DeadLetterError, match="damaged"):
            PRIVATE.open(_sealed(data), MOST)


def _sealed(data: bytes) -> bytes:
    return bytes(SealedBox(PublicKey(PRIVATE.public.raw)).encrypt(data))


KEPT = (
    "845a98dfb46be9a8e50e9265c648d04fedcc56abcb2695de191f0e16c2ff672af4e42215c127b8e5c544410ebff2aa3bdaef"
    "fb0cbfdde81fd7d7b428ea819143ee69a563b4d08fe25d45d3f8c630108f6547c96b6008f1bf7ed7650ef7d69203ada6c46d"
    "e317e67464445ebd4fd8645fb7d1a3aac905bcb07901ac9ddd64bcd561112232ed8e89868c1fc5fa84b7b97f285ee183ac9c"
    "ae13f253e311669c604dd5c84e206e8efa4c4a62"
)


def test_a_stored_sealed_dead_letter_still_opens() -> None:
    """A dead letter written by this release. A change of the format needs a new format name."""
    assert str(RecordForm.SEALED) == "sealed-1"
    assert PRIVATE.id == "7958c72e"
    assert unpack_envelope(PRIVATE.open(bytes.fromhex(KEPT), MOST), AT) == RECORD
