"""Adaptation of a trained network to further notes: a few epochs from the trained weights, with a small learning rate.

In the notes of the site the network learns the annotations, in those of the rehearsal the mean of the annotations and
of the probabilities that it gave before, as the CRF does (``crf_adapter``). Transitions stay.

This module imports JAX and optax (extra ``train-neural``). One compiled step serves all adaptations of a process: most
of the time of a short training would be compilation.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from deid_agent.nlp import Dimensions, Floats, Network, NetworkModel
from deid_agent.train.crf_adapter import list_types
from deid_agent.train.crf_trainer import Progress, ignore_progress
from deid_agent.train.examples import (
    FEW_SHAPES,
    EncodedNote,
    Example,
    SequenceRange,
    build_batch,
    encode_note,
    list_sequences,
    plan_batches,
)
from deid_agent.train.network_trainer import log_partitions, network_scores
from deid_agent.train.recipes import NetworkAdaptation

_BATCH_TOKENS = 2048
_UNKNOWN_SHARE = 0.2  # of the words of a batch, as in the first training


def adapt_network(
    base: NetworkModel,
    site: Sequence[Example],
    rehearsal: Sequence[Example],
    settings: NetworkAdaptation,
    progress: Progress = ignore_progress,
) -> NetworkModel:
    """``base`` after further epochs over ``site`` and ``rehearsal``. Its words, characters and values stay as they are.

    The same examples in the same order give the same network on the same machine.
    """
    network = base.network
    labels = list(network.crf.labels)
    numbers = {label: at for at, label in enumerate(labels)}
    chosen = [e for e in (*(list(site) * settings.weight), *rehearsal) if e.tokens.words]
    notes = [encode_note(e, network.encoder, numbers, list_types(labels)) for e in chosen]
    own = sum(1 for e in site if e.tokens.words) * settings.weight
    targets: list[Floats] = [np.eye(len(labels), dtype=np.float32)[note.labels] for note in notes]
    for at in range(own, len(notes)):
        targets[at] = (targets[at] + _probabilities(network, notes[at])) / np.float32(2)
    sequences, draw = list_sequences(notes), np.random.default_rng(settings.seed)
    rule, update = _compile_update(network.dimensions, settings.dropout, settings.clip)
    # A step overwrites its weights: without a copy these could be the memory of the base.
    weights = {name: jnp.array(one, copy=True) for name, one in network.weights.items()}
    state, key = rule.init(weights), jax.random.key(settings.seed)
    plans = [list(plan_batches(sequences, _BATCH_TOKENS, draw, FEW_SHAPES)) for _ in range(settings.epochs)]
    steps, step, losses = max(1, sum(map(len, plans))), 0, []
    for epoch, plan in enumerate(plans, 1):
        of_epoch = []
        for one in plan:
            batch = build_batch(notes, *one, network.encoder, _UNKNOWN_SHARE, draw, FEW_SHAPES)
            rate = settings.rate * (1 + np.cos(np.pi * step / steps)) / 2
            weights, state, key, loss = update(weights, state, key, rate, batch, _gather(targets, *one))
            of_epoch.append(float(loss))
            step += 1
        losses.append(round(sum(of_epoch) / max(1, len(of_epoch)), 4))
        progress(epoch, settings.epochs)
    moved = {name: np.array(weights[name], np.float32) for name in network.weights}
    result = Network.from_weights(network.dimensions, network.encoder, moved, labels)
    return NetworkModel(base.name, base.schema, result, {"losses": losses})


def _probabilities(network: Network, note: EncodedNote) -> Floats:
    """The probability of each label for each token, ``[token, label]``."""
    emissions = network.emissions(note.tokens, note.sizes)
    return network.crf.marginals_of_sequences(emissions, note.sizes)


def _gather(targets: Sequence[Floats], length: int, sequences: Sequence[SequenceRange]) -> Floats:
    """The targets of a batch, ``[sequence, token, label]``; 0 for padding."""
    found = np.zeros((len(sequences), length, targets[0].shape[1]), np.float32)
    for row, (note, first, size) in enumerate(sequences):
        found[row, :size] = targets[note][first : first + size]
    return found


@lru_cache(maxsize=1)
def _compile_update(dimensions: Dimensions, dropout: float, clip: float) -> tuple[Any, Callable[..., Any]]:
    """The rule of the optimizer, and a step. A step returns those of the next one, and the loss."""
    rule = optax.chain(optax.clip_by_global_norm(clip), optax.scale_by_adam())

    def measure(weights: Any, batch: Any, targets: Any, key: Any) -> Any:
        """The cross-entropy to the targets, in nats for each token, less the part that transitions give."""
        scores = network_scores(weights, batch, dimensions, dropout, key)
        moves = jax.lax.stop_gradient(weights["transitions"])
        return (log_partitions(scores, moves, batch.mask).sum() - (targets * scores).sum()) / batch.mask.sum()

    def update(weights: Any, state: Any, key: Any, rate: Any, batch: Any, targets: Any) -> Any:
        own, following = jax.random.split(key)
        loss, gradient = jax.value_and_grad(measure)(weights, batch, targets, own)
        changes, state = rule.update(gradient, state, weights)
        moved = {name: one - rate * changes[name] for name, one in weights.items()}
        return moved, state, following, loss

    return rule, jax.jit(update, donate_argnums=(0, 1))
