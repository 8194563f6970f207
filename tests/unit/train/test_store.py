"""Models are stored whole or not at all."""

import errno
from pathlib import Path

import pytest

from deid_agent.model.errors import UnsafeError
from deid_agent.nlp.crf import CrfModel, build_crf, load_crf
from deid_agent.nlp.labels import Schema
from deid_agent.nlp.templates import FeatureExtractor
from deid_agent.train.card import open_store


def model(weight: float) -> CrfModel:
    features = FeatureExtractor(("word[0]",), {"word": {"zed": 2}})
    made = build_crf(features, ["I-PATIENT", "O"], {(0, 2): {"I-PATIENT": weight}}, {}, {("O", "O"): 1.0})
    return CrfModel("tiny", Schema.IO, features, made)


def test_a_full_disk_leaves_the_old_model_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path) as shelf:
        shelf.save([model(1.0)], {"about": "old"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write = Path.write_text

    def full(path: Path, *args: str) -> int:
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, *args)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UnsafeError, match=r"No space left on device: no model was changed; free space"):  # noqa: SIM117
        with open_store(tmp_path) as shelf:
            shelf.save([model(2.0)], {"about": "new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_stored_model_is_loaded_unchanged(tmp_path: Path) -> None:
    with open_store(tmp_path / "new") as shelf:
        assert shelf.save([model(2.0)], {"about": "new"}) == [tmp_path / "new" / "tiny.json"]
    loaded = load_crf(tmp_path / "new", "tiny")
    assert loaded.crf.weights.tolist()[1] == [2.0, 0.0]
    assert loaded.card["about"] == "new"
    assert "Not scored" in (tmp_path / "new" / "tiny.md").read_text("utf-8")
