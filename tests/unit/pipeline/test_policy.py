from pathlib import Path

import pytest

from deid_agent.model import PatientChoice
from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.pipeline.policy import KeyMode, Method, compile_policy, load_policy

RULES = Path(__file__).resolve().parents[3] / "rules"


@pytest.mark.parametrize("name", ["pseudonymised", "safe-harbor", "limited-dataset", "keep"])
def test_shipped_profiles_load(name: str) -> None:
    loaded = load_policy(name, RULES)
    assert loaded.name == name
    assert len(loaded.digest) == 64


def test_safe_harbor_maps_no_identifier() -> None:
    loaded = load_policy("safe-harbor", RULES)
    kept = {PhiType.STATE, PhiType.COUNTRY, PhiType.PROFESSION}
    assert {t for t in PhiType if loaded.method(t, "x") is Method.KEEP} == kept
    assert not [t for t in PhiType if loaded.method(t, "x") is Method.SURROGATE]
    assert loaded.record_key is KeyMode.DROP


def test_only_keep_changes_nothing() -> None:
    assert load_policy("keep", RULES).changes_nothing
    assert not load_policy("limited-dataset", RULES).changes_nothing


def test_the_longest_path_wins_over_the_type() -> None:
    compiled = compile_policy(
        {
            "name": "x",
            "default": "surrogate",
            "types": {"DATE": "mask"},
            "paths": {"PID-7": "keep", "PID": "redact", "Patient.name.family": "generalize"},
        },
        "test",
    )
    assert compiled.method(PhiType.DATE, "PID-7.1") is Method.KEEP
    assert compiled.method(PhiType.DATE, "PID-29[2].1") is Method.REDACT
    assert compiled.method(PhiType.DATE, "PIDX-7") is Method.MASK
    assert compiled.method(PhiType.PATIENT, "Patient.name[1].family") is Method.GENERALIZE
    assert compiled.method(PhiType.PATIENT, "Patient.name[1].given[0]") is Method.SURROGATE


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"name": "x"}, "default"),
        ({"name": "x", "default": "scramble"}, "default"),
        ({"name": "x", "default": "keep", "colour": 1}, "colour"),
        ({"name": "x", "default": "keep", "types": {"SHOE": "keep"}}, "types"),
        ({"name": "x", "default": "keep", "types": {"DATE": "move"}}, "types.DATE"),
        ({"name": "x", "default": "keep", "dates": {"weeks": True}}, "dates.weeks"),
        ({"name": "x", "default": "keep", "dates": {"max_shift_days": 1}}, "dates.max_shift_days"),
        ({"name": "x", "default": "keep", "dates": {"max_shift_days": True}}, "dates.max_shift_days.*14 to 3650"),
        ({"name": "x", "default": "keep", "dates": {"offset_days": 6}}, "dates.offset_days.*0 to 5"),
        ({"name": "x", "default": "keep", "dates": {"scope": "patient"}}, "dates: scope is now base and offset_days"),
        ({"name": "x", "default": "keep", "dates": {"technical": "month"}}, "dates.technical.*'week'"),
        ({"name": "x", "default": "surrogate", "dates": {"base": "document"}}, 'acknowledge = \\["linked-bases"\\]'),
        ({"name": "x", "default": "keep", "dates": {"whole_weeks": 1}}, "dates.whole_weeks.*true or false"),
        ({"name": "x", "default": "keep", "dates": "patient"}, "dates.*table"),
        ({"name": "x", "default": "keep", "paths": "PID-5"}, "paths.*table"),
        ({"name": "x", "default": "keep", "why": {}}, "why"),
        ({"default": "keep"}, "name.*add it"),
        ({"name": "x", "default": "keep", "patient": {"assigners": ["HOSP"]}}, "patient.assigners"),
        ({"name": "x", "default": "keep", "patient": {"type": ["MR"]}}, "patient.type"),
        ({"name": "x", "default": "keep", "record": {"headers": "traceparent"}}, "record.headers"),
        ({"name": "x", "default": "keep", "record": {"headers": [1]}}, "record.headers"),
        ({"name": "x", "default": "keep", "attachments": {"pdf": "keep"}}, "attachments.pdf"),
        ({"name": "x", "default": "keep", "attachments": {"url": "remove"}}, "attachments.url"),
    ],
)
def test_a_bad_policy_is_refused_by_name(data: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"test.*{named}"):
        compile_policy(data, "test")


def test_an_unknown_profile_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="pseudonymised"):
        load_policy(str(tmp_path / "none"), RULES)


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "mine.toml"
    bad.write_text("name = ")
    with pytest.raises(ConfigurationError, match=r"mine\.toml"):
        load_policy(str(bad), RULES)


def test_the_digest_follows_the_content() -> None:
    one = compile_policy({"name": "x", "default": "keep"}, "a")
    assert one.digest == compile_policy({"default": "keep", "name": "x"}, "b").digest
    assert one.digest != compile_policy({"name": "x", "default": "mask"}, "a").digest


def test_a_name_that_is_a_number_is_accepted() -> None:
    compiled = compile_policy({"name": 5, "default": "keep", "record": {"headers": ["Trace"]}}, "test")
    assert compiled.name == "5"
    assert compiled.headers == {"trace"}


def test_the_identifier_of_a_patient_is_a_setting() -> None:
    section = {"types": ["pi"], "assigners": [["HOSP", "1.2.3"], ["CITY"]], "placeholders": ["n. a."]}
    policy = compile_policy({"name": "x", "default": "keep", "patient": section}, "x.toml")
    assert policy.patient == PatientChoice(("PI",), (("HOSP", "1.2.3"), ("CITY",)), frozenset({"NA"}))
    assert compile_policy({"name": "x", "default": "keep"}, "x.toml").patient == PatientChoice()
