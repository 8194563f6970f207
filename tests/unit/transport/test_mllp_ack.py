"""Acknowledgments: the values they repeat, the values they never contain, and when none is due."""

from datetime import UTC, datetime

import hl7
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deid_agent.transport.mllp.protocol import (
    MAX_HEAD_BYTES,
    AckResult,
    AckWriter,
    RefusalCode,
    acknowledgment_code,
    expects_no_answer,
    explain_unreadable,
    holds_several_messages,
    read_acknowledgment,
    read_head,
)

WRITER = AckWriter(lambda: datetime(2024, 3, 18, 14, 30, 12, tzinfo=UTC), lambda: "token")
MSH = rb"MSH|^~\&|LAB|MERCY|EHR|DEID|20240318||ORU^R01^ORU_R01|MSG-7|P|2.5.1"


def answer(message: bytes, verdict: AckResult, why: str = "") -> bytes:
    head = read_head(message)
    assert head is not None
    return WRITER.answer(head, verdict, why)


def test_an_acknowledgement_has_the_standard_form() -> None:
    assert answer(MSH + b"\rPID|1\r", AckResult.ACCEPT) == (
        rb"MSH|^~\&|EHR|DEID|LAB|MERCY|20240318143012+0000||ACK^R01^ACK|token|P|2.5.1" + b"\rMSA|AA|MSG-7\r"
    )


def test_a_rejection_has_a_reason_code() -> None:
    assert answer(MSH, AckResult.REJECT, RefusalCode.TOO_LARGE).endswith(
        b"\rMSA|AR|MSG-7|TOO_LARGE\rERR|||207^Application internal error^HL70357|E||||TOO_LARGE\r"
    )


def test_before_version_2_5_a_rejection_has_no_err_segment() -> None:
    answered = answer(MSH.replace(b"2.5.1", b"2.3"), AckResult.ERROR, "X")
    assert answered.endswith(b"||ACK^R01|token|P|2.3\rMSA|AE|MSG-7|X\r")


def test_separators_and_character_set_are_those_of_the_message() -> None:
    answered = answer(b"MSH#*~!@#L\xe4b#b#c#d#t##ADT*A01#\xff-9#P#2.4######8859/1\rPID#", AckResult.ACCEPT)
    assert answered.startswith(b"MSH#*~!@#c#d#L\xe4b#b#")
    assert b"#ACK*A01*ACK#token#P#2.4######8859/1\rMSA#AA#\xff-9\r" in answered


def test_another_program_reads_it() -> None:
    answered = hl7.parse(answer(MSH + b"\rPID|1\r", AckResult.ERROR, RefusalCode.SINK).decode())
    assert (str(answered["MSA"][0][1]), str(answered["MSA"][0][2]), str(answered["MSA"][0][3])) == (
        "AE",
        "MSG-7",
        "SINK",
    )
    assert str(answered["MSH"][0][3]) == "EHR"


@pytest.mark.parametrize(
    ("accept", "application", "codes"),
    [
        ("", "", "AA AE AR"),
        ("AL", "", "CA CE CR"),
        ("AL", "AL", "CA CE CR"),
        ("AL", "NE", "CA CE CR"),
        ("SU", "NE", "CA - -"),
        ("ER", "NE", "- CE CR"),
        ("ER", "AL", "AA CE CR"),
        ("ER", "SU", "AA CE CR"),
        ("SU", "ER", "CA AE AR"),
        ("NE", "AL", "AA AE AR"),
        ("", "AL", "AA AE AR"),
        ("NE", "ER", "- AE AR"),
        ("NE", "NE", "- - -"),
        ("NE", "", "- - -"),
        ("al", "", "CA CE CR"),
        ("??", "", "AA AE AR"),
    ],
)
def test_the_requested_acknowledgements_are_sent(accept: str, application: str, codes: str) -> None:
    head = read_head(MSH + f"|||{accept}|{application}\r".encode())
    assert head is not None
    assert " ".join(acknowledgment_code(head, verdict) or "-" for verdict in AckResult) == codes
    assert expects_no_answer(head) == codes.startswith("-")


@pytest.mark.parametrize(
    ("data", "more"),
    [
        (MSH + b"\rPID|1\r", False),
        (b"\r\n\xef\xbb\xbf\r" + MSH + b"\rOBX|1|TX|||about MSH|x\r", False),
        (MSH + b"\rNTE|1\rMSHELL\r", False),
        (MSH + b"\rPID|1\r" + MSH, True),
        (MSH + b"\nPID|1\n" + MSH.replace(b"|", b"#"), True),
        (b"PID|1\rMSH|", False),
    ],
)
def test_several_messages_in_one_block_are_detected(data: bytes, more: bool) -> None:
    assert holds_several_messages(data) is more


def test_an_answer_is_not_answered() -> None:
    answered = answer(MSH, AckResult.ACCEPT)
    head = read_head(answered)
    assert head is not None
    assert WRITER.answer(head, AckResult.REJECT) == b""


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"MSH",
        b"MSH\r",
        b"MSHA^~",
        b"FHS|^~\\&|\rMSH|^~\\&|\r",
        b"PID|1\rMSH|^~\\&|",
        b"MSH|^~\\&|" + b"x" * MAX_HEAD_BYTES,
        b"MSH|^~\\&|LAB||||||ADT^A01|id\x1c\rPID|",
        b"MSH|^~\\&|LAB\x00|",
        b'{"resourceType": "Patient"}',
    ],
)
def test_invalid_headers_are_refused(message: bytes) -> None:
    assert read_head(message) is None
    assert explain_unreadable(message) is RefusalCode.NOT_HL7


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_characters_are_distinguished(charset: str) -> None:
    message = "MSH|^~\\&|LAB\r".encode(charset)
    assert read_head(message) is None
    assert explain_unreadable(message) is RefusalCode.CHARSET


def test_a_byte_order_mark_or_a_line_end_before_the_header_is_accepted() -> None:
    head = read_head(b"\r\n\xef\xbb\xbf" + MSH)
    assert head is not None
    assert head.control_id == b"MSG-7"


HEADS = st.lists(st.binary(max_size=12).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b"")), max_size=20)


@given(HEADS, st.sampled_from(list(AckResult)), st.sampled_from(["", *RefusalCode]))
def test_an_answer_to_any_header_is_one_block_that_names_the_message(
    fields: list[bytes], verdict: AckResult, why: str
) -> None:
    head = read_head(b"MSH|^~\\&|" + b"|".join(fields))
    if head is None or not acknowledgment_code(head, verdict):
        return
    answered = WRITER.answer(head, verdict, why)
    assert b"\x1c" not in answered
    assert b"\x0b" not in answered
    found = read_acknowledgment(answered)
    assert found is not None
    assert (found.verdict, found.control_id) == (verdict, head.control_id)


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (b"MSH|^~\\&|\rMSA|CE|7\r", (AckResult.ERROR, b"7")),
        (b"MSH|^~\\&|\nMSA|AA|7|ok\n", (AckResult.ACCEPT, b"7")),
        (b"MSH|^~\\&|\rMSA|AA", (AckResult.ACCEPT, b"")),
        (b"MSH|^~\\&|\rMSA|OK|7\r", None),
        (b"MSH|^~\\&|\rPID|1\r", None),
        (b"nothing", None),
    ],
)
def test_answers_of_other_products_are_read(message: bytes, wanted: tuple[AckResult, bytes] | None) -> None:
    found = read_acknowledgment(message)
    assert (None if found is None else (found.verdict, found.control_id)) == wanted


def test_repr_shows_no_field() -> None:
    assert "MERCY" not in repr(read_head(MSH))
    assert "MSG-7" not in repr(read_acknowledgment(answer(MSH, AckResult.ACCEPT)))
