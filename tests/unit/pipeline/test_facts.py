from datetime import date

import pytest

from deid_agent.model.errors import MessageError
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import Fact, Site, Subject, ValueKind
from deid_agent.pipeline.facts import collect_facts, facts_from_context, find_message_date, unite_facts


def test_every_member_of_the_context_becomes_a_fact() -> None:
    facts = facts_from_context(
        {
            "name": {"given": ["Ada", "M."], "family": "Okafor"},
            "sex": "F",
            "birth_date": "1957-04-22",
            "mrn": "447-1902",
            "ssn": None,
            "account": "V0061",
            "address": {"line": "2 Quay", "city": "Ord", "state": "OH", "zip": "45601", "country": "USA"},
            "phone": "740-555-0183",
            "attending": {"given": "Ines", "family": "Castellano"},
            "facility": "Ord Clinic",
        }
    )
    assert [(f.type, f.kind) for f in facts if f.type in {PhiType.PATIENT, PhiType.DOCTOR}] == [
        (PhiType.PATIENT, ValueKind.GIVEN),
        (PhiType.PATIENT, ValueKind.GIVEN),
        (PhiType.PATIENT, ValueKind.FAMILY),
        (PhiType.DOCTOR, ValueKind.GIVEN),
        (PhiType.DOCTOR, ValueKind.FAMILY),
    ]
    assert {f.type for f in facts} >= {PhiType.DATE, PhiType.MEDICALRECORD, PhiType.ACCOUNT, PhiType.ZIP}
    assert len({f.group for f in facts if f.type is PhiType.PATIENT}) == 1
    assert "Okafor" not in repr(facts)
    assert {f.sex for f in facts if f.type is PhiType.PATIENT} == {"female"}
    assert {f.sex for f in facts if f.type is PhiType.DOCTOR} == {""}


@pytest.mark.parametrize(
    ("context", "where"),
    [
        ({"Ada Okafor": "1"}, "context"),
        ({"name": "Ada"}, "context.name"),
        ({"name": {"Ada": "Ada"}}, "context.name"),
        ({"mrn": 12}, "context.mrn"),
        ({"sex": 1}, "context.sex"),
        ({"birth_date": "Ada"}, "context.birth_date"),
        ({"birth_date": "1957-13-01"}, "context.birth_date"),
        ({"birth_date": 1957}, "context.birth_date"),
    ],
)
def test_an_invalid_context_is_refused_without_its_value(context: dict[str, object], where: str) -> None:
    with pytest.raises(MessageError) as caught:
        facts_from_context(context)
    assert caught.value.where == where
    assert "Ada" not in str(caught.value)


@pytest.mark.parametrize("day", ["1957-04-22", "19570422", "1957-04", "1957", "1957-04-22T10:00", "195704221030"])
def test_a_birth_date_is_written_as_fhir_or_hl7_write_it(day: str) -> None:
    assert [f.value for f in facts_from_context({"birth_date": day})] == [day]


def test_an_unknown_member_is_refused_with_the_known_ones() -> None:
    with pytest.raises(MessageError, match="known: account, address, attending") as caught:
        facts_from_context({"Ada Okafor": "1"})
    assert "Okafor" not in str(caught.value)


def test_contexts_of_one_patient_are_merged_and_persons_are_not() -> None:
    def seen_by(family: str) -> tuple[Fact, ...]:
        return facts_from_context({"mrn": "447-1902", "attending": {"given": "Ines", "family": family}})

    facts = unite_facts([seen_by("Castellano"), seen_by("Lindqvist"), seen_by("Castellano")])
    assert [f.value for f in facts] == ["447-1902", "Ines", "Castellano", "Ines", "Lindqvist"]
    assert len({f.group for f in facts if f.type is PhiType.DOCTOR}) == 2


def test_sites_become_facts_once_and_redacted_ones_do_not() -> None:
    site = Site("PID-3[1].1", 0, 3, PhiType.MEDICALRECORD, subject=Subject.PATIENT, group="PID-3[1]", value="123")
    gone = Site("MSH-8", 5, 6, PhiType.IDNUM, kind=ValueKind.REDACT, value="x")
    blank = Site("PID-2", 5, 6, PhiType.IDNUM, value=" ")
    assert [f.value for f in collect_facts([site, site, gone, blank])] == ["123"]


def test_a_person_named_in_many_fields_is_one_and_relatives_remain_separate() -> None:
    def name(group: str, given: str) -> list[Site]:
        kinds = ((ValueKind.GIVEN, given), (ValueKind.FAMILY, "Okafor"))
        return [Site(f"{group}.{k}", 0, 1, PhiType.PATIENT, kind=k, group=group, value=v) for k, v in kinds]

    facts = collect_facts([*name("PID-5[1]", "Ada"), *name("IN1-16[1]", "Ada"), *name("NK1-2[1]", "Chidi")])
    assert [f.value for f in facts] == ["Ada", "Okafor", "Chidi", "Okafor"]
    assert len({f.group for f in facts}) == 2
    both = {
        f.group for f in (*collect_facts(name("PID-5[1]", "Ada"), "1"), *collect_facts(name("PID-5[1]", "Bo"), "2"))
    }
    assert len(both) == 2


def test_result_dates_are_not_facts_but_date_the_message() -> None:
    born = Site("PID-7", 0, 8, PhiType.DATE, subject=Subject.PATIENT, value="19570422")
    seen = Site("OBX-14", 9, 17, PhiType.DATE, value="20240311081500")
    assert [f.value for f in collect_facts([born, seen])] == ["19570422"]
    assert find_message_date([born, seen]) == date(2024, 3, 11)
    assert find_message_date([born]) is None


@pytest.mark.parametrize(
    ("value", "subject", "known"),
    [
        ("I21.4", Subject.PROVIDER, False),
        ("I21.4", Subject.PATIENT, False),
        ("I214", Subject.PROVIDER, False),
        ("M123456", Subject.PATIENT, True),
        ("20230624", Subject.PATIENT, False),
        ("20231324", Subject.PATIENT, True),
        ("8824625", Subject.PATIENT, True),
    ],
)
def test_an_identifier_in_the_form_of_a_diagnosis_or_a_day_is_not_searched_for(
    value: str, subject: Subject, known: bool
) -> None:
    site = Site("PV1-7[1].1", 0, 8, PhiType.IDNUM, ValueKind.VALUE, subject, "PV1-7[1]", value)
    assert [fact.value for fact in collect_facts([site])] == ([value] if known else [])
