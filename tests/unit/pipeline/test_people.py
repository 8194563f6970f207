"""One person has one surrogate in fields, narratives and attachments, of the sex that the message gives."""

import base64
import json
import re

import pytest

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy
from deid_agent.rules import data_folder
from deid_agent.surrogate.lists import load_lists

RULES = data_folder("rules")
LISTS = load_lists(RULES)
NOTE = (
    "{0} {1} seen by Dr. {3}. Mr. {1}, {0}. Her mother {4} called. Dr. {2} {3} MD agreed, {1}{0} too. "
    "Dr. Helen Brooks came. Dr. Brooks left."
)


@pytest.fixture(scope="module")
def deidentifier() -> Deidentifier:
    chosen = load_policy("pseudonymised", RULES)
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=chosen, system="rules").deidentifier()


def message(sex: str, note: str, number: int = 0) -> bytes:
    attached = base64.b64encode(note.encode()).decode()
    lines = [
        rf"MSH|^~\&|A|B|C|D|20200101||ORU^R01|{number}|P|2.5",
        f"PID|1||4471902{number}^^^H^MR||Papadopoulos^Ashley||19700101|{sex}",
        "NK1|1|Papadopoulos^Jordan|MTH",
        "PV1|1|I|||||123^Adler^Jane^M",
        f"OBX|1|TX|N^Note||{note}",
        f"OBX|2|ED|N^Note||^TEXT^plain^Base64^{attached}",
    ]
    return "\r".join([*lines, ""]).encode()


@pytest.mark.parametrize("sex", ["F", "M"])
@pytest.mark.parametrize("number", range(5))
def test_fields_narrative_and_attachment_agree_and_the_sex_is_that_of_the_field(
    deidentifier: Deidentifier, sex: str, number: int
) -> None:
    note = NOTE.format("Ashley", "Papadopoulos", "Jane", "Adler", "Jordan")
    out = deidentifier.message(message(sex, note, number)).payload.decode().split("\r")
    family, given = out[1].split("|")[5].split("^")
    same, mother = out[2].split("|")[2].split("^")
    _, doctor, jane, _ = out[3].split("|")[7].split("^")
    assert same == family != "Papadopoulos"
    assert LISTS.has("female" if sex == "F" else "male", given.lower())
    assert LISTS.has("female", mother.lower())
    text = out[4].split("|")[5]
    brooks = re.findall(r"Dr\. (?:(\w+) )?(\w+) (?:came|left)", text)
    assert brooks[0][1] == brooks[1][1]
    expected = NOTE.replace("Helen Brooks", " ".join(brooks[0])).replace("Brooks", brooks[0][1])
    assert text == expected.format(given, family, jane, doctor, mother)
    assert base64.b64decode(out[5].split("^")[-1]).decode() == text


@pytest.mark.parametrize("sex", ["female", "male"])
def test_fhir_gender_and_c_cda_gender_decide_the_sex(deidentifier: Deidentifier, sex: str) -> None:
    other = "male" if sex == "female" else "female"
    for number in range(5):
        patient = {"resourceType": "Patient", "id": f"p{number}", "gender": sex, "name": [{"given": ["Robin"]}]}
        patient["contact"] = [{"name": {"given": ["Kim"]}, "gender": other}]
        new = json.loads(deidentifier.message(json.dumps(patient).encode()).payload)
        assert LISTS.has(sex, new["name"][0]["given"][0].lower())
        assert LISTS.has(other, new["contact"][0]["name"]["given"][0].lower())
        document = (
            f'<ClinicalDocument xmlns="urn:hl7-org:v3"><id root="1.2" extension="5"/><recordTarget><patientRole><id '
            f'root="1.2.3" extension="7{number}"/><patient><name><given>Robin</given></name><administrativeGenderCode '
            f'code="{sex[0].upper()}"/></patient></patientRole></recordTarget></ClinicalDocument>'
        )
        found = re.search(r"<given>(\w+)<", deidentifier.message(document.encode()).payload.decode())
        assert found and LISTS.has(sex, found[1].lower())


@pytest.mark.parametrize(("before", "after", "sex"), [("wife ", "", "female"), ("Mr. ", " Okoro", "male")])
def test_kinship_and_titles_decide_the_sex_in_a_note(
    deidentifier: Deidentifier, before: str, after: str, sex: str
) -> None:
    names = set()
    for number in range(8):
        text = f"Visit {number}: Patient: Ada Okoro\nHis {before}Ashley{after} was present."
        found = re.search(rf"{before}(\w+)", deidentifier.text(text, document=f"d{number}").text)
        names.add(found[1] if found else "")
    assert all(LISTS.has(sex, name.lower()) for name in names - {"Ashley"}) and len(names) > 1


def test_two_doctors_of_one_surname_remain_separate_in_their_fields(deidentifier: Deidentifier) -> None:
    text = r"MSH|^~\&|A|B|C|D|20200101||ORU^R01|1|P|2.5" + "\rPID|1||44719\rPV1|1|I|||||1^Smith^Ann|2^Smith^Boris\r"
    out = deidentifier.message(text.encode()).payload.decode().split("\r")[2].split("|")
    ann, boris = (field.split("^")[1] for field in out[7:9])
    alone = deidentifier.message(text.replace("1^Smith^Ann|", "|").encode()).payload.decode().split("\r")[2].split("|")
    assert ann != boris == alone[8].split("^")[1]
