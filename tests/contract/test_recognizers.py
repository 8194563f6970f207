"""Every recognizer of the registry fulfils the contract."""

from pathlib import Path

import pytest
from support.recognizer_contract import RecognizerContract
from support.sites import PATTERN, make_site

from deid_agent.recognize.registry import RECOGNIZERS, assemble_recognizers, load_rules
from deid_agent.recognize.tagger import Recognizer
from deid_agent.rules.ruleset import Ruleset

RULES = Path(__file__).resolve().parents[2] / "rules"


@pytest.fixture(scope="module")
def rules() -> Ruleset:
    return load_rules(RULES)


@pytest.fixture(scope="module")
def site_rules(tmp_path_factory: pytest.TempPathFactory) -> Ruleset:
    folder = tmp_path_factory.mktemp("site")
    site = make_site(folder, patterns=PATTERN, DOCTOR="Vane, Ada\nHolmberg\n", STREET="218 Tannery Row\n")
    return load_rules(RULES, [site])


class TestPatterns(RecognizerContract):
    sources = r"[a-z][a-z0-9-]{2,40}"

    @pytest.fixture
    def recognizer(self, rules: Ruleset) -> Recognizer:
        return assemble_recognizers(rules, "patterns")[0]


class TestKnown(RecognizerContract):
    sources = r"known:(patient|provider|other)-(name|initials|date|number|value|place)"

    @pytest.fixture
    def recognizer(self, rules: Ruleset) -> Recognizer:
        return assemble_recognizers(rules, "known")[0]


class TestLogins(RecognizerContract):
    sources = "login:name"

    @pytest.fixture()
    def recognizer(self, rules: Ruleset) -> Recognizer:
        return RECOGNIZERS["logins"].build(rules)


class TestGlued(RecognizerContract):
    sources = "custom:glued"

    @pytest.fixture
    def recognizer(self, rules: Ruleset) -> Recognizer:
        return RECOGNIZERS["glued"].build(rules)


class TestSite(RecognizerContract):
    sources = r"site(-name)?:(doctor|street)|our-badge"

    @pytest.fixture
    def recognizer(self, site_rules: Ruleset) -> Recognizer:
        return RECOGNIZERS["site"].build(site_rules)


class TestListed(RecognizerContract):
    sources = "lexicon:listed-name"

    @pytest.fixture
    def recognizer(self, rules: Ruleset) -> Recognizer:
        return RECOGNIZERS["listed"].build(rules)


class TestDictionary(RecognizerContract):
    sources = r"lexicon:[a-z-]{4,15}"

    @pytest.fixture
    def recognizer(self, rules: Ruleset) -> Recognizer:
        return assemble_recognizers(rules, "dictionary")[0]


def test_every_recognizer_of_the_registry_is_under_contract() -> None:
    tested = {cls.__name__.removeprefix("Test").lower() for cls in RecognizerContract.__subclasses__()}
    assert set(RECOGNIZERS) == tested
