"""Models on disk: a manifest that people read, and arrays whose digest is checked before they are opened.

``models/<name>.json`` says what the model is, how it was trained and what it scored; ``models/<name>.npz`` holds
the arrays, never pickled objects.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from deid_agent.crf.features import Features, parts
from deid_agent.crf.labels import Schema
from deid_agent.crf.model import Chain, Table
from deid_agent.errors import ConfigurationError

FORMAT = 1
_SEPARATOR = "\x1f"  # between the values of a column; no token holds it: it is white space to the tokenizer
Arrays = dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A chain with all that tagging needs, and the card that says where it comes from."""

    name: str
    schema: Schema
    features: Features = field(repr=False)
    chain: Chain = field(repr=False)
    card: Mapping[str, object] = field(default_factory=dict, repr=False)
    digest: str = ""


def save(bundle: Bundle, folder: Path) -> None:
    """Both files of a model; the same model gives the same bytes."""
    features, chain = bundle.features, bundle.chain
    arrays: Arrays = {
        "weights": chain.weights.astype(np.float16),
        "bias": chain.bias,
        "transitions": chain.transitions,
        "firsts": np.array([table.first for table in chain.tables], np.int64),
    }
    for at, table in enumerate(chain.tables):
        arrays[f"numbers{at}"] = table.numbers
    for name, values in features.vocabulary.items():
        arrays[f"values-{name}"] = np.frombuffer(_SEPARATOR.join(values).encode(), np.uint8)
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    data = stream.getvalue()
    manifest = {
        "format": FORMAT,
        "name": bundle.name,
        "schema": bundle.schema.value,
        "labels": list(chain.labels),
        "templates": list(features.templates),
        "sha256": hashlib.sha256(data).hexdigest(),
        **bundle.card,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{bundle.name}.npz").write_bytes(data)
    (folder / f"{bundle.name}.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", "utf-8")


def load(folder: Path, name: str) -> Bundle:
    """The model of that name.

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
            templates = tuple(_words(manifest, "templates"))
            features = Features(templates, _vocabulary({k: arrays[k] for k in arrays.files}))
            if any(column not in features.vocabulary for t in templates for column, _ in parts(t)):
                raise ValueError("templates")
            firsts = arrays["firsts"]
            tables = tuple(Table(arrays[f"numbers{at}"], int(first)) for at, first in enumerate(firsts))
            chain = Chain(
                tuple(_words(manifest, "labels")),
                tables,
                arrays["weights"].astype(np.float32),
                arrays["bias"],
                arrays["transitions"],
            )
        return Bundle(name, Schema(str(manifest.get("schema"))), features, chain, manifest, digest)
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


def _words(manifest: Mapping[str, object], name: str) -> list[str]:
    found = manifest.get(name)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise ValueError(name)
    return found


def _vocabulary(arrays: Arrays) -> dict[str, dict[str, int]]:
    found = {}
    for key, array in arrays.items():
        if key.startswith("values-"):
            values = array.tobytes().decode("utf-8").split(_SEPARATOR) if len(array) else []
            found[key[7:]] = {value: at for at, value in enumerate(values, 2)}
    return found
