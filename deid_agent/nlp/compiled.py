"""The compiled core ``deid_agent_core``, if it is installed: the only module that imports it.

A function with ``compiled_by`` is the reference: it defines the result. While the core is in use, calls go to the
function of this module instead, whose floats differ by at most 1e-5. The core receives numbers only and no text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from deid_agent.nlp.network_inputs import EncodedTokens, WordVectors, batch_sequences
from deid_agent.nlp.templates import parse_template

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
P = ParamSpec("P")
R = TypeVar("R")

INTERFACE: Final = 1
"""The number of the interface that this module uses. A core with another number is not used."""
WITHOUT_CORE: Final = "python"
"""The name of the implementation without the core."""


class Layers(Protocol):
    """A network in the core."""

    def emissions(
        self,
        vectors: Floats,
        characters: Ints,
        words: Ints,
        features: NDArray[np.int32],
        sizes: Sequence[int],
        out: Floats,
    ) -> None: ...


class Templates(Protocol):
    """The templates of a CRF in the core."""

    def emissions(self, values: Sequence[Ints], sizes: Sequence[int], out: Floats) -> None: ...


class Core(Protocol):
    """The module ``deid_agent_core``. Its README describes the arguments."""

    INTERFACE: int
    NetworkLayers: Callable[..., Layers]
    TemplateWeights: Callable[..., Templates]

    def marginals(self, emissions: Floats, transitions: Floats, sizes: Sequence[int], out: Floats) -> None: ...
    def best_labels(self, scores: Floats, transitions: Floats, sizes: Sequence[int]) -> list[int]: ...
    def decode(
        self, marginals: Floats, affinities: Floats, lean: Floats, outside: int, sizes: Sequence[int]
    ) -> list[int]: ...
    def instructions(self) -> str: ...
    def use_at_most(self, instructions: str) -> None: ...


class _Chain(Protocol):
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def transitions(self) -> Floats: ...


def _load_core() -> tuple[Core | None, str]:
    """The core, or the reason why there is none."""
    try:
        core = cast(Core, import_module("deid_agent_core"))
    except ModuleNotFoundError:
        return None, "deid-agent-core is not installed"
    except ImportError:
        return None, "deid-agent-core cannot be loaded on this system"
    if getattr(core, "INTERFACE", 0) != INTERFACE:
        return None, "deid-agent-core has another version"
    return core, ""


_installed, _reason = _load_core()
_in_use: Core | None = _installed


def core_name() -> str:
    """The implementation in use: ``python``, or the instructions of the core: ``avx512``, ``avx2``, ``portable``."""
    return WITHOUT_CORE if _in_use is None else _in_use.instructions()


def describe_core() -> str:
    """The same, and the reason if no core can be used."""
    return f"{core_name()}: {_reason}" if _reason else core_name()


def is_installed() -> bool:
    """Whether a core with the right interface is installed."""
    return _installed is not None


@contextmanager
def without_core() -> Iterator[None]:
    """Run the references instead of the core. For tests and measurements, in one thread."""
    global _in_use  # noqa: PLW0603
    before, _in_use = _in_use, None
    try:
        yield
    finally:
        _in_use = before


@contextmanager
def core_limited_to(instructions: str) -> Iterator[None]:
    """Run the core with these instructions at most: ``avx512``, ``avx2`` or ``portable``. For tests, in one thread."""
    core = _core()
    core.use_at_most(instructions)
    try:
        yield
    finally:
        core.use_at_most("avx512")


def compiled_by(compiled: Callable[..., R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a reference. While the core is in use, ``compiled`` runs instead, with the same arguments."""

    def decorate(reference: Callable[P, R]) -> Callable[P, R]:
        @wraps(reference)
        def choose(*args: P.args, **kwargs: P.kwargs) -> R:
            return reference(*args, **kwargs) if _in_use is None else compiled(*args, **kwargs)

        return choose

    return decorate


class Prepared:
    """The object of the core that holds the weights of one model, made on first use. It is not pickled."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: Any = None

    def get(self, make: Callable[[], R]) -> R:
        """The object that ``make`` returned on the first call."""
        if self._made is None:
            self._made = make()
        return cast(R, self._made)

    def __reduce__(self) -> tuple[type["Prepared"], tuple[()]]:
        return Prepared, ()


def _core() -> Core:
    if _in_use is None:
        raise RuntimeError("the core is not in use")
    return _in_use


# Chains


def marginals(crf: _Chain, emissions: Floats, sizes: Sequence[int]) -> Floats:
    """See ``Crf.marginals_of_sequences``."""
    out = np.empty_like(emissions)
    _core().marginals(emissions, crf.transitions, sizes, out)
    return out


def best_labels(crf: _Chain, emissions: Floats, sizes: Sequence[int]) -> list[str]:
    """See ``Crf.decode_sequences``."""
    labels = crf.labels
    return [labels[at] for at in _core().best_labels(emissions, crf.transitions, sizes)]


class _Decoder(Protocol):
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def affinities(self) -> Floats: ...


def decode(decoder: _Decoder, marginals: Floats, lean: Floats, sizes: Sequence[int], outside: int) -> list[str]:
    """See ``SequenceDecoder``."""
    labels = decoder.labels
    return [labels[at] for at in _core().decode(marginals, decoder.affinities, lean, outside, sizes)]


# Templates


class _WeightTable(Protocol):
    @property
    def numbers(self) -> Ints: ...
    @property
    def first(self) -> int: ...


class _TemplateCrf(Protocol):
    @property
    def tables(self) -> Sequence[_WeightTable]: ...
    @property
    def weights(self) -> Floats: ...
    @property
    def bias(self) -> Floats: ...


class _Extractor(Protocol):
    @property
    def templates(self) -> Sequence[str]: ...
    def encode_features(self, document: Any) -> Mapping[str, Ints]: ...


class _TemplateModel(Protocol):
    @property
    def crf(self) -> _TemplateCrf: ...
    @property
    def extractor(self) -> _Extractor: ...
    @property
    def prepared(self) -> Prepared: ...


def template_emissions(model: _TemplateModel, documents: Sequence[Any]) -> Floats:
    """See ``CrfModel.emissions``."""
    templates, names = model.prepared.get(lambda: _build_templates(model))
    values = [model.extractor.encode_features(document) for document in documents]
    columns = [np.concatenate([one[name] for one in values]) if len(values) > 1 else values[0][name] for name in names]
    sizes = [len(one[names[0]]) for one in values]
    out = np.empty((sum(sizes), len(model.crf.bias)), np.float32)
    templates.emissions(columns, sizes, out)
    return out


def _build_templates(model: _TemplateModel) -> tuple[Templates, list[str]]:
    """The templates, and the features in the order of their columns."""
    crf = model.crf
    parts = [parse_template(template) for template in model.extractor.templates]
    names = sorted({name for own in parts for name, _ in own})
    columns = {name: at for at, name in enumerate(names)}
    tables = {id(table): table for table in crf.tables}
    places = {key: at for at, key in enumerate(tables)}
    templates = [
        (places[id(table)], [(columns[name], offset) for name, offset in own])
        for table, own in zip(crf.tables, parts, strict=True)
    ]
    with np.errstate(over="ignore"):
        halves = crf.weights.astype(np.float16)
    # The weights of a stored model have 16 bits; those of a model in training may have more.
    exact = np.array_equal(halves.astype(np.float32), crf.weights)
    weights = halves.view(np.uint16) if exact else crf.weights
    numbers = [(table.numbers, table.first) for table in tables.values()]
    return _core().TemplateWeights(templates, numbers, weights, crf.bias), names


# The network


class _Layer(Protocol):
    @property
    def inputs(self) -> Floats: ...
    @property
    def bias(self) -> Floats: ...
    @property
    def states(self) -> Floats: ...


class _Dimensions(Protocol):
    @property
    def token(self) -> int: ...
    @property
    def feature(self) -> int: ...


class _Encoder(Protocol):
    @property
    def vectors(self) -> WordVectors | None: ...


class _Network(Protocol):
    @property
    def dimensions(self) -> _Dimensions: ...
    @property
    def encoder(self) -> _Encoder: ...
    @property
    def weights(self) -> Mapping[str, Floats]: ...
    @property
    def layers(self) -> tuple[_Layer | None, _Layer]: ...
    @property
    def prepared(self) -> Prepared: ...


def network_emissions(network: _Network, tokens: EncodedTokens, sizes: Sequence[int]) -> Floats:
    """See ``Network.emissions``."""
    layers = network.prepared.get(lambda: _build_layers(network))
    out = np.empty((len(tokens), len(network.weights["scores-b"])), np.float32)
    for own, some in batch_sequences(sizes):
        batch = tokens.select(own)
        vectors = _take_vectors(network, batch)
        layers.emissions(vectors, batch.characters, batch.word_index, batch.features, some, out[own])
    return out


def _take_vectors(network: _Network, tokens: EncodedTokens) -> Floats:
    """The vector of each distinct word, ``[word, token]``: the learned and the published one."""
    if not network.dimensions.token:
        return np.empty((len(tokens.characters), 0), np.float32)
    learned: Floats = network.weights["words"][tokens.learned]
    published = network.encoder.vectors
    return learned if published is None else learned + published.take(tokens.published)


def _build_layers(network: _Network) -> Layers:
    weights, dimensions = network.weights, network.dimensions
    spelling, sequence = network.layers
    return _core().NetworkLayers(
        dimensions.token,
        None if spelling is None else (weights["characters"], _arrays(spelling)),
        weights["values"] if dimensions.feature else None,
        _arrays(sequence),
        (weights["hidden-w"], weights["hidden-b"]),
        (weights["scores-w"], weights["scores-b"]),
    )


def _arrays(layer: _Layer) -> tuple[Floats, Floats, Floats]:
    return layer.inputs, layer.bias, layer.states
