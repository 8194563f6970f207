"""Training of the network: its forward pass and loss in JAX, the optimizer, and the schedule of epochs.

The forward pass gives the same scores as ``deid_agent.nlp.network``; JAX also computes the gradient. This module
imports JAX and optax (extra ``train-neural``), so it is imported only when a network is trained. The best epoch is
chosen on a part of the training patients, so the development notes stay unseen. Source: Dernoncourt 2016 section 3.3.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from deid_agent.model import ConfigurationError, PhiType
from deid_agent.nlp import OUTSIDE, SIDES, Dimensions, Floats, InputEncoder, Network, NetworkModel, Schema, WordVectors
from deid_agent.train.crf_trainer import Progress, ignore_progress
from deid_agent.train.examples import (
    EncodedNote,
    Example,
    TrainingBatch,
    build_batch,
    draw_share,
    encode_note,
    list_sequences,
    plan_batches,
)
from deid_agent.train.recipes import NetworkSettings

Array = Any  # of JAX, which has no usable static type
Weights = dict[str, Array]
_FINAL_RATE = 0.02  # the learning rate of the last step, as a share of the first


def train_network(
    name: str,
    examples: Sequence[Example],
    types: Sequence[PhiType],
    settings: NetworkSettings,
    vectors: WordVectors | None,
    progress: Progress = ignore_progress,
) -> NetworkModel:
    """The network of the epoch that labels the held-out patients best.

    The same examples in the same order give the same network on the same machine. ``progress`` counts epochs. Raises
    ``ConfigurationError`` if there are too few patients to learn from and to hold out.
    """
    chosen = [e for e in examples if e.tokens.words and draw_share("learn", e.note.patient) < settings.fraction]
    testing = _hold_out(sorted({e.note.patient for e in chosen}), settings.held_out)
    held = [e for e in chosen if e.note.patient in testing and not e.copy]
    rest = [e for e in chosen if e.note.patient not in testing]
    if not held or not rest:
        raise ConfigurationError(f"{name}: too few patients to learn from and to hold out: give more notes")
    labels = sorted({OUTSIDE, *(label for e in chosen for label in e.labels(Schema.IO, types))})
    encoder = InputEncoder.learn(
        (e.tokens for e in rest),
        settings.features,
        vectors if settings.published_vectors else None,
        word=settings.least_word,
        value=settings.least_value,
    )
    label_numbers = {label: at for at, label in enumerate(labels)}
    notes, tests = ([encode_note(e, encoder, label_numbers, types) for e in part] for part in (rest, held))
    weights = initial_weights(settings.dimensions, encoder.table_sizes, len(labels), settings.seed)
    draw = np.random.default_rng(settings.seed)
    sequences = list_sequences(notes)
    steps = settings.epochs * sum(1 for _ in plan_batches(sequences, settings.batch, draw))
    optimizer = NetworkOptimizer(weights, settings, steps)
    best, best_score, epochs = weights, -1.0, []
    for epoch in range(1, settings.epochs + 1):
        batches = (
            build_batch(notes, *one, encoder, settings.unknown_share, draw)
            for one in list(plan_batches(sequences, settings.batch, draw))
        )
        losses = [optimizer.step(batch) for batch in batches]
        current = optimizer.current_weights()
        score = score_network(Network.from_weights(settings.dimensions, encoder, current, labels), tests)
        epochs.append({"loss": round(sum(losses) / len(losses), 4), "held_out_f1": round(score, 4)})
        progress(epoch, settings.epochs)
        if score > best_score:
            best, best_score = current, score
        elif epoch - _best_epoch(epochs) >= settings.patience:
            break
    card = {"epochs": epochs, "learned_notes": len(rest), "held_out_notes": len(held)}
    return NetworkModel(name, Schema.IO, Network.from_weights(settings.dimensions, encoder, best, labels), card)


def _best_epoch(epochs: Sequence[dict[str, float]]) -> int:
    return 1 + max(range(len(epochs)), key=lambda at: (epochs[at]["held_out_f1"], -at))


def _hold_out(patients: Sequence[str], share: float) -> frozenset[str]:
    """About ``share`` of the patients, at least one."""
    draws = {patient: draw_share("hold", patient) for patient in patients}
    return frozenset(p for p in patients if draws[p] < share) or frozenset(sorted(patients, key=lambda p: draws[p])[:1])


def score_network(network: Network, notes: Sequence[EncodedNote]) -> float:
    """F1 of tokens with a label other than outside, from 0 to 1; a token is right if its label is."""
    right = found = wanted = 0
    names = np.array(network.crf.labels)
    outside = network.crf.labels.index(OUTSIDE)
    for note in notes:
        emissions = network.emissions(note.tokens, note.sizes)
        best = np.array(network.crf.decode_sequences(emissions, note.sizes))
        gold = names[note.labels]
        right += int(((best == gold) & (note.labels != outside)).sum())
        found += int((best != OUTSIDE).sum())
        wanted += int((note.labels != outside).sum())
    return 2 * right / max(1, found + wanted)


class NetworkOptimizer:
    """Adam with a learning rate that falls along a cosine, and clipped gradients (Kingma and Ba 2015)."""

    def __init__(self, weights: Mapping[str, Floats], settings: NetworkSettings, steps: int) -> None:
        self._weights: Weights = {name: jnp.asarray(one) for name, one in weights.items()}
        rate = optax.cosine_decay_schedule(settings.rate, max(1, steps), alpha=_FINAL_RATE)
        self._rule = optax.chain(optax.clip_by_global_norm(settings.clip), optax.adam(rate))
        self._state = self._rule.init(self._weights)
        self._key = jax.random.key(settings.seed)
        self._compiled: Callable[..., Any] = jax.jit(partial(self._update, settings=settings), donate_argnums=(0, 1))

    def step(self, batch: TrainingBatch) -> float:
        """Update the weights once. Returns the loss before the update."""
        self._weights, self._state, self._key, loss = self._compiled(self._weights, self._state, self._key, batch)
        return float(loss)

    def current_weights(self) -> dict[str, Floats]:
        """The weights as NumPy arrays, named as by ``Dimensions.weight_shapes``."""
        return {name: np.array(one, np.float32) for name, one in self._weights.items()}

    def _update(
        self, weights: Weights, state: Any, key: Array, batch: TrainingBatch, *, settings: NetworkSettings
    ) -> Any:
        own, following = jax.random.split(key)
        loss, gradient = jax.value_and_grad(network_loss)(weights, batch, settings.dimensions, settings.dropout, own)
        if not settings.transitions:
            gradient["transitions"] = jnp.zeros_like(gradient["transitions"])
        changes, state = self._rule.update(gradient, state, weights)
        return optax.apply_updates(weights, changes), state, following, loss


def initial_weights(
    dimensions: Dimensions, table_sizes: tuple[int, int, int], labels: int, seed: int
) -> dict[str, Floats]:
    """Random weights by name: matrices as in Glorot and Bengio 2010, small embedding tables, zero biases."""
    draw = np.random.default_rng(seed)
    made: dict[str, Floats] = {}
    for name, shape in dimensions.weight_shapes(table_sizes, labels).items():
        if len(shape) == 1 or name == "transitions":
            made[name] = np.zeros(shape, np.float32)
        elif name in {"words", "values"}:
            made[name] = draw.normal(0, 0.1, shape).astype(np.float32)
        elif name == "characters":
            made[name] = draw.normal(0, 0.5, shape).astype(np.float32)
        else:
            bound = np.sqrt(6 / (shape[0] + shape[1] / (3 if name[-2:] in {"-w", "-u"} and "ward" in name else 1)))
            made[name] = draw.uniform(-bound, bound, shape).astype(np.float32)
    return made


def network_loss(weights: Weights, batch: TrainingBatch, dimensions: Dimensions, dropout: float, key: Array) -> Array:
    """The negative log-likelihood of the gold labels, in nats for each token (Dernoncourt 2016 section 2.2.4)."""
    scores, moves = network_scores(weights, batch, dimensions, dropout, key), weights["transitions"]
    gold = jnp.take_along_axis(scores, batch.labels[:, :, None], axis=2)[:, :, 0] * batch.mask
    steps = moves[batch.labels[:, :-1], batch.labels[:, 1:]] * batch.mask[:, 1:]
    partition = log_partitions(scores, moves, batch.mask)
    return (partition.sum() - gold.sum() - steps.sum()) / batch.mask.sum()


def log_partitions(scores: Array, moves: Array, mask: Array) -> Array:
    """The logarithm of the sum over all label sequences of each sequence, ``[sequence]``."""
    top = jax.lax.stop_gradient(moves.max())
    over = jnp.exp(moves - top)

    def step(total: Array, inputs: Any) -> tuple[Array, None]:
        score, present = inputs
        most = jax.lax.stop_gradient(total.max(axis=1, keepdims=True))
        new = jnp.log(jnp.exp(total - most) @ over + 1e-30) + most + top + score
        return jnp.where(present[:, None] > 0, new, total), None

    by_step = scores.swapaxes(0, 1)
    total, _ = jax.lax.scan(step, by_step[0], (by_step[1:], mask.T[1:]))
    return jax.nn.logsumexp(total, axis=1) * mask[:, 0]


def network_scores(weights: Weights, batch: TrainingBatch, dimensions: Dimensions, dropout: float, key: Array) -> Array:
    """The score of each label for each token, ``[sequence, token, label]``. With ``dropout`` 0 as when serving."""
    parts = []
    if dimensions.token:
        parts.append(weights["words"][batch.learned] + batch.published)
    if dimensions.character:
        inputs = weights["characters"][batch.characters].swapaxes(0, 1)
        present = jnp.asarray(batch.characters > 0, jnp.float32).T[:, :, None]
        parts.append(jnp.concatenate(_run_layer("spelling", weights, inputs, present)[1], axis=1))
    wide = batch.word_index.shape[:2]
    joined = jnp.concatenate(parts, axis=1)[batch.word_index] if parts else jnp.zeros((*wide, 0), jnp.float32)
    if dimensions.feature:
        joined = jnp.concatenate([joined, weights["values"][batch.features].sum(axis=2)], axis=2)
    if dropout:
        joined *= jax.random.bernoulli(key, 1 - dropout, joined.shape) / (1 - dropout)
    states, _ = _run_layer("sequence", weights, joined.swapaxes(0, 1), batch.mask.T[:, :, None])
    both = jnp.concatenate(states, axis=2).swapaxes(0, 1)
    hidden = jnp.tanh(both @ weights["hidden-w"] + weights["hidden-b"])
    return hidden @ weights["scores-w"] + weights["scores-b"]


def _run_layer(name: str, weights: Weights, inputs: Array, mask: Array) -> tuple[list[Array], list[Array]]:
    """A bidirectional layer over ``inputs`` ``[step, row, wide]``; steps with mask 0 keep the state.

    Returns the states ``[step, row, out]`` and the last states ``[row, out]`` of both directions.
    """
    w, u, b = ({side: weights[f"{name}-{side}-{part}"] for side in SIDES} for part in ("w", "u", "b"))
    out = u[SIDES[0]].shape[0]
    driven = [inputs @ w[side] + b[side] for side in SIDES]
    driven[1], masks = driven[1][::-1], (mask, mask[::-1])
    zero = jnp.zeros((inputs.shape[1], out), jnp.float32)

    def advance(side: str, state: Array, cell: Array, step: Array, present: Array) -> tuple[Array, Array]:
        gates = step + state @ u[side]
        opened = jax.nn.sigmoid(gates[:, : 2 * out])
        new_cell = cell + opened[:, :out] * (jnp.tanh(gates[:, 2 * out :]) - cell)
        new_state = opened[:, out:] * jnp.tanh(new_cell)
        return state + present * (new_state - state), cell + present * (new_cell - cell)

    def both(carry: Any, step: Any) -> Any:
        (state_f, cell_f), (state_b, cell_b) = carry
        left = advance(SIDES[0], state_f, cell_f, step[0], step[2])
        right = advance(SIDES[1], state_b, cell_b, step[1], step[3])
        return (left, right), (left[0], right[0])

    ends, (left, right) = jax.lax.scan(both, ((zero, zero), (zero, zero)), (*driven, *masks))
    return [left, right[::-1]], [ends[0][0], ends[1][0]]
