"""Short texts of codes, results and headings that the whole default system leaves alone, and what it still finds."""

from pathlib import Path

import pytest

from deid_agent.recognize.registry import assemble, load_rules
from deid_agent.resolve import Profile, Resolver
from deid_agent.text import Document

RULES = load_rules(Path(__file__).resolve().parents[3] / "rules")
RECOGNIZERS = assemble(RULES, "default")


def found(text: str) -> list[str]:
    doc = Document(text)
    proposals = [span for recognizer in RECOGNIZERS for span in recognizer.recognize(doc)]
    return [text[s.start : s.end] for s in Resolver(Profile.RECALL, RULES).resolve(proposals, doc)]


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
    ],
)
def test_left_alone(text: str) -> None:
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
        ("by Raymond Stolle, RN-BC", ["Raymond Stolle"]),
    ],
)
def test_still_found(text: str, spans: list[str]) -> None:
    assert found(text) == spans
