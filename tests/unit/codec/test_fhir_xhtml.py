"""Narrative.div: its text, the position of each character, and replacements."""

import json

import pytest
from support.edits import apply
from support.fhir import parsed
from support.growth import growth

from deid_agent.codec.fhir.codec import FhirMessage
from deid_agent.model.sites import Edit, Narrative
from deid_agent.model.spans import Replacement


def narrative(div: str) -> tuple[FhirMessage, Narrative]:
    message = parsed({"resourceType": "Patient", "text": {"status": "generated", "div": div}})
    return message, message.narratives[0]


def rewritten(div: str, old: str, new: str, index: int = 0) -> str:
    message = parsed({"resourceType": "Patient", "text": {"div": div}})
    mapped = message.narratives[index].mapped
    at = mapped.text.index(old)
    placed = mapped.place([Replacement(at, at + len(old), new)])
    out = apply(message.raw, [Edit(start, end, message.encode(text)) for start, end, text in placed])
    return str(json.loads(out)["text"]["div"])


@pytest.mark.parametrize(
    ("div", "text"),
    [
        ("<div>Ada Okafor</div>", "Ada Okafor\n"),
        ("<div>Ada <b>Oka</b>for</div>", "Ada Okafor\n"),
        ("<div><p>Ada</p><p>Okafor</p></div>", "Ada\nOkafor\n"),
        ("<div>Ada<br/>Okafor</div>", "Ada\nOkafor\n"),
        ("<table><tr><td>Ada</td> <td>Okafor</td></tr></table>", "Ada\nOkafor\n"),
        ("<div>Ada\n   Okafor</div>", "Ada Okafor\n"),
        ("<pre>Ada\n  Okafor</pre> x\n\ny", "Ada\n  Okafor\n x y"),
        ("<div>Mu&#241;oz &amp; O&#x27;Neil &lt;x&gt;&nbsp;&eacute;</div>", "Muñoz & O'Neil <x>\xa0é\n"),
        ("<div>&bogus; &#0; &amp</div>", "&bogus; &#0; &amp\n"),
        ("<div>before<!-- seen by Voss -->after</div>", "before\n seen by Voss \nafter\n"),
        ("<div><![CDATA[Ada]]></div>", "Ada\n"),
        ("<div><!-- <Dr Ada Okafor> -->x</div>", " <Dr Ada Okafor> \nx\n"),
        ("<div><!-- <b>Ada</b> ]]> <Okafor --></div>", " <b>Ada</b> ]]> <Okafor \n"),
        ("<div><![CDATA[<Ada> <!Okafor> --> <?Ada x?>]]></div>", "<Ada> <!Okafor> --> <?Ada x?>\n"),
        ("<div><?pi <Okafor> ?> x</div>", "<Okafor> \n x\n"),
        ("<div>5 < 6, a<b and <i x='>'>c</i></div>", "5 < 6, a<b and c\n"),
        ("<div>Ada --> ]]> ?> x</div>", "Ada --> ]]> ?> x\n"),
        ("<div>Ada <b", "Ada <b"),
        ("<div>signed <Dr Ada Okafor> <Voss> x <xs:any/>y</div>", "signed <Dr Ada Okafor> <Voss> x \ny\n"),
        ("<DIV>Ada<Hr/>x <STRONG>y</STRONG> <section>z</section></DIV>", "Ada\nx y \nz\n"),
        ("plain", "plain"),
    ],
)
def test_reads(div: str, text: str) -> None:
    assert narrative(div)[1].mapped.text == text


@pytest.mark.parametrize(
    ("div", "old", "new", "expected"),
    [
        ("<div>Dr. Voss left</div>", "Voss", "Lindqvist", "<div>Dr. Lindqvist left</div>"),
        ("<div>Oka<b>for</b> left</div>", "Okafor", "Ruiz", "<div>Ruiz<b></b> left</div>"),
        ("<div>Mu&#241;oz left</div>", "Muñoz", "Díaz", "<div>Díaz left</div>"),
        ("<div>St. Mary</div>", "St. Mary", "Smith & <Sons>", "<div>Smith &amp; &lt;Sons&gt;</div>"),
        ('<div>Ada\n  "Okafor"</div>', 'Ada "Okafor"', 'Eve "Ruiz"', '<div>Eve "Ruiz"</div>'),
        ("<p>Ada</p><p>Okafor</p>", "Ada\nOkafor", "Eve\nRuiz", "<p>Eve</p><p>Ruiz</p>"),
        ("<p><!-- <Okafor> -->x</p>", "Okafor", "Ruiz", "<p><!-- <Ruiz> -->x</p>"),
        ("<p><![CDATA[<Okafor>]]></p>", "<Okafor>", "Ruiz", "<p><![CDATA[Ruiz]]></p>"),
    ],
)
def test_writes(div: str, old: str, new: str, expected: str) -> None:
    assert rewritten(div, old, new) == expected


def test_attributes_that_people_read_are_narratives() -> None:
    div = "<div class='Ada'><img alt='Ada &amp; Eve'/><a title=\"Voss\" href='mailto:a@b.example'>x</a></div>"
    message = parsed({"resourceType": "Patient", "text": {"div": div}})

    assert [(n.path, n.mapped.text) for n in message.narratives] == [
        ("Patient.text.div/@alt", "Ada & Eve"),
        ("Patient.text.div/@title", "Voss"),
        ("Patient.text.div/@href", "mailto:a@b.example"),
        ("Patient.text.div", "x\n"),
    ]


def test_an_attribute_is_written_with_its_quotes_as_entities() -> None:
    div = "<div><img alt='Ada'/>x</div>"

    assert rewritten(div, "Ada", 'O\'Neil "&"') == "<div><img alt='O&#x27;Neil &quot;&amp;&quot;'/>x</div>"


def test_links_keep_their_targets() -> None:
    message = parsed(
        {
            "resourceType": "Patient",
            "text": {"div": "<div><a href=\"Encounter/e1\">x</a><a href='#n1'/><a href='http://loinc.org/1'/></div>"},
        }
    )

    assert [(s.path, s.value) for s in message.sites] == [
        ("Patient.text.div/@href", "e1"),
        ("Patient.text.div/@href", "n1"),
    ]
    assert [n.path for n in message.narratives] == ["Patient.text.div"]


def test_a_picture_in_the_markup_is_an_attachment() -> None:
    message = parsed(
        {"resourceType": "Patient", "text": {"div": "<div><img src='data:image/png;base64,iVBORw=='/></div>"}}
    )

    (attachment,) = message.attachments
    assert (attachment.path, attachment.content_type) == ("Patient.text.div/@src", "image/png")
    assert message.raw[attachment.start : attachment.end] == b"iVBORw=="
    assert attachment.data == b"\x89PNG"


@pytest.mark.parametrize(
    "piece",
    ["<", "<a ", '<a "', "<a '", "<!--", "<![CDATA[", "<!x", "&", "&a", "&#1", " ", "\n", "<a b='<a b=\"", '\\"', "é"],
)
def test_no_markup_stalls(piece: str) -> None:
    """Unclosed pieces, ten times as many: a quadratic reader takes a hundred times as long."""

    def read(count: int) -> None:
        assert parsed({"resourceType": "Patient", "text": {"div": "x" + piece * count}}).narratives

    assert growth(read, 5_000, 50_000) < 30
