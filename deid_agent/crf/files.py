"""A model's two files: ``<name>.json``, a manifest for people, and ``<name>.npz``, arrays and never pickled objects.

The manifest holds the SHA-256 of the arrays; they are opened only where it is right.
"""

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from zipfile import BadZipFile

import numpy as np

from deid_agent.errors import ConfigurationError

FORMAT = 1
Arrays = Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]
Model = TypeVar("Model")
Open = Callable[[Mapping[str, object], Arrays, str], Model]
"""A model of its manifest, its arrays and their digest; raises ``KeyError`` or ``ValueError`` for what is none."""


def save(folder: Path, name: str, manifest: Mapping[str, object], arrays: Arrays) -> None:
    """Both files; the same model gives the same bytes. Raises ``OSError`` where the disk takes them not."""
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    data = stream.getvalue()
    whole = {"format": FORMAT, "name": name, "sha256": hashlib.sha256(data).hexdigest(), **manifest}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.npz").write_bytes(data)
    (folder / f"{name}.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", "utf-8")


def load(folder: Path, name: str, open_: Open[Model]) -> Model:
    """The model of that name, as ``open_`` reads it.

    Raises ``ConfigurationError`` where a file is missing, is of another format, or where the digest differs; the
    arrays are not opened then.
    """
    manifest = _manifest(folder / f"{name}.json")
    path = folder / f"{name}.npz"
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise ConfigurationError(f"{path}: {fault.strerror}: train it, or take it from a release") from None
    digest = hashlib.sha256(data).hexdigest()
    if manifest.get("format") != FORMAT or digest != manifest.get("sha256"):
        raise ConfigurationError(f"{path}: is not what {name}.json describes: train it again, or restore both files")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return open_(manifest, {key: arrays[key] for key in arrays.files}, digest)
    except (KeyError, ValueError, BadZipFile) as fault:
        raise ConfigurationError(f"{path}: {type(fault).__name__}: train it again") from None


def _manifest(path: Path) -> Mapping[str, object]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as fault:
        raise ConfigurationError(
            f"{path}: {type(fault).__name__}: train the model, or take it from a release"
        ) from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: is no manifest: train the model again")
    return found
