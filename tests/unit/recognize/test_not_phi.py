"""Short texts of codes, results and headings in which the default system finds nothing, and texts with PHI."""

from pathlib import Path

import pytest

from deid_agent.measure import load_grammar
from deid_agent.model.text import Document
from deid_agent.recognize.registry import assemble_recognizers, load_rules
from deid_agent.recognize.resolve import Profile, Resolver

RULES = load_rules(Path(__file__).resolve().parents[3] / "rules")
RECOGNIZERS = assemble_recognizers(RULES, "default")
RESOLVER = Resolver(Profile.RECALL, RULES, grammar=load_grammar(RULES.folder))


def found(text: str) -> list[str]:
    doc = Document(text)
    proposals = [span for recognizer in RECOGNIZERS for span in recognizer.recognize(doc)]
    return [text[s.start : s.end] for s in RESOLVER.resolve(proposals, doc)]


@pytest.mark.parametrize(
    "text",
    [
        "350000",
        "150000 to 450000",
        "150000-450000",
        "ferritin 102345",
        "Platelets 102345 today",
        "102345 ng/mL",
        "mg/hr",
        "mcg/min",
        "{LOINC code '26464-8'",
        "SNOMED CT code '138875005'",
        "140004^Chronic pharyngitis^SCT",
        "26464-8 (LOINC)",
        "urn:oid:2.16.840.1.113883.6.1",
        "root 2.16.840.1.113883.10.20.22.1.2, codes of 2.16.840.1.113883.3.26.1.1",
        "SOP class 1.2.840.10008.5.1.4.1.1.2",
        "IHE 1.3.6.1.4.1.19376.1.2.3 and 2.16.840.1.113762.1.4.1",
        "section 1.2.3.4.5.6",
        "see http://terminology.hl7.org/CodeSystem/v3-ActCode",
        "system http://snomed.info/sct and http://loinc.org",
        "ENTEROCOCCUS FAECIUM, VRE",
        "CANDIDA ALBICANS, URINE",
        "HEMOGLOBIN, BLOOD",
        "Influenza RT-PCR",
        "2019-nCoV Real-Time RT-PCR",
        "MS/MS Acylcarnitine",
        "UNLESS OTHERWISE INDICATED, ALL TESTING PERFORMED AT",
        "PT MUST BE",
        "For Healthcare",
        "Strength 4/5, pain 7/10",
        "1/4 pound",
        "BP 120/80/99, HR 12/80/99",
        "PA 28/34/19, wedge 12",
        "Ratio 12/80/99",
        "glucoses 30/61/55",
        "sinus of Valsalva 28/29/29",
        "1/2 NS",
        "&#8805;6.5",
        r"\T\#8805;6.5",
        "warfarin 5 mg M/W/F, 2.5 mg T/Th/S/Su",
        "Clinic M-F 9-5",
        "azithromycin Mon/Wed/Fri",
        "methotrexate 15 mg weekly (Fridays)",
        "Mayo 2, feeds 6/24",
        "Parvovirus DNA not detected",
    ],
)
def test_clinical_text_is_not_found(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Seen 3/4/2019-3/9/2019", ["3/4/2019", "3/9/2019"]),
        ("2019-03-04/2019-03-09", ["2019-03-04", "2019-03-09"]),
        ("on 20190304 cultures, then 20190311 again", ["20190304", "20190311"]),
        ("Admitted March 4-9, 2019 for sepsis", ["March 4", "9, 2019"]),
        ("Admitted March 28 - April 3, 2019", ["March 28", "April 3, 2019"]),
        ("Admitted 4-9 March 2019", ["4", "9 March 2019"]),
        ("From the 4th to the 9th of March", ["4th", "9th of March"]),
        ("March 4, 5 and 6, 2019", ["March 4", "5", "6, 2019"]),
        ("seen 3/4-9/2019", ["3/4", "9/2019"]),
        ("2019-03-04/09", ["2019-03-04", "09"]),
        ("Visit 13/45/99 noted", ["13/45/99"]),
        ("02/30/2019 seen", ["02/30/2019"]),
        ("copied 00918822 page", ["00918822"]),
        ("8831207", ["8831207"]),
        ("accession 26464-8", ["26464-8"]),
        ("at http://portal.quenby.example/8831207", ["http://portal.quenby.example/8831207"]),
        (
            "Imaging study 1.2.840.113619.2.55.3.604688119.969.1268071029.320 was reviewed.",
            ["1.2.840.113619.2.55.3.604688119.969.1268071029.320"],
        ),
        ("series 1.3.12.2.1107.5.2.32.35162.30000015050317233592200000046", None),
        ("study 1.3.6.1.4.1.14519.5.2.1.6279.6001.298806137288633453246975630178", None),
        ("study 2.25.329800735698586629295641978511506172918", None),
        ("root 2.16.840.1.113883.3.933.2.4471", None),
        ("UUID 3f2504e0-4f89-41d3-9a0c-0305e82c3301", None),
        ("MAC 00:1B:44:11:3A:B7", None),
        ("MAC 00-1B-44-11-3A-B7", None),
        ("by Raymond Stolle, RN-BC", ["Raymond Stolle"]),
        ("restart warfarin on Wednesday", ["Wednesday"]),
        ("Oduya DNA x2, rebook", ["Oduya"]),
        ("by Raymond Stolle, RN 201904121530", ["Raymond Stolle", "20190412"]),
        ("last visit: 2019", ["2019"]),
    ],
)
def test_identifiers_beside_clinical_text_are_found(text: str, spans: list[str] | None) -> None:
    assert found(text) == (spans or [text.split(" ")[1]])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Saw Mr Marsh culture sent", ["Marsh"]),
        ("Mr Marsh DNA; letter sent", ["Marsh"]),
        ("Mrs Foley left. Dr Case rang", ["Foley", "Case"]),
        ("Bordetella culture and Chlamydia DNA sent", []),
        ("MR BRAIN W/O contrast", []),
    ],
)
def test_a_title_is_stronger_than_the_name_of_an_assay_or_a_word(text: str, names: list[str]) -> None:
    assert [name.split()[0] for name in found(text)] == names
