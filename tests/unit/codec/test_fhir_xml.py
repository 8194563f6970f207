"""FHIR XML: read as the same resource in JSON, edited in its own bytes."""

import base64
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from support.edits import apply
from support.fhir import RULES, codec, parsed
from support.fhir_xml import NAMESPACE, NoXmlError, parsed_xml, to_xml, xml_codec
from support.growth import growth
from support.markup import blanked, cda, overwritten, ranges, shape

from deid_agent.codec.fhir import FhirXmlTypes
from deid_agent.model import Edit, LeafRole, MessageError, PhiType, PublishedPaths, Reason

CASES = tomllib.loads((Path(__file__).parents[2] / "cases/fhir/sites.toml").read_text("utf-8"))["case"]
OTHERWISE = {
    "elements and resources that no version knows": "its names are not those of XML",
    "members that no version of a name or an address has": "its names are not those of XML",
    "a string, or an object, of the wrong shape is read by the type of its element": "XML has no lists and no objects",
    "members that FHIR does not define label their values": "an unknown number is a string",
    "identifiers": "a number in place of a string",
}
"""Cases of JSON that XML cannot express as they are."""
WHOLE = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- made for Ada Okafor -->
<Patient {NAMESPACE}><id value='p1'/>
  <text><status value="generated"/>
    <div xmlns="http://www.w3.org/1999/xhtml"><p>Ada <b>Okafor</b> &amp; son</p></div></text>
  <name><family value="Okafor"/><given value="Ada"/><given value="M."/></name>
  <birthDate value="1957-04-22"><extension url="http://hl7.org/fhir/StructureDefinition/patient-birthTime"><valueDateTime
     value="1957-04-22T06:30:00-05:00"/></extension></birthDate>
  <address><line value="218 Tannery Row&#xA;rear"/></address>
</Patient>
"""


def patient(inside: str, more: str = NAMESPACE) -> str:
    return f'<Patient {more}><name><family value="Okafor"/></name>{inside}</Patient>'


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_same_sites_and_narratives_as_in_json(case: Mapping[str, object]) -> None:
    try:
        message = parsed_xml(to_xml(str(case["resource"]).strip()))
    except NoXmlError:
        assert case["name"] in OTHERWISE
        return
    json_ = parsed(str(case["resource"]).strip())

    found = sorted((s.path, s.type, s.kind, s.subject, s.group, s.value, s.blank, s.date_kind) for s in message.sites)
    wanted = sorted((s.path, s.type, s.kind, s.subject, s.group, s.value, s.blank, s.date_kind) for s in json_.sites)
    if case["name"] in OTHERWISE:
        values = {site.value for site in message.sites} | {n.mapped.text for n in message.narratives}
        assert {site.value for site in json_.sites} <= values
        return
    assert found == wanted
    texts = sorted((n.path, n.mapped.text) for n in message.narratives)
    assert texts == sorted((n.path, n.mapped.text) for n in json_.narratives)
    assert message.patients == json_.patients
    assert "/" not in json_.identity or message.identity == json_.identity


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_every_site_is_the_bytes_of_its_value(mark: bytes) -> None:
    raw = mark + WHOLE.encode()
    message = parsed_xml(raw)

    shown = [(s.path, raw[s.start : s.end].decode()) for s in message.sites]
    assert shown == [
        ("Patient.id", "p1"),
        ("Patient.name[0].family", "Okafor"),
        ("Patient.name[0].given[0]", "Ada"),
        ("Patient.name[0].given[1]", "M."),
        ("Patient.birthDate", "1957-04-22"),
        ("Patient._birthDate.extension[0].valueDateTime", "1957-04-22T06:30:00-05:00"),
        ("Patient.address[0].line[0]", "218 Tannery Row&#xA;rear"),
    ]
    assert message.sites[-1].value == "218 Tannery Row\nrear"
    assert [n.mapped.text for n in message.narratives] == [" made for Ada Okafor ", "Ada Okafor & son\n"]
    assert message.identity == "Patient/p1"


@pytest.mark.parametrize(
    ("declared", "charset"),
    [("UTF-16", "utf-16"), ("ISO-8859-1", "latin-1"), ("windows-1252", "cp1252"), ("UTF-8", "utf-8")],
)
def test_charsets(declared: str, charset: str) -> None:
    text = f'<?xml version="1.0" encoding="{declared}"?>' + patient(
        '<name><given value="Zoë"/><text value="Zoë & Jürgen"/></name>'.replace("&", "&amp;")
    )
    raw = text.encode(charset)
    message = parsed_xml(raw)

    assert {s.value for s in message.sites} == {"Okafor", "Zoë", "Zoë & Jürgen"}
    mark = 2 if charset == "utf-16" else 0
    name = "utf-16-le" if mark else charset
    assert [raw[s.start : s.end].decode(name) for s in message.sites] == ["Okafor", "Zoë", "Zoë &amp; Jürgen"]
    out = apply(raw, [Edit(s.start, s.end, message.encode('É"<ж>')) for s in message.sites])
    assert shape(out) == shape(raw)
    assert {s.value for s in parsed_xml(out).sites} == {'É"<ж>'}


@pytest.mark.parametrize("text", [WHOLE, patient("<photo><data value='QWRh&#10;Qmx1'/></photo>Ada<!--x--><?p x?>")])
def test_any_replacement_leaves_the_document_well_formed(text: str) -> None:
    raw = text.encode()
    message = parsed_xml(raw)
    spans = sorted(ranges(message))

    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    for new in ("\"'<&>", "]]>", "--", "a\nb\tc"):
        assert shape(overwritten(message, new)) == shape(raw)
    assert shape(blanked(message)) == shape(raw)


def test_a_line_end_in_a_replacement_survives_in_an_attribute() -> None:
    message = parsed_xml(patient('<name><text value="Ada&#10;Okafor"/></name>'))
    site = message.sites[-1]

    out = apply(message.raw, [Edit(site.start, site.end, message.encode("Bea\nStone"))])
    assert b'"Bea&#10;Stone"' in out


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"<Patient {NAMESPACE}/>", True),
        ('<?xml version="1.0"?>\n<!--x--><f:Patient xmlns:f="http://hl7.org/fhir"/>', True),
        ("<Patient><id value='1'/></Patient>", True),
        (f"<NewResource {NAMESPACE}/>", True),
        ("<Patient xmlns='urn:other'/>", False),
        ("<ClinicalDocument xmlns='urn:hl7-org:v3'/>", False),
        ("<section/>", False),
        ('{"resourceType": "Patient"}', False),
        ("MSH|^~\\&|", False),
        ("", False),
    ],
)
def test_the_root_element_decides(text: str, found: bool) -> None:
    for raw in (text.encode(), text.encode("utf-16")):
        assert xml_codec().detect(raw) is found
        assert not (found and (codec().detect(raw) or cda().detect(raw)))


def test_a_namespace_prefix_is_ignored() -> None:
    message = parsed_xml(
        '<f:Patient xmlns:f="http://hl7.org/fhir"><f:name><f:family value="Okafor"/></f:name><f:text>'
        '<h:div xmlns:h="http://www.w3.org/1999/xhtml"><h:p>Ada</h:p>x</h:div></f:text></f:Patient>'
    )

    assert [(s.path, s.value) for s in message.sites] == [("Patient.name[0].family", "Okafor")]
    assert [n.mapped.text for n in message.narratives] == ["Ada\nx\n"]


@pytest.mark.parametrize(
    ("inside", "path", "value"),
    [
        ("<name>Ada Stone</name>", "Patient.name[1]", "Ada Stone"),
        ("<name value='Ada Stone'/>", "Patient.name[1]", "Ada Stone"),
        ("<name><given>Ada</given></name>", "Patient.name[1].given[0]", "Ada"),
        ("<name><given><![CDATA[Ada]]></given></name>", "Patient.name[1].given[0]", "Ada"),
        ("<name nick='Ada'/>", "Patient.name[1].nick", "Ada"),
        ("<birthDate id='x1' value='1957-04-22'/>", "Patient.birthDate", "1957-04-22"),
        ("<name><Family value='Ada'/></name>", "Patient.name[1].Family", "Ada"),
        ("<birthDate>1957-04-22<extension url='a'/></birthDate>", "Patient.birthDate", "1957-04-22"),
        ("<contained><Practitioner><id value='d1'/></Practitioner></contained>", "Patient.contained[0].id", "d1"),
    ],
)
def test_values_in_odd_places_have_the_type_of_their_element(inside: str, path: str, value: str) -> None:
    message = parsed_xml(patient(inside))

    assert (path, value) in [(s.path, s.value) for s in message.sites]


@pytest.mark.parametrize(
    "inside",
    [
        "seen by Voss",
        "<![CDATA[seen by Voss]]>",
        "<!--seen by Voss-->",
        "<?app seen by Voss?>",
        "<active value='true'>seen by Voss</active>",
        "<active value='true' note='seen by Voss'/>",
        "<active value='true'><x>seen by Voss</x></active>",
        "<contained>seen by Voss<Basic/></contained>",
        "<contained><Basic value='seen by Voss'/></contained>",
        "<ds:Object xmlns:ds='http://www.w3.org/2000/09/xmldsig#'>seen by Voss</ds:Object>",
        "<extension url='http://hl7.org/fhir/x'><valueString value='seen by V&#111;ss'/></extension>",
    ],
)
def test_text_anywhere_is_a_narrative_and_a_leaf(inside: str) -> None:
    raw = patient(inside).encode()
    message = parsed_xml(raw)

    assert "seen by Voss" in [n.mapped.text for n in message.narratives]
    (leaf,) = [leaf for leaf in xml_codec().parse_leaves(raw) if leaf.mapped.text == "seen by Voss"]
    assert leaf.role is LeafRole.TEXT


def test_leaves_share_no_byte_and_unknown_names_are_keys() -> None:
    raw = patient(
        "<okafor value='1'><extension url='a'/></okafor><okafor value='22'/>",
        'xmlns="http://hl7.org/fhir" xmlns:q="urn:okafor"',
    )
    leaves = xml_codec().parse_leaves(raw.encode())

    spans = [(leaf.mapped.starts[0], leaf.mapped.ends[-1]) for leaf in leaves]
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    keys = [leaf.mapped.text.lstrip("_") for leaf in leaves if leaf.role is LeafRole.KEY]
    assert sorted(keys) == ["okafor", "q", "urn:okafor"]


@pytest.mark.parametrize(
    "text",
    [
        patient("<?okafor?>"),
        patient("<?okafor x?>"),
        '<?xml version="okafor"?>' + patient(""),
        patient("<okafor:active value='true'/>"),
        patient("<active okafor:id='1'/>"),
        patient("", f'{NAMESPACE} xmlns:okafor="urn:x"'),
    ],
)
def test_a_name_is_a_leaf_and_never_rewritten(text: str) -> None:
    leaves = xml_codec().parse_leaves(text.encode())
    message = parsed_xml(text)

    assert "okafor" in [leaf.mapped.text.lower() for leaf in leaves if leaf.role is LeafRole.KEY]
    assert shape(overwritten(message, "Stone")) == shape(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        patient("<okafor value='1'/>"),
        patient("<active><okafor value='1'/></active>"),
        patient("<active okafor='1' value='true'/>"),
        patient("<okaforQuantity><value value='1'/></okaforQuantity>"),
        patient("<contained><okafor/></contained>").replace("<okafor", "<Okafor"),
        patient("<contained><Okafor><id value='1'/></Okafor></contained>"),
        patient("").replace("Patient", "Okafor"),
    ],
)
def test_a_name_that_may_be_a_persons_is_refused(text: str) -> None:
    with pytest.raises(MessageError, match="UNSUPPORTED") as caught:
        parsed_xml(text)
    assert "okafor" not in str(caught.value).lower()


def test_an_unknown_charset_is_a_leaf() -> None:
    found = xml_codec().parse_leaves(b'<?xml version="1.0" encoding="okafor"?>' + patient("").encode())

    assert [leaf.mapped.text for leaf in found if leaf.role is LeafRole.KEY] == ["okafor"]


@pytest.mark.parametrize("space", ["http://hl7.org/okafor", "urn:hl7-org:okafor", "http://www.w3.org/okafor"])
def test_a_namespace_that_begins_like_a_standard_one_is_a_leaf(space: str) -> None:
    leaves = xml_codec().parse_leaves(patient("", f'{NAMESPACE} xmlns:xs="{space}"').encode())

    assert [leaf.mapped.text for leaf in leaves if leaf.role is LeafRole.KEY] == [space]


@pytest.mark.parametrize("address", ["http://x.example/okafor/fhir.xsd", "../okafor/fhir.xsd"])
def test_the_address_of_a_schema_behind_a_standard_namespace_is_a_leaf(address: str) -> None:
    instance = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    more = f'{NAMESPACE} {instance} xsi:schemaLocation="http://hl7.org/fhir {address}"'
    leaves = xml_codec().parse_leaves(patient("", more).encode())

    assert (LeafRole.TEXT, address) in [(leaf.role, leaf.mapped.text) for leaf in leaves]


@pytest.mark.parametrize("address", ["file:///home/okafor/x.xsd", "C:\\Users\\okafor\\x.xsd", "/home/okafor/x.xsd"])
def test_the_folder_of_a_schema_is_redacted(address: str) -> None:
    instance = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    more = f'{NAMESPACE} {instance} i:schemaLocation="http://hl7.org/fhir {address}"'
    message = parsed_xml(patient("", more))

    assert [(s.type, s.value) for s in message.sites][:1] == [(PhiType.URL, address)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<!DOCTYPE Patient [<!ENTITY a "x"><!ENTITY b "&a;&a;">]>' + patient("&b;"), Reason.RESOURCE),
        ('<!DOCTYPE Patient [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + patient("&a;"), Reason.RESOURCE),
        ('<!DOCTYPE Patient SYSTEM "http://x.example/p.dtd">' + patient(""), Reason.UNSUPPORTED),
        (patient("<a>" * 150 + "</a>" * 150), Reason.RESOURCE),
        (patient("<extension url='a'>" * 99 + "</extension>" * 98), Reason.MALFORMED),
        ("<!DOCTYPE Okafor>" + patient(""), Reason.UNSUPPORTED),
        (patient("<name><family>Oka<!--x-->for</family></name>"), Reason.UNSUPPORTED),
        (patient("<name><family>Oka<![CDATA[for]]></family></name>"), Reason.UNSUPPORTED),
        (patient("<birthDate>1957<extension url='a'/>-04-22</birthDate>"), Reason.UNSUPPORTED),
        (patient("<family value='Okafor' value='x'/>"), Reason.MALFORMED),
        (patient("<family value='Okafor'"), Reason.MALFORMED),
        (patient("<photo><data value='Okafor!'/></photo>"), Reason.MALFORMED),
        (patient("<resourceType value='Okafor'/>"), Reason.UNSUPPORTED),
        (patient("<Okafor-x value='1'/>"), Reason.UNSUPPORTED),
        (patient("<contained id='Okafor'><Basic/></contained>"), Reason.UNSUPPORTED),
    ],
)
def test_refused(text: str, reason: Reason) -> None:
    with pytest.raises(MessageError) as caught:
        xml_codec().parse(text.encode())
    assert caught.value.reason is reason
    assert "Okafor" not in str(caught.value)


def test_an_attachment_has_the_ranges_of_its_siblings() -> None:
    data = base64.b64encode(b"Ada Okafor").decode()
    raw = patient(
        f"<photo><contentType value='text/plain'/><data value='{data}'/><size value='10'/><hash value='x'/></photo>"
    ).encode()
    (attachment,) = parsed_xml(raw).attachments

    assert attachment.data == b"Ada Okafor"
    assert attachment.size is not None
    assert attachment.media is not None
    assert [raw[slice(*span)] for span in (attachment.size, attachment.media)] == [b"10", b"text/plain"]


def test_only_listed_elements_are_published() -> None:
    raw = (
        f"<Bundle {NAMESPACE}><!--Ada--><type value='collection'/>"
        "<entry><resource><Patient><id value='1'/></Patient></resource></entry>"
        "<entry><fullUrl value='urn:x'/><resource><Observation id='o'><id value='7'/>"
        "<status value='final'><extension url='a'/></status>Ada"
        "<code><text value='Potassium'/></code><note><text value='Ada'/></note>"
        "<valueQuantity><value value='4.1'/></valueQuantity></Observation></resource></entry></Bundle>"
    ).encode()
    listed = PublishedPaths(frozenset({"Observation.status", "Observation.code", "Observation.valueQuantity"}))

    found = xml_codec().find_unlisted(raw, listed)
    out = apply(raw, [Edit(each.start, each.end, each.blank) for each in found])
    assert out.decode() == (
        f"<Bundle {NAMESPACE}><type value='collection'/>"
        "<entry><resource><Observation><status value='final'></status>"
        "<code><text value='Potassium'/></code><valueQuantity><value value='4.1'/></valueQuantity>"
        "</Observation></resource></entry></Bundle>"
    )


def test_the_table_of_lists_is_complete() -> None:
    types = FhirXmlTypes(RULES)

    assert types.member(("Patient",), "name").repeats
    assert types.member(("Patient",), "extension").repeats
    assert not types.member(("Patient",), "birthDate").repeats
    assert types.member(("Quantity",), "value").is_number
    assert types.member((), "coding").repeats, "in an element that no version knows"


@pytest.mark.parametrize(
    "piece",
    [
        "<name><family value='Ok&amp;r'/></name>",
        "<!-- x -->",
        "<birthDate value='1970'>x<!--y--><extension url='a'/></birthDate>",
        "<text><div><p title='a &lt;'>Ada</p> <![CDATA[x]]></div></text>",
        "<photo><data value='QWRh&#10;Qmx1'/></photo>",
    ],
)
def test_the_time_is_linear_in_the_size(piece: str) -> None:
    def parse(times: int) -> object:
        return xml_codec().parse(patient(piece * times).encode()), xml_codec().parse_leaves(
            patient(piece * times).encode()
        )

    assert growth(parse, 200, 800) < 8
