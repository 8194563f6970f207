"""Names from Faker: the frozen cache, locales and providers that a policy names."""

import runpy
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from support.site_names import Provider
from support.surrogates import ROOT, SECRET, replace

from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.pipeline.policy import load_policy
from deid_agent.rules import data_folder
from deid_agent.surrogate import NamedPerson, Scope, Surrogates
from deid_agent.surrogate.lists import SITE, load_lists
from deid_agent.surrogate.shape import fold

RULES = data_folder("rules")
POLICY = 'name = "ours"\ndefault = "surrogate"\n[surrogates]\n'
PINNED = "40.54.0"


def write_policy(folder: Path, section: str) -> str:
    path = folder / "ours.toml"
    path.write_text(POLICY + section, encoding="utf-8")
    return str(path)


@pytest.mark.skipif(version("faker") != PINNED, reason="the cache holds the names of the pinned Faker")
def test_the_frozen_lists_are_those_of_faker(tmp_path: Path) -> None:
    main = runpy.run_path(str(ROOT / ".ci" / "freeze_names.py"))["main"]
    main(tmp_path)
    frozen = {path.name: path.read_bytes() for path in (RULES / "surrogate" / "names").iterdir()}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == frozen
    assert f"faker=={PINNED}" in (ROOT / "requirements.lock").read_text("utf-8")


def test_the_default_names_import_no_faker() -> None:
    code = (
        "import sys; from deid_agent.surrogate import Surrogates; from deid_agent.pipeline.policy import load_policy\n"
        "from deid_agent.rules import data_folder\n"
        "load_policy('pseudonymised', data_folder('rules')); Surrogates(b'a secret of tests')\n"
        "sys.exit('faker' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def draw(made: Surrogates, value: str, kind: ValueKind, sex: str = "") -> set[str]:
    """The surrogates of a name for forty patients."""
    people = (NamedPerson(value, "", sex),) if sex else ()
    return {replace(made, PhiType.PATIENT, value, kind, Scope("d", f"p{n}", people=people)) for n in range(40)}


def test_a_locale_is_the_source_of_names_with_their_form() -> None:
    lists = load_lists(RULES, ("es_MX",))
    made = Surrogates(SECRET, locales=("es_MX",))
    families = draw(made, "SMITH", ValueKind.FAMILY)
    mexican = {fold(word) for word in lists.pools[SITE, "family"].words}
    assert len(families) > 15 and all(name.isupper() and name.isascii() for name in families)
    assert sum(fold(name) in mexican for name in families) > 0.9 * len(families)
    women = {fold(word) for word in lists.pools[SITE, "female"].words}
    assert sum(fold(name) in women for name in draw(made, "Ashley", ValueKind.GIVEN, "female")) > 10
    assert families == draw(Surrogates(SECRET, locales=("es_MX",)), "SMITH", ValueKind.FAMILY)


def test_a_locale_in_another_script_replaces_the_names_of_that_script() -> None:
    made = Surrogates(SECRET, locales=("uk_UA",))
    ukrainian = {fold(word) for word in load_lists(RULES, ("uk_UA",)).pools["cyrillic", "family"].words}
    assert {fold(name) for name in draw(made, "Иванов", ValueKind.FAMILY)} <= ukrainian
    assert draw(made, "Smith", ValueKind.FAMILY) == draw(Surrogates(SECRET), "Smith", ValueKind.FAMILY)


@pytest.mark.parametrize("name", ["support.site_names:Provider", "support.site_names:Drawn"])
def test_a_provider_of_the_site_is_the_source_of_names(name: str) -> None:
    made = Surrogates(SECRET, providers=(name,))
    assert draw(made, "Smith", ValueKind.FAMILY) <= set(Provider.last_names)
    assert draw(made, "Ashley", ValueKind.GIVEN, "male") <= set(Provider.first_names_male)
    whole = replace(made, PhiType.PATIENT, "Okafor, Ada M.", scope=Scope("d", "p"))
    initials = replace(made, PhiType.PATIENT, "A.M.O.", scope=Scope("d", "p"))
    assert initials.replace(".", "") == whole.split()[1][0] + whole.split()[2][0] + whole[0]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            'locales = ["xx_YY"]',
            r"ours\.toml: \[surrogates\] locales: Faker has no names of 'xx_YY'; use one of ",
        ),
        ('locales = ["../en_US"]', "Faker has no names of"),
        ('providers = ["nowhere.at.all:Provider"]', "No module named 'nowhere'; write package.module:Class"),
        ('providers = ["support.site_names:Nothing"]', "has no attribute 'Nothing'; write package.module:Class"),
        ('providers = ["support.site_names"]', "is not a class; write package.module:Class"),
        (
            'providers = ["support.site_names:Few"]',
            "1 names of one word for female; give at least 20 in",
        ),
        ('locales = ["es_MX"]\ndigest = "0000"', "would not join with those published before"),
        ("locale = 1", "locale"),
    ],
)
def test_a_wrong_source_of_names_stops_the_start(section: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_policy(write_policy(tmp_path, section), RULES)


def test_the_digest_of_the_names_is_checked(tmp_path: Path) -> None:
    found = load_policy(write_policy(tmp_path, 'locales = ["es_MX"]'), RULES)
    assert (len(found.names_digest), found.locales) == (64, ("es_MX",))
    pinned = f'locales = ["es_MX"]\ndigest = "{found.names_digest[:16]}"'
    assert load_policy(write_policy(tmp_path, pinned), RULES).names_digest == found.names_digest


def test_a_policy_with_the_former_scope_of_names_names_the_change(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text('name = "ours"\ndefault = "surrogate"\n[names]\nscope = "feed"\n', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"\[names\] scope was removed.*\[places\] scope"):
        load_policy(str(path), RULES)
