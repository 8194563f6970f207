"""The SBOM and the provenance of a release, without a build; and the packages that serving imports."""

import hashlib
import json
import runpy
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = runpy.run_path(str(ROOT / ".ci" / "make_release.py"))
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
UNUSED = {
    "faker", "fhir", "hl7apy", "jax", "optax", "prometheus_client", "pycrfsuite", "pypdf", "scipy", "sklearn",
    "sklearn_crfsuite",
}  # fmt: skip
"""Packages that a serving process loads when it needs them, or never."""
PRINT = "; print(' '.join({name.partition('.')[0] for name in sys.modules}))"
WORKER = """
import sys
from pathlib import Path
from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.pipeline.policy import load_policy
rules = Path("rules")
loaded = WorkerFactory(rules=rules, key=DEMO_KEY, policy=load_policy("pseudonymised", rules)).deidentifier()
for sample in sorted(Path("deid_agent/samples").glob("0[1-3]*")):
    loaded.message(sample.read_bytes())
print(" ".join({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "deid_agent-0.1.0-py3-none-any.whl"
    path.write_bytes(b"wheel")
    return path


def test_the_sbom_lists_every_package_that_the_wheel_needs(wheel: Path) -> None:
    bom = json.loads(json.dumps(SCRIPT["make_sbom"]("0.1.0", [wheel], LOCK, "2026-01-01T00:00:00Z")))
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    named = {component["name"]: component for component in bom["components"]}
    direct = {Requirement(line) for line in requires("deid-agent") or () if "extra ==" not in line}
    assert {need.name.replace(".", "-") for need in direct} <= named.keys()
    assert not named.keys() & {"pytest", "ruff", "jax", "scikit-learn"}, "serving needs none of these"
    assert "pydantic-core" in named, "needed by pydantic only"
    assert all(component["version"] for component in bom["components"])
    assert named["orjson"]["licenses"]
    assert all(len(each["value"]) == 64 for each in named["orjson"]["properties"])
    references = {each["bom-ref"] for each in (*bom["components"], bom["metadata"]["component"])}
    assert {each["ref"] for each in bom["dependencies"]} <= references
    assert {other for each in bom["dependencies"] for other in each["dependsOn"]} <= references
    assert (
        named["token"]["hashes"][0]["content"] == hashlib.sha256((ROOT / "models/token.npz").read_bytes()).hexdigest()
    )


def test_a_package_outside_the_lock_is_reported(wheel: Path) -> None:
    with pytest.raises(ValueError, match=r"not in requirements\.lock: orjson"):
        SCRIPT["make_sbom"]("0.1.0", [wheel], LOCK.replace("\norjson==", "\nother=="), "2026-01-01T00:00:00Z")


def test_the_provenance_names_the_files_and_the_commit(wheel: Path) -> None:
    statement = SCRIPT["make_provenance"]([wheel], "c0ffee", "2026-01-01T00:00:00Z")
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [{"name": wheel.name, "digest": {"sha256": hashlib.sha256(b"wheel").hexdigest()}}]
    materials = {
        each["uri"]: each["digest"] for each in statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    }
    assert materials["git+file:deid-agent"] == {"gitCommit": "c0ffee"}
    assert {"requirements.lock", "models/token.npz"} <= materials.keys()


def test_a_release_takes_no_uncommitted_change_and_no_old_file() -> None:
    source = (ROOT / ".ci" / "make_release.py").read_text("utf-8")
    assert "--porcelain" in source
    assert "release: $(VENV)/.ready" in (ROOT / "Makefile").read_text("utf-8")


def loaded_by(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True, timeout=120
    )
    return set(done.stdout.split())


def test_a_worker_imports_only_packages_that_it_uses() -> None:
    assert not loaded_by(WORKER) & (UNUSED | {"aiohttp", "aiokafka", "pydantic_settings", "nacl"})


@pytest.mark.parametrize("module", ["deid_agent.cli.service", "deid_agent.cli.serve"])
def test_the_agent_imports_a_transport_only_to_use_it(module: str) -> None:
    assert not loaded_by(f"import sys, {module}" + PRINT) & (UNUSED | {"aiokafka", "cramjam"})
