"""RTF: texts, removed parts, and edits that never break the markup around them."""

import pytest
from support.edits import apply

from deid_agent.codec.rtf import RtfCodec
from deid_agent.codec.rtf.codec import RtfMessage
from deid_agent.codec.rtf.tokens import encode_rtf, iter_tokens
from deid_agent.model.errors import MessageError, Reason
from deid_agent.model.sites import Edit, LeafRole
from deid_agent.model.spans import Replacement

CODEC = RtfCodec()


def parsed(body: bytes) -> RtfMessage:
    (message,) = CODEC.parse(b"{\\rtf1\\ansi " + body + b"}")
    return message


def texts(message: RtfMessage) -> dict[str, str]:
    return {n.path: n.mapped.text for n in message.narratives}


def replaced(body: bytes, old: str, new: str, path: str = "body") -> bytes:
    """``body`` with the first ``old`` of a text replaced."""
    message = parsed(body)
    mapped = next(n.mapped for n in message.narratives if n.path == path)
    at = mapped.text.index(old)
    ranges = mapped.place([Replacement(at, at + len(old), new)])
    raw = apply(message.raw, [Edit(a, b, message.encode(text)) for a, b, text in ranges])
    return raw[len(b"{\\rtf1\\ansi ") : -1]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"Ok{\\b af}or", "Okafor"),
        (b"Oka\r\nfor", "Okafor"),
        (b"Oka\\-for", "Okafor"),
        (b"Ada\\~Okafor\\_Bell", "Ada Okafor-Bell"),
        (b"a\\par b\\line c\\tab d\\cell e\\row f\\\ng", "a\nb\nc\td\ne\nf\ng"),
        (b"\\{x\\} \\\\n", "{x} \\n"),
        (b"Garc\\'eda", "García"),
        (b"Garc\\u237?a", "García"),
        (b"\\uc0 Garc\\u237 a", "García"),
        (b"\\uc2 Garc\\u237\\'3f?a", "García"),
        (b"{\\uc2 \\u237 xx}\\u237 x", "íí"),
        (b"\\u-10179?\\u-8704?", "😀"),
        (b"\\u-10179?x", "\ufffdx"),
        (b"\\u-10179?\\emdash\\u-8704?", "\ufffd—\ufffd"),
        (b"\\u-10179?\\par\\u-8704?", "\ufffd\n\ufffd"),
        (b"\\lquote O\\rquote Neil\\endash x", "‘O’Neil–x"),
        (b"\\v hidden\\v0  seen", "hidden seen"),
        (b"Ada \\bin4 {}\\}Okafor", "Ada Okafor"),
        (b"{\\field{\\*\\fldinst REF x}{\\fldrslt Ada}}", "Ada"),
        (b"Garc\xeda", "García"),
        (b"{\\upr{Ada}{\\*\\ud{\\u65?da}}}", "Ada"),
        (b"\\unknownword Ada", "Ada"),
        (b"{\\f99\\'88 Ada}", "\u02c6 Ada"),
    ],
)
def test_text(body: bytes, text: str) -> None:
    assert texts(parsed(body))["body"] == text


@pytest.mark.parametrize(
    ("head", "data", "text"),
    [
        (b"\\ansicpg1251", b"\\'c8\\'e2\\'e0\\'ed", "Иван"),
        (b"\\ansicpg932", b"\\'8e\\'52\\'93\\'63", "山田"),
        (b"\\ansicpg932", b"\\'8eR\\'93c", "山田"),
        (b"\\ansicpg65001", b"Garc\\'c3\\'ada", "García"),
        (b"\\mac", b"\\'8e", "é"),
        (b"\\ansicpg99999", b"\\'e9", "é"),
        (b"{\\fonttbl{\\f0 A;}{\\f1\\fcharset204 B;}}", b"\\f1\\'c8\\plain\\'e9", "Иé"),
        (b"\\deff1{\\fonttbl{\\f1\\fcharset161 B;}}", b"\\'c1", "Α"),
    ],
)
def test_code_pages(head: bytes, data: bytes, text: str) -> None:
    assert texts(parsed(head + (b"" if head.endswith(b"}") else b" ") + data))["body"] == text


def test_texts_apart_from_the_body_are_read_separately() -> None:
    found = texts(
        parsed(
            b"{\\header Okafor, Ada\\par}{\\footerr page}Ada{\\footnote note} Okafor"
            b'{\\field{\\*\\fldinst HYPERLINK "mailto:ada@x.example"}{\\fldrslt  mail}}'
            b"{\\*\\annotation comment}{\\shp{\\*\\shpinst{\\sp{\\sn wzName}{\\sv box}}{\\shptxt in a box}}}"
        )
    )
    assert found == {
        "header": "Okafor, Ada\n",
        "footerr": "page",
        "body": "Ada Okafor mail",
        "footnote": "note",
        "fldinst": 'HYPERLINK "mailto:ada@x.example"',
        "annotation": "comment",
        "sv": "box",
        "shptxt": "in a box",
    }


@pytest.mark.parametrize(
    ("body", "rest"),
    [
        (b"a{\\info{\\author Bell}}b", b"ab"),
        (b"a{\\pict\\pngblip 8950}b", b"ab"),
        (b"a{\\*\\shppict{\\pict 89}}b", b"ab"),
        (b"a{\\object{\\*\\objdata 0105}{\\result Bell}}b", b"ab"),
        (b"a{\\*\\unknown Bell {x}}b", b"ab"),
        (b"a{\\*\\generator Bell;}b", b"ab"),
        (b"a{\\b\\pict 8950 {x}}b", b"a{\\b }b"),
        (b"a{\\pict\\bin3 }}}}b", b"ab"),
        (b"\\par{\\pict 89}Ada", b"\\par Ada"),
        (b"{\\*\\xmlnstbl Bell}{\\*\\userprops Bell}{\\*\\datastore 42}{\\*\\atnauthor Bell}", b""),
    ],
)
def test_pictures_objects_and_properties_are_removed(body: bytes, rest: bytes) -> None:
    message = parsed(body)
    raw = apply(message.raw, [Edit(s.start, s.end, message.encode(s.blank)) for s in message.sites])
    assert raw == b"{\\rtf1\\ansi " + rest + b"}"
    CODEC.parse(raw)


def test_bytes_after_the_document_are_removed() -> None:
    raw = b"{\\rtf1 Ada}\r\n\x00"
    assert not CODEC.parse(raw)[0].sites
    (site,) = CODEC.parse(raw + b"Bell {x}")[0].sites
    assert (site.path, raw[: site.start]) == ("trailer", b"{\\rtf1 Ada}\r\n\x00")


@pytest.mark.parametrize(
    ("body", "old", "new", "after"),
    [
        (b"seen Ada now", "Ada", "Bo", b"seen Bo now"),
        (b"seen Ok{\\b af}or now", "Okafor", "Bell", b"seen Bell{\\b } now"),
        (b"\\b\\'41da", "Ada", "Bo", b"\\b Bo"),
        (b"\\b\\'41da x", "A", "", b"\\b da x"),
        (b"\\f0\\'41da", "Ada", "7", b"\\f0 7"),
        (b"\\\\b\\'41da", "Ada", "Bo", b"\\\\bBo"),
        (b"Ada", "Ada", "{B}\\", b"\\{B\\}\\\\"),
        (b"Ada", "Ada", "é€", b"{\\uc1\\u233?\\u8364?}"),
        (b"Ada", "Ada", "😀", b"{\\uc1\\u-10179?\\u-8704?}"),
        (b"Garc\\u237?a!", "García", "Bell", b"Bell!"),
        (b"\\uc2\\u237\\'3f\\'3fa", "ía", "Bo", b"\\uc2 Bo"),
        (b"Ada\\par Okafor", "Ada\nOkafor", "Bo\nBell", b"Bo\\par Bell"),
        (b"\\u233?Ada", "éAda", "Bo", b"Bo"),
        (b"\\u233\\bin2 {}Ada", "é", "e", b"eAda"),
        (b"\\u233?Ada\\bin2 {}x", "Ada", "Bo", b"\\u233?Bo\\bin2 {}x"),
    ],
)
def test_edits(body: bytes, old: str, new: str, after: bytes) -> None:
    assert replaced(body, old, new) == after
    if "\n" not in new:
        found = texts(parsed(after)).get("body", "")
        assert new in found


def test_binary_data_of_removed_parts_belongs_to_no_character() -> None:
    message = parsed(b"{\\stylesheet \\u233?e\\info\\bin2 {}}")
    (site,), (style,) = message.sites, message.narratives
    assert style.path == "stylesheet"
    assert max(style.mapped.ends) <= site.start


def test_replacement_line_breaks_are_lines() -> None:
    assert encode_rtf("a\nb\tc\rd\x01") == b"a\\line b\\tab c d "


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{\\rt", Reason.MALFORMED),
        (b"", Reason.MALFORMED),
        (b"Ada", Reason.MALFORMED),
        (b"{\\rtf1\\bin99 x}", Reason.MALFORMED),
        (b"{\\rtf1\\bin-5 x}", Reason.MALFORMED),
        (b"{\\rtf1" + b"{" * 100_000, Reason.RESOURCE),
        (b"{\\rtf1 " + b"x" * (33 * 1024 * 1024), Reason.RESOURCE),
    ],
    ids=["short", "empty", "none", "bin", "negative bin", "deep", "long"],
)
def test_refuses(raw: bytes, reason: Reason) -> None:
    with pytest.raises(MessageError) as refused:
        CODEC.parse(raw)
    assert refused.value.reason is reason


def test_a_truncated_document_is_read() -> None:
    message = CODEC.parse(b"{\\rtf1 Ada {\\b Okafor{\\pict 89")[0]
    assert texts(message) == {"body": "Ada Okafor"}
    assert [(s.start, s.end) for s in message.sites] == [(21, 30)]


def test_huge_numbers_and_words_are_read_without_error() -> None:
    assert texts(parsed(b"\\u" + b"9" * 5000 + b"?x"))["body"].endswith("x")
    assert texts(parsed(b"\\" + b"w" * 5000 + b" x"))["body"] == "x"


def test_leaves_are_every_text() -> None:
    raw = b"{\\rtf1{\\fonttbl{\\f0 Arial;}}{\\info{\\author Bell}}{\\header H}Ada{\\*\\foo secret}{\\pict 8950}}"
    leaves = CODEC.parse_leaves(raw)
    assert [(leaf.path, leaf.mapped.text) for leaf in leaves] == [
        ("fonttbl", "Arial;"),
        ("info", "Bell"),
        ("header", "H"),
        ("body", "Ada"),
        ("foo", "secret"),
    ]
    assert {leaf.role for leaf in leaves} == {LeafRole.TEXT, LeafRole.CODE}
    for leaf in leaves:
        assert raw[leaf.mapped.starts[0] : leaf.mapped.ends[-1]].decode() == leaf.mapped.text


def test_tokens_are_all_bytes() -> None:
    raw = b"{\\rtf1\\ansi\\b0 A\\'e9\\*\\bin3 }}}\r\n\\u-5?}\\"
    pieces = list(iter_tokens(raw))
    assert b"".join(raw[a:b] for _, a, b, _, _ in pieces) == raw


def test_detect() -> None:
    assert CODEC.detect(b"\xef\xbb\xbf {\\rtf1")
    assert not CODEC.detect(b"{\\urtf")
    assert not CODEC.detect(b'{"a": 1}')
