"""Models are stored whole or not at all."""

import errno
from pathlib import Path

import pytest

from deid_agent.crf import bundle
from deid_agent.crf.bundle import Bundle
from deid_agent.crf.features import Features
from deid_agent.crf.labels import Schema
from deid_agent.crf.model import chain
from deid_agent.errors import UnsafeError
from deid_agent.train import store


def model(weight: float) -> Bundle:
    features = Features(("word[0]",), {"word": {"zed": 2}})
    made = chain(features, ["I-PATIENT", "O"], {(0, 2): {"I-PATIENT": weight}}, {}, {("O", "O"): 1.0})
    return Bundle("tiny", Schema.IO, features, made)


def test_a_full_disk_leaves_the_old_model_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.opened(tmp_path) as shelf:
        shelf.save([model(1.0)], {"about": "old"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write = Path.write_text

    def full(path: Path, *args: str) -> int:
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, *args)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UnsafeError, match=r"No space left on device: no model was changed; make room"):  # noqa: SIM117
        with store.opened(tmp_path) as shelf:
            shelf.save([model(2.0)], {"about": "new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_is_stored_is_what_is_loaded(tmp_path: Path) -> None:
    with store.opened(tmp_path / "new") as shelf:
        assert shelf.save([model(2.0)], {"about": "new"}) == [tmp_path / "new" / "tiny.json"]
    loaded = bundle.load(tmp_path / "new", "tiny")
    assert loaded.chain.weights.tolist()[1] == [2.0, 0.0]
    assert loaded.card["about"] == "new"
    assert "Not scored" in (tmp_path / "new" / "tiny.md").read_text("utf-8")
