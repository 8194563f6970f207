"""Training of a network from examples: batches of sequences of like length, epochs, and when to stop.

Which epoch is best is told by a part of the training patients alone: dev stays unseen. Source: Dernoncourt 2016
section 3.3.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from deid_agent.crf.labels import OUTSIDE, Schema
from deid_agent.crf.train import Progress, silent
from deid_agent.errors import ConfigurationError
from deid_agent.neural.bundle import NetworkBundle
from deid_agent.neural.inputs import Inputs
from deid_agent.neural.network import Network
from deid_agent.neural.vectors import Vectors
from deid_agent.phi import PhiType
from deid_agent.train.batches import Lesson, batch_of, lesson, pieces_of, plan
from deid_agent.train.examples import Example
from deid_agent.train.settings import NetworkSettings


def fit(
    name: str,
    examples: Sequence[Example],
    types: Sequence[PhiType],
    settings: NetworkSettings,
    vectors: Vectors | None,
    progress: Progress = silent,
) -> NetworkBundle:
    """The network that labels held-out patients best; the same for the same examples in the same order, on one machine.

    Raises ``ConfigurationError`` where too few patients are left to learn from and to hold out.
    """
    from deid_agent.train.gradient import Descent, start  # noqa: PLC0415 - only training needs JAX

    chosen = [e for e in examples if e.view.words and _lot("learn", e.note.patient) < settings.fraction]
    testing = _held(sorted({e.note.patient for e in chosen}), settings.held)
    held = [e for e in chosen if e.note.patient in testing and not e.copy]
    rest = [e for e in chosen if e.note.patient not in testing]
    if not held or not rest:
        raise ConfigurationError(f"{name}: too few patients to learn from and to hold out: give more notes")
    labels = sorted({OUTSIDE, *(label for e in chosen for label in e.labels(Schema.IO, types))})
    inputs = Inputs.learn(
        (e.view for e in rest), settings.columns, vectors if settings.frozen else None,
        word=settings.word, value=settings.value,
    )  # fmt: skip
    numbers = {label: at for at, label in enumerate(labels)}
    lessons, tests = ([lesson(e, inputs, numbers, types) for e in part] for part in (rest, held))
    weights = start(settings.dimensions, inputs.rows, len(labels), settings.seed)
    draw = np.random.default_rng(settings.seed)
    pieces = pieces_of(lessons)
    descent = Descent(weights, settings, settings.epochs * sum(1 for _ in plan(pieces, settings.batch, draw)))
    best, most, epochs = weights, -1.0, []
    for epoch in range(1, settings.epochs + 1):
        batches = (
            batch_of(lessons, *one, inputs, settings.unknown, draw) for one in list(plan(pieces, settings.batch, draw))
        )
        total = [descent.learn(batch) for batch in batches]
        now = descent.now()
        reached = score(Network.of(settings.dimensions, inputs, now, labels), tests)
        epochs.append({"loss": round(sum(total) / len(total), 4), "held_out_f1": round(reached, 4)})
        progress(epoch, settings.epochs)
        if reached > most:
            best, most = now, reached
        elif epoch - _argmax(epochs) >= settings.patience:
            break
    card = {"epochs": epochs, "learned_notes": len(rest), "held_out_notes": len(held)}
    return NetworkBundle(name, Schema.IO, Network.of(settings.dimensions, inputs, best, labels), card)


def _argmax(epochs: Sequence[dict[str, float]]) -> int:
    return 1 + max(range(len(epochs)), key=lambda at: (epochs[at]["held_out_f1"], -at))


def _held(patients: Sequence[str], share: float) -> frozenset[str]:
    """That share of the patients, one at least."""
    lots = {patient: _lot("hold", patient) for patient in patients}
    return frozenset(p for p in patients if lots[p] < share) or frozenset(sorted(patients, key=lambda p: lots[p])[:1])


def _lot(what: str, patient: str) -> float:
    """From 0 to 1, the same for a patient whatever other patients there are."""
    return int.from_bytes(hashlib.sha256(f"{what}:{patient}".encode()).digest()[:4]) / 2**32


def score(network: Network, lessons: Sequence[Lesson]) -> float:
    """F1 of labelled tokens, the label right."""
    right = found = wanted = 0
    names = np.array(network.chain.labels)
    outside = network.chain.labels.index(OUTSIDE)
    for each in lessons:
        emissions = network.emissions(each.reading, each.sizes)
        best = np.array(network.chain.best_of_all(emissions, each.sizes))
        gold = names[each.labels]
        right += int(((best == gold) & (each.labels != outside)).sum())
        found += int((best != OUTSIDE).sum())
        wanted += int((each.labels != outside).sum())
    return 2 * right / max(1, found + wanted)
