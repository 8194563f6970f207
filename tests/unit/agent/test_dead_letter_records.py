"""Headers of dead letters are parsed as they were written, anything else is refused; filters select dead letters."""

import pytest

from deid_agent.agent.dead_letter_keys import PrivateKey
from deid_agent.agent.dead_letter_records import (
    DeadLetterFilter,
    DeadLetterHead,
    DeadLetterSealer,
    NumberRange,
    parse_coordinates,
    read_dead_letter_head,
)
from deid_agent.agent.ports import Coordinates, DeadLetter, Headers, Record
from deid_agent.model.errors import DeadLetterError, Reason

PUBLIC = PrivateKey(bytes(range(32))).public
BUILD = (("rules", "ab12"), ("policy", "our own policy:cd34"), ("models", "ef56"))
AT = Coordinates("hl7.raw", 2, 17)
DEAD_LETTER = DeadLetter(Reason.LEAK, "guard", "OBX-5[2]", 2, "MessageError")
KEEPER = DeadLetterSealer(PUBLIC, BUILD, clock=lambda: 1_700_000_000.25)
RECORD = Record(AT, b"payload", b"key", (("deid-replay-of", b"hl7.raw/2/5"), ("deid-replay-attempts", b"3")))


def head(**changed: object) -> DeadLetterHead:
    whole = read_dead_letter_head(KEEPER.headers(RECORD, DEAD_LETTER))
    values = {name: changed.get(name, getattr(whole, name)) for name in DeadLetterHead.__slots__}
    return DeadLetterHead(**values)  # type: ignore[arg-type]


def test_a_written_dead_letter_is_read_back() -> None:
    values = dict(KEEPER.headers(RECORD, DEAD_LETTER))
    assert values["deid.build.policy"] == b"our own policy:cd34"
    found = head()
    assert (found.at, found.code, found.stage, found.where) == (AT, "LEAK", "guard", "OBX-5[2]")
    assert (found.fault, found.form, found.key) == ("MessageError", "sealed-1", PUBLIC.id)
    assert (found.first, found.attempts) == (Coordinates("hl7.raw", 2, 5), 5)
    assert found.time_ms == 1_700_000_000_250
    assert found.build == (("rules", "ab12"), ("models", "ef56")), "a name that is not a word is omitted"


def without(headers: Headers, name: str) -> Headers:
    return tuple(item for item in headers if item[0] != name)


@pytest.mark.parametrize(
    "name",
    [
        "__connect.errors.topic",
        "__connect.errors.partition",
        "__connect.errors.offset",
        "deid.error.code",
        "deid.error.where",
        "deid.dead-letter.form",
        "deid.dead-letter.time",
        "deid.attempts",
    ],
)
@pytest.mark.parametrize("value", [None, b"\x1b[31mOkonkwo, Ada", b"\xff"])
def test_foreign_headers_are_not_a_dead_letter(name: str, value: bytes | None) -> None:
    headers = without(KEEPER.headers(RECORD, DEAD_LETTER), name)
    if value is not None:
        headers = (*headers, (name, value))
    if name == "deid.error.where" and value is not None:
        assert read_dead_letter_head(headers).where == ""
        return
    with pytest.raises(DeadLetterError, match="not written by this program") as caught:
        read_dead_letter_head(headers)
    assert "Okonkwo" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "adt", "adt/0", "adt/0/", "adt/0/1/2", "adt/00/1", "adt/0/-1", "a dt/0/1", "adt/0/1 "]
)
def test_invalid_coordinates_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        parse_coordinates(text)


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(topics=frozenset({"hl7.raw", "x"})), True),
        (DeadLetterFilter(topics=frozenset({"x"})), False),
        (DeadLetterFilter(partitions=frozenset({2})), True),
        (DeadLetterFilter(partitions=frozenset({0, 1})), False),
        (DeadLetterFilter(offsets=(NumberRange(17, 17),)), True),
        (DeadLetterFilter(offsets=(NumberRange(18, None), NumberRange(None, 16))), False),
        (DeadLetterFilter(offsets=(NumberRange(18, None), NumberRange(None, 17))), True),
        (DeadLetterFilter(codes=frozenset({"LEAK"})), True),
        (DeadLetterFilter(codes=frozenset({"POISON"})), False),
        (DeadLetterFilter(times_ms=NumberRange(1_700_000_000_250, None)), True),
        (DeadLetterFilter(times_ms=NumberRange(1_700_000_000_251, None)), False),
        (DeadLetterFilter(times_ms=NumberRange(None, 1_700_000_000_249)), False),
        (DeadLetterFilter(topics=frozenset({"hl7.raw"}), codes=frozenset({"POISON"})), False),
    ],
)
def test_a_dead_letter_is_selected_if_every_filter_matches(choice: DeadLetterFilter, taken: bool) -> None:
    assert choice.matches(head()) is taken
    assert choice.everything is (choice == DeadLetterFilter())
