"""Names that are glued to a label or a title."""

import pytest

from deid_agent.model import Document
from deid_agent.recognize.glued_text import GluedTextRecognizer

RECOGNIZER = GluedTextRecognizer(frozenset({"note", "surgery", "vascular", "pain", "seen"}))


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
