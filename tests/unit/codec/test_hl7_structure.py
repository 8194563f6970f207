"""Lines, separators and batches of raw bytes."""

import pytest
from support.hl7 import MSH, RULES, codec, message
from support.scopes import scope_of

from deid_agent.codec.hl7v2 import Hl7Codec
from deid_agent.codec.hl7v2.codec import MAX_SEGMENTS
from deid_agent.codec.hl7v2.reader import MAX_PIECES
from deid_agent.model.errors import MessageError, Reason

PID = "PID|||1||Okafor"


def names(raw: bytes) -> list[str]:
    return [s.value for m in codec().parse(raw) for s in m.sites if s.path.startswith("PID-5")]


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_every_line_end_ends_a_segment(end: str) -> None:
    assert names(f"{MSH}{end}{PID}{end}".encode()) == ["Okafor"]
    assert names(f"{MSH}{end}{PID}".encode()) == ["Okafor"]


def test_a_bare_line_feed_is_content_if_segments_end_with_returns() -> None:
    parsed = message("OBX|1|TX|1||Seen by\nDr. Bell")
    assert [n.mapped.text for n in parsed.narratives] == ["Seen by\nDr. Bell"]


def test_a_segment_after_a_bare_line_feed_is_a_segment() -> None:
    assert names(f"{MSH}\n{PID}\nPV1|1\r".encode()) == ["Okafor"]


def test_framing_is_kept_and_is_not_content() -> None:
    raw = f"\x0b{MSH}\r{PID}\rNTE|1||note\x1c\r".encode()
    (parsed,) = codec().parse(raw)
    assert parsed.narratives[0].mapped.text == "note"
    assert parsed.raw == raw
    assert [s.value for s in parsed.sites] == ["1", "Okafor"]


@pytest.mark.parametrize("lead", [b"\xef\xbb\xbf", b"\x0b", b"\r\n ", b" \xef\xbb\xbf\x0b"])
def test_bytes_before_the_header_are_tolerated(lead: bytes) -> None:
    raw = lead + f"{MSH}\r{PID}\r".encode()
    assert codec().detect(raw)
    assert names(raw) == ["Okafor"]


@pytest.mark.parametrize(
    "raw", [b"", b"MSH", b"MSHA^~", b'{"resourceType"', b"PID|1", b"MSH \\", b"xMSH|^~\\&|", b"\xff"]
)
def test_other_payloads_are_not_detected(raw: bytes) -> None:
    assert not codec().detect(raw)
    with pytest.raises(MessageError) as caught:
        codec().parse(raw)
    assert caught.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("raw", [b"MSH|ABCD|", b"MSH|^1|\rPID|", b"MSH|^\xff|"])
def test_letters_are_refused_as_separators(raw: bytes) -> None:
    with pytest.raises(MessageError, match="MSH-2"):
        codec().parse(raw)


@pytest.mark.parametrize("marks", ["&&&&", "^^\\&", "^~~&", "^~^&", "&&"])
def test_one_character_cannot_separate_two_levels(marks: str) -> None:
    with pytest.raises(MessageError, match="MALFORMED: MSH-2"):
        codec().parse(f"MSH|{marks}|A\r{PID}\r".encode())


@pytest.mark.parametrize("marks", ["^~\\\\&", "^~\\\\", "^~\\&#", "^~\\", "^"])
def test_a_doubled_escape_character_is_one_character(marks: str) -> None:
    (parsed,) = codec().parse(f"MSH|{marks}|A\rPID|||||Okafor^Ada\r".encode())
    assert [s.value for s in parsed.sites] == ["Okafor", "Ada"]


def test_separators_may_be_missing() -> None:
    parsed = message("PID|||1^2~3&4||Okafor^Ada", header="MSH||A")
    assert [s.value for s in parsed.sites] == ["1^2~3&4", "Okafor^Ada"]
    assert parsed.encode("A|B^C\nD") == b"A B^C D"


def test_a_batch_is_many_messages_and_headers_have_their_own_paths() -> None:
    raw = (
        "FHS|^~\\&|A|Mercy|B|C|20230501||file.ada|by Ada Okafor|F-1\rBHS|^~\\&|A|Mercy||||||c|B-1\r"
        f"{MSH}\r{PID}1\r{MSH}\r{PID}2\rBTS|2|sent by Ada\rBHS|^~\\&\r{MSH}\r{PID}3\rBTS|1\rFTS|1\r"
    ).encode()
    parsed = codec().parse(raw)
    assert b"".join(m.raw for m in parsed) == raw
    assert [m.raw[:3] for m in parsed] == [b"FHS", b"MSH", b"BHS"]
    assert names(raw) == ["Okafor1", "Okafor2", "Okafor3"]
    found = {s.path: s.value for s in parsed[0].sites}
    assert found["FHS-4[1].1"] == "Mercy"
    assert found["FHS-9[1].1"] == "file.ada"
    assert found["FHS-11[1].1"] == "F-1"
    assert found["BHS-11[1].1"] == "B-1"
    assert [n.path for n in parsed[0].narratives] == ["FHS-10[1].1", "BHS-10[1].1"]
    assert [(n.path, n.mapped.text) for n in parsed[1].narratives] == [("BTS-2[1].1", "sent by Ada")]


def test_a_batch_without_a_message_is_one_message() -> None:
    raw = b"FHS|^~\\&|A|Mercy\rFTS|0\r"
    (parsed,) = codec().parse(raw)
    assert [s.value for s in parsed.sites] == ["Mercy"]
    assert parsed.patients == ()


def test_messages_of_one_batch_may_use_other_separators() -> None:
    raw = f"{MSH}\r{PID}\rMSH*:;!%*A\rPID***1**Bell:Amy\r".encode()
    assert names(raw) == ["Okafor", "Bell", "Amy"]


def test_a_line_of_text_about_a_header_begins_no_message() -> None:
    raw = f"{MSH}\rOBX|1|TX|1||see\rMSH-10 is odd\r".encode()
    (parsed,) = codec().parse(raw)
    assert [n.mapped.text for n in parsed.narratives] == ["see\nMSH-10 is odd"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("Ann", "Ann"),
        ("Dr", "Dr"),
        ("MRN: 12", "MRN: 12"),
        ("   Ann Okafor", "Ann Okafor"),
        ("Ann Okafor|^Bell", "Ann Okafor\n\nBell"),
        ("MSH|abc|Ann", "MSH\nabc\nAnn"),
    ],
)
def test_a_line_that_is_not_a_segment_is_read_as_text(line: str, text: str) -> None:
    assert [(n.path, n.mapped.text) for n in message(line).narratives] == [("line(2)", text)]


def test_known_segments_are_recognized_in_any_case() -> None:
    assert [s.path for s in message("pid|||1").sites] == ["PID-3[1].1"]


def test_identity_is_control_id_and_time_else_a_digest() -> None:
    parsed = message(header="MSH|^~\\&|A|B|C|D|20230501||ADT^A08|M-1|P|2.3")
    assert parsed.identity == "M-1^20230501"
    one, two = message("PID|1"), message("PID|2")
    assert one.identity != two.identity
    assert len(one.identity) == 64


@pytest.mark.parametrize(
    ("line", "patient"),
    [
        ("PID||22|33^^^H~44|55", "33"),
        ("PID||22|44^^^H~33|55", "33"),
        ("PID||22||55", "22"),
        ('PID|||""|5', "5"),
        ("PID|||3\\T\\4", "34"),
        ("MRG|9^^^H", "9"),
        ("PV1|1", None),
    ],
)
def test_the_patient_is_named_by_pid_3_else_pid_2_and_4_else_mrg(line: str, patient: str | None) -> None:
    assert scope_of(message(line)) == patient


def test_too_many_segments_are_refused() -> None:
    small = Hl7Codec(RULES, max_segments=3)
    assert small.parse(f"{MSH}\rPID|1\rPV1|1\r".encode())
    with pytest.raises(MessageError) as caught:
        small.parse(f"{MSH}\rPID|1\rPV1|1\rPV2|1\r".encode())
    assert caught.value.reason is Reason.RESOURCE
    assert MAX_SEGMENTS >= 100_000


def test_too_many_pieces_are_refused() -> None:
    with pytest.raises(MessageError) as caught:
        codec().parse(f"{MSH}\rPID|".encode() + b"^" * (MAX_PIECES + 1))
    assert caught.value.reason is Reason.RESOURCE


def test_errors_and_reprs_contain_no_value() -> None:
    parsed = message("PID|||M-77||Okafor", "OBX|1|TX|1||Ada Okafor", "OBX|2|ED|1||^TX^^A^Ada Okafor")
    assert parsed.attachments
    assert "Okafor" not in repr(parsed)
    assert "M-77" not in repr(parsed)
