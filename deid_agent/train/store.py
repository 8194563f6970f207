"""Models into their folder: whole or not at all."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deid_agent import resources
from deid_agent.crf import bundle as bundles
from deid_agent.crf.bundle import Bundle
from deid_agent.errors import UnsafeError
from deid_agent.neural import bundle as networks
from deid_agent.neural import vectors
from deid_agent.neural.bundle import NetworkBundle
from deid_agent.recognize import svm
from deid_agent.recognize.svm import Machines
from deid_agent.train.card import page

Trained = Bundle | Machines | NetworkBundle
"""What training makes: a chain, the machines of a filter, or a network."""


class Store:
    """Where models go: written beside their place first, then renamed into it."""

    def __init__(self, folder: Path, aside: Path) -> None:
        self._folder, self._aside = folder, aside

    def save(self, models: Sequence[Trained], card: Mapping[str, object]) -> list[Path]:
        """``.npz``, ``.json`` and ``.md`` of each; gives the manifests' paths. Word vectors of a network come too.

        The arrays change places first: who reads in between sees a digest that does not fit, never half a model.
        Raises ``UnsafeError`` where the disk is full; then no model of the folder has changed.
        """
        with _told(self._folder):
            for model in models:
                _write(model, card, self._aside)
                manifest = json.loads((self._aside / f"{model.name}.json").read_text("utf-8"))
                (self._aside / f"{model.name}.md").write_text(page(manifest), "utf-8")
            needed = any(isinstance(m, NetworkBundle) and m.network.inputs.vectors is not None for m in models)
            beside = self._vectors() if needed else []
            for name in (*beside, *(f"{model.name}.{ending}" for model in models for ending in ("npz", "json", "md"))):
                (self._aside / name).replace(self._folder / name)
        return [self._folder / f"{model.name}.json" for model in models]

    def _vectors(self) -> list[str]:
        """The files of the vectors, copied from our own models where the folder is another one."""
        own = resources.folder("models")
        if own.resolve() == self._folder.resolve():
            return []
        names = [f"{vectors.NAME}.{ending}" for ending in ("npz", "json")]
        for name in names:
            shutil.copyfile(own / name, self._aside / name)
        return names


def _write(model: Trained, card: Mapping[str, object], folder: Path) -> None:
    match model:
        case Bundle():
            bundles.save(replace(model, card=card), folder)
        case Machines():
            svm.save(replace(model, card={**model.card, **card}), folder)
        case NetworkBundle():
            networks.save(replace(model, card={**model.card, **card}), folder)


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """The store of ``folder``, which is made where it is missing.

    Raises ``UnsafeError`` where nothing can be written there: better before a training than behind it.
    """
    with _told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".train-", dir=folder))
    try:
        yield Store(folder, aside)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        why = fault.strerror or type(fault).__name__
        raise UnsafeError(
            f"{folder}: {why}: no model was changed; make room, or name another folder with --out"
        ) from None
