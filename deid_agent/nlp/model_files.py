"""The two files of a stored model: ``<name>.json`` is a readable manifest, ``<name>.npz`` holds the arrays.

The manifest contains the SHA-256 of the array file. The array file is opened only if its digest matches, and pickled
objects are never loaded from it.
"""

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from zipfile import BadZipFile

import numpy as np

from deid_agent.model import ConfigurationError

FORMAT = 1
REINSTALL = "install the package again"
"""What restores the packaged models."""
SEPARATOR = "\x1f"
"""Separates the words of a stored word list. No token contains it: the tokenizer treats it as white space."""
AnyArray = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
Arrays = Mapping[str, AnyArray]
Model = TypeVar("Model")
ModelBuilder = Callable[[Mapping[str, object], Arrays, str], Model]
"""Builds a model from its manifest, its arrays and their SHA-256 (hex).

Raises ``KeyError`` or ``ValueError`` if they do not describe a model of its kind.
"""


def save_model_files(folder: Path, name: str, manifest: Mapping[str, object], arrays: Arrays) -> None:
    """Write both files of the model ``name``. The same model gives the same bytes.

    Raises ``OSError`` if a file cannot be written.
    """
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    data = stream.getvalue()
    whole = {"format": FORMAT, "name": name, "sha256": hashlib.sha256(data).hexdigest(), **manifest}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.npz").write_bytes(data)
    (folder / f"{name}.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", "utf-8")


def load_model_files(folder: Path, name: str, build: ModelBuilder[Model], remedy: str = "") -> Model:
    """The model ``name`` of ``folder``, made by ``build``. ``remedy`` replaces the advice to train a missing model.

    Raises ``ConfigurationError`` if a file is missing or unreadable, has another format, or does not match the digest
    in the manifest. The array file is not opened if the digest differs.
    """
    remedy = remedy or f"train the model with deid-agent train {name} --corpus NOTES --out {folder}, or {REINSTALL}"
    manifest = _read_manifest(folder / f"{name}.json", remedy)
    path = folder / f"{name}.npz"
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise ConfigurationError(f"{path}: {fault.strerror}: {remedy}") from None
    digest = hashlib.sha256(data).hexdigest()
    if manifest.get("format") != FORMAT or digest != manifest.get("sha256"):
        raise ConfigurationError(
            f"{path}: does not match the digest in {name}.json: train the model again, or restore both files"
        )
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return build(manifest, {key: arrays[key] for key in arrays.files}, digest)
    except (KeyError, ValueError, BadZipFile) as fault:
        raise ConfigurationError(f"{path}: {type(fault).__name__}: not a valid model: train it again") from None


def read_strings(manifest: Mapping[str, object], key: str) -> list[str]:
    """The list of strings under ``key``. Raises ``ValueError`` if the value is anything else."""
    found = manifest.get(key)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise ValueError(key)
    return found


def pack_words(words: Mapping[str, int]) -> AnyArray:
    """The keys of ``words`` in order, as one array of bytes; ``unpack_words`` is the inverse."""
    return np.frombuffer(SEPARATOR.join(words).encode(), np.uint8)


def unpack_words(array: AnyArray, first: int) -> dict[str, int]:
    """The words of a packed array, numbered in order from ``first``."""
    words = array.tobytes().decode("utf-8").split(SEPARATOR) if len(array) else []
    return {word: at for at, word in enumerate(words, first)}


def _read_manifest(path: Path, remedy: str) -> Mapping[str, object]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as fault:
        raise ConfigurationError(f"{path}: {type(fault).__name__}: {remedy}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: not a JSON object: train the model again")
    return found
