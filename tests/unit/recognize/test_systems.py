"""The published systems: each is trained, loaded by name, and finds spans like those of its training notes."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from support import tiny_corpus, tiny_network
from support.custom_recognizer import check_effect

from deid_agent.cli import main
from deid_agent.model.spans import is_disjoint
from deid_agent.model.text import Document
from deid_agent.nlp.network_inputs import load_vectors, save_vectors
from deid_agent.nlp.network_tagger import save_network
from deid_agent.recognize.registry import SYSTEMS, load_rules, load_tagger
from deid_agent.recognize.resolve import Profile

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


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("systems")
    names = {"da-02": "Zyblorq", "db-01": "Vantongeren", "dc-01": "Orlanova", "df-01": "Pekkarinen"}
    corpus = tiny_corpus.write(folder / "corpus", names)
    for component in sorted({name for each in (*PUBLISHED, "thorough") for name, _ in SYSTEMS[each].models}):
        command = ["train", component, "--corpus", corpus, "--out", folder / "models", "--iterations", 8, "--quiet"]
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
