"""Sequences of units that are processed together, step by step."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from deid_agent.nlp.token_features import Ints

MAX_CHAIN_UNITS = 2048
"""The units of one chain. A longer text is divided, so that memory is bounded."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """How to process several sequences together, step by step, the longest first.

    ``order`` has the indices of the sequences, ``starts`` the first unit of each in that order, and ``live`` for each
    step how many sequences are longer than it. ``units`` are the units of all steps, one step after another;
    ``units_backward`` are those of the way from the last unit of each sequence to its first.
    """

    order: Ints
    starts: Ints
    live: list[int]
    units: Ints
    units_backward: Ints

    @staticmethod
    def of(sizes: Sequence[int]) -> "Schedule":
        """The schedule of sequences of ``sizes``, which lie one after another; there is at least one."""
        order = np.array(sorted(range(len(sizes)), key=lambda at: -sizes[at]), np.int64)
        lengths = np.asarray(sizes, np.int64)
        starts = (np.cumsum(lengths) - lengths)[order]
        lengths = lengths[order]
        live = np.searchsorted(-lengths, -np.arange(lengths[0]), side="left")
        step = np.repeat(np.arange(len(live)), live)
        place = np.arange(len(step)) - np.repeat(np.cumsum(live) - live, live)
        ends = starts + lengths - 1
        return Schedule(order, starts, live.tolist(), starts[place] + step, ends[place] - step)


def split_sequence(size: int, cuts: Iterable[int] = ()) -> list[int]:
    """The sizes of the chains that ``size`` units are divided into: before each unit of ``cuts``, and if too long."""
    edges = sorted(
        {0, size, *cuts} | {at for a, b in pairwise(sorted({0, size, *cuts})) for at in range(a, b, MAX_CHAIN_UNITS)}
    )
    return [b - a for a, b in pairwise(edges)]
