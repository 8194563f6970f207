"""Support vector machines with an RBF kernel as arrays: decisions without the training library.

A machine says ``sum(dual * exp(-gamma * |x - v|^2)) + bias`` over its support vectors. Vectors are rows of features
that are there or not, each weighted by the scale of its family. Source: Chang & Lin 2011 (LIBSVM) section 2.1,
Ferrandez 2012 section 3.2.4. On disk: ``<name>.json``, which people read, with the digest of ``<name>.npz``, which is
checked before the arrays are opened; never a pickle.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deid_agent.crf import files
from deid_agent.errors import ConfigurationError

Floats = NDArray[np.float32]
Bits = NDArray[np.uint8]
Ints = NDArray[np.int64]
Rows = Sequence[Ints]

_SEPARATOR = "\x1f"  # between the names of features; no token holds it
_COMMON = 256  # features that many vectors have
_BATCH = 1024  # rows of one kernel at most, so that memory has a bound


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """One decision over shared features: support vectors ``[vector, feature]``, their duals, gamma and bias.

    Vectors are 1 where a feature is there; ``scales`` are the weights of the features, the most frequent first. Those
    are multiplied as a matrix, of the others only what a row and a vector share is looked at.
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
        where, which = np.nonzero(self.vectors[:, _COMMON:].T)
        bounds = np.searchsorted(where, np.arange(1, max(1, self.vectors.shape[1] - _COMMON)))
        object.__setattr__(self, "_common", (self.vectors[:, :_COMMON] * self.scales[:_COMMON]).T.copy())
        object.__setattr__(self, "_rare", tuple(np.split(which, bounds)))
        object.__setattr__(self, "_norms", self.vectors @ np.square(self.scales))

    def decide(self, rows: Rows) -> Floats:
        """The signed distance of each row of feature numbers; above 0 is yes."""
        parts = [self._decide(rows[at : at + _BATCH]) for at in range(0, len(rows), _BATCH)]
        return np.concatenate(parts) if parts else np.empty(0, np.float32)

    def _decide(self, rows: Rows) -> Floats:
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
        far = np.maximum(norms[:, None] + self._norms - 2 * shared, 0)
        out: Floats = np.exp(-self.gamma * far) @ self.duals + np.float32(self.bias)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Screen:
    """A linear decision that comes first and lets few pass: weights of the features, bias, threshold included."""

    weights: Floats = field(repr=False)
    bias: float

    def passes(self, rows: Rows) -> NDArray[np.bool_]:
        """Which rows the machines are asked of."""
        return np.array([self.weights[numbers].sum() + self.bias >= 0 for numbers in rows], np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Machines:
    """Machines by name over one vocabulary, behind a screen, with the thresholds and the card that training wrote.

    ``scales`` is the weight of each feature; a name such as ``word=ann`` belongs to the family before the ``=``.
    """

    name: str
    vocabulary: Mapping[str, int] = field(repr=False)
    scales: Floats = field(repr=False)
    screen: Screen = field(repr=False)
    machines: Mapping[str, Machine] = field(repr=False)
    thresholds: Mapping[str, float]
    card: Mapping[str, object] = field(default_factory=dict, repr=False)
    digest: str = ""

    def rows(self, examples: Iterable[Iterable[str]]) -> list[Ints]:
        """Named features as sorted numbers; unknown ones count for nothing."""
        return rows_of(examples, self.vocabulary)


def rows_of(examples: Iterable[Iterable[str]], vocabulary: Mapping[str, int]) -> list[Ints]:
    """Named features as sorted numbers without doubles."""
    known = vocabulary.get
    found = ({at for name in names if (at := known(name)) is not None} for names in examples)
    return [np.array(sorted(numbers), np.int64) for numbers in found]


def save(model: Machines, folder: Path) -> None:
    """Both files of a model; the same model gives the same bytes."""
    arrays: dict[str, NDArray[np.generic]] = {
        "vocabulary": np.frombuffer(_SEPARATOR.join(model.vocabulary).encode(), np.uint8),
        "scales": model.scales,
        "screen": np.append(model.screen.weights, np.float32(model.screen.bias)),
    }
    for name, machine in model.machines.items():
        arrays[f"vectors-{name}"] = np.packbits(machine.vectors, axis=1)
        arrays[f"duals-{name}"] = machine.duals
        arrays[f"form-{name}"] = np.array([machine.gamma, machine.bias], np.float64)
    manifest = {**model.card, "machines": list(model.machines), "thresholds": dict(model.thresholds)}
    files.save(folder, model.name, manifest, arrays)


def load(folder: Path, name: str) -> Machines:
    """The model of that name.

    Raises ``ConfigurationError`` where a file is missing, is of another format, or where the digest differs; the
    arrays are not opened then.
    """
    return files.load(folder, name, _opened)


def _opened(manifest: Mapping[str, object], arrays: files.Arrays, digest: str) -> Machines:
    names, limits = manifest["machines"], manifest["thresholds"]
    if not isinstance(names, list) or not isinstance(limits, dict):
        raise ValueError("manifest")
    scales: Floats = arrays["scales"].astype(np.float32)
    words = arrays["vocabulary"].tobytes().decode("utf-8").split(_SEPARATOR)
    if len(words) != len(scales):
        raise ValueError("vocabulary")
    machines = {}
    for each in names:
        bits = np.unpackbits(arrays[f"vectors-{each}"].astype(np.uint8), axis=1, count=len(scales))
        gamma, bias = arrays[f"form-{each}"].tolist()
        machines[each] = Machine(bits, arrays[f"duals-{each}"].astype(np.float32), gamma, bias, scales)
    screen = Screen(arrays["screen"][:-1].astype(np.float32), float(arrays["screen"].astype(np.float32)[-1]))
    thresholds = {key: float(limit) for key, limit in limits.items()}
    vocabulary = {word: at for at, word in enumerate(words)}
    return Machines(str(manifest["name"]), vocabulary, scales, screen, machines, thresholds, manifest, digest)


def take(model: Mapping[str, Machine], names: Sequence[str]) -> list[Machine]:
    """The machines of these names; raises ``ConfigurationError`` where one is missing."""
    if missing := [name for name in names if name not in model]:
        raise ConfigurationError(f"the model has no machine {missing[0]}: train it again")
    return [model[name] for name in names]
