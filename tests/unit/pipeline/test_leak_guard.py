"""The leak guard: values that it scrubs, keeps and refuses (``tests/cases/guard.toml``)."""

import tomllib
from functools import lru_cache
from pathlib import Path

import pytest
from support.hl7 import MSH, RULES

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import MessageError, Reason
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact, LeafRole, Narrative, Subject, ValueKind
from deid_agent.model.spans import MappedText
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.leak_guard import LeakGuard, select_searched_facts
from deid_agent.pipeline.policy import load_policy
from deid_agent.recognize.known_people import NameLexicons
from deid_agent.recognize.known_phi import KnownRecognizer
from deid_agent.recognize.registry import load_rules

_FILE = Path(__file__).resolve().parents[2] / "cases" / "guard.toml"
CASES = tomllib.loads(_FILE.read_text("utf-8"))["case"]


@lru_cache(maxsize=4)
def deidentifier(profile: str = "pseudonymised") -> Deidentifier:
    return WorkerFactory(RULES, DEMO_KEY, load_policy(profile, RULES)).deidentifier()


@lru_cache(maxsize=1)
def guard() -> LeakGuard:
    return LeakGuard(KnownRecognizer(NameLexicons.of(load_rules(RULES)), exact=True).recognize)


def payload(message: str | list[str]) -> bytes:
    return (message if isinstance(message, str) else "".join(f"{line}\r" for line in (MSH, *message))).encode()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "-"))
def test_cases(case: dict[str, object]) -> None:
    message, gone, stays = case["message"], case.get("gone", []), case.get("stays", [])
    assert isinstance(message, str | list)
    assert isinstance(gone, list)
    assert isinstance(stays, list)
    if "leak" in case:
        with pytest.raises(MessageError) as refused:
            deidentifier().message(payload(message))
        assert (refused.value.reason, refused.value.where) == (Reason.LEAK, case["leak"])
        return
    done = deidentifier().message(payload(message))
    text = done.payload.decode()
    assert [word for word in gone if word.casefold() in text.casefold()] == []
    assert [word for word in stays if word not in text] == []
    if "by_guard" in case:
        assert any(remark.source == "guard" for remark in done.remarks) is case["by_guard"]


NAME = (
    Fact(PhiType.PATIENT, ValueKind.FAMILY, Subject.PATIENT, "g", "Abernathy"),
    Fact(PhiType.PATIENT, ValueKind.GIVEN, Subject.PATIENT, "g", "Prudence"),
)


def leaf(text: str, role: LeafRole = LeafRole.TEXT) -> Narrative:
    return Narrative("X-1", MappedText(text, range(len(text)), range(1, len(text) + 1)), role)


@pytest.mark.parametrize(
    "text", ["Abernathy", "ABERNATHY, P.", "p. abernathy", "Prudence\u00a0Abernathy", "abernathy-prudence", "aBernAthy"]
)
def test_a_name_in_any_form_is_found(text: str) -> None:
    assert guard().search([leaf(text)], [], NAME)


def test_the_text_of_a_surrogate_is_exempt_only_at_its_position() -> None:
    text = "Abernathy and Abernathy"
    (hit,) = guard().search([leaf(text)], [(0, 9)], NAME)
    assert (hit.start, hit.end) == (14, 23)
    assert guard().search([leaf(text)], [(0, 9), (14, 23)], NAME) == []


def test_a_refusal_contains_no_value() -> None:
    with pytest.raises(MessageError) as refused:
        deidentifier().message(payload(["PID|1||88123456^^^NG^MR||A^B", "OBX|1|CWE|88123456^Text^LN||A"]))
    assert "88123456" not in str(refused.value)


def test_an_identifier_that_survives_scrubbing_is_refused() -> None:
    def unchanged(_: object) -> str:
        return "Abernathy"

    def leaves(_: bytes) -> list[Narrative]:
        return [leaf("Abernathy")]

    with pytest.raises(MessageError) as refused:
        guard().clean(b"Abernathy", [], NAME, leaves=leaves, encode=lambda _: b"", surrogate=unchanged)
    assert refused.value.reason is Reason.LEAK


def test_ordinary_words_and_kept_values_are_not_searched() -> None:
    other = Fact(PhiType.IDNUM, ValueKind.VALUE, Subject.OTHER, "", "ORD-998877")
    word = Fact(PhiType.IDNUM, ValueKind.VALUE, Subject.PATIENT, "", "somebody")
    town = Fact(PhiType.ZIP, ValueKind.VALUE, Subject.PATIENT, "", "45601")
    assert select_searched_facts([other, word, town, *NAME]) == NAME


@pytest.mark.parametrize(("profile", "date_stays"), [("limited-dataset", True), ("safe-harbor", False)])
def test_a_value_that_the_policy_keeps_is_not_a_leak(profile: str, date_stays: bool) -> None:
    lines = ["PID|1||88123456^^^NG^MR||Abernathy^Prudence||19570422|F", "PV1|1|I||||||||1957-04-22^Abernathy"]
    text = deidentifier(profile).message(payload(lines)).payload.decode()
    assert ("19570422" in text) is date_stays
    assert ("1957-04-22" in text) is date_stays
    assert "Abernathy" not in text
