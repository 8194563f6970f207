"""HTML: the cases of ``tests/cases/html``, pictures, replacements, and bounded time."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.edits import apply
from support.growth import growth
from support.markup import RULES, html, page

from deid_agent.codec.html import HtmlCodec
from deid_agent.model.errors import ConfigurationError, MessageError
from deid_agent.model.sites import Edit, LeafRole
from deid_agent.model.spans import Replacement

CASES = tomllib.loads((Path(__file__).parents[2] / "cases/html/pages.toml").read_text("utf-8"))["case"]


def rewritten(raw: str, old: str, new: str, charset: str = "utf-8") -> str:
    message = page(raw.encode(charset))
    for narrative in message.narratives:
        mapped = narrative.mapped
        if (at := mapped.text.find(old)) >= 0:
            placed = mapped.place([Replacement(at, at + len(old), new)])
            return apply(message.raw, [Edit(a, b, message.encode(text)) for a, b, text in placed]).decode(charset)
    raise AssertionError("the page has no such text")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: Mapping[str, object]) -> None:
    raw = str(case["page"]).encode()
    assert html().detect(raw)
    message = page(raw)

    assert [[n.path, n.mapped.text.strip("\n")] for n in message.narratives] == [
        [path, text.strip("\n")]
        for path, text in case["narratives"]  # type: ignore[attr-defined]
    ]
    assert [[s.path, str(s.type), s.value] for s in message.sites] == case.get("sites", [])
    kept = [[leaf.path, leaf.mapped.text] for leaf in html().parse_leaves(raw) if leaf.role is LeafRole.KEY]
    assert kept == case.get("kept", [])
    assert not message.attachments


@pytest.mark.parametrize(
    ("raw", "old", "new", "expected"),
    [
        ("<p>Dr. Oka<b>for</b> left</p>", "Okafor", "Ruiz", "<p>Dr. Ruiz<b></b> left</p>"),
        ("<p>Ada</p>", "Ada", "<Eve> & 'x'", "<p>&lt;Eve&gt; &amp; &#x27;x&#x27;</p>"),
        ('<p title="Ada">', "Ada", 'a "b"', '<p title="a &quot;b&quot;">'),
        ("<p title=Ada id=x>", "Ada", "Eve van Dyke", "<p title=Eve\u00a0van\u00a0Dyke id=x>"),
        ("<p title=Ada id=x>", "Ada", "", "<p title=\u00a0 id=x>"),
        ("<!-- a-Ada-b --><p>", "Ada", "", "<!-- a- -b --><p>"),
        ("<!-- a-Ada-b --><p>", "Ada", "-->", "<!-- a- -&gt;-b --><p>"),
        ("<p><!-- <Ada-->Eve</p>", "<Ada", "x", "<p><!-- x-->Eve</p>"),
        ("<p>Mu&ntildeoz</p>", "Muñoz", "Díaz", "<p>Díaz</p>"),
    ],
)
def test_writes(raw: str, old: str, new: str, expected: str) -> None:
    assert rewritten(raw, old, new) == expected


def test_the_charset_of_the_page_is_kept() -> None:
    raw = '<html><meta charset="windows-1252"><p>für Muñoz</p>'

    assert rewritten(raw, "Muñoz", "Ñandú Žižek Šó", "cp1252") == raw.replace("Muñoz", "Ñandú Žižek Šó")
    assert rewritten(raw, "Muñoz", "岡田", "cp1252") == raw.replace("Muñoz", "&#23713;&#30000;")


def test_a_picture_in_the_page_is_an_attachment() -> None:
    message = page("<p><img src='data:image/png;base64,iVBORw=='></p>")

    (attachment,) = message.attachments
    assert (attachment.path, attachment.content_type, attachment.data) == ("img/@src", "image/png", b"\x89PNG")
    assert message.raw[attachment.start : attachment.end] == b"iVBORw=="
    assert attachment.media
    assert message.raw[slice(*attachment.media)] == b"image/png"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"<!DOCTYPE HTML>", True),
        (b"\xef\xbb\xbf \n<HTML>", True),
        (b"<!-- a --><body class=x>", True),
        (b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">', True),
        ("<html>".encode("utf-16"), True),
        (b"<p>Ada</p>", True),
        (b"<ClinicalDocument>", False),
        (b"Ada <b>Okafor</b>", False),
        (b"<!--" * 9000, False),
        (b"{}", False),
        (b"", False),
    ],
)
def test_detects(raw: bytes, expected: bool) -> None:
    assert html().detect(raw) is expected


@pytest.mark.parametrize(
    "raw", [b'<!DOCTYPE html [<!ENTITY a "b">]><html>&a;', b"<html><!DOCTYPE x SYSTEM 'y' [", b"<!doctype html\n["]
)
def test_declarations_are_refused(raw: bytes) -> None:
    with pytest.raises(MessageError, match="RESOURCE"):
        html().parse(raw)


@pytest.mark.parametrize("charset", ["utf-7", "iso-2022-jp", "hz-gb-2312"])
def test_a_charset_with_shifts_is_refused(charset: str) -> None:
    with pytest.raises(MessageError, match="UNSUPPORTED"):
        html().parse(f'<html><meta charset="{charset}"><p>+AEEA-</p>'.encode())


@pytest.mark.parametrize(
    "piece",
    [
        *("<", "<a ", '<a "', "<!--", "<![CDATA[", "<script>", "<!x", "&", "&#1", " ", "\n", "<a b='<a b=\""),
        "é",
        "<? ",
        "-",
    ],
)
def test_no_page_stalls(piece: str) -> None:
    """Unclosed pieces, ten times as many: a quadratic reader takes a hundred times as long."""
    assert growth(lambda count: html().parse(f"<p>{piece * count}".encode()), 5_000, 50_000) < 30


@pytest.mark.parametrize(("old", "new"), [("inline = [", "inlin = ["), ("kept = [", "kept = 3\nx = ["), ("[", "{")])
def test_a_bad_list_stops_the_start(old: str, new: str, tmp_path: Path) -> None:
    (tmp_path / "markup").mkdir()
    text = (RULES / "markup/html.toml").read_text("utf-8")
    (tmp_path / "markup/html.toml").write_text(text.replace(old, new, 1), "utf-8")

    with pytest.raises(ConfigurationError, match=r"html\.toml"):
        HtmlCodec(tmp_path)
