"""The functions of ``deid_agent.nlp`` that run in the compiled core.

Their references define the results; the floats of these functions differ from them by at most 1e-5. The core receives
numbers only.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deid_agent.core import Prepared, compiled_by, current
from deid_agent.nlp.network_inputs import EncodedTokens, WordVectors, batch_sequences
from deid_agent.nlp.templates import parse_template

__all__ = ["Prepared", "compiled_by"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


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

    def emissions(self, values: NDArray[np.int32], sizes: Sequence[int], out: Floats) -> None: ...


class _Chain(Protocol):
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def transitions(self) -> Floats: ...


# Chains


def marginals(crf: _Chain, emissions: Floats, sizes: Sequence[int]) -> Floats:
    """See ``Crf.marginals_of_sequences``."""
    out = np.empty_like(emissions)
    current().marginals(emissions, crf.transitions, sizes, out)
    return out


def best_labels(crf: _Chain, emissions: Floats, sizes: Sequence[int]) -> list[str]:
    """See ``Crf.decode_sequences``."""
    labels = crf.labels
    return [labels[at] for at in current().best_labels(emissions, crf.transitions, sizes)]


class _Decoder(Protocol):
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def affinities(self) -> Floats: ...


def decode(decoder: _Decoder, marginals: Floats, lean: Floats, sizes: Sequence[int], outside: int) -> list[str]:
    """See ``SequenceDecoder``."""
    labels = decoder.labels
    return [labels[at] for at in current().decode(marginals, decoder.affinities, lean, outside, sizes)]


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
    def encode_rows(self, document: Any) -> NDArray[np.int32]: ...


class _TemplateModel(Protocol):
    @property
    def crf(self) -> _TemplateCrf: ...
    @property
    def extractor(self) -> _Extractor: ...
    @property
    def prepared(self) -> Prepared: ...


def template_emissions(model: _TemplateModel, documents: Sequence[Any]) -> Floats:
    """See ``CrfModel.emissions``."""
    templates = model.prepared.get(lambda: _build_templates(model))
    values = [model.extractor.encode_rows(document) for document in documents]
    sizes = [one.shape[1] for one in values]
    out = np.empty((sum(sizes), len(model.crf.bias)), np.float32)
    templates.emissions(np.concatenate(values, axis=1) if len(values) > 1 else values[0], sizes, out)
    return out


def _build_templates(model: _TemplateModel) -> Templates:
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
    built: Templates = current().TemplateWeights(templates, numbers, weights, crf.bias)
    return built


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
    layers: Layers = current().NetworkLayers(
        dimensions.token,
        None if spelling is None else (weights["characters"], _arrays(spelling)),
        weights["values"] if dimensions.feature else None,
        _arrays(sequence),
        (weights["hidden-w"], weights["hidden-b"]),
        (weights["scores-w"], weights["scores-b"]),
    )
    return layers


def _arrays(layer: _Layer) -> tuple[Floats, Floats, Floats]:
    return layer.inputs, layer.bias, layer.states
