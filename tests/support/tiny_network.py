"""A network of a few numbers, drawn by lot: enough to tell that it is run, saved and joined as it should be."""

from collections.abc import Sequence

import numpy as np

from deid_agent.crf.columns import View
from deid_agent.crf.labels import Schema
from deid_agent.dictionary import Dictionaries
from deid_agent.neural.bundle import NetworkBundle
from deid_agent.neural.inputs import Inputs
from deid_agent.neural.network import Dimensions, Network
from deid_agent.neural.vectors import Vectors
from deid_agent.text import Document

LABELS = ("I-CITY", "I-PATIENT", "O")
COLUMNS = ("shape", "gap", "rule", "label")
TEXT = "Mr. Zyblorq lives in Oslo.\nDr. Quill saw Mr. Zyblorq on 3/4/2019 in Oslo, and he was well.\n\nSeen: Oslo."
DIMENSIONS = Dimensions(character=3, spelling=4, token=5, column=6, sequence=7, hidden=8)
NO_LISTS = Dictionaries((), {}, {}, {})


def view(text: str) -> View:
    return View(Document(text), (), NO_LISTS)


def made_vectors(dimensions: int = 5) -> Vectors:
    draw = np.random.default_rng(1)
    return Vectors.of(["oslo", "in", "zyblorq"], draw.normal(0, 1, (3, dimensions)).astype(np.float32))


def network(
    dimensions: Dimensions = DIMENSIONS,
    *,
    labels: Sequence[str] = LABELS,
    vectors: Vectors | None = None,
    columns: Sequence[str] = COLUMNS,
    seed: int = 0,
) -> Network:
    known = Inputs.learn([view(TEXT)], columns, vectors, word=2, value=1)
    draw = np.random.default_rng(seed)
    shapes = dimensions.shapes(known.rows, len(labels))
    weights = {name: draw.normal(0, 0.5, shape).astype(np.float16).astype(np.float32) for name, shape in shapes.items()}
    return Network.of(dimensions, known, weights, labels)


def bundle(name: str = "small", *, vectors: Vectors | None = None, labels: Sequence[str] = LABELS) -> NetworkBundle:
    return NetworkBundle(name, Schema.IO, network(vectors=vectors, labels=labels), {"seed": 7})
