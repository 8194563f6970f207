"""A chain on disk, with the features that it was trained on and the card that says where it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from deid_agent.crf import files
from deid_agent.crf.features import Features, parts
from deid_agent.crf.labels import Schema
from deid_agent.crf.model import Chain, Table

_SEPARATOR = "\x1f"  # between the values of a column; no token holds it: it is white space to the tokenizer


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
    arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {
        "weights": chain.weights.astype(np.float16),
        "bias": chain.bias,
        "transitions": chain.transitions,
        "firsts": np.array([table.first for table in chain.tables], np.int64),
    }
    for at, table in enumerate(chain.tables):
        arrays[f"numbers{at}"] = table.numbers
    for name, values in features.vocabulary.items():
        arrays[f"values-{name}"] = np.frombuffer(_SEPARATOR.join(values).encode(), np.uint8)
    manifest = {
        "schema": bundle.schema.value,
        "labels": list(chain.labels),
        "templates": list(features.templates),
        **bundle.card,
    }
    files.save(folder, bundle.name, manifest, arrays)


def load(folder: Path, name: str) -> Bundle:
    """The model of that name.

    Raises ``ConfigurationError`` where a file is missing, is of another format, or where the digest differs; the
    arrays are not opened then.
    """
    return files.load(folder, name, _opened)


def _opened(manifest: Mapping[str, object], arrays: files.Arrays, digest: str) -> Bundle:
    templates = tuple(_words(manifest, "templates"))
    features = Features(templates, _vocabulary(arrays))
    if any(column not in features.vocabulary for t in templates for column, _ in parts(t)):
        raise ValueError("templates")
    tables = tuple(
        Table(arrays[f"numbers{at}"].astype(np.int64), int(first)) for at, first in enumerate(arrays["firsts"])
    )
    weights, bias, moves = (arrays[key].astype(np.float32) for key in ("weights", "bias", "transitions"))
    chain = Chain(tuple(_words(manifest, "labels")), tables, weights, bias, moves)
    return Bundle(str(manifest["name"]), Schema(str(manifest.get("schema"))), features, chain, manifest, digest)


def _words(manifest: Mapping[str, object], name: str) -> list[str]:
    found = manifest.get(name)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise ValueError(name)
    return found


def _vocabulary(arrays: files.Arrays) -> dict[str, dict[str, int]]:
    found = {}
    for key, array in arrays.items():
        if key.startswith("values-"):
            values = array.tobytes().decode("utf-8").split(_SEPARATOR) if len(array) else []
            found[key[7:]] = {value: at for at, value in enumerate(values, 2)}
    return found
