"""A network of a few random numbers, large enough to test running, saving and averaging."""

from collections.abc import Sequence

import numpy as np

from deid_agent.model.text import Document
from deid_agent.nlp.labels import Schema
from deid_agent.nlp.network import Dimensions, Network
from deid_agent.nlp.network_inputs import InputEncoder, WordVectors
from deid_agent.nlp.network_tagger import NetworkModel
from deid_agent.nlp.token_features import TokenFeatures
from deid_agent.rules.dictionaries import Dictionaries

LABELS = ("I-CITY", "I-PATIENT", "O")
FEATURES = ("shape", "gap", "rule", "label")
TEXT = "Mr. Zyblorq lives in Oslo.\nDr. Quill saw Mr. Zyblorq on 3/4/2019 in Oslo, and he was well.\n\nSeen: Oslo."
DIMENSIONS = Dimensions(character=3, spelling=4, token=5, feature=6, sequence=7, hidden=8)
NO_LISTS = Dictionaries((), {}, {}, {})


def view(text: str) -> TokenFeatures:
    return TokenFeatures(Document(text), (), NO_LISTS)


def made_vectors(dimensions: int = 5) -> WordVectors:
    draw = np.random.default_rng(1)
    return WordVectors.quantize(["oslo", "in", "zyblorq"], draw.normal(0, 1, (3, dimensions)).astype(np.float32))


def network(
    dimensions: Dimensions = DIMENSIONS,
    *,
    labels: Sequence[str] = LABELS,
    vectors: WordVectors | None = None,
    features: Sequence[str] = FEATURES,
    seed: int = 0,
) -> Network:
    known = InputEncoder.learn([view(TEXT)], features, vectors, word=2, value=1)
    draw = np.random.default_rng(seed)
    shapes = dimensions.weight_shapes(known.table_sizes, len(labels))
    weights = {name: draw.normal(0, 0.5, shape).astype(np.float16).astype(np.float32) for name, shape in shapes.items()}
    return Network.from_weights(dimensions, known, weights, labels)


def model(name: str = "small", *, vectors: WordVectors | None = None, labels: Sequence[str] = LABELS) -> NetworkModel:
    return NetworkModel(name, Schema.IO, network(vectors=vectors, labels=labels), {"seed": 7})
