"""The recurrent network as a model of a tagger, alone or as one more voice of the token model.

Source: Dernoncourt 2016 section 2.2.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from deid_agent.crf.columns import View
from deid_agent.crf.model import Floats
from deid_agent.dictionary import Dictionaries
from deid_agent.neural.bundle import NetworkBundle
from deid_agent.neural.inputs import sequences
from deid_agent.neural.network import groups
from deid_agent.recognize.tokencrf import Asked, Reading, batches, proposals
from deid_agent.spans import Span
from deid_agent.text import Document

SURE = "neural:token"


@dataclass(frozen=True, slots=True)
class NetworkTagger:
    """Proposes the most probable spans, and weak ones as ``TokenCrf`` does; ``speak`` tells probabilities alone."""

    bundle: NetworkBundle
    dictionaries: Dictionaries = field(repr=False)
    least: float = 0.3

    @property
    def name(self) -> str:
        """The model's name, as in the models folder."""
        return self.bundle.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that ``speak`` has probabilities of, in order."""
        return self.bundle.network.chain.labels

    def speak(self, views: Sequence[View]) -> Floats:
        """The probability of each label for each token of the views, which have tokens: ``[token, label]``."""
        network = self.bundle.network
        reading, sizes = network.inputs.read(views), [size for view in views for size in sequences(view)]
        found = np.empty((len(reading), len(self.labels)), np.float32)
        for own, some in groups(sizes):
            found[own] = network.chain.marginals_of_all(network.emissions(reading.part(own), some), some)
        return found

    def propose(self, doc: Document, first: Sequence[Span]) -> Iterable[Span]:
        """Spans of ``doc``, whose first pass found ``first``."""
        return self.propose_all([(doc, first)])[0]

    def propose_all(self, asked: Sequence[Asked]) -> list[list[Span]]:
        """As ``propose`` of each; short documents cost far less together than one by one."""
        found: list[list[Span]] = [[] for _ in asked]
        for batch in batches([at for at, (doc, _) in enumerate(asked) if doc.tokens], asked):
            views = [View(*asked[at], self.dictionaries) for at in batch]
            for at, view, reading in zip(batch, views, self._readings(views), strict=True):
                found[at] = proposals(view.doc, reading, self.least, self.dictionaries, SURE)
        return found

    def _readings(self, views: Sequence[View]) -> Iterator[Reading]:
        chain = self.bundle.network.chain
        emissions, sizes = self._emissions(views)
        best = chain.best_of_all(emissions, sizes)
        marginals = chain.marginals_of_all(emissions, sizes) if self.least < 1 else None
        start = 0
        for view in views:
            own = slice(start, start := start + len(view.words))
            if marginals is None:
                yield Reading(best[own])
            else:
                yield Reading.of(best[own], marginals[own], chain.labels)

    def _emissions(self, views: Sequence[View]) -> tuple[Floats, list[int]]:
        network = self.bundle.network
        sizes = [size for view in views for size in sequences(view)]
        return network.emissions(network.inputs.read(views), sizes), sizes
