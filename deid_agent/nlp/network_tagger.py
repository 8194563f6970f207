"""The recurrent network as a tagger, alone or in the ensemble of the token model, and its stored form.

Source: Dernoncourt 2016 section 2.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np

from deid_agent.measure import EMPTY_GRAMMAR, Grammar
from deid_agent.model import ConfigurationError, Document, Source, SourceKind, Span
from deid_agent.nlp.crf import Floats
from deid_agent.nlp.crf_taggers import (
    FirstPass,
    TokenPrediction,
    batch_documents,
    build_spans,
    divide_prediction,
)
from deid_agent.nlp.labels import Schema
from deid_agent.nlp.model_files import (
    AnyArray,
    Arrays,
    load_model_files,
    pack_words,
    read_strings,
    save_model_files,
    unpack_words,
)
from deid_agent.nlp.network import Dimensions, Network
from deid_agent.nlp.network_inputs import (
    FIRST_KNOWN,
    VECTORS_NAME,
    InputEncoder,
    WordVectors,
    batch_sequences,
    load_vectors,
    split_paragraphs,
)
from deid_agent.nlp.sequence_decoder import SequenceDecoder
from deid_agent.nlp.token_features import TokenFeatures
from deid_agent.rules import Dictionaries

NETWORK_SOURCE = Source(SourceKind.NETWORK, "token")
_STORED_DIMENSIONS = {field_.name: field_.name for field_ in fields(Dimensions)} | {"feature": "column"}
"""The key of each field of ``Dimensions`` in a manifest."""
_WORDS, _CHARACTERS, _VALUES, _WEIGHTS = "words", "characters", "values-", "weights-"


@dataclass(frozen=True, slots=True, eq=False)
class NetworkModel:
    """A network with the card that describes its training. ``digest`` is that of its arrays."""

    name: str
    schema: Schema
    network: Network = field(repr=False)
    card: Mapping[str, object] = field(default_factory=dict, repr=False)
    digest: str = ""


@dataclass(frozen=True, slots=True)
class NetworkTagger:
    """Proposes the most probable spans, and with ``lean`` above 1 also low-confidence spans, as ``TokenCrf`` does."""

    model: NetworkModel
    dictionaries: Dictionaries = field(repr=False)
    lean: float = 1.0
    grammar: Grammar = EMPTY_GRAMMAR

    @property
    def name(self) -> str:
        """The model's name in the models folder."""
        return self.model.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of the probabilities of ``marginals``."""
        return self.model.network.crf.labels

    def marginals(self, documents: Sequence[TokenFeatures]) -> Floats:
        """The probability of each label for each token of all documents, ``[token, label]``.

        Every document has at least one token.
        """
        network = self.model.network
        encoded, sizes = (
            network.encoder.encode(documents),
            [n for tokens in documents for n in split_paragraphs(tokens)],
        )
        found = np.empty((len(encoded), len(self.labels)), np.float32)
        for own, some in batch_sequences(sizes):
            emissions = network.emissions(encoded.select(own), some)
            found[own] = network.crf.marginals_of_sequences(emissions, some)
        return found

    def propose(self, doc: Document, first_pass: Sequence[Span]) -> Iterable[Span]:
        """The spans of ``doc``, given those of its first pass."""
        return self.propose_all([(doc, first_pass)])[0]

    def propose_all(self, asked: Sequence[FirstPass]) -> list[list[Span]]:
        """The spans of each document. A batch of short documents is much faster than one call for each."""
        found: list[list[Span]] = [[] for _ in asked]
        for batch in batch_documents([at for at, (doc, _) in enumerate(asked) if doc.tokens], asked):
            documents = [TokenFeatures(*asked[at], self.dictionaries, grammar=self.grammar) for at in batch]
            for at, tokens, prediction in zip(batch, documents, self._predict_all(documents), strict=True):
                found[at] = build_spans(tokens.doc, prediction, self.dictionaries, NETWORK_SOURCE)
        return found

    def _predict_all(self, documents: Sequence[TokenFeatures]) -> Iterator[TokenPrediction]:
        network = self.model.network
        sizes = [size for tokens in documents for size in split_paragraphs(tokens)]
        emissions, crf = network.emissions(network.encoder.encode(documents), sizes), network.crf
        if self.lean == 1:
            return divide_prediction(documents, crf.decode_sequences(emissions, sizes))
        marginals = crf.marginals_of_sequences(emissions, sizes)
        decoder = SequenceDecoder(crf.labels, np.zeros_like(crf.transitions), self.lean)
        best = decoder.decode(marginals, sizes, documents)
        return divide_prediction(documents, best, marginals, crf.labels)


def save_network(model: NetworkModel, folder: Path) -> None:
    """Write both files of ``model``, without the word vectors. The same network gives the same bytes.

    Raises ``OSError`` if a file cannot be written.
    """
    network, encoder = model.network, model.network.encoder
    arrays: dict[str, AnyArray] = {
        f"{_WEIGHTS}{name}": network.weights[name].astype(np.float16)
        for name in network.dimensions.weight_shapes(encoder.table_sizes, len(network.crf.labels))
    }
    for name, numbering in ((_WORDS, encoder.words), (_CHARACTERS, encoder.characters)):
        arrays[name] = pack_words(numbering)
    for name, numbering in encoder.features.items():
        arrays[f"{_VALUES}{name}"] = pack_words(numbering)
    manifest = {
        "schema": model.schema.value,
        "labels": list(network.crf.labels),
        "dimensions": {_STORED_DIMENSIONS[name]: width for name, width in asdict(network.dimensions).items()},
        "columns": list(encoder.features),
        "vectors": encoder.vectors.digest if encoder.vectors else "",
        **model.card,
    }
    save_model_files(folder, model.name, manifest, arrays)


def load_network(folder: Path, name: str) -> NetworkModel:
    """The network ``name`` of ``folder``, with the word vectors of ``folder`` if it was trained with them.

    Raises ``ConfigurationError`` if a file is missing, has another format, or does not match its digest (its array file
    is then not opened), or if the vectors are not those that the network was trained with.
    """

    def build(manifest: Mapping[str, object], arrays: Arrays, digest: str) -> NetworkModel:
        vectors = None
        if wanted := manifest.get("vectors"):
            vectors = load_vectors(folder)
            if vectors.digest != wanted:
                raise ConfigurationError(
                    f"{folder / name}.json: the network was trained with other vectors than {VECTORS_NAME}.npz: "
                    "train it again, or restore both files"
                )
        return _build_model(manifest, arrays, digest, vectors)

    return load_model_files(folder, name, build)


def _build_model(
    manifest: Mapping[str, object], arrays: Arrays, digest: str, vectors: WordVectors | None
) -> NetworkModel:
    labels, dimensions = read_strings(manifest, "labels"), _read_dimensions(manifest.get("dimensions"))
    at, features = 1, {}
    for name in read_strings(manifest, "columns"):
        features[name] = unpack_words(arrays[f"{_VALUES}{name}"], at)
        at += len(features[name])
    characters, words = (unpack_words(arrays[key], FIRST_KNOWN) for key in (_CHARACTERS, _WORDS))
    encoder = InputEncoder(characters, words, features, vectors).require_valid()
    weights = {key[len(_WEIGHTS) :]: one.astype(np.float32) for key, one in arrays.items() if key.startswith(_WEIGHTS)}
    network = Network.from_weights(dimensions, encoder, weights, labels)
    return NetworkModel(str(manifest["name"]), Schema(str(manifest.get("schema"))), network, manifest, digest)


def _read_dimensions(stored: object) -> Dimensions:
    """Raises ``ValueError`` if a width is missing, unknown or not a natural number."""
    if not isinstance(stored, dict) or set(stored) != set(_STORED_DIMENSIONS.values()):
        raise ValueError("dimensions")
    if not all(type(width) is int and width >= 0 for width in stored.values()):
        raise ValueError("dimensions")
    return Dimensions(**{name: stored[key] for name, key in _STORED_DIMENSIONS.items()})
