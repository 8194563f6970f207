"""Embedded documents: their type and position; none is read as text."""

import base64

import pytest
from support.hl7 import message

from deid_agent.codec.hl7v2.documents import media_type_of

NOTE = b"Seen by Dr. Bell\nfor Ada Okafor."
B64 = base64.b64encode(NOTE).decode()
LONG = base64.b64encode(b"%PDF-1.4 " + b"x" * 300).decode()


@pytest.mark.parametrize(
    ("value", "content_type", "encoding", "data"),
    [
        (f"APP^TEXT^plain^Base64^{B64}", "text/plain", "base64", NOTE),
        (f"^TX^^Base64^{B64}", "text/plain", "base64", NOTE),
        (f"^AP^PDF^base64^{B64}", "application/pdf", "base64", NOTE),
        (f"^AP^PDF^Hex^{NOTE.hex()}", "application/pdf", "hex", NOTE),
        ("^TX^^A^Seen \\T\\ gone", "text/plain", "text", b"Seen & gone"),
        (f"^application&sub^pdf^^{B64}", "application/pdf", "base64", NOTE),
        ("^TX^^^Seen by Dr. Bell", "text/plain", "text", b"Seen by Dr. Bell"),
        (f"^AP^PDF^Base64^{B64[:8]}\\.br\\{B64[8:]}", "application/pdf", "base64", NOTE),
        ("^TX^^Base64^not base64!", "application/octet-stream", "base64", b"not base64!"),
        ("^TX^^Hex^4g", "application/octet-stream", "hex", b"4g"),
        (f"^^^Base64^{B64}", "", "base64", NOTE),
    ],
)
def test_an_ed_is_a_document(value: str, content_type: str, encoding: str, data: bytes) -> None:
    parsed = message(f"OBX|1|ED|1||{value}||")
    (found,) = parsed.attachments
    assert (found.content_type, found.encoding, found.data) == (content_type, encoding, data)
    assert found.path == "OBX-5[1].5"
    assert parsed.raw[found.start : found.end].decode() == value.split("^")[4]
    assert found.media is not None
    assert parsed.raw[slice(*found.media)].decode() == "^".join(value.split("^")[1:3])
    assert found.plain == b"text^plain"
    assert not parsed.narratives


def test_every_repetition_is_a_document() -> None:
    parsed = message(f"OBX|1|ED|1||^TX^^Base64^{B64}~^TX^^A^x")
    assert [a.path for a in parsed.attachments] == ["OBX-5[1].5", "OBX-5[2].5"]


def test_an_ed_without_data_has_no_document() -> None:
    parsed = message('OBX|1|ED|1||^TX^^Base64^""', "OBX|2|ED|1||^TEXT^html^Base64^")
    assert not parsed.attachments
    assert not parsed.narratives


def test_short_text_in_place_of_an_ed_is_text() -> None:
    assert [n.mapped.text for n in message("OBX|1|ED|1||see Ada^Bell").narratives] == ["see Ada\nBell"]


@pytest.mark.parametrize("kind", ["TX", "ED", "ST", "FT", ""])
def test_a_long_base64_word_is_a_document_in_any_type(kind: str) -> None:
    parsed = message(f"OBX|1|{kind}|1||{LONG}")
    (found,) = parsed.attachments
    assert (found.content_type, found.encoding, found.data[:4]) == ("application/pdf", "base64", b"%PDF")
    assert not parsed.narratives


def test_a_truncated_base64_word_is_unknown_and_never_text() -> None:
    (found,) = message(f"OBX|1|TX|1||{LONG[:-3]}").attachments
    assert found.content_type == "application/octet-stream"


def test_components_after_the_data_are_read_as_text() -> None:
    assert [n.mapped.text for n in message(f"OBX|1|ED|1||^TX^^Base64^{B64}^by Ada").narratives] == ["by Ada"]


@pytest.mark.parametrize(
    ("main", "sub", "expected"),
    [
        ("im", "jpeg", "image/jpeg"),
        ("application", "rtf", "application/rtf"),
        ("multipart", "x-hl7-cda-level-one", "multipart/x-hl7-cda-level-one"),
        ("text/html", "", "text/html"),
        ("pdf", "", "application/pdf"),
        ("", "html", "text/html"),
        ("au", "", "audio/octet-stream"),
        ("", "", ""),
    ],
)
def test_media_types(main: str, sub: str, expected: str) -> None:
    assert media_type_of(main, sub) == expected
