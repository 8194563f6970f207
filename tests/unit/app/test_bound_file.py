"""The file of a leak bound: written and read, refused if it was changed or is of another system."""

import json
import pickle
from pathlib import Path

import orjson
import pytest
from support.bounds import make_bound, write_bound

from deid_agent.app import BoundFile, BudgetRow, choose_bound, parse_profile, read_bound
from deid_agent.app import bound_file as bound_module
from deid_agent.model import ConfigurationError
from deid_agent.recognize import Profile
from deid_agent.rules import data_folder

RULES = data_folder("rules")


def choose(
    path: Path | None, profile: str = "budget", system: str = "default", rules: Path = RULES
) -> BoundFile | None:
    return choose_bound(profile, path, system, rules, (), None)


def test_a_bound_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = make_bound()
    found = choose(write_bound(tmp_path / "bound.json", made))
    assert found == made
    assert found is not None
    assert pickle.loads(pickle.dumps(found)) == made  # noqa: S301 - our own bytes
    assert (found.lean, found.digest) == (10.0, made.digest)


def test_the_claim_names_numbers_day_and_population() -> None:
    assert make_bound().sentence == (
        "Of a further patient drawn like the 100 patients (200 notes) of the random sample of 2026-10-01 from "
        '"discharge letters of ward X, September", at most 5 % of the identifiers in the notes are missed, on average '
        "over samples and patients."
    )


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("budgets", 0, "lean"), 4.8),
        (("budgets", 0, "alpha"), 0.01),
        (("patients",), 1000),
        (("population",), "all letters"),
        (("made_with", "models"), "0"),
        (("drift", "all", 0, "counts"), [100, 0, 0, 0]),
    ],
)
def test_a_changed_file_is_refused(tmp_path: Path, place: tuple[str | int, ...], value: object) -> None:
    path = write_bound(tmp_path / "bound.json")
    content = json.loads(path.read_bytes())
    inner = content
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    path.write_bytes(orjson.dumps(content))
    with pytest.raises(ConfigurationError, match=r"bound\.json: (was changed|is not a file)"):
        choose(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"format": 2}',
        b'{"format": NaN}',
        b"[" * 100_000,
        b'{"population": "' + b"x" * (1 << 20) + b'"}',
    ],
    ids=["empty", "no-members", "list", "null", "bytes", "later-format", "nan", "deep", "large"],
)
def test_a_file_of_something_else_is_refused_without_its_content(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bound.json").write_bytes(data)
    with pytest.raises(ConfigurationError, match="is not a file of deid-agent bound") as caught:
        choose(tmp_path / "bound.json")
    assert len(str(caught.value)) < 400


def test_a_bound_needs_a_first_budget_that_holds() -> None:
    for row in (
        BudgetRow(alpha=0.02, lean=None, bound=0.03, mean=0.01),
        BudgetRow(alpha=0.02, lean=4.8, bound=0.03, mean=0.01),
    ):
        with pytest.raises(ValueError, match="does not hold"):
            BoundFile.model_validate({**make_bound().model_dump(), "budgets": (row.model_dump(),)})


def test_a_bound_of_other_rules_is_refused(tmp_path: Path) -> None:
    path = write_bound(tmp_path / "bound.json")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "one.toml").write_text("", "utf-8")
    with pytest.raises(ConfigurationError, match="the bound is for other rules"):
        choose(path, rules=tmp_path / "rules")


@pytest.mark.parametrize(
    ("sites", "models", "system", "named"),
    [
        (("site",), None, "default", "site"),
        ((), "models", "default", "models"),
        ((), None, "features", "system"),
    ],
)
def test_a_bound_of_other_lists_models_or_systems_is_refused(
    tmp_path: Path, sites: tuple[str, ...], models: str | None, system: str, named: str
) -> None:
    for folder in ("site", "models"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("a", "utf-8")
    path = write_bound(tmp_path / "bound.json")
    with pytest.raises(ConfigurationError, match=f"the bound is for other {named}"):
        choose_bound(
            "budget",
            path,
            system,
            RULES,
            [tmp_path / each for each in sites],
            None if models is None else tmp_path / models,
        )


def test_a_bound_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_bound(tmp_path / "bound.json")
    monkeypatch.setattr(bound_module, "__version__", "9.9.9")
    with pytest.raises(ConfigurationError, match="the bound is for other version"):
        choose(path)


def test_the_profile_and_its_file_belong_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="name the file"):
        choose(None)
    with pytest.raises(ConfigurationError, match='it is used with profile = "budget"'):
        choose(write_bound(tmp_path / "bound.json"), "recall")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        choose(tmp_path / "none.json")
    with pytest.raises(ConfigurationError, match="have no threshold"):
        choose(write_bound(tmp_path / "other.json"), system="rules")
    assert choose(None, "recall") is None


def test_profiles_are_parsed() -> None:
    assert parse_profile("budget") is Profile.RECALL
    with pytest.raises(ConfigurationError, match="precision, balanced, recall, budget"):
        parse_profile("exact")


def test_population_of_several_lines_is_refused() -> None:
    content = {**make_bound().model_dump(), "population": "ward X\nforged line"}
    with pytest.raises(ValueError, match="one line"):
        BoundFile.model_validate(content)


def test_the_digest_of_a_bound_is_that_of_its_content(tmp_path: Path) -> None:
    one, same, other = make_bound(), make_bound(), make_bound(seed=8)
    assert one.digest == same.digest != other.digest
    assert read_bound(write_bound(tmp_path / "b", one)).digest == one.digest


def test_a_file_of_contradicting_numbers_is_refused() -> None:
    """The digest is no signature: a hand that edits the file can compute it."""
    good = make_bound().model_dump(mode="json")
    BoundFile.model_validate(make_bound().model_dump())
    features = good["drift"]["all"]
    for change in (
        {"patients": 1000},
        {"budgets": [{**good["budgets"][0], "bound": 0.001}]},
        {"drift": {**good["drift"], "all": []}},
        {"drift": {**good["drift"], "all": [*features, features[0]]}},
        {"drift": {**good["drift"], "documents": 1000}},
    ):
        with pytest.raises(ValueError, match=r"not that of its mean|counts all documents once"):
            BoundFile.model_validate_json(orjson.dumps({**good, **change}))
