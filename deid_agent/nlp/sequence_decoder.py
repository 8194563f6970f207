"""Chooses the labels of whole sequences from the probabilities of single tokens.

Nearly all tokens are no PHI beyond doubt. The search leaves them out: it covers the tokens in doubt and their
neighbours, and its result is that of the whole sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from deid_agent.nlp import compiled
from deid_agent.nlp.crf import Crf, Floats
from deid_agent.nlp.labels import OUTSIDE
from deid_agent.nlp.token_features import IN_HARD_MARK, IN_SOFT_MARK, TokenFeatures
from deid_agent.rules import Tags, list_of_tag

Bools = NDArray[np.bool_]

NAME_LISTS = frozenset({"given-male", "given-female", "family", "family-rare", "city", "county", "state", "hospital"})
"""Lists of names of persons and places."""
_CLINICAL_LISTS = frozenset({"drug", "device", "organism", "gene", "shorthand", "eponym"})
_LEAST_PROBABILITY = 1e-6
_CERTAIN = 100.0
_NO_WEIGHTS = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class SequenceDecoder:
    """Chooses the labels of whole sequences from the probabilities of each token.

    The score of a sequence is the sum of the logarithms of its probabilities, and of ``affinities``
    ``[from label, to label]`` between neighbours. A chain of labels that occurs in notes therefore wins over likelier
    single labels: names stay whole. ``lean`` divides the probability of no PHI: the greater it is, the more is
    proposed.
    """

    labels: tuple[str, ...]
    affinities: Floats = field(repr=False)
    lean: float = 1.0

    def decode(self, marginals: Floats, sizes: Sequence[int], documents: Sequence[TokenFeatures]) -> list[str]:
        """The label of each token of ``documents``; ``marginals`` are ``[token, label]``, ``sizes`` of sequences.

        Inside a hard mark of the grammar no token is PHI. The decoder does not lean inside a soft mark, nor for a word
        that only lists of clinical terms know.
        """
        outside = self.labels.index(OUTSIDE)
        lean = np.full(len(marginals), -np.log(self.lean), np.float32)
        at = 0
        for tokens in documents:
            size = len(tokens.doc.tokens)
            own = lean[at : at + size]
            own[np.fromiter(map(_is_clinical_term, tokens.tags), bool, size)] = 0.0
            marked = tokens.marked()
            own[marked == IN_SOFT_MARK] = 0.0
            own[marked == IN_HARD_MARK] = _CERTAIN
            at += size
        return self._find_best(marginals, lean, sizes, outside)

    @compiled.compiled_by(compiled.decode)
    def _find_best(self, marginals: Floats, lean: Floats, sizes: Sequence[int], outside: int) -> list[str]:
        """The labels of the best sequences; ``lean`` ``[token]`` is added to the score of ``outside``.

        Affinities can raise a label over ``outside`` by twice their range, once for each neighbour. Where the scores
        differ by more, the token is no PHI whatever its neighbours are.
        """
        scores = np.log(marginals + _LEAST_PROBABILITY, dtype=np.float32)
        scores[:, outside] += lean
        others = np.delete(scores, outside, axis=1).max(axis=1, initial=-np.inf)
        in_doubt = scores[:, outside] - others <= 2 * np.ptp(self.affinities)
        begins = np.zeros(len(scores), bool)
        begins[np.cumsum([0, *sizes[:-1]])] = True
        searched, runs = _runs_with_neighbours(in_doubt, begins)
        chain = Crf(self.labels, (), _NO_WEIGHTS, _NO_WEIGHTS, self.affinities)
        best = [OUTSIDE] * len(scores)
        for place, label in zip(searched, chain.decode_sequences(scores[searched], runs), strict=True):
            best[place] = label
        return best


def _runs_with_neighbours(chosen: Bools, begins: Bools) -> tuple[list[int], list[int]]:
    """The indices of the ``chosen`` units and their neighbours in the same sequence, and the lengths of their runs.

    ``begins`` ``[unit]`` is true for the first unit of each sequence.
    """
    near = chosen.copy()
    near[1:] |= chosen[:-1] & ~begins[1:]
    near[:-1] |= chosen[1:] & ~begins[1:]
    follows = np.zeros_like(near)
    follows[1:] = near[:-1] & ~begins[1:]
    places = np.flatnonzero(near)
    firsts = np.flatnonzero(~follows[places])
    return places.tolist(), np.diff([*firsts.tolist(), len(places)]).tolist()


@lru_cache(maxsize=4_096)
def _is_clinical_term(tags: Tags) -> bool:
    """Whether a list of clinical terms has the word unambiguously and no list of names or places has it."""
    lists = {tag.partition(":")[0] for tag in tags}
    return not _CLINICAL_LISTS.isdisjoint(lists) and NAME_LISTS.isdisjoint({list_of_tag(tag) for tag in tags})
