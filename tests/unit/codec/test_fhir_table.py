"""The tables of ``rules/fhir``: current, complete, and refused where a word means nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.fhir import RULES

from deid_agent.codec.fhir import FhirCodec
from deid_agent.codec.fhir.build_table import build, models_folder, rendered
from deid_agent.codec.fhir.compiled import load
from deid_agent.errors import ConfigurationError


def test_the_generated_table_is_current() -> None:
    """Stale: run ``python -m deid_agent.codec.fhir.build_table rules/fhir/elements.json``."""
    assert rendered(build(models_folder())) == (RULES / "fhir/elements.json").read_text("utf-8")


def test_versions_are_united() -> None:
    elements = json.loads((RULES / "fhir/elements.json").read_text("utf-8"))

    assert elements["Patient"]["name"] == "HumanName"
    assert elements["Patient"]["contact"] == "PatientContact"
    assert elements["Binary"]["content"] == elements["Binary"]["data"] == "base64Binary"
    assert "DeviceComponent" in elements, "STU3 alone"
    assert "Transport" in elements, "R5 alone"
    assert elements["ServiceRequest"]["code"] == "CodeableConcept|CodeableReference"
    assert elements["Patient"]["generalPractitioner"] == "Reference(Organization,Practitioner,PractitionerRole)"


def test_every_type_has_a_shape() -> None:
    table = load(RULES)

    assert set(json.loads((RULES / "fhir/elements.json").read_text("utf-8"))) <= set(table.shapes)
    assert {"Patient", "Bundle", "Binary", "ProcedureRequest", "Transport"} <= table.resources
    assert not {"HumanName", "PatientContact", "Resource", "Element"} & table.resources


def test_serving_never_imports_the_models() -> None:
    code = (
        "import sys; from pathlib import Path; from deid_agent.codec.fhir import FhirCodec;"
        f'FhirCodec(Path({str(RULES)!r})).parse(b\'{{"resourceType": "Patient"}}\');'
        "sys.exit(any(name.split('.')[0] in {'fhir', 'fhir_core', 'pydantic'} for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=RULES.parent).returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('family = "family"', 'family = "surname"', "types.HumanName.family = 'surname' names no treatment"),
        ('line = "STREET"', 'line = "STREET gone"', "types.Address.line"),
        ('line = "STREET"', 'lines = "STREET"', "no version of FHIR knows Address.lines"),
        ("[types.Address]", "[types.Adress]", "no version of FHIR knows Adress"),
        ('oid = "uri"', "", "[primitive] says nothing about oid"),
        ('MR = "MEDICALRECORD"', 'MR = "RECORD"', "identifier.type"),
        ('identifier = "identifier"', 'identifier = "number plate"', "query"),
        ('type = "Period"', 'type = "Perod"', "unknown type Perod"),
        ('Patient = "patient"', 'Patient = "client"', "subject"),
        ("[uri]", "[uri", "types.toml"),
    ],
)
def test_a_bad_table_stops_the_start(tmp_path: Path, old: str, new: str, says: str) -> None:
    shutil.copytree(RULES / "fhir", tmp_path / "fhir")
    path = tmp_path / "fhir/types.toml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")

    with pytest.raises(ConfigurationError) as caught:
        FhirCodec(tmp_path)

    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "[]", '{"Patient": {"name": 1}}', '{"Patient": {"": "Missing"}}', "{"])
def test_a_missing_or_broken_element_table_stops_the_start(tmp_path: Path, content: str | None) -> None:
    shutil.copytree(RULES / "fhir", tmp_path / "fhir")
    path = tmp_path / "fhir/elements.json"
    path.unlink()
    if content is not None:
        path.write_text(content, "utf-8")

    with pytest.raises(ConfigurationError):
        FhirCodec(tmp_path)
