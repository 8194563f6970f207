"""The texts of one message share one order of day and month."""

from datetime import date, datetime

import pytest

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy
from deid_agent.rules import data_folder

RULES = data_folder("rules")


@pytest.fixture(scope="module")
def deidentifier() -> Deidentifier:
    chosen = load_policy("pseudonymised", RULES)
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=chosen, system="rules").deidentifier()


def days(deidentifier: Deidentifier, *texts: str) -> list[str]:
    """The days in OBX-5 and NTE-3 of a de-identified message with these texts."""
    lines = [r"MSH|^~\&|A|B|C|D|20190504||ORU^R01|1|P|2.5", "PID|1||4471902", f"OBX|1|TX|N^Note||{texts[0]}"]
    lines += [f"NTE|1||{text}" for text in texts[1:]]
    out = deidentifier.message("\r".join([*lines, ""]).encode()).payload.decode().split("\r")[2:-1]
    fields = [line.split("|")[5 if line.startswith("OBX") else 3] for line in out]
    return [word.rstrip(".,") for text in fields for word in text.split() if word[0].isdigit()]


def test_a_profession_that_the_policy_keeps_is_read_like_a_text() -> None:
    policy = load_policy("safe-harbor", RULES)
    worker = WorkerFactory(rules=RULES, key=DEMO_KEY, policy=policy, system="rules").deidentifier()
    person, job = "PID|1||4471902||Okafor^Ada", "OBX|1|ST|1^Occupation^L||"
    lines = [r"MSH|^~\&|A|B|C|D|20190504||ORU^R01|1|P|2.5", person, f"{job}nurse", f"{job}aide of Ada Okafor"]
    out = worker.message("\r".join([*lines, ""]).encode()).payload.decode().split("\r")
    assert out[2] == f"{job}nurse"
    assert out[3].startswith(f"{job}aide of ")
    assert "Okafor" not in out[3]


def read(form: str, words: list[str]) -> list[date]:
    return [datetime.strptime(word, form).date() for word in words]


@pytest.mark.parametrize("turned", [False, True])
def test_an_ambiguous_date_order_follows_the_other_texts_of_its_message(
    deidentifier: Deidentifier, turned: bool
) -> None:
    texts = ["Admitted 23/04/2019 and discharged 28/04/2019.", "Reviewed in clinic on 03/05/2019."]
    new = read("%d/%m/%Y", days(deidentifier, *(reversed(texts) if turned else texts)))
    admitted, discharged, reviewed = [*new[1:], new[0]] if turned else new
    assert ((discharged - admitted).days, (reviewed - admitted).days) == (5, 10)


def test_a_text_with_its_own_date_order_is_read_in_that_order(deidentifier: Deidentifier) -> None:
    texts = ["Admitted 23/04/2019, 24/04/2019, 25/04/2019.", "Seen 03/05/2019 and 03/25/2019."]
    first, second = read("%m/%d/%Y", days(deidentifier, *texts)[3:])
    assert (second - first).days == 20
