"""C-CDA: names, namespaces and addresses of schemas that are searched for what the message says of its people."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from support.markup import RULES, cda, document, overwritten, shape

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.model.errors import MessageError, Reason
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import LeafRole, Narrative
from deid_agent.pipeline.policy import load_policy

NAMESPACE = 'xmlns="urn:hl7-org:v3"'
INSTANCE = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
PATIENT = (
    '<recordTarget><patientRole><id extension="4471902" root="1.2.3"/>'
    "<patient><name><given>Ada</given><family>Okafor</family></name></patient></patientRole></recordTarget>"
)


def written(inside: str = "", more: str = "", head: str = "") -> str:
    return f"{head}<ClinicalDocument {NAMESPACE}{more}>{PATIENT}{inside}</ClinicalDocument>"


def leaves(text: str) -> Sequence[Narrative]:
    return cda().parse_leaves(text.encode())


def keys(text: str) -> list[str]:
    return [leaf.mapped.text for leaf in leaves(text) if leaf.role is LeafRole.KEY]


NAMES = [
    written("<?okafor?>"),
    written("<?okafor x?>"),
    written("<text>a<?okafor x?></text>"),
    written("<okafor>1</okafor>"),
    written("<okafor/>"),
    written("<sdtc:okafor/>"),
    written("<okafor:section/>"),
    written("<okafor:section></okafor:section>"),
    written("<text>a<okafor>b</okafor></text>"),
    written("<text>a<okafor:td>b</okafor:td></text>"),
    written("<text>a<td okafor='1'>b</td></text>"),
    written("<text>a<td okafor=''>b</td></text>"),
    written("<text>a<td okafor:ID='b'>b</td></text>"),
    written("<section okafor='1'/>"),
    written("<section okafor=''/>"),
    written("<section okafor:ID='a'/>"),
    written("<value mediaType='text/html'><okafor/></value>"),
    written("", ' xmlns:okafor="urn:x"'),
    written("<text>a<td xmlns:okafor='urn:x'>b</td></text>"),
    written(head="<!DOCTYPE okafor>"),
    written(head='<!DOCTYPE okafor SYSTEM "a.dtd">'),
    written(head="<?okafor?>"),
]


@pytest.mark.parametrize("text", NAMES)
def test_a_name_is_a_leaf_and_never_rewritten(text: str) -> None:
    assert "okafor" in keys(text)
    assert set(keys(text)) <= {"okafor", "a", "b", "urn:x"}
    assert shape(overwritten(document(text), "Stone")) == shape(text.encode())


@pytest.mark.parametrize("name", ["okafor", "mrn4471902"])
def test_a_name_that_is_a_fact_refuses_the_message(name: str) -> None:
    worker = WorkerFactory(RULES, SecretKey(b"k" * 32), load_policy("pseudonymised", RULES)).deidentifier()
    for text in (*NAMES, written(head='<!DOCTYPE a PUBLIC "-//okafor//x" "a.dtd">'), *DECLARATIONS):
        with pytest.raises(MessageError) as refused:
            worker.message(text.replace("okafor", name).encode())
        assert refused.value.reason is Reason.LEAK, text
    assert worker.message(written("<section><title>seen</title></section>").encode())


def test_a_type_with_a_prefix_is_a_key() -> None:
    assert keys(written("<value xsi:type='okafor:a'/><value xsi:type='PQ'/>")) == ["okafor:a"]


DECLARATIONS = [
    written(head='<?xml version="1.0" encoding="okafor"?>'),
    written(head='<?xml version="okafor"?>'),
]


@pytest.mark.parametrize("text", DECLARATIONS)
def test_the_declaration_is_a_leaf_unless_it_is_usual(text: str) -> None:
    assert keys(text) == ["okafor"]


def test_usual_names_give_no_leaf() -> None:
    head = '<?xml version="1.0" encoding="ISO-8859-1" standalone="yes"?><?xml-stylesheet href="CDA.xsl"?>'
    text = written(
        '<sdtc:id xsi:type="x"/><text>a<td align="left">b</td></text>',
        f' {INSTANCE} xmlns:sdtc="urn:hl7-org:sdtc"',
        head,
    )

    assert keys(text) == ["left"]


def test_a_public_identifier_of_a_document_type_is_a_leaf() -> None:
    text = written(head='<!DOCTYPE ClinicalDocument PUBLIC "-//Okafor//x y" "a.dtd">')

    assert "-//Okafor//x y" in keys(text)


@pytest.mark.parametrize("space", ["http://hl7.org/okafor", "urn:hl7-org:okafor", "urn:okafor"])
def test_a_namespace_that_begins_like_a_standard_one_is_a_leaf(space: str) -> None:
    assert keys(written("", f' xmlns:xs="{space}"')) == [space]
    assert keys(written(f"<text>a<td xmlns:xs='{space}'>b</td></text>")) == [space]


def test_a_name_that_begins_like_xmlns_binds_no_namespace() -> None:
    text = written("<section xmlnsokafor='urn:hl7-org:v3'/>")

    assert keys(text) == ["xmlnsokafor"]
    assert [leaf.path for leaf in leaves(text) if leaf.mapped.text == "urn:hl7-org:v3"] == [
        "ClinicalDocument/section/@?"
    ]


@pytest.mark.parametrize("name", ["okafor:ID", "xmlns:okafor", "xmlnsokafor", "okafor"])
def test_no_path_contains_a_name_of_the_sender(name: str) -> None:
    text = written(f"<section {name}='seen by Voss'/><text>a<td {name}='seen by Voss'>b</td></text>")
    message = document(text)

    paths = [*(s.path for s in message.sites), *(n.path for n in message.narratives), *(n.path for n in leaves(text))]
    assert not [path for path in paths if "okafor" in path.lower()]


@pytest.mark.parametrize("address", ["http://x.example/okafor/cda.xsd", "../okafor/cda.xsd"])
def test_the_address_of_a_schema_behind_a_standard_namespace_is_a_leaf(address: str) -> None:
    text = written("", f' {INSTANCE} xsi:schemaLocation="urn:hl7-org:v3 {address}"')

    assert (LeafRole.TEXT, address) in [(leaf.role, leaf.mapped.text) for leaf in leaves(text)]
    assert "urn:hl7-org:v3" not in [leaf.mapped.text for leaf in leaves(text)]


@pytest.mark.parametrize("address", ["file:///home/okafor/x.xsd", "C:\\Users\\okafor\\x.xsd", "&#47;home/okafor/x.xsd"])
@pytest.mark.parametrize("name", ["schemaLocation", "noNamespaceSchemaLocation"])
def test_the_folder_of_a_schema_is_redacted(address: str, name: str) -> None:
    text = written("", f' {INSTANCE} xsi:{name}="urn:hl7-org:v3 {address} urn:hl7-org:sdtc {address}"')
    message = document(text)

    found = [(s.type, s.value) for s in message.sites if s.path.startswith("ClinicalDocument/@")]
    assert found == [(PhiType.URL, address.replace("&#47;", "/"))] * 2
    assert not [n for n in message.narratives if "urn:" in n.mapped.text]


@pytest.mark.parametrize(
    "text",
    [
        *(text for text in NAMES if "<text>" not in text),  # the text of a block has the range of its tags
        written("", ' a:schemaLocation="urn:hl7-org:v3 ../x &lt;y&gt; /z"'),
    ],
)
def test_leaves_share_no_byte(text: str) -> None:
    spans = [(leaf.mapped.starts[0], leaf.mapped.ends[-1]) for leaf in leaves(text)]

    assert all(a[1] <= b[0] for a, b in pairwise(spans))
