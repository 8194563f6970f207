"""The shipped models are those of this version: their files cannot be replaced, not even both together."""

import hashlib
import runpy
import shutil
from pathlib import Path

import pytest

from deid_agent.model import ConfigurationError
from deid_agent.nlp import model_files
from deid_agent.nlp.model_files import is_packaged, load_model_files, trust_manifest
from deid_agent.nlp.model_pins import PINS
from deid_agent.rules import data_folder

ROOT = Path(__file__).resolve().parents[3]
MODELS = data_folder("models", environ={})


def built(*parts: object) -> int:
    return len(parts)


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that counts as the packaged one; its model ``token`` is another model under a valid digest."""
    folder = tmp_path / "models"
    folder.mkdir()
    for ending in ("json", "npz"):
        shutil.copyfile(MODELS / f"vectors.{ending}", folder / f"vectors.{ending}")
        shutil.copyfile(MODELS / f"vectors.{ending}", folder / f"token.{ending}")
    monkeypatch.setattr(model_files, "data_folder", lambda name, environ: folder)
    return folder


def test_the_pins_are_those_of_the_shipped_files() -> None:
    render = runpy.run_path(str(ROOT / ".ci" / "pin_models.py"))["render_pins"]
    assert render(MODELS) == (ROOT / "deid_agent" / "nlp" / "model_pins.py").read_text("utf-8"), (
        "run python .ci/pin_models.py"
    )


def test_a_model_replaced_with_its_manifest_is_refused(packaged: Path) -> None:
    assert load_model_files(packaged, "vectors", built) == 3
    with pytest.raises(ConfigurationError, match="not the model of this version"):
        load_model_files(packaged, "token", built)


def test_the_packaged_folder_is_known_under_another_name(packaged: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(packaged)
    assert is_packaged(tmp_path / "link")
    with pytest.raises(ConfigurationError, match="not the model of this version"):
        load_model_files(tmp_path / "link", "token", built)


def test_a_folder_of_own_models_has_no_pins(packaged: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(packaged, own)
    assert not is_packaged(own)
    assert load_model_files(own, "token", built) == 3


def test_a_training_loads_the_models_that_it_wrote(packaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "_trained", {})
    trust_manifest(packaged, "token")
    assert load_model_files(packaged, "token", built) == 3


def test_changed_arrays_do_not_match_a_pinned_manifest(packaged: Path) -> None:
    (packaged / "vectors.npz").write_bytes(b"other")
    with pytest.raises(ConfigurationError, match="does not match the digest"):
        load_model_files(packaged, "vectors", built)


def test_every_pin_is_a_digest() -> None:
    assert PINS["token"] == hashlib.sha256((MODELS / "token.json").read_bytes()).hexdigest()
    assert all(len(digest) == 64 for digest in PINS.values())
