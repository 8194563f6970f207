"""Training of a chain: L-BFGS with L1 and L2 by the crfsuite library, the weights taken over into arrays.

Source: Okazaki 2007 (CRFsuite); sklearn-crfsuite is its Python side, imported when a training begins:
serving goes without it.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deid_agent.crf.columns import Ints
from deid_agent.crf.features import Features, groups
from deid_agent.crf.model import Chain, chain
from deid_agent.errors import UnsafeError

Progress = Callable[[int, int], None]
"""Told after each iteration: how many are done, and how many there will be at most."""
_BIAS = "b"


@dataclass(frozen=True, slots=True)
class Settings:
    """Weights of the penalties, the bound on iterations, and how often a feature must stand to count."""

    l1: float = 0.1
    l2: float = 0.05
    iterations: int = 80
    least: int = 2


def silent(_done: int, _total: int) -> None:
    """No progress is shown."""


def fit(
    features: Features,
    examples: Iterable[tuple[Sequence[Ints], Sequence[str]]],
    settings: Settings,
    progress: Progress = silent,
) -> Chain:
    """The chain that fits examples of features and labels best; the same for the same examples in the same order.

    Raises ``UnsafeError`` where the folder for temporary files takes nothing.
    """
    import pycrfsuite  # noqa: PLC0415 - only training needs it

    class Trainer(pycrfsuite.Trainer):  # type: ignore[misc]  # untyped library
        def message(self, message: str) -> None:
            """What the library logs. It prints what it hands on itself, so only iterations are looked for here."""
            if self.logparser.feed(message) == "iteration":
                progress(int(self.logparser.last_iteration["num"]), settings.iterations)

    trainer = Trainer(verbose=False, algorithm="lbfgs")
    trainer.set_params(
        {
            "c1": settings.l1,
            "c2": settings.l2,
            "max_iterations": settings.iterations,
            "feature.minfreq": settings.least,
        }
    )
    shared = groups(features.templates)
    for numbers, labels in examples:
        trainer.append(_items(numbers, shared), list(labels))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain"
        trainer.train(str(path))
        return _read(features, path)


def _items(numbers: Sequence[Ints], shared: Sequence[int]) -> list[list[str]]:
    names = [[f"{t}:{n}" if n else "" for n in column.tolist()] for t, column in zip(shared, numbers, strict=True)]
    return [[_BIAS, *filter(None, token)] for token in zip(*names, strict=True)]


def _read(features: Features, path: Path) -> Chain:
    import pycrfsuite  # noqa: PLC0415

    tagger = pycrfsuite.Tagger()
    try:
        opened = tagger.open(str(path))
    except (ValueError, OSError):  # the library is silent about a disk that was full when it wrote
        raise UnsafeError(f"{path.parent.parent}: takes no trained model: make room, or set TMPDIR") from None
    with opened:
        labels = sorted(tagger.labels())
        info = tagger.info()
    states: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    bias: dict[str, float] = {}
    for (name, label), weight in info.state_features.items():
        if name == _BIAS:
            bias[label] = weight
        else:
            template, _, number = name.partition(":")
            states[int(template), int(number)][label] = weight
    return chain(features, labels, states, bias, info.transitions)
