"""PDF: the extracted text, and files without usable text."""

import logging
import zlib

import pytest
from support.attachments import FONT, NOTE, pdf, pdf_text

from deid_agent.codec.pdf import is_pdf, read_pdf_text
from deid_agent.model.errors import MessageError, Reason

UNNAMED = b"<< /Type /Font /Subtype /Type0 /BaseFont /ABCDEF+X /Encoding /Identity-H /DescendantFonts [] >>"
NUMBERED = (
    b"<< /Type /Font /Subtype /Type1 /BaseFont /X /Encoding << /Type /Encoding "
    b"/Differences [65 /g1 /g2 /g3 /g4 /g5] >> >>"
)
NAMED = b"<< /Type /Font /Subtype /Type1 /BaseFont /X /Encoding << /Differences [65 /Adieresis /B] >> >>"
EMBEDDED = b"<< /Type /Font /Subtype /TrueType /BaseFont /X /FontDescriptor << /Flags 4 /FontFile2 5 0 R >> >>"


def test_pages_in_order() -> None:
    found = read_pdf_text(pdf([pdf_text(NOTE), pdf_text("(two) \\ pages")]), "x")
    assert found == NOTE.strip() + "\n\n(two) \\ pages"


def test_compressed_streams() -> None:
    assert read_pdf_text(pdf([pdf_text(NOTE)], packed=True), "x") == NOTE.strip()


@pytest.mark.parametrize("font", [FONT, NAMED])
def test_fonts_with_known_characters(font: bytes) -> None:
    assert read_pdf_text(pdf([pdf_text("seen by the team")], font=font), "x") is not None


@pytest.mark.parametrize("font", [UNNAMED, NUMBERED, EMBEDDED], ids=["no map", "numbered glyphs", "built in"])
def test_glyphs_without_known_characters_are_not_text(font: bytes) -> None:
    assert read_pdf_text(pdf([pdf_text("ABCDE ABCDE")], font=font), "x") is None


@pytest.mark.parametrize(
    "raw",
    [
        b"%PDF-1.4\n",
        b"%PDF-1.4\ngarbage" * 50,
        pdf([b"0 0 10 10 re f"]),
        pdf([pdf_text(" ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))]),
        pdf([pdf_text(NOTE)], trailer=b"/Encrypt << /Filter /Standard /V 1 /R 2 /O (x) /U (y) /P -4 >> "),
        pdf([pdf_text(NOTE)])[:300],
        pdf([]),
    ],
    ids=["empty", "garbage", "picture", "letter by letter", "encrypted", "cut", "no pages"],
)
def test_a_pdf_without_a_text_layer_has_no_text(raw: bytes) -> None:
    assert read_pdf_text(raw, "x") is None


@pytest.mark.parametrize(
    "raw",
    [
        pdf([b" " * 40_000_000], packed=True),
        pdf([b"BT " * 600_000], packed=True),
        pdf([b"q " * 150_000] * 8, packed=True),
        pdf([b"BT ET"] * 501),
    ],
    ids=["bomb", "one long page", "long pages", "many pages"],
)
def test_bombs_are_refused(raw: bytes) -> None:
    with pytest.raises(MessageError) as refused:
        read_pdf_text(raw, "OBX-5[1].5")
    assert (refused.value.reason, refused.value.where) == (Reason.RESOURCE, "OBX-5[1].5")


def test_a_nested_bomb_is_refused() -> None:
    inner = zlib.compress(b" " * 60_000_000, 9)
    raw = pdf([inner], packed=True).replace(b"/Filter /FlateDecode", b"/Filter [/FlateDecode /FlateDecode]")
    with pytest.raises(MessageError, match="RESOURCE"):
        read_pdf_text(raw, "x")


def test_a_cyclic_page_tree_ends() -> None:
    raw = pdf([pdf_text(NOTE)]).replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]")
    try:
        assert not read_pdf_text(raw, "x")
    except MessageError as problem:
        assert problem.reason is Reason.RESOURCE


def test_no_content_of_a_file_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    raw = pdf([pdf_text("Okafor") + b" (Okafor) Zz /Okafor Tf"])
    for cut in range(0, len(raw), 97):
        read_pdf_text(raw[:cut] + raw[cut + 5 :], "x")
    assert not caplog.records


def test_detect() -> None:
    assert is_pdf(b"\n\x00%PDF-1.7")
    assert not is_pdf(b"x" * 1024 + b"%PDF-")
