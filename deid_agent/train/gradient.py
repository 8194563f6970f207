"""The network once more, in JAX: the same scores as ``deid_agent.neural.network``, and how they change with a weight.

Sequences are padded to a length of few, so that few programs are compiled. Imported when a training begins: serving
goes without JAX and optax (extra ``train-neural``).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from deid_agent.neural.network import SIDES, Dimensions
from deid_agent.neural.vectors import Floats
from deid_agent.train.batches import Batch
from deid_agent.train.settings import NetworkSettings

Array = Any  # of JAX
Weights = dict[str, Array]


def start(dimensions: Dimensions, rows: tuple[int, int, int], labels: int, seed: int) -> dict[str, Floats]:
    """Weights before training, the same for the same seed: matrices by Glorot and Bengio 2010, tables small."""
    draw = np.random.default_rng(seed)
    made: dict[str, Floats] = {}
    for name, shape in dimensions.shapes(rows, labels).items():
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


def scores(weights: Weights, batch: Batch, dimensions: Dimensions, dropout: float, key: Array) -> Array:
    """The score of each label for each token, ``[sequence, token, label]``; ``dropout`` 0: as when serving."""
    parts = []
    if dimensions.token:
        parts.append(weights["words"][batch.learned] + batch.frozen)
    if dimensions.character:
        seen = weights["characters"][batch.letters].swapaxes(0, 1)
        told = jnp.asarray(batch.letters > 0, jnp.float32).T[:, :, None]
        parts.append(jnp.concatenate(_walk("spelling", weights, seen, told)[1], axis=1))
    wide = batch.kinds.shape[:2]
    joined = jnp.concatenate(parts, axis=1)[batch.kinds] if parts else jnp.zeros((*wide, 0), jnp.float32)
    if dimensions.column:
        joined = jnp.concatenate([joined, weights["values"][batch.columns].sum(axis=2)], axis=2)
    if dropout:
        joined *= jax.random.bernoulli(key, 1 - dropout, joined.shape) / (1 - dropout)
    states, _ = _walk("sequence", weights, joined.swapaxes(0, 1), batch.mask.T[:, :, None])
    both = jnp.concatenate(states, axis=2).swapaxes(0, 1)
    hidden = jnp.tanh(both @ weights["hidden-w"] + weights["hidden-b"])
    return hidden @ weights["scores-w"] + weights["scores-b"]


def _walk(name: str, weights: Weights, seen: Array, mask: Array) -> tuple[list[Array], list[Array]]:
    """States ``[step, row, out]`` and last states ``[row, out]`` of both sides; what the mask leaves out is passed."""
    w, u, b = ({side: weights[f"{name}-{side}-{part}"] for side in SIDES} for part in ("w", "u", "b"))
    out = u[SIDES[0]].shape[0]
    told = [seen @ w[side] + b[side] for side in SIDES]
    told[1], masks = told[1][::-1], (mask, mask[::-1])
    zero = jnp.zeros((seen.shape[1], out), jnp.float32)

    def one(side: str, state: Array, cell: Array, step: Array, there: Array) -> tuple[Array, Array]:
        gates = step + state @ u[side]
        opened = jax.nn.sigmoid(gates[:, : 2 * out])
        new = cell + opened[:, :out] * (jnp.tanh(gates[:, 2 * out :]) - cell)
        shown = opened[:, out:] * jnp.tanh(new)
        return state + there * (shown - state), cell + there * (new - cell)

    def both(carry: Any, step: Any) -> Any:
        (state_f, cell_f), (state_b, cell_b) = carry
        left = one(SIDES[0], state_f, cell_f, step[0], step[2])
        right = one(SIDES[1], state_b, cell_b, step[1], step[3])
        return (left, right), (left[0], right[0])

    ends, (left, right) = jax.lax.scan(both, ((zero, zero), (zero, zero)), (*told, *masks))
    return [left, right[::-1]], [ends[0][0], ends[1][0]]


def loss(weights: Weights, batch: Batch, dimensions: Dimensions, dropout: float, key: Array) -> Array:
    """What the right labels lack of probability 1, as its logarithm, for each token (Dernoncourt 2016, 2.2.4)."""
    told, moves = scores(weights, batch, dimensions, dropout, key), weights["transitions"]
    right = jnp.take_along_axis(told, batch.labels[:, :, None], axis=2)[:, :, 0] * batch.mask
    steps = moves[batch.labels[:, :-1], batch.labels[:, 1:]] * batch.mask[:, 1:]
    top = jax.lax.stop_gradient(moves.max())
    over = jnp.exp(moves - top)

    def step(total: Array, seen: Any) -> tuple[Array, None]:
        score, there = seen
        most = jax.lax.stop_gradient(total.max(axis=1, keepdims=True))
        new = jnp.log(jnp.exp(total - most) @ over + 1e-30) + most + top + score
        return jnp.where(there[:, None] > 0, new, total), None

    by_step = told.swapaxes(0, 1)
    total, _ = jax.lax.scan(step, by_step[0], (by_step[1:], batch.mask.T[1:]))
    whole = jax.nn.logsumexp(total, axis=1) * batch.mask[:, 0]
    return (whole.sum() - right.sum() - steps.sum()) / batch.mask.sum()


class Descent:
    """Adam over the loss, the rate falling along a cosine, the gradient clipped (Kingma and Ba 2015)."""

    def __init__(self, weights: Mapping[str, Floats], settings: NetworkSettings, steps: int) -> None:
        self.weights: Weights = {name: jnp.asarray(one) for name, one in weights.items()}
        rate = optax.cosine_decay_schedule(settings.rate, max(1, steps), alpha=0.02)
        self._rule = optax.chain(optax.clip_by_global_norm(settings.clip), optax.adam(rate))
        self._state = self._rule.init(self.weights)
        self._key = jax.random.key(settings.seed)
        self._step: Callable[..., Any] = jax.jit(partial(self._moved, settings=settings), donate_argnums=(0, 1))

    def _moved(self, weights: Weights, state: Any, key: Array, batch: Batch, *, settings: NetworkSettings) -> Any:
        own, following = jax.random.split(key)
        value, slope = jax.value_and_grad(loss)(weights, batch, settings.dimensions, settings.dropout, own)
        if not settings.transitions:
            slope["transitions"] = jnp.zeros_like(slope["transitions"])
        moves, state = self._rule.update(slope, state, weights)
        return optax.apply_updates(weights, moves), state, following, value

    def learn(self, batch: Batch) -> float:
        """One step; gives the loss before it."""
        self.weights, self._state, self._key, value = self._step(self.weights, self._state, self._key, batch)
        return float(value)

    def now(self) -> dict[str, Floats]:
        """The weights as arrays."""
        return {name: np.array(one, np.float32) for name, one in self.weights.items()}
