"""Support vector machines with an RBF kernel: decisions on NumPy arrays, without the training library.

The decision function is ``sum(dual * exp(-gamma * |x - v|^2)) + bias`` over the support vectors ``v``. A vector is a
set of binary features, each weighted by the scale of its family. Source: Chang & Lin 2011 (LIBSVM) section 2.1,
Ferrandez 2012 section 3.2.4.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deid_agent.model import ConfigurationError
from deid_agent.nlp.model_files import AnyArray, Arrays, load_model_files, pack_words, save_model_files, unpack_words

Floats = NDArray[np.float32]
Bits = NDArray[np.uint8]
Ints = NDArray[np.int64]
Rows = Sequence[Ints]
"""For each example its feature numbers, sorted."""

_COMMON = 256  # the features that many vectors have
_BATCH_ROWS = 1024  # the rows of one kernel matrix: bounds memory


@dataclass(frozen=True, slots=True, eq=False)
class SupportVectorMachine:
    """One binary classifier: its support vectors ``[vector, feature]``, duals ``[vector]``, gamma and bias.

    ``vectors`` has 1 for a feature that is present; ``scales`` ``[feature]`` are the weights of the features, the most
    frequent first. The most frequent features are multiplied as a matrix. For the others only the features that a row
    and a vector share are visited.
    """

    vectors: Bits = field(repr=False)
    duals: Floats = field(repr=False)
    gamma: float
    bias: float
    scales: Floats = field(repr=False)
    _common: Floats = field(init=False, repr=False)
    _rare: tuple[Ints, ...] = field(init=False, repr=False)
    _norms: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        feature, vector = np.nonzero(self.vectors[:, _COMMON:].T)
        bounds = np.searchsorted(feature, np.arange(1, max(1, self.vectors.shape[1] - _COMMON)))
        object.__setattr__(self, "_common", (self.vectors[:, :_COMMON] * self.scales[:_COMMON]).T.copy())
        object.__setattr__(self, "_rare", tuple(np.split(vector, bounds)))
        object.__setattr__(self, "_norms", self.vectors @ np.square(self.scales))

    def decide(self, rows: Rows) -> Floats:
        """The signed distance of each row, ``[row]``; positive for the positive class."""
        parts = [self._decide_batch(rows[at : at + _BATCH_ROWS]) for at in range(0, len(rows), _BATCH_ROWS)]
        return np.concatenate(parts) if parts else np.empty(0, np.float32)

    def _decide_batch(self, rows: Rows) -> Floats:
        squares = np.square(self.scales)
        common = np.zeros((len(rows), len(self._common)), np.float32)
        for at, numbers in enumerate(rows):
            often = numbers[numbers < _COMMON]
            common[at, often] = self.scales[often]
        shared = common @ self._common
        for line, numbers in zip(shared, rows, strict=True):
            for number in numbers[numbers >= _COMMON].tolist():
                line[self._rare[number - _COMMON]] += squares[number]
        norms = np.array([squares[numbers].sum() for numbers in rows], np.float32)
        distances = np.maximum(norms[:, None] + self._norms - 2 * shared, 0)
        out: Floats = np.exp(-self.gamma * distances) @ self.duals + np.float32(self.bias)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class LinearScreen:
    """A fast linear classifier that rejects most candidates before the support vector machines run.

    ``weights`` has the shape ``[feature]``; ``bias`` includes the decision threshold.
    """

    weights: Floats = field(repr=False)
    bias: float

    def passes(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether each row passes, ``[row]``."""
        return np.array([self.weights[numbers].sum() + self.bias >= 0 for numbers in rows], np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class SvmModel:
    """Support vector machines by name over one vocabulary, behind a linear screen, with thresholds and a card.

    ``scales`` ``[feature]`` has the weight of each feature. A feature such as ``word=ann`` belongs to the family before
    the ``=``.
    """

    name: str
    vocabulary: Mapping[str, int] = field(repr=False)
    scales: Floats = field(repr=False)
    screen: LinearScreen = field(repr=False)
    classifiers: Mapping[str, SupportVectorMachine] = field(repr=False)
    thresholds: Mapping[str, float]
    card: Mapping[str, object] = field(default_factory=dict, repr=False)
    digest: str = ""

    def encode(self, examples: Iterable[Iterable[str]]) -> list[Ints]:
        """The feature numbers of each example; unknown features are ignored."""
        return encode_rows(examples, self.vocabulary)

    def classifier(self, name: str) -> SupportVectorMachine:
        """The support vector machine ``name``. Raises ``ConfigurationError`` if the model has no such machine."""
        if name not in self.classifiers:
            raise ConfigurationError(f"model {self.name} has no classifier {name}: train it again")
        return self.classifiers[name]


def encode_rows(examples: Iterable[Iterable[str]], vocabulary: Mapping[str, int]) -> list[Ints]:
    """The feature numbers of each example, sorted and without duplicates; unknown features are ignored."""
    known = vocabulary.get
    found = ({at for name in names if (at := known(name)) is not None} for names in examples)
    return [np.array(sorted(numbers), np.int64) for numbers in found]


def save_svm(model: SvmModel, folder: Path) -> None:
    """Write both files of ``model``. The same model gives the same bytes. Raises ``OSError`` if that fails."""
    arrays: dict[str, AnyArray] = {
        "vocabulary": pack_words(model.vocabulary),
        "scales": model.scales,
        "screen": np.append(model.screen.weights, np.float32(model.screen.bias)),
    }
    for name, machine in model.classifiers.items():
        arrays[f"vectors-{name}"] = np.packbits(machine.vectors, axis=1)
        arrays[f"duals-{name}"] = machine.duals
        arrays[f"form-{name}"] = np.array([machine.gamma, machine.bias], np.float64)
    manifest = {**model.card, "machines": list(model.classifiers), "thresholds": dict(model.thresholds)}
    save_model_files(folder, model.name, manifest, arrays)


def load_svm(folder: Path, name: str) -> SvmModel:
    """The SVM model ``name`` of ``folder``.

    Raises ``ConfigurationError`` if a file is missing, has another format, or does not match its digest. The array file
    is not opened if the digest differs.
    """
    return load_model_files(folder, name, _build_model)


def _build_model(manifest: Mapping[str, object], arrays: Arrays, digest: str) -> SvmModel:
    names, limits = manifest["machines"], manifest["thresholds"]
    if not isinstance(names, list) or not isinstance(limits, dict):
        raise ValueError("manifest")
    scales: Floats = arrays["scales"].astype(np.float32)
    vocabulary = unpack_words(arrays["vocabulary"], 0)
    if len(vocabulary) != len(scales):
        raise ValueError("vocabulary")
    classifiers = {}
    for each in names:
        bits = np.unpackbits(arrays[f"vectors-{each}"].astype(np.uint8), axis=1, count=len(scales))
        gamma, bias = arrays[f"form-{each}"].tolist()
        duals = arrays[f"duals-{each}"].astype(np.float32)
        classifiers[each] = SupportVectorMachine(bits, duals, gamma, bias, scales)
    screen = LinearScreen(arrays["screen"][:-1].astype(np.float32), float(arrays["screen"].astype(np.float32)[-1]))
    thresholds = {key: float(limit) for key, limit in limits.items()}
    return SvmModel(str(manifest["name"]), vocabulary, scales, screen, classifiers, thresholds, manifest, digest)
