"""Names that are glued to a label or a title."""

from pathlib import Path

import pytest

from deid_agent.model import Document
from deid_agent.recognize import load_rules
from deid_agent.recognize.glued_text import GluedTextRecognizer

RECOGNIZER = GluedTextRecognizer.load(load_rules(Path(__file__).resolve().parents[3] / "rules").lexicons)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("DrHolmbergNote 14/02", ["Holmberg"]),
        ("CCVascularSurgeryDrEkströmNurseFolasade", ["Ekström", "Folasade"]),
        ("signedelectronically:KaurHarpreetMD 2021", ["KaurHarpreet"]),
        ("PatientNameOkaforAda", ["OkaforAda"]),
        ("PatientName:OkaforAdaDOB:04211955", ["OkaforAda"]),
        ("Patient:McDonaldJohn", ["McDonaldJohn"]),
        ("MrsO'BrienSeen", ["O'Brien"]),
        ("PatientReportsPain", []),
        ("McDonald DeBakey HbA1c iPhone", []),
        ("Name: Okafor-Lee", []),
        ("drOkafor", ["Okafor"]),
    ],
)
def test_glued_names(text: str, names: list[str]) -> None:
    assert [text[span.start : span.end] for span in RECOGNIZER.recognize(Document(text))] == names
