"""C-CDA: the cases of ``tests/cases/cda``, embedded documents, refused documents and replacements."""

import base64
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast
from xml.parsers import expat

import pytest
from support.edits import apply
from support.growth import growth
from support.markup import RULES, blanked, cda, document, overwritten, ranges, shape
from support.scopes import scope_of

from deid_agent.codec.cda import CdaCodec
from deid_agent.model.errors import ConfigurationError, MessageError
from deid_agent.model.sites import Edit, LeafRole
from deid_agent.model.spans import Replacement
from deid_agent.pipeline.facts import collect_facts

CASES = tomllib.loads((Path(__file__).parents[2] / "cases/cda/sites.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: Mapping[str, object]) -> None:
    raw = str(case["document"]).strip().encode()
    assert cda().detect(raw)
    message = document(raw)

    found = [[s.path, str(s.type), str(s.kind), str(s.subject), s.value] for s in message.sites]
    assert found == cast(Sequence[list[str]], case.get("sites", []))
    assert [[n.path, n.mapped.text] for n in message.narratives] == case.get("narratives", [])
    assert not message.attachments
    assert scope_of(message) == case.get("patient")
    if "identity" in case:
        assert message.identity == case["identity"]
    assert apply(raw, [Edit(s.start, s.end, raw[s.start : s.end]) for s in message.sites]) == raw
    for out in (blanked(message), overwritten(message, "Eve \"&\" <Ruiz> 'x' -- ]]>")):
        assert shape(out) == shape(raw)


def test_parts_of_one_name_are_one_person() -> None:
    message = document(
        "<patient><name><given>Ada</given><family>Okafor</family></name><name><given>Uche</given></name></patient>"
    )

    assert [site.group for site in message.sites] == ["patient/name", "patient/name", "patient/name[2]"]
    assert [fact.value for fact in collect_facts(message.sites)] == ["Ada", "Okafor", "Uche"]


def written(raw: str, old: str, new: str) -> str:
    """The text that an XML reader finds after ``new`` has replaced ``old``."""
    message = document(raw)
    edits = [Edit(s.start, s.end, message.encode(new)) for s in message.sites if s.value == old]
    for narrative in message.narratives:
        if (at := narrative.mapped.text.find(old)) >= 0:
            placed = narrative.mapped.place([Replacement(at, at + len(old), new)])
            edits += [Edit(a, b, message.encode(text)) for a, b, text in placed]
    assert edits
    found: list[str] = []
    parser = expat.ParserCreate()
    parser.CharacterDataHandler = found.append
    parser.Parse(apply(message.raw, edits), True)
    return "".join(found)


def test_a_mask_before_a_bracket_closes_no_section() -> None:
    assert written("<section><title>x 3/4]> y</title></section>", "3/4", "[**DATE**]") == "x [**DATE**]]> y"


def test_a_value_in_cdata_is_written_as_escaped_text() -> None:
    assert written("<patient><name><![CDATA[Ada]]></name></patient>", "Ada", "A & <B>") == "A & <B>"


@pytest.mark.parametrize("content", ["<![CDATA[<a]]>", "<!--<b-->", "<?pi <a?>"])
def test_text_like_a_tag_never_hides_the_end_of_its_section(content: str) -> None:
    raw = f"<section><text>Ada {content} Eve</text></section>"

    for whole in ("", "x"):
        assert shape(overwritten(document(raw), whole)) == shape(raw.encode())


@pytest.mark.parametrize(
    "content",
    [
        "<![CDATA[Mrs. <Okafor> came.]]>",
        "<![CDATA[signed <Dr Ada Okafor>]]>",
        "<![CDATA[<!Okafor> <?Okafor x?>]]>",
        "<![CDATA[ --> <Okafor> ]]>",
        "<!-- <Okafor 447190288> -->x",
        "<!-- ]]> <!Okafor> <?Okafor x -->x",
        '<!-- <a "x--> Okafor " ><content>b</content>',
        "<?pi <Okafor> ?>x",
        "<paragraph><![CDATA[<script>]]><![CDATA[<Okafor>]]></paragraph>",
    ],
)
@pytest.mark.parametrize("template", ["<text>{}</text>", "<title>{}</title>", "<text/>{}"])
def test_words_in_angle_brackets_without_tags_are_read_and_replaced(content: str, template: str) -> None:
    raw = f"<section>{template.format(content)}</section>".encode()
    (message,) = cda().parse(raw)

    assert any("Okafor" in leaf.mapped.text for leaf in cda().parse_leaves(raw))
    assert b"Okafor" not in overwritten(message, "Eve")
    assert shape(overwritten(message, "Eve")) == shape(raw)


def test_attributes_in_a_block_are_not_identifiers_of_the_document() -> None:
    message = document('<section><text><content extension="77" root="4711" value="2031">x</content></text></section>')

    assert not message.sites
    assert sorted(n.mapped.text for n in message.narratives) == ["2031", "4711", "77", "x"]


@pytest.mark.parametrize(
    "raw",
    [
        '<act><effectiveTime><low value="2031" unit="d"/></effectiveTime></act>',
        '<act><value xsi:type="II" root="1.3.160" extension="00999998998989"/></act>',
        '<act><id nullFlavor="NA" root="1.2.3.4"/><id root="2.16.840.1.113883.4.6"/></act>',
    ],
)
def test_measures_models_and_registers_are_kept(raw: str) -> None:
    message = document(raw)

    assert not message.sites
    assert not message.narratives


@pytest.mark.parametrize(
    ("raw", "blank"),
    [
        ('<act><id root="36e3e930-7b14-11db-9fe1-0800200c9a66"/></act>', "00000000-0000-0000-0000-000000000000"),
        ('<act><id root="1.2.3.4.5"/></act>', "1.2.3.0"),
        ('<act><id root="1.2.3" extension="7"/></act>', "REDACTED"),
        ('<patient><birthTime value="195704"/></patient>', "190001"),
        ('<patient><birthTime value="19570422101112-0500"/></patient>', "19000101"),
        ('<patient><telecom value="mailto:a@b.example"/></patient>', "redacted@redacted.invalid"),
        ('<act><value xsi:type="PQ" value="93" unit="a"/></act>', "90"),
    ],
)
def test_redaction_gives_a_value_that_cda_accepts(raw: str, blank: str) -> None:
    assert [site.blank for site in document(raw).sites] == [blank]


@pytest.mark.parametrize("value", ["tel: 1", "&amp;&#241;", "é"])
def test_a_media_type_that_is_prose_is_text_and_not_rewritten_with_the_attachment(value: str) -> None:
    message = document(f'<patient mediaType="{value}">Ada</patient>')

    assert [a.media for a in message.attachments] == [None]
    assert len(message.narratives) == 1


def test_without_an_identifier_the_bytes_name_the_document() -> None:
    one, other = document("<section><title>a</title></section>"), document("<section><title>b</title></section>")

    assert one.identity != other.identity
    assert scope_of(one) is None


def body(attributes: str, content: str) -> str:
    return f"<component><nonXMLBody><text {attributes}>{content}</text></nonXMLBody></component>"


def test_a_body_in_base64_is_an_attachment() -> None:
    data = b"%PDF-1.7 for Ada Okafor"
    coded = base64.b64encode(data).decode()
    message = document(body('mediaType="application/pdf" representation="B64"', f"\n  {coded[:12]}\n  {coded[12:]}\n"))

    (attachment,) = message.attachments
    assert (attachment.path, attachment.content_type, attachment.encoding) == (
        "component/nonXMLBody/text", "application/pdf", "base64",
    )  # fmt: skip
    assert attachment.data == data
    assert message.raw[attachment.start : attachment.end].decode().split() == [coded[:12], coded[12:]]
    assert attachment.media
    assert message.raw[slice(*attachment.media)] == b"application/pdf"
    assert not message.sites
    assert not message.narratives


def test_a_compressed_body_has_an_unknown_format_and_its_notice_is_not_compressed() -> None:
    text = body('mediaType="text/rtf" representation="B64" compression="DF"', "QUJDREVGR0g=")
    message = document(text)

    (attachment,) = message.attachments
    assert attachment.content_type == "application/octet-stream"
    assert attachment.media
    out = apply(message.raw, [Edit(*attachment.media, attachment.plain)]).decode()
    assert out == body('mediaType="text/plain" representation="B64"', "QUJDREVGR0g=")


def test_invalid_base64_has_an_unknown_format() -> None:
    (attachment,) = document(body('mediaType="text/plain" representation="B64"', "Ada Okafor!")).attachments

    assert attachment.content_type == "application/octet-stream"


@pytest.mark.parametrize("content", ["&lt;p&gt;Ada&lt;/p&gt;", "<![CDATA[<p>Ada</p>]]>"])
def test_a_document_as_text_is_an_attachment(content: str) -> None:
    message = document(body('mediaType="text/html"', content))

    (attachment,) = message.attachments
    assert (attachment.encoding, attachment.data) == ("text", b"<p>Ada</p>")
    out = apply(message.raw, [Edit(attachment.start, attachment.end, message.encode("<p>Eve</p>"))])
    assert out.decode() == body('mediaType="text/html"', "&lt;p&gt;Eve&lt;/p&gt;")


@pytest.mark.parametrize("attributes", ["", 'mediaType="text/plain"', 'mediaType="text/html"'])
def test_a_body_of_text_is_a_narrative(attributes: str) -> None:
    content = "Ada Okafor" if "html" not in attributes else "Ada <content>Oka</content>for"
    message = document(body(attributes, content))

    assert not message.attachments
    assert "".join(n.mapped.text for n in message.narratives) == "Ada Okafor"


def test_a_picture_of_an_observation_is_an_attachment() -> None:
    message = document(
        '<observationMedia><value mediaType="image/png" representation="B64">iVBORw==</value></observationMedia>'
    )

    assert [a.data for a in message.attachments] == [b"\x89PNG"]


def test_a_signature_is_redacted() -> None:
    message = document('<signatureText mediaType="text/xml" representation="B64">omSJ</signatureText>')

    assert [(str(s.type), str(s.kind), s.blank) for s in message.sites] == [("BIOID", "redact", "AA==")]


def test_leaves_are_every_text_once_in_order() -> None:
    raw = (
        b'<observation classCode="OBS"><code code="8-8" codeSystem="2.16.840.1.113883.6.1" displayName="Okafor test"/>'
        b"<!--c-->"
        b'<value displayName="loose">v</value><text ID="a1">x <content>y</content></text><reference value="#a1"/>'
        b"<telecom value='tel:1'/></observation>"
    )
    leaves = cda().parse_leaves(raw)

    assert [(leaf.mapped.text, leaf.role) for leaf in leaves] == [
        ("OBS", LeafRole.CODE),
        ("8-8", LeafRole.CODE),
        ("2.16.840.1.113883.6.1", LeafRole.CODE),
        ("Okafor test", LeafRole.LABEL),
        ("c", LeafRole.TEXT),
        ("loose", LeafRole.TEXT),
        ("v", LeafRole.TEXT),
        ("a1", LeafRole.KEY),
        ("x y", LeafRole.TEXT),
        ("#a1", LeafRole.KEY),
        ("tel:1", LeafRole.TEXT),
    ]
    for leaf in leaves:
        assert leaf.mapped.text[0].encode() == raw[leaf.mapped.starts[0] : leaf.mapped.ends[0]]


def test_leaves_exclude_encoded_data() -> None:
    raw = body('mediaType="image/png" representation="B64"', "iVBORw==").encode()

    assert [leaf.mapped.text for leaf in cda().parse_leaves(raw)] == ["image/png", "B64"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"<ClinicalDocument/>", True),
        (b"\xef\xbb\xbf\n<!-- a --><?pi?><!-- b --><section>", True),
        (b'<anything xmlns="urn:hl7-org:v3">', True),
        (b'<x:anything xmlns:x="urn:hl7-org:v3">', True),
        ("<section/>".encode("utf-16"), True),
        (b'<section xmlns="http://www.w3.org/1999/xhtml">', False),
        (b"<html><section>", False),
        (b"<Patient>", False),
        (b"MSH|^~\\&|", False),
        (b"<!--" * 9000, False),
        (b"<!-- a -->" * 5000, False),
        (b"", False),
    ],
)
def test_detects(raw: bytes, expected: bool) -> None:
    assert cda().detect(raw) is expected


@pytest.mark.parametrize("piece", [b"<!--", b"<!-- a -->"])
def test_detection_is_linear(piece: bytes) -> None:
    assert growth(cda().detect, piece * 900, piece * 9000) < 30


ENTITIES = '<!DOCTYPE section [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><section>&b;</section>'


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"<section><title>a</section>", "MALFORMED: byte 19: XML"),
        (b"<section>", "MALFORMED: byte 9: XML"),
        (b"<section/><section/>", "MALFORMED: byte 10: XML"),
        ("<section>é<a></section>".encode(), "MALFORMED: byte 16: XML"),
        (b"<section>&nbsp;</section>", "MALFORMED: byte 9: XML"),
        (b"<section>&#0;</section>", "MALFORMED: byte 9: XML"),
        (b'<!DOCTYPE section SYSTEM "http://x.example/a.dtd"><section>&a;</section>', "MALFORMED"),
        (ENTITIES.encode(), "RESOURCE"),
        (b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "RESOURCE"),
        (b"<act>" * 201 + b"</act>" * 201, "RESOURCE: byte 1000: nested"),
        (b"<" + b"a" * 300 + b"/>", "RESOURCE: byte 0: a name"),
        (b'<?xml version="1.0" encoding="UTF-7"?><section/>', "UNSUPPORTED"),
        (b"\x00\x00\xfe\xff\x00\x00\x00<", "UNSUPPORTED"),
        (b"\xff\xfe<\x00a", "MALFORMED"),
    ],
)
def test_refuses(raw: bytes, reason: str) -> None:
    for call in (cda().parse, cda().parse_leaves):
        with pytest.raises(MessageError, match=reason):
            call(raw)


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "iso-8859-1", "windows-1252", "shift_jis", "gb18030"])
def test_every_charset_is_written_back(charset: str) -> None:
    name = {"shift_jis": "岡田", "gb18030": "岡田", "utf-8": "岡田\U0001f600é"}.get(charset, "Muñoz")
    text = f'<?xml version="1.0" encoding="{charset}"?><patient><name>{name}</name><!-- für {name} --></patient>'
    raw = text.encode(charset, "xmlcharrefreplace")
    message = document(raw)

    assert [s.value for s in message.sites] == [name]
    (site,) = message.sites
    out = apply(raw, [Edit(site.start, site.end, message.encode("Žižek"))]).decode(charset)
    expected = text.replace(f">{name}<", ">Žižek<").encode(charset, "xmlcharrefreplace")
    assert out == expected.decode(charset)


def test_a_large_document_is_read_in_linear_time() -> None:
    entry = '<entry><act classCode="ACT"><id root="1.2.3" extension="77"/><text>Ada &amp; <br/>Eve</text></act></entry>'
    message = document("<section>" + entry * 3_000 + "</section>")

    assert len(message.sites) == len(message.narratives) == 3_000
    assert growth(lambda count: document("<section>" + entry * count + "</section>"), 300, 3_000) < 30


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('city = "CITY"', 'city = "TOWN"', "content.city: 'TOWN'"),
        ('recordTarget = "patient"', 'recordTarget = "person"', "whose.recordTarget: 'person'"),
        ('addr = "STREET redact"', 'addr = "STREET hide"', "content.addr: 'hide'"),
        ("[roots]", "[rots]", "unknown section rots"),
        ("[whose]", "[whose", "elements.toml"),
    ],
)
def test_a_bad_table_stops_the_start(old: str, new: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "cda").mkdir()
    text = (RULES / "cda/elements.toml").read_text("utf-8")
    assert old in text
    (tmp_path / "cda/elements.toml").write_text(text.replace(old, new, 1), "utf-8")

    with pytest.raises(ConfigurationError, match=fault):
        CdaCodec(tmp_path)


@pytest.mark.parametrize("between", ["representation='&amp;&#241;'", 'representation="B64" integrityCheck="&#241;"'])
def test_a_notice_replaces_no_text(between: str) -> None:
    data = "QWRhIE9rYWZvciwgTVJOIDAwNDcxODgy"
    text = f"<text mediaType='text/plain' {between} compression='DF'>{data}</text>"
    spans = sorted(ranges(document(f"<nonXMLBody xmlns='urn:hl7-org:v3'>{text}</nonXMLBody>")))
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
