"""Training of a CRF: L-BFGS with L1 and L2 penalties by the crfsuite library; the weights are copied into arrays.

Source: Okazaki 2007 (CRFsuite). Its Python package sklearn-crfsuite is imported only when training starts.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deid_agent.model import UnsafeError
from deid_agent.nlp import Crf, FeatureExtractor, Ints, build_crf, weight_groups

Progress = Callable[[int, int], None]
"""Called after each iteration with the number of finished iterations and the greatest possible number."""
_BIAS = "b"


@dataclass(frozen=True, slots=True)
class CrfSettings:
    """The L1 and L2 penalties, the most iterations, and the fewest occurrences of a feature with a weight.

    ``fraction`` is the share of the patients that is used.
    """

    l1: float = 0.1
    l2: float = 0.05
    iterations: int = 80
    least: int = 2
    fraction: float = 1.0


def ignore_progress(_done: int, _total: int) -> None:
    """A ``Progress`` that does nothing."""


def train_crf(
    extractor: FeatureExtractor,
    chains: Iterable[tuple[Sequence[Ints], Sequence[str]]],
    settings: CrfSettings,
    progress: Progress = ignore_progress,
) -> Crf:
    """The CRF that fits ``chains`` best. The same chains in the same order give the same CRF.

    A chain has one array of numbers ``[unit]`` for each template, and one label for each unit. Raises ``UnsafeError``
    if the folder for temporary files cannot hold the model.
    """
    import pycrfsuite  # noqa: PLC0415 - only training needs it

    class Trainer(pycrfsuite.Trainer):  # type: ignore[misc]  # untyped library
        def message(self, message: str) -> None:
            """Report finished iterations. The library's log messages are not printed."""
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
    groups = weight_groups(extractor.templates)
    for numbers, labels in chains:
        trainer.append(_name_features(numbers, groups), list(labels))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain"
        trainer.train(str(path))
        return _read_weights(extractor, path)


def _name_features(numbers: Sequence[Ints], groups: Sequence[int]) -> list[list[str]]:
    """For each unit the names of its features, as crfsuite needs them."""
    names = [[f"{t}:{n}" if n else "" for n in values.tolist()] for t, values in zip(groups, numbers, strict=True)]
    return [[_BIAS, *filter(None, unit)] for unit in zip(*names, strict=True)]


def _read_weights(extractor: FeatureExtractor, path: Path) -> Crf:
    import pycrfsuite  # noqa: PLC0415

    tagger = pycrfsuite.Tagger()
    try:
        opened = tagger.open(str(path))
    except (ValueError, OSError):  # the library reports nothing if the disk was full when it wrote the file
        raise UnsafeError(
            f"{path.parent.parent}: cannot hold the trained model: free space, or set TMPDIR to another folder"
        ) from None
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
    return build_crf(extractor, labels, states, bias, info.transitions)
