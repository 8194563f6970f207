"""Adaptation of a trained network to further notes: a few epochs from the trained weights, with a small learning rate.

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

from deid_agent.nlp import Dimensions, Network, NetworkModel
from deid_agent.train.crf_adapter import list_types
from deid_agent.train.crf_trainer import Progress, ignore_progress
from deid_agent.train.examples import FEW_SHAPES, Example, build_batch, encode_note, list_sequences, plan_batches
from deid_agent.train.network_trainer import network_loss
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
            weights, state, key, loss = update(weights, state, key, rate, batch)
            of_epoch.append(float(loss))
            step += 1
        losses.append(round(sum(of_epoch) / max(1, len(of_epoch)), 4))
        progress(epoch, settings.epochs)
    mixed = {
        name: old + np.float32(settings.share) * (np.array(weights[name], np.float32) - old)
        for name, old in network.weights.items()
    }
    result = Network.from_weights(network.dimensions, network.encoder, mixed, labels)
    return NetworkModel(base.name, base.schema, result, {"losses": losses})


@lru_cache(maxsize=1)
def _compile_update(dimensions: Dimensions, dropout: float, clip: float) -> tuple[Any, Callable[..., Any]]:
    """The rule of the optimizer, and a step. A step returns those of the next one, and the loss."""
    rule = optax.chain(optax.clip_by_global_norm(clip), optax.scale_by_adam())

    def update(weights: Any, state: Any, key: Any, rate: Any, batch: Any) -> Any:
        own, following = jax.random.split(key)
        loss, gradient = jax.value_and_grad(network_loss)(weights, batch, dimensions, dropout, own)
        changes, state = rule.update(gradient, state, weights)
        moved = {name: one - rate * changes[name] for name, one in weights.items()}
        return moved, state, following, loss

    return rule, jax.jit(update, donate_argnums=(0, 1))
