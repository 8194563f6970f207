from pathlib import Path

import pytest

from deid_agent import policy
from deid_agent.errors import ConfigurationError
from deid_agent.phi import PhiType
from deid_agent.policy import KeyMode, Method, compile_policy

RULES = Path(__file__).resolve().parents[2] / "rules"


@pytest.mark.parametrize("name", ["pseudonymised", "safe-harbor", "limited-dataset", "keep"])
def test_shipped_profiles_load(name: str) -> None:
    loaded = policy.load(name, RULES)
    assert loaded.name == name
    assert len(loaded.digest) == 64


def test_safe_harbor_maps_no_identifier() -> None:
    loaded = policy.load("safe-harbor", RULES)
    kept = {PhiType.STATE, PhiType.COUNTRY, PhiType.PROFESSION}
    assert {t for t in PhiType if loaded.method(t, "x") is Method.KEEP} == kept
    assert not [t for t in PhiType if loaded.method(t, "x") is Method.SURROGATE]
    assert loaded.record_key is KeyMode.DROP


def test_only_keep_changes_nothing() -> None:
    assert policy.load("keep", RULES).changes_nothing
    assert not policy.load("limited-dataset", RULES).changes_nothing


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
        ({"name": "x", "default": "keep", "record": {"headers": "traceparent"}}, "record.headers"),
        ({"name": "x", "default": "keep", "attachments": {"pdf": "keep"}}, "attachments.pdf"),
        ({"name": "x", "default": "keep", "attachments": {"url": "remove"}}, "attachments.url"),
    ],
)
def test_a_bad_policy_is_refused_by_name(data: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"test.*{named}"):
        compile_policy(data, "test")


def test_an_unknown_profile_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="pseudonymised"):
        policy.load(str(tmp_path / "none"), RULES)


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "mine.toml"
    bad.write_text("name = ")
    with pytest.raises(ConfigurationError, match=r"mine\.toml"):
        policy.load(str(bad), RULES)


def test_the_digest_follows_the_content() -> None:
    one = compile_policy({"name": "x", "default": "keep"}, "a")
    assert one.digest == compile_policy({"default": "keep", "name": "x"}, "b").digest
    assert one.digest != compile_policy({"name": "x", "default": "mask"}, "a").digest
