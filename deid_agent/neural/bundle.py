"""A network on disk: its arrays, its settings, the numbers that its inputs have, and the vectors that it needs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np

from deid_agent.crf import files
from deid_agent.crf.labels import Schema
from deid_agent.errors import ConfigurationError
from deid_agent.neural import vectors
from deid_agent.neural.inputs import Inputs
from deid_agent.neural.network import Dimensions, Network

_SEPARATOR = "\x1f"  # between the values of a column; no token holds it: it is white space to the tokenizer
_LEARNED, _CHARACTERS, _VALUES, _WEIGHTS = "words", "characters", "values-", "weights-"


@dataclass(frozen=True, slots=True, eq=False)
class NetworkBundle:
    """A network with all that tagging needs, and the card that says where it comes from."""

    name: str
    schema: Schema
    network: Network = field(repr=False)
    card: Mapping[str, object] = field(default_factory=dict, repr=False)
    digest: str = ""


def save(bundle: NetworkBundle, folder: Path) -> None:
    """Both files of a network, the vectors apart; the same network gives the same bytes."""
    network, inputs = bundle.network, bundle.network.inputs
    arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {
        f"{_WEIGHTS}{name}": network.weights[name].astype(np.float16)
        for name in network.dimensions.shapes(inputs.rows, len(network.chain.labels))
    }
    for name, known in ((_LEARNED, inputs.words), (_CHARACTERS, inputs.characters)):
        arrays[name] = _packed(known)
    for name, known in inputs.columns.items():
        arrays[f"{_VALUES}{name}"] = _packed(known)
    manifest = {
        "schema": bundle.schema.value,
        "labels": list(network.chain.labels),
        "dimensions": asdict(network.dimensions),
        "columns": list(inputs.columns),
        "vectors": inputs.vectors.digest if inputs.vectors else "",
        **bundle.card,
    }
    files.save(folder, bundle.name, manifest, arrays)


def load(folder: Path, name: str) -> NetworkBundle:
    """The network of that name, with the vectors of the same folder where it was trained with any.

    Raises ``ConfigurationError`` where a file is missing, is of another format, where a digest differs (the arrays are
    not opened then), or where the vectors are not those that it was trained with.
    """

    def opened(manifest: Mapping[str, object], arrays: files.Arrays, digest: str) -> NetworkBundle:
        known = None
        if wanted := manifest.get("vectors"):
            known = vectors.load(folder)
            if known.digest != wanted:
                raise ConfigurationError(
                    f"{folder / name}.json: was trained with other vectors than {vectors.NAME}.npz: "
                    "train it again, or restore both from one release"
                )
        return _opened(manifest, arrays, digest, known)

    return files.load(folder, name, opened)


def _opened(
    manifest: Mapping[str, object], arrays: files.Arrays, digest: str, known: vectors.Vectors | None
) -> NetworkBundle:
    labels, columns, told = _words(manifest, "labels"), _words(manifest, "columns"), manifest.get("dimensions")
    if not isinstance(told, dict):
        raise ValueError("dimensions")
    if set(told) != {one.name for one in fields(Dimensions)} or not all(
        type(n) is int and n >= 0 for n in told.values()
    ):
        raise ValueError("dimensions")
    at, numbered = 1, {}
    for name in columns:
        numbered[name] = _unpacked(arrays[f"{_VALUES}{name}"], at)
        at += len(numbered[name])
    inputs = Inputs(_unpacked(arrays[_CHARACTERS], 2), _unpacked(arrays[_LEARNED], 2), numbered, known).checked()
    weights = {key[len(_WEIGHTS) :]: one.astype(np.float32) for key, one in arrays.items() if key.startswith(_WEIGHTS)}
    network = Network.of(Dimensions(**told), inputs, weights, labels)
    return NetworkBundle(str(manifest["name"]), Schema(str(manifest.get("schema"))), network, manifest, digest)


def _words(manifest: Mapping[str, object], name: str) -> list[str]:
    found = manifest.get(name)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise ValueError(name)
    return found


def _packed(known: Mapping[str, int]) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    return np.frombuffer(_SEPARATOR.join(known).encode(), np.uint8)


def _unpacked(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], first: int) -> dict[str, int]:
    words = array.tobytes().decode("utf-8").split(_SEPARATOR) if len(array) else []
    return {word: at for at, word in enumerate(words, first)}
