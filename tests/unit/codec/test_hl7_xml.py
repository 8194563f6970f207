"""HL7 v2 XML: read as the same message in HL7 v2, edited in its own bytes."""

import base64
import re
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from support.edits import apply
from support.growth import growth
from support.hl7 import MSH, codec
from support.hl7_xml import NAMESPACE, parsed_xml, to_xml, xml_codec
from support.markup import blanked, overwritten, ranges, shape

from deid_agent.model import Edit, LeafRole, MessageError, PublishedPaths, Reason

CASES = [
    case
    for file in sorted((Path(__file__).parents[2] / "cases" / "hl7").glob("*.toml"))
    for case in tomllib.loads(file.read_text("utf-8"))["case"]
]
LINES = "a broken line goes on with the report"
"""XML has no lines."""
HEADER = (
    "<MSH><MSH.1>|</MSH.1><MSH.2>^~\\&amp;</MSH.2><MSH.7><TS.1>20240102030405</TS.1></MSH.7>"
    "<MSH.9><MSG.1>ORU</MSG.1></MSH.9><MSH.10>C1</MSH.10><MSH.12><VID.1>2.5</VID.1></MSH.12></MSH>"
)
PATIENT = (
    "<PID><PID.3><CX.1>MRN7788</CX.1><CX.5>MR</CX.5></PID.3>"
    "<PID.5><XPN.1><FN.1>Okafor</FN.1></XPN.1><XPN.2>Ada</XPN.2></PID.5></PID>"
)


def message(inside: str, header: str = HEADER, more: str = NAMESPACE) -> str:
    return f"<ORU_R01 {more}>{header}<ORU_R01.PATIENT_RESULT>{PATIENT}{inside}</ORU_R01.PATIENT_RESULT></ORU_R01>"


def observation(value: str, kind: str = "TX") -> str:
    return f"<OBX><OBX.2>{kind}</OBX.2><OBX.3><CE.1>n</CE.1></OBX.3>{value}</OBX>"


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_same_sites_and_narratives_as_in_hl7(case: Mapping[str, object]) -> None:
    text = str(case["message"]).replace("{MSH}", MSH)
    if not text.startswith("MSH|^~\\&|") or case["name"] == LINES:
        return
    (usual,) = codec().parse(text.replace("\n", "\r").encode())
    found = parsed_xml(to_xml(text))

    assert [(s.path, s.type, s.kind, s.subject, s.group, s.value, s.blank, s.date_kind) for s in found.sites] == [
        (s.path, s.type, s.kind, s.subject, s.group, s.value, s.blank, s.date_kind) for s in usual.sites
    ]
    texts = [(n.path, "".join(n.mapped.text.split())) for n in found.narratives]
    assert texts == [(n.path, "".join(n.mapped.text.split())) for n in usual.narratives]
    assert (found.patients, found.sexes) == (usual.patients, usual.sexes)


def test_every_site_is_the_bytes_of_its_value() -> None:
    raw = message("<NK1><NK1.2>\n  <XPN.1>\n    <FN.1> O&apos;N&#233;il </FN.1></XPN.1></NK1.2></NK1>").encode()
    found = parsed_xml(raw)

    assert [(s.path, raw[s.start : s.end].decode(), s.value) for s in found.sites] == [
        ("MSH-7[1].1", "20240102030405", "20240102030405"),
        ("MSH-10[1].1", "C1", "C1"),
        ("PID-3[1].1", "MRN7788", "MRN7788"),
        ("PID-5[1].1", "Okafor", "Okafor"),
        ("PID-5[1].2", "Ada", "Ada"),
        ("NK1-2[1].1", "O&apos;N&#233;il", "O'Néil"),
    ]
    assert found.identity == "C1^20240102030405"


@pytest.mark.parametrize(("declared", "charset"), [("UTF-16", "utf-16"), ("ISO-8859-1", "latin-1"), ("UTF-8", "utf-8")])
def test_the_charset_is_that_of_the_xml(declared: str, charset: str) -> None:
    header = HEADER.replace("</MSH>", "<MSH.18>8859/2</MSH.18></MSH>")
    text = f'<?xml version="1.0" encoding="{declared}"?>' + message(
        "<NK1><NK1.2><XPN.1>Zoë</XPN.1></NK1.2></NK1>", header
    )
    found = parsed_xml(text.encode(charset))

    assert found.sites[-1].value == "Zoë"
    out = apply(found.raw, [Edit(s.start, s.end, found.encode("Ж & é")) for s in found.sites])
    assert shape(out) == shape(found.raw)
    assert {s.value for s in parsed_xml(out).sites if s.path != "MSH-7[1].1"} == {"Ж & é"}


def test_a_text_over_repetitions_and_segments_is_one_narrative() -> None:
    raw = message(
        observation("<OBX.5>seen by<escape V='.br'/>Dr. Bell</OBX.5><OBX.5>today</OBX.5>")
        + observation("<OBX.5><![CDATA[<b>& later]]></OBX.5>")
        + observation("<OBX.5/>")
        + observation("<OBX.5><escape V='H'/>A<escape V='N'/>da | \\ ~ <escape V='X41'/></OBX.5>")
    ).encode()
    (narrative,) = parsed_xml(raw).narratives

    assert narrative.mapped.text == "seen by\nDr. Bell\ntoday\n<b>& later\n\nAda | \\ ~ A"
    starts = narrative.mapped.starts
    assert list(starts) == sorted(starts)


@pytest.mark.parametrize(
    "inside",
    [
        PATIENT,
        observation("<OBX.5>seen by<escape V='.br'/>Dr. Bell</OBX.5><OBX.5>x</OBX.5>") + "<!--y-->z<?p q?>",
        observation(
            f"<OBX.5><ED.2>AP</ED.2>\n<ED.3>PDF</ED.3><ED.4>Base64</ED.4><ED.5>{'QWRh' * 40}</ED.5></OBX.5>", "ED"
        ),
        observation("<OBX.5><CE.1>a</CE.1><CE.2>b</CE.2></OBX.5>", "ST"),
    ],
)
def test_any_replacement_leaves_the_document_well_formed(inside: str) -> None:
    raw = message(inside).encode()
    found = parsed_xml(raw)
    spans = sorted(ranges(found))

    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    for new in ("\"'<&>", "]]>", "--", "a\nb\tc"):
        shape(overwritten(found, new))
    assert shape(blanked(found)) == shape(raw)


def test_a_document_has_the_range_of_its_media_type() -> None:
    data = base64.b64encode(b"%PDF-1.4 " + b"x" * 90).decode()
    raw = message(
        observation(f"<OBX.5><ED.2>AP</ED.2>\n <ED.3>PDF</ED.3><ED.4>Base64</ED.4><ED.5>{data}</ED.5></OBX.5>", "ED")
    ).encode()
    (attachment,) = parsed_xml(raw).attachments

    assert attachment.media is not None
    assert raw[slice(*attachment.media)] == b"AP</ED.2>\n <ED.3>PDF"
    assert attachment.plain == b"text</ED.2>\n <ED.3>plain"
    assert raw[attachment.start : attachment.end].decode() == data


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"<ORU_R01 {NAMESPACE}/>", True),
        ("<?xml version='1.0'?><h:ADT_A01 xmlns:h='urn:hl7-org:v2xml'/>", True),
        (f"<Odd {NAMESPACE}/>", True),
        ("<ACK><MSH/></ACK>", True),
        ("<ADT_A01 xmlns='urn:other'/>", False),
        ("<XML/>", False),
        ("<Patient/>", False),
        ("MSH|^~\\&|", False),
    ],
)
def test_the_root_element_decides(text: str, found: bool) -> None:
    assert xml_codec().detect(text.encode()) is found


@pytest.mark.parametrize(
    "inside",
    [
        "seen by Voss",
        "<!--seen by Voss-->",
        "<?app seen by Voss?>",
        "<PV1>seen by Voss<PV1.2>I</PV1.2></PV1>",
        "<PV1><PV1.7>seen by Voss<XCN.1>5</XCN.1></PV1.7></PV1>",
        "<PV1 LongName='seen by Voss'/>",
        "<PV1><PV1.2 x='seen by Voss'>I</PV1.2></PV1>",
        "<PV1><PV1.2 xml:space='seen by Voss'>I</PV1.2></PV1>",
        "<NTE><NTE.3>seen by V&#111;ss</NTE.3></NTE>",
        "<Group><NTE><NTE.3><![CDATA[seen by Voss]]></NTE.3></NTE></Group>",
        "<V251.NTE10><NTE.3>seen by Voss</NTE.3></V251.NTE10>",
    ],
)
def test_text_anywhere_is_a_narrative_and_a_leaf(inside: str) -> None:
    raw = message(inside).encode()

    assert "seen by Voss" in [n.mapped.text for n in parsed_xml(raw).narratives]
    (leaf,) = [leaf for leaf in xml_codec().parse_leaves(raw) if leaf.mapped.text == "seen by Voss"]
    assert leaf.role is LeafRole.TEXT


def test_leaves_share_no_byte_and_unusual_names_are_keys() -> None:
    raw = message(
        "<okafor><NTE><NTE.3><okafor.1>xx</okafor.1></NTE.3></NTE></okafor>", more=f"{NAMESPACE} xmlns:q='urn:ada'"
    )
    leaves = xml_codec().parse_leaves(raw.encode())

    spans = [(leaf.mapped.starts[0], leaf.mapped.ends[-1]) for leaf in leaves]
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert [leaf.mapped.text for leaf in leaves if leaf.role is LeafRole.KEY] == [
        "q",
        "urn:ada",
        "okafor",
        "okafor.1",
    ]


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("ORU_R01.PATIENT_RESULT", True),
        ("ORU_R01.ORDER_OBSERVATION2", True),
        ("ORM_O01.OBRRQDRQ1RXOODSODT_SUPPGRP", True),
        ("ADT_A01.AL1", True),
        ("V251.NTE10", True),
        ("ORU_R01.OKAFOR", False),
        ("ORU_R01.PATIENT_OKAFOR", False),
        ("ORU_R01.PATIENT4471902", False),
        ("V251.NTE4471902", False),
        ("V251.LEE", False),
        ("ORU_R01.", False),
    ],
)
def test_the_name_of_a_group_is_a_leaf_unless_the_standard_has_it(name: str, usual: bool) -> None:
    raw = message(f"<{name}><NTE><NTE.3>xx</NTE.3></NTE></{name}>").encode()
    leaves = xml_codec().parse_leaves(raw)

    assert [leaf.mapped.text for leaf in leaves if leaf.role is LeafRole.KEY] == ([] if usual else [name])


def test_the_name_of_an_attribute_is_a_leaf() -> None:
    leaves = xml_codec().parse_leaves(message("<PV1><PV1.2 LongName='x' okafor='y'>I</PV1.2></PV1>").encode())

    assert [leaf.mapped.text for leaf in leaves if leaf.role is LeafRole.KEY] == ["okafor"]


@pytest.mark.parametrize(("given", "is_text"), [("UNICODE UTF-8", False), ("8859/1", False), ("Ada Okafor", True)])
def test_a_charset_field_with_another_text_is_text(given: str, is_text: bool) -> None:
    header = HEADER.replace("</MSH>", f"<MSH.18>{given}</MSH.18></MSH>")
    found = [n.mapped.text for n in parsed_xml(message("", header=header)).narratives]

    assert found == [given] * is_text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<!DOCTYPE x [<!ENTITY a "Okafor">]>' + message("&a;"), Reason.RESOURCE),
        ('<!DOCTYPE x SYSTEM "http://x.example/p.dtd">' + message(""), Reason.UNSUPPORTED),
        ("<!DOCTYPE Okafor>" + message(""), Reason.UNSUPPORTED),
        (message("<PID"), Reason.MALFORMED),
        (message("", header=""), Reason.MALFORMED),
        (message("", header=HEADER.replace("<MSH.1>|", "<MSH.1>Okafor")), Reason.MALFORMED),
        (message(HEADER), Reason.UNSUPPORTED),
        (message("<PID><Okafor>x</Okafor></PID>"), Reason.UNSUPPORTED),
        (message("<PID><PV1.3>x</PV1.3></PID>"), Reason.UNSUPPORTED),
        (message("<PID.5>Okafor</PID.5>"), Reason.UNSUPPORTED),
        (message("<PID><PID.1000>Okafor</PID.1000></PID>"), Reason.UNSUPPORTED),
        (message("<PV1><PV1.7><A.1>x</A.1><A.1>Okafor</A.1></PV1.7></PV1>"), Reason.UNSUPPORTED),
        (message("<PV1><PV1.7><A.1><B.1><C.1>x</C.1><C.2>y</C.2></B.1></A.1></PV1.7></PV1>"), Reason.UNSUPPORTED),
        (message("<NTE><NTE.3>Oka<!--x-->for</NTE.3></NTE>"), Reason.UNSUPPORTED),
        (message("<NTE><NTE.3><![CDATA[Oka]]>for</NTE.3></NTE>"), Reason.UNSUPPORTED),
        (message("<NTE><NTE.3><escape V='&#92;Okafor|'/></NTE.3></NTE>"), Reason.UNSUPPORTED),
        (message("<NTE><NTE.3><escape V='H'>Okafor</escape></NTE.3></NTE>"), Reason.UNSUPPORTED),
        (message("<PV1>" + "<PV1.7><A.999>x</A.999></PV1.7>" * 1200 + "</PV1>"), Reason.RESOURCE),
        (message("<a>" * 150 + "</a>" * 150), Reason.RESOURCE),
    ],
)
def test_refused(text: str, reason: Reason) -> None:
    with pytest.raises(MessageError) as caught:
        xml_codec().parse(text.encode())
    assert caught.value.reason is reason
    assert "Okafor" not in str(caught.value)


def test_a_time_in_a_range_of_times_has_one_level_more() -> None:
    found = parsed_xml(message("<NK1><NK1.2><XPN.10><DR.1><TS.1>19241012</TS.1></DR.1></XPN.10></NK1.2></NK1>"))

    assert [s.value for s in found.sites if s.path.startswith("NK1")] == ["19241012"]


def test_only_listed_fields_are_published() -> None:
    raw = message(
        "<!--Ada-->Ada<OBX><OBX.1>1</OBX.1><OBX.3><CE.1>1-8</CE.1><CE.2>K</CE.2></OBX.3><OBX.5>4.1</OBX.5></OBX>"
    )
    listed = PublishedPaths(frozenset({"OBX-3.1", "OBX-5"}))

    found = xml_codec().find_unlisted(raw.encode(), listed)
    out = apply(raw.encode(), [Edit(each.start, each.end, each.blank) for each in found]).decode()
    assert re.sub(r"<MSH>.*</MSH>", "", out) == (
        f"<ORU_R01 {NAMESPACE}><ORU_R01.PATIENT_RESULT><PID></PID>"
        "<OBX><OBX.3><CE.1>1-8</CE.1></OBX.3><OBX.5>4.1</OBX.5></OBX></ORU_R01.PATIENT_RESULT></ORU_R01>"
    )
    assert xml_codec().detect(out.encode())
    assert [s.value for s in parsed_xml(out).sites if not s.path.startswith("MSH")] == []


def test_the_time_is_linear_in_the_size() -> None:
    piece = "<NTE><NTE.3>a <escape V='.br'/>b &amp; c</NTE.3></NTE><!--x-->" + PATIENT

    assert growth(lambda times: xml_codec().parse(message(piece * times).encode()), 200, 800) < 8
