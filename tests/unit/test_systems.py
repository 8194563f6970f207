"""The published systems: each is trained and then named, and finds what its training notes show."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from support import tiny_corpus, tiny_network

from deid_agent import systems
from deid_agent.cli import main
from deid_agent.neural import bundle as networks
from deid_agent.neural import vectors
from deid_agent.recognize import registry
from deid_agent.resolve import Profile
from deid_agent.spans import is_disjoint
from deid_agent.systems import SYSTEMS
from deid_agent.text import Document

ROOT = Path(__file__).resolve().parents[2]
RULES = registry.load_rules(ROOT / "rules")
TEXT = "Mr. Zyblorq came on 3/4/2019, MRN: 4471902. Dr. Quill saw him."
PUBLISHED = ("dehghan2015", "zuccon2014", "liu2015", "ferrandez2012")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("systems")
    names = {"da-02": "Zyblorq", "db-01": "Vantongeren", "dc-01": "Orlanova", "df-01": "Pekkarinen"}
    corpus = tiny_corpus.write(folder / "corpus", names)
    for component in sorted({name for each in PUBLISHED for name, _ in SYSTEMS[each].models}):
        command = ["train", component, "--corpus", corpus, "--out", folder / "models", "--iterations", 8, "--quiet"]
        done = CliRunner().invoke(main, [str(word) for word in command])
        assert done.exit_code == 0, done.output
    return folder / "models"


@pytest.mark.parametrize("system", PUBLISHED)
@pytest.mark.parametrize("profile", Profile)
def test_a_published_system_works_alone(system: str, profile: Profile, models: Path) -> None:
    spans = systems.tagger(RULES, models, system, profile).find(Document(TEXT))
    found = {TEXT[span.start : span.end] for span in spans}
    assert is_disjoint(spans)
    assert "Zyblorq" in found
    assert ("3/4/2019" in found) == (system != "ferrandez2012"), "that one finds persons and nothing else"


def test_the_network_of_the_paper_reads_the_text_alone(tmp_path: Path) -> None:
    vectors.save(tiny_network.made_vectors(), tmp_path, {})
    networks.save(tiny_network.bundle("dernoncourt-network", vectors=vectors.load(tmp_path)), tmp_path)
    tagger = systems.tagger(RULES, tmp_path, "dernoncourt2016", Profile.RECALL)
    assert (tagger.recognizers, [model.name for model in tagger.models]) == ((), ["dernoncourt-network"])
    assert is_disjoint(tagger.find(Document(TEXT)))


def test_every_system_is_documented() -> None:
    page = (ROOT / "deploy" / "reference.md").read_text("utf-8")
    assert not [name for name in SYSTEMS if f"`{name}`" not in page]
