"""The arrays of a stored model: read as numpy reads them, and nothing else."""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZIP_BZIP2, ZIP_STORED, ZipFile

import numpy as np
import pytest

from deid_agent.model.errors import ConfigurationError
from deid_agent.nlp.model_files import AnyArray, Arrays, load_model_files, save_model_files

MODELS = Path(__file__).resolve().parents[3] / "models"
SHIPPED = sorted(path.stem for path in MODELS.glob("*.npz"))


def read(folder: Path, name: str) -> Arrays:
    def build(_manifest: Mapping[str, object], arrays: Arrays, _digest: str) -> Arrays:
        return arrays

    return load_model_files(folder, name, build)


def write(folder: Path, data: bytes) -> None:
    (folder / "some.npz").write_bytes(data)
    manifest = {"format": 1, "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "some.json").write_text(json.dumps(manifest), "utf-8")


@pytest.mark.parametrize("name", SHIPPED)
def test_the_arrays_of_a_shipped_model_are_those_that_numpy_reads(name: str) -> None:
    found = read(MODELS, name)
    with np.load(MODELS / f"{name}.npz", allow_pickle=False) as expected:
        assert list(found) == expected.files
        for key in expected.files:
            assert found[key].dtype == expected[key].dtype
            assert np.array_equal(found[key], expected[key], equal_nan=found[key].dtype.kind == "f"), key


def test_arrays_of_every_form(tmp_path: Path) -> None:
    arrays: dict[str, AnyArray] = {
        "number": np.array(7, np.int64),
        "nothing": np.zeros((0, 3), np.float32),
        "columns": np.asfortranarray(np.arange(12, dtype=np.float16).reshape(3, 4)),
        "flags": np.array([True, False]),
        "big-endian": np.arange(3, dtype=">i4"),
        "words": np.array(["a", "bc"]),
    }
    save_model_files(tmp_path, "some", {}, arrays)
    found = read(tmp_path, "some")
    assert list(found) == list(arrays)
    for key, array in arrays.items():
        assert found[key].dtype == array.dtype
        assert found[key].shape == array.shape
        assert found[key].tolist() == array.tolist()


def stored(content: bytes, method: int = ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with ZipFile(stream, "w", method) as archive:
        archive.writestr("a.npy", content)
    return stream.getvalue()


def npy(array: AnyArray, *, allow_pickle: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=allow_pickle)
    return stream.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive",
        stored(b"no array"),
        stored(npy(np.arange(9))[:-1]),
        stored(npy(np.arange(9)) + b"\0"),
        stored(npy(np.arange(9)), ZIP_BZIP2),
        stored(npy(np.array([{}], object), allow_pickle=True)),
        stored(npy(np.arange(9))).replace(b"PK\x03\x04", b"PK\x03\x05"),
    ],
    ids=["empty", "no archive", "no array", "cut off", "too long", "other compression", "objects", "no entry"],
)
def test_a_file_without_valid_arrays_is_refused(tmp_path: Path, data: bytes) -> None:
    """Although its digest is in the manifest."""
    write(tmp_path, data)
    with pytest.raises(ConfigurationError, match=r"some\.npz: \w+: not a valid model"):
        read(tmp_path, "some")
