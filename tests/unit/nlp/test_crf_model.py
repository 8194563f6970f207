"""Models on disk: a saved model loads unchanged, and a file that does not match its manifest is not opened."""

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deid_agent.model.errors import ConfigurationError
from deid_agent.nlp.crf import CrfModel, build_crf, load_crf, save_crf
from deid_agent.nlp.labels import Schema
from deid_agent.nlp.templates import FeatureExtractor

VOCABULARY = {"word": {"é": 2, "a b": 3, "\x00": 4}, "shape": {"X+": 2}, "empty": {}}
FEATURES = FeatureExtractor(("word[0]", "word[0] shape[-1]", "empty[0]"), VOCABULARY)


def bundle() -> CrfModel:
    states = {(0, 2): {"O": 1.5, "I-CITY": -0.25}, (1, 2_097_154): {"I-CITY": 3.0}, (0, 4): {"O": -2.0}}
    made = build_crf(FEATURES, ("I-CITY", "O"), states, {"O": 0.5}, {("O", "O"): 1.0, ("I-CITY", "O"): -1.0})
    return CrfModel("small", Schema.EDGES, FEATURES, made, {"seed": 7, "corpus": "sha256:0"})


def test_a_saved_model_loads_unchanged(tmp_path: Path) -> None:
    made = bundle()
    save_crf(made, tmp_path)
    back = load_crf(tmp_path, "small")
    assert (back.name, back.schema, back.extractor) == ("small", Schema.EDGES, FEATURES)
    assert back.crf.labels == made.crf.labels
    for one, other in zip(back.crf.tables, made.crf.tables, strict=True):
        assert (one.numbers.tolist(), one.first) == (other.numbers.tolist(), other.first)
    for name in ("weights", "bias", "transitions"):
        np.testing.assert_array_equal(getattr(back.crf, name), getattr(made.crf, name))
    assert back.card["seed"] == 7 and len(back.digest) == 64
    assert back.digest == back.card["sha256"]


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    save_crf(bundle(), tmp_path / "a")
    save_crf(bundle(), tmp_path / "b")
    for name in ("small.json", "small.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def changed(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize("change", [changed, lambda data: data[:-1], lambda _: b"", lambda data: data + b"\0"])
def test_arrays_that_differ_from_the_manifest_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    save_crf(bundle(), tmp_path)
    path = tmp_path / "small.npz"
    path.write_bytes(change(path.read_bytes()))
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("arrays were opened"))
    with pytest.raises(ConfigurationError, match=r"small\.npz: does not match the digest in small\.json"):
        load_crf(tmp_path, "small")


def described(folder: Path, **changes: object) -> None:
    """The manifest with other values and the digest of the arrays."""
    path = folder / "small.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"templates": ["word[0]", "word[0] shape[-1]", "other[0]"]},
        {"templates": "word[0]"},
        {"labels": [1, 2]},
        {"schema": "none"},
        {"schema": None},
    ],
)
def test_a_manifest_of_another_model_is_refused_at_load(tmp_path: Path, changes: dict[str, object]) -> None:
    save_crf(bundle(), tmp_path)
    described(tmp_path, **changes)
    with pytest.raises(ConfigurationError, match="train it again"):
        load_crf(tmp_path, "small")


def test_another_format_is_refused(tmp_path: Path) -> None:
    save_crf(bundle(), tmp_path)
    described(tmp_path, format=99)
    with pytest.raises(ConfigurationError, match="restore both files"):
        load_crf(tmp_path, "small")


@pytest.mark.parametrize("data", [b"no archive", b"PK\x03\x04 nor this"])
def test_a_corrupt_file_with_the_right_digest_is_refused(tmp_path: Path, data: bytes) -> None:
    save_crf(bundle(), tmp_path)
    (tmp_path / "small.npz").write_bytes(data)
    described(tmp_path, sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(ConfigurationError, match="train it again"):
        load_crf(tmp_path, "small")


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    save_crf(bundle(), tmp_path)
    stream = io.BytesIO()
    np.savez(stream, firsts=np.array([object()], dtype=object), allow_pickle=True)
    (tmp_path / "small.npz").write_bytes(stream.getvalue())
    described(tmp_path, sha256=hashlib.sha256(stream.getvalue()).hexdigest(), templates=[])
    with pytest.raises(ConfigurationError, match="train it again"):
        load_crf(tmp_path, "small")


@pytest.mark.parametrize("name", ["small.json", "small.npz"])
def test_a_missing_file_is_reported_with_the_remedy(tmp_path: Path, name: str) -> None:
    save_crf(bundle(), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ConfigurationError, match=f"{name}: .*train"):
        load_crf(tmp_path, "small")


@pytest.mark.parametrize("text", ["{", "[]", "\udcff"])
def test_an_invalid_manifest_is_refused(tmp_path: Path, text: str) -> None:
    save_crf(bundle(), tmp_path)
    (tmp_path / "small.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError, match=r"small\.json"):
        load_crf(tmp_path, "small")
