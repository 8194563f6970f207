"""The published systems: each runs with its models in the package, and with models trained on other notes."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from support import tiny_corpus, tiny_network
from support.custom_recognizer import check_effect

from deid_agent.cli import main
from deid_agent.model.errors import ConfigurationError
from deid_agent.model.phi import PhiType
from deid_agent.model.spans import SourceKind, is_disjoint
from deid_agent.model.text import Document
from deid_agent.nlp.network_inputs import load_vectors, save_vectors
from deid_agent.nlp.network_tagger import save_network
from deid_agent.recognize.ranking import RankedModels
from deid_agent.recognize.registry import SYSTEMS, ModelRole, PatternRecognizer, load_rules, load_tagger
from deid_agent.recognize.resolve import Profile
from deid_agent.train.recipes import PUBLISHED as PUBLISHED_COMPONENTS

ROOT = Path(__file__).resolve().parents[3]
RULES = load_rules(ROOT / "rules")
TEXT = "Mr. Zyblorq came on 3/4/2019, MRN: 4471902. Dr. Quill saw him."
PUBLISHED = ("dehghan2015", "zuccon2014", "liu2015", "ferrandez2012")

SHIPPED = [
    name
    for name, system in SYSTEMS.items()
    if system.recognizers != "none" and all((ROOT / "models" / f"{model}.json").is_file() for model, _ in system.models)
]
"""Systems whose models are in the package: ``test_registry`` tests these."""


KINDS = {
    ModelRole.TOKEN: SourceKind.TOKEN_MODEL,
    ModelRole.AVERAGE: SourceKind.TOKEN_MODEL,
    ModelRole.CHARACTER: SourceKind.CHARACTER_MODEL,
    ModelRole.NETWORK: SourceKind.NETWORK,
    ModelRole.FILTER: SourceKind.NAME_FILTER,
}
NOTE = """\
Mr. Gerald Whitcombe was seen by Dr. Susan Okafor on March 4, 2019. MRN: 4471902
His daughter Linda Whitcombe, a nurse in Boston, called from 740-555-0183.
"""


@pytest.mark.parametrize("system", [name for name, system in SYSTEMS.items() if system.models and system.shipped])
def test_each_system_finds_phi_with_its_own_models_from_a_checkout(system: str) -> None:
    """A new system needs its models in ``models/``, unless its entry has ``shipped=False``."""
    spans = load_tagger(RULES, ROOT / "models", system, Profile.BALANCED).find(Document(NOTE))
    found = {NOTE[span.start : span.end] for span in spans}
    assert {"Gerald Whitcombe", "Susan Okafor"} <= found
    assert {span.source.kind for span in spans} & {KINDS[role] for _, role in SYSTEMS[system].models}


def test_the_published_components_are_those_of_the_published_systems() -> None:
    used = {model for name in (*PUBLISHED, "dernoncourt2016") for model, _ in SYSTEMS[name].models}
    assert used == {*PUBLISHED_COMPONENTS}


def test_the_default_reads_no_model_of_a_published_system(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read_bytes = Path.read_bytes

    def remember(path: Path) -> bytes:
        opened.append(path.stem)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", remember)
    load_tagger(RULES, ROOT / "models", "default", Profile.RECALL)
    assert {"token", "network"} <= {*opened}
    assert not {*PUBLISHED_COMPONENTS} & {*opened}


@pytest.mark.parametrize("system", [name for name, system in SYSTEMS.items() if system.models])
def test_a_system_without_its_models_names_the_commands_that_train_them(system: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=rf"system {system} needs ") as caught:
        load_tagger(RULES, tmp_path, system, Profile.RECALL)
    for model, _ in SYSTEMS[system].models:
        assert f"deid-agent train {model} --corpus NOTES --out {tmp_path}" in str(caught.value)
    assert "release" not in str(caught.value)


def test_liu_has_the_rules_of_table_2_and_ranks_the_character_model_first(models: Path) -> None:
    tagger = load_tagger(RULES, models, "liu2015", Profile.BALANCED)
    (rules,), (ranked,) = tagger.recognizers, tagger.models
    assert isinstance(rules, PatternRecognizer) and isinstance(ranked, RankedModels)
    kinds = {kind for rule in rules.rules for kind in rule.types}
    assert kinds == {PhiType.PHONE, PhiType.FAX, PhiType.MEDICALRECORD, PhiType.EMAIL, PhiType.IPADDRESS}
    assert [model.name for model in ranked.models] == ["liu-character", "liu-token"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("systems")
    names = {"da-02": "Zyblorq", "db-01": "Vantongeren", "dc-01": "Orlanova", "df-01": "Pekkarinen"}
    corpus = tiny_corpus.write(folder / "corpus", names)
    for component in sorted({name for each in (*PUBLISHED, "thorough") for name, _ in SYSTEMS[each].models}):
        command = ["train", component, "--corpus", corpus, "--out", folder / "models", "--fraction", 1, "--quiet"]
        command += ["--iterations", 8]
        done = CliRunner().invoke(main, [str(word) for word in command])
        assert done.exit_code == 0, done.output
    return folder / "models"


@pytest.mark.parametrize("system", PUBLISHED)
@pytest.mark.parametrize("profile", Profile)
def test_each_published_system_works_alone(system: str, profile: Profile, models: Path) -> None:
    spans = load_tagger(RULES, models, system, profile).find(Document(TEXT))
    found = {TEXT[span.start : span.end] for span in spans}
    assert is_disjoint(spans)
    assert "Zyblorq" in found
    assert ("3/4/2019" in found) == (system != "ferrandez2012"), "that system finds only persons"


@pytest.mark.parametrize("system", [*PUBLISHED, "thorough"])
@pytest.mark.parametrize("profile", Profile)
def test_a_registered_recognizer_takes_effect(
    system: str, profile: Profile, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_effect(RULES, models, system, profile, monkeypatch)


def test_every_system_with_recognizers_is_tested_for_that() -> None:
    used = {name for name, system in SYSTEMS.items() if system.recognizers != "none"}
    assert used == {*PUBLISHED, "thorough", *SHIPPED}


def test_the_network_of_the_paper_reads_the_text_alone(tmp_path: Path) -> None:
    save_vectors(tiny_network.made_vectors(), tmp_path, {})
    save_network(tiny_network.model("dernoncourt-network", vectors=load_vectors(tmp_path)), tmp_path)
    tagger = load_tagger(RULES, tmp_path, "dernoncourt2016", Profile.RECALL)
    assert (tagger.recognizers, [model.name for model in tagger.models]) == ((), ["dernoncourt-network"])
    assert is_disjoint(tagger.find(Document(TEXT)))


def test_every_system_is_documented() -> None:
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert not [name for name in SYSTEMS if f"`{name}`" not in page]
