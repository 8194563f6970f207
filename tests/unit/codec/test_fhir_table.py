"""The tables of ``rules/fhir``: current, complete, and refused if they contain an unknown word."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.fhir import RULES

from deid_agent.codec.fhir import FhirCodec
from deid_agent.codec.fhir.table import load_fhir_table
from deid_agent.model.errors import ConfigurationError


def test_the_generated_table_is_current() -> None:
    """If the table is stale, run ``python .ci/build_fhir_table.py rules/fhir/elements.json``."""
    script = runpy.run_path(str(RULES.parent / ".ci/build_fhir_table.py"))
    built = script["render_table"](script["build_table"](script["models_folder"]()))

    assert built == (RULES / "fhir/elements.json").read_text("utf-8")


def test_the_generated_list_of_required_members_is_current() -> None:
    """If it is stale, run ``python .ci/build_fhir_required.py rules/fhir/required.json``."""
    models = runpy.run_path(str(RULES.parent / ".ci/build_fhir_table.py"))["models_folder"]()
    script = runpy.run_path(str(RULES.parent / ".ci/build_fhir_required.py"))
    built = script["render_required"](script["build_required"](models))

    assert built == (RULES / "fhir/required.json").read_text("utf-8")


def test_the_generated_table_of_lists_is_current() -> None:
    """If it is stale, run ``python .ci/build_fhir_lists.py rules/fhir/lists.json``."""
    models = runpy.run_path(str(RULES.parent / ".ci/build_fhir_table.py"))["models_folder"]()
    script = runpy.run_path(str(RULES.parent / ".ci/build_fhir_lists.py"))
    built = script["render_lists"](script["build_lists"](models))

    assert built == (RULES / "fhir/lists.json").read_text("utf-8")


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
    table = load_fhir_table(RULES)

    assert set(json.loads((RULES / "fhir/elements.json").read_text("utf-8"))) <= set(table.shapes)
    assert {"Patient", "Bundle", "Binary", "ProcedureRequest", "Transport"} <= table.resources
    assert not {"HumanName", "PatientContact", "Resource", "Element"} & table.resources


def test_serving_never_imports_the_models() -> None:
    code = (
        "import sys; from pathlib import Path; from deid_agent.codec.fhir import FhirCodec;"
        f'FhirCodec(Path({str(RULES)!r})).parse(b\'{{"resourceType": "Patient"}}\');'
        "sys.exit(any(name.split('.')[0] in {'fhir', 'fhir_core'} for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=RULES.parent).returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('family = "family"', 'family = "surname"', "types.HumanName.family = 'surname' names no treatment"),
        ('line = "STREET"', 'line = "STREET gone"', "types.Address.line"),
        ('line = "STREET"', 'lines = "STREET"', "no version of FHIR knows Address.lines"),
        ("[types.Address]", "[types.Adress]", "no version of FHIR knows Adress"),
        ('oid = "uri"', "", "[primitive] has no entry for oid"),
        ('MR = "MEDICALRECORD"', 'MR = "RECORD"', "identifier.type"),
        ('identifier = "identifier"', 'identifier = "number plate"', "query"),
        ('type = "Period"', 'type = "Perod"', "unknown type Perod"),
        ('Patient = "patient"', 'Patient = "client"', "subject"),
        ("[uri]", "[uri", "types.toml"),
    ],
)
def test_a_bad_table_stops_the_start(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    shutil.copytree(RULES / "fhir", tmp_path / "fhir")
    shutil.copy(RULES / "births.toml", tmp_path)
    shutil.copy(RULES / "labels.toml", tmp_path)
    path = tmp_path / "fhir/types.toml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")

    with pytest.raises(ConfigurationError) as caught:
        FhirCodec(tmp_path)

    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "[]", '{"Patient": {"name": 1}}', '{"Patient": {"": "Missing"}}', "{"])
def test_a_missing_or_broken_element_table_stops_the_start(tmp_path: Path, content: str | None) -> None:
    shutil.copytree(RULES / "fhir", tmp_path / "fhir")
    shutil.copy(RULES / "births.toml", tmp_path)
    shutil.copy(RULES / "labels.toml", tmp_path)
    path = tmp_path / "fhir/elements.json"
    path.unlink()
    if content is not None:
        path.write_text(content, "utf-8")

    with pytest.raises(ConfigurationError):
        FhirCodec(tmp_path)
