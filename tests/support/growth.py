"""How the work of a function grows with its input, as a ratio of CPU times of one run."""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_SHORTEST_S = 0.004
"""Shorter times are noise and count as this."""
_ROUNDS = 3


def growth(work: Callable[[T], object], small: T, large: T) -> float:
    """CPU time of ``work(large)`` by that of ``work(small)``, each the least of three, in turns.

    The garbage collector is off: in a process that ran many tests it reads millions of objects.
    """
    least = [float("inf"), float("inf")]
    gc.collect()
    gc.disable()
    try:
        for _ in range(_ROUNDS):
            for which, argument in enumerate((small, large)):
                begin = time.process_time()
                work(argument)
                least[which] = min(least[which], time.process_time() - begin)
    finally:
        gc.enable()
    return max(least[1], _SHORTEST_S) / max(least[0], _SHORTEST_S)
