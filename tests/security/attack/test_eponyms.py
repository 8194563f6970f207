"""The attacker looks for names that pass as part of a medical term: "Mr. Abara's disease progressed"."""

import re

import pytest
from support.surrogates import ROOT

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import SecretKey
from deid_agent.pipeline.policy import load_policy
from deid_agent.recognize.registry import load_rules
from deid_agent.rules.ruleset import Rule

RULES = ROOT / "rules"
MAKE = {
    name: WorkerFactory(RULES, SecretKey(b"key of the attack on eponyms, 32 bytes"), load_policy(name, RULES))
    for name in ("pseudonymised", "safe-harbor")
}
MADE = {name: factory.deidentifier() for name, factory in MAKE.items()}

FREQUENT = """
smith johnson williams brown jones garcia miller davis rodriguez martinez hernandez lopez gonzalez wilson anderson
thomas taylor moore jackson martin lee perez thompson white harris sanchez clark ramirez lewis robinson walker young
allen king wright scott torres nguyen hill flores green adams nelson baker hall rivera campbell mitchell carter roberts
"""


@pytest.mark.parametrize("policy", sorted(MADE))
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Mr. Abara's disease progressed on therapy.", "Abara"),
        ("Dr. Wilson's disease clinic is on Friday.", "Wilson"),
        ("Mrs. Parkinson's disease is stable.", "Parkinson"),
        ("Prof. Hashimoto's procedure went well.", "Hashimoto"),
        ("Frau Crohn's lesion is smaller.", "Crohn"),
        ("Patient name: Ada Parkinson. Parkinson's ulcer has healed.", "Parkinson"),
    ],
)
def test_a_person_named_like_a_medical_term_is_found(policy: str, text: str, name: str) -> None:
    assert name not in MADE[policy].text(text).text


@pytest.mark.parametrize("policy", sorted(MADE))
@pytest.mark.parametrize("term", ["Parkinson's disease", "Wilson disease", "Marfan syndrome"])
def test_the_term_is_replaced_if_the_patient_has_that_name(policy: str, term: str) -> None:
    """The safe choice: the diagnosis of a patient of that name would reveal the patient's name."""
    name = term.split(maxsplit=1)[0].removesuffix("'s")
    message = f"MSH|^~\\&|A|B|C|D|20190304||ORU^R01|1|P|2.5.1\rPID|1||99||{name}^Ada\rOBX|1|TX|1^n||{{}}||||||F\r"
    out = MADE[policy].message(message.format(f"{name} has {term}.").encode()).payload.decode()
    assert name not in out


@pytest.mark.parametrize("policy", sorted(MADE))
def test_the_term_is_kept_for_other_patients(policy: str) -> None:
    terms = (
        "Parkinson disease, Crohn's disease, Guillain-Barré syndrome, von Willebrand disease, Wilson disease, "
        "a Foley catheter, a Swan-Ganz catheter, Murphy's sign, McBurney's point, Gleason score"
    )
    message = (
        "MSH|^~\\&|A|B|C|D|20190304||ORU^R01|1|P|2.5.1|||||||UNICODE UTF-8\rPID|1||99||Okafor^Ada\r"
        f"OBX|1|TX|1^n||No history of {terms}.||||||F\r"
    )
    out = MADE[policy].message(message.encode()).payload.decode()
    assert terms in out


def veto() -> Rule:
    return next(rule for rule in load_rules(RULES).vetoes if rule.id == "eponym")


def test_the_list_contains_no_common_surname_alone() -> None:
    """Given names, and the hundred most frequent family names of the United States, are listed with a term only."""
    folder = RULES / "dictionary"
    given = {
        line.lstrip("?")
        for name in ("given-female", "given-male")
        for line in (folder / f"{name}.txt").read_text("utf-8").splitlines()
    }
    frequent = {*FREQUENT.split()}
    assert not veto().within & (given | frequent)
    assert len(veto().within) > 2_500


def test_every_term_has_the_form_that_the_veto_compares() -> None:
    assert {term for term in veto().within if not re.fullmatch(r"[a-z]+(?: [a-z]+)*", term)} == set()
