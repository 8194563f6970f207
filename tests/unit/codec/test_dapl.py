"""The output shape of HL7's DAPL: elements and profiles, and resources that are refused."""

import json
import runpy
from pathlib import Path

import pytest
from support.dapl import (
    BUNDLE,
    DAY,
    PATIENT,
    PROFILE,
    RACE,
    absent,
    by_id,
    dangling,
    find_faults,
    form,
    shaped,
)
from support.fhir import bundle
from support.shared import shared

from deid_agent.codec.fhir import find_ages
from deid_agent.codec.fhir.dapl_table import load_dapl_table
from deid_agent.model import MessageError, Reason

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, object]]:
    return by_id(shaped(BUNDLE.read_bytes()))


def test_the_table_is_that_of_the_profiles() -> None:
    """If it is stale, run ``python .ci/build_dapl_table.py FOLDER deid_agent/schemas/dapl.json``."""
    folder = shared("conformance", "dapl", "profiles")
    script = runpy.run_path(str(ROOT / ".ci/build_dapl_table.py"))
    built = script["build_table"](folder)
    assert built == json.loads((ROOT / "deid_agent/schemas/dapl.json").read_text())


def test_every_path_of_the_table_is_one_of_fhir() -> None:
    """A mistyped path would silently keep nothing."""
    shapes = form()._fhir.shapes
    for type_, profiles in load_dapl_table().profiles.items():
        for _, profile in profiles:
            for path in (*profile.supported, *profile.missing):
                shape = shapes[type_]
                for part in path.split("."):
                    names = [n for n in shape.rules if n == part or (part.endswith("[x]") and n.startswith(part[:-3]))]
                    assert names, f"{type_}.{path}"
                    child = shape.rules[names[0]].child
                    shape = child if child is not None else shape


def test_a_bundle_keeps_the_supported_elements(made: dict[str, dict[str, object]]) -> None:
    tree = shaped(BUNDLE.read_bytes())
    assert find_faults(tree) == []
    assert dangling(tree) == ["Substance/s"]  # as it came
    text = json.dumps(tree)
    for word in (
        "Quixwell",
        "Odalys",
        "Baranski",
        "Thistlewood",
        "Marisol",
        "4471902",
        "0177",
        "Ashford",
        "Quay",
        "1957",
    ):
        assert word not in text.replace("fhir.ashford.example", "")
    assert {each["resourceType"] for each in made.values()}.isdisjoint({"DiagnosticReport", "CareTeam", "Group"})
    assert set(tree) == {"resourceType", "id", "type", "entry"}
    assert made["p-1"]["gender"] == "female"
    assert made["p-1"]["meta"] == {
        "security": [{"system": "http://terminology.hl7.org/CodeSystem/v3-Confidentiality", "code": "R"}],
        "profile": [f"{PROFILE}dapl-deidentified-patient"],
    }


def test_the_shape_of_a_shape_is_the_same() -> None:
    raw = BUNDLE.read_bytes()
    once, _ = form().write(raw, find_ages(raw, DAY))
    twice, _ = form().write(once, find_ages(once, DAY))
    assert json.loads(twice) == json.loads(once)


def test_elements_that_change_the_meaning_stay(made: dict[str, dict[str, object]]) -> None:
    assert made["m-1"]["doNotPerform"] is True  # an order not to give a drug
    assert made["m-1"]["medicationCodeableConcept"] == {
        "coding": [{"system": "http://www.nlm.nih.gov/research/umls/rxnorm", "code": "476872"}]
    }  # the drug of a contained resource
    assert made["i-1"]["isSubpotent"] is True
    assert made["rp-1"]["active"] is False
    assert made["l-1"]["status"] == "suspended"
    verification = made["c-1"]["verificationStatus"]
    assert isinstance(verification, dict)
    assert verification["coding"][0]["code"] == "refuted"


@pytest.mark.parametrize(
    ("resource", "where"),
    [
        ({**PATIENT, "modifierExtension": []}, "Patient.modifierExtension"),
        ({**PATIENT, "implicitRules": "http://x"}, "Patient.implicitRules"),
        (
            {
                "resourceType": "MedicationRequest",
                "dosageInstruction": [{"text": "daily", "modifierExtension": [{"url": "http://x/not"}]}],
            },
            "MedicationRequest.dosageInstruction.modifierExtension",
        ),
        (bundle({**PATIENT, "modifierExtension": []}), "Patient.modifierExtension"),
        (
            {"resourceType": "Bundle", "type": "collection", "entry": [{"modifierExtension": []}]},
            "Bundle.entry.modifier",
        ),
        ({**PATIENT, "extension": [{"url": RACE, "modifierExtension": []}]}, "Patient.extension.modifier"),
    ],
)
def test_an_element_that_would_change_the_meaning_by_its_absence_is_refused(resource: object, where: str) -> None:
    with pytest.raises(MessageError) as caught:
        shaped(resource)
    assert caught.value.reason is Reason.UNSUPPORTED
    assert caught.value.where.startswith(where)


@pytest.mark.parametrize(
    ("resource", "where"),
    [
        ({"resourceType": "DiagnosticReport", "id": "r"}, "resourceType"),
        ({"resourceType": "Parameters"}, "resourceType"),
        (bundle({"resourceType": "DiagnosticReport", "id": "r"}), "Bundle.entry"),
        ({**bundle(PATIENT), "type": "document"}, "Bundle.type"),
        ({**bundle(PATIENT), "type": "message"}, "Bundle.type"),
    ],
)
def test_a_resource_without_a_form_in_dapl_is_refused(resource: object, where: str) -> None:
    with pytest.raises(MessageError) as caught:
        shaped(resource)
    assert (caught.value.reason, caught.value.where) == (Reason.UNSUPPORTED, where)


def test_required_elements_have_a_reason_for_their_absence(made: dict[str, dict[str, object]]) -> None:
    assert made["e-1"]["type"] == [absent("unknown")]
    assert made["o-bp"]["category"] == [absent("unknown")]
    assert "category" not in made["o-income"]
    assert made["o-time"]["subject"] == absent("masked")  # a Group is not published
    assert made["ms-1"]["medicationCodeableConcept"] == absent("masked")
    assert made["s-1"]["_doNotPerform"] == absent("unknown")
    assert made["i-1"]["_occurrenceDateTime"] == absent("masked")
    assert made["o-1"]["identifier"] == [{"_system": absent("masked"), "_value": absent("masked")}]
    reason = made["o-time"]["dataAbsentReason"]
    assert isinstance(reason, dict)
    assert reason["coding"][0]["code"] == "masked"  # a time is no value of DAPL
    assert "dataAbsentReason" not in made["o-lab"]


@pytest.mark.parametrize(
    ("id_", "profile"),
    [
        ("o-lab", "dapl-lab-observation"),
        ("o-bp", "dapl-clinical-result-observation"),
        ("o-income", "dapl-income-observation"),
        ("cov-2", "dapl-coverage"),
        ("cov-1", ""),  # cancelled, and DAPL fixes active
        ("d-1", ""),  # DAPL has none
        ("e-1", "dapl-deidentified-encounter"),
    ],
)
def test_the_profile_is_named_if_it_is_met(made: dict[str, dict[str, object]], id_: str, profile: str) -> None:
    wanted = {"profile": [f"{PROFILE}{profile}"]} if profile else None
    assert made[id_].get("meta") == wanted


def test_a_profile_without_a_required_element_is_not_named() -> None:
    assert "meta" not in shaped({"resourceType": "Observation", "id": "o", "code": {"text": "K"}})  # no status
    timing = {"event": ["2024-01-02", "2024-02-02"]}
    made = shaped({"resourceType": "Observation", "status": "final", "code": {"text": "K"}, "effectiveTiming": timing})
    assert made["effectiveTiming"] == {"event": ["2024", "2024"]}
    assert "meta" not in made


def test_times_of_the_server_are_years(made: dict[str, dict[str, object]]) -> None:
    instant = f"{PROFILE}dapl-deidentified-instant-extension"
    assert made["o-lab"]["extension"] == [{"url": instant, "valueDateTime": "2024"}]
    assert made["o-lab"]["effectiveDateTime"] == "2024"
    assert {"issued", "effectiveInstant"}.isdisjoint(made["o-lab"])
