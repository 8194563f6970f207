"""Networks on disk: a saved network loads unchanged, and a file that does not match its manifest is not opened."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import tiny_network as tiny

from deid_agent.model.errors import ConfigurationError
from deid_agent.nlp.network_inputs import WordVectors, load_vectors, save_vectors, split_paragraphs
from deid_agent.nlp.network_tagger import NetworkModel, load_network, save_network


def stored(folder: Path) -> NetworkModel:
    """A network and its vectors, as the models folder has them."""
    save_vectors(tiny.made_vectors(), folder, {"words": 3})
    made = tiny.model(vectors=load_vectors(folder))
    save_network(made, folder)
    return made


def test_a_saved_network_loads_unchanged(tmp_path: Path) -> None:
    made = stored(tmp_path)
    back = load_network(tmp_path, "small")
    assert (back.name, back.schema, back.network.crf.labels) == ("small", made.schema, tiny.LABELS)
    assert back.network.dimensions == made.network.dimensions
    assert back.network.encoder.features == made.network.encoder.features
    assert (back.card["seed"], len(back.digest)) == (7, 64)
    view = tiny.view(tiny.TEXT)
    marginals = [
        each.network.emissions(each.network.encoder.encode([view]), split_paragraphs(view)) for each in (made, back)
    ]
    np.testing.assert_array_equal(marginals[0], marginals[1])


def test_the_same_network_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        stored(tmp_path / name)
    for name in ("small.json", "small.npz", "vectors.json", "vectors.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def changed(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize("change", [changed, lambda data: data[:-1], lambda _: b""])
@pytest.mark.parametrize("name", ["small", "vectors"])
def test_arrays_that_differ_from_the_manifest_are_not_opened(
    tmp_path: Path, change: Callable[[bytes], bytes], name: str
) -> None:
    stored(tmp_path)
    path = tmp_path / f"{name}.npz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ConfigurationError, match=rf"{name}\.npz: does not match the digest in {name}\.json"):
        load_network(tmp_path, "small")


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": ["I-CITY", "O"]},
        {"labels": None},
        {"columns": ["shape", "gap", "rule", "nothing"]},
        {"columns": ["shape", "gap", "rule"]},
        {"schema": "none"},
        {"dimensions": {"token": 5}},
        {"dimensions": 7},
        {"dimensions": {**{n: 4 for n in ("character", "spelling", "token", "column", "sequence", "hidden")}}},
        {"dimensions": {**{n: -1 for n in ("character", "spelling", "token", "column", "sequence", "hidden")}}},
    ],
)
def test_a_mismatched_manifest_is_reported(tmp_path: Path, changes: dict[str, object]) -> None:
    stored(tmp_path)
    path = tmp_path / "small.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")
    with pytest.raises(ConfigurationError, match=r"small\.npz: \w+: not a valid model"):
        load_network(tmp_path, "small")


def test_vectors_other_than_those_of_its_training_are_refused(tmp_path: Path) -> None:
    stored(tmp_path)
    save_vectors(tiny.made_vectors(), tmp_path, {"words": 3})
    assert load_network(tmp_path, "small").network.encoder.vectors is not None
    more = WordVectors.quantize(["oslo"], np.ones((1, 5), np.float32))
    save_vectors(more, tmp_path, {"words": 1})
    with pytest.raises(ConfigurationError, match=r"was trained with other vectors than vectors\.npz"):
        load_network(tmp_path, "small")


def test_missing_vectors_are_named(tmp_path: Path) -> None:
    stored(tmp_path)
    (tmp_path / "vectors.npz").unlink()
    with pytest.raises(ConfigurationError, match=r"vectors\.npz: No such file"):
        load_network(tmp_path, "small")
    with pytest.raises(ConfigurationError, match=r"other\.json: FileNotFoundError"):
        load_network(tmp_path, "other")


def test_eight_bit_vectors_are_close_to_the_original() -> None:
    table = np.random.default_rng(0).normal(0, 2, (50, 100)).astype(np.float32)
    made = WordVectors.quantize([f"w{at}" for at in range(50)], table)
    rows = np.array([made.find_row(word) for word in ("W3", "w49", "none")])
    assert rows.tolist() == [4, 50, 0]
    np.testing.assert_allclose(made.take(rows)[:2], table[[3, 49]], atol=float(np.abs(table).max()) / 250)
    assert not made.take(rows)[2].any()
