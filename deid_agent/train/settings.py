"""How a network is trained: its layers, its schedule, and the switches of the paper's ablations."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from deid_agent.neural.network import Dimensions


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The paper's network where nothing else is said (Dernoncourt 2016 section 3.3).

    ``columns`` are read beside words and characters; ``frozen`` says whether word vectors are there before training,
    ``transitions`` whether labels depend on each other; ``fraction`` is the share of patients that is learned from,
    ``held`` the share of those that says when to stop, ``patience`` after how many epochs without a better score.
    ``unknown`` is the share of words read without their learned vector; ``batch`` is in tokens; ``word`` and ``value``
    are how often one must stand to have a row of its own.
    """

    dimensions: Dimensions = field(default_factory=Dimensions)
    columns: tuple[str, ...] = ()
    frozen: bool = True
    transitions: bool = True
    epochs: int = 14
    rate: float = 3e-3
    batch: int = 2048
    dropout: float = 0.5
    clip: float = 5.0
    patience: int = 4
    held: float = 0.1
    fraction: float = 1.0
    unknown: float = 0.2
    word: int = 4
    value: int = 5
    seed: int = 2016


class Without(StrEnum):
    """What the paper's ablation leaves out (section 3.7, figure 4)."""

    CHARACTERS = "characters"
    TOKENS = "tokens"
    PRETRAINING = "pre-training"
    TRANSITIONS = "transitions"

    def of(self, settings: NetworkSettings) -> NetworkSettings:
        """The settings without it."""
        match self:
            case Without.CHARACTERS:
                return replace(settings, dimensions=replace(settings.dimensions, character=0))
            case Without.TOKENS:
                return replace(settings, dimensions=replace(settings.dimensions, token=0), frozen=False)
            case Without.PRETRAINING:
                return replace(settings, frozen=False)
            case Without.TRANSITIONS:
                return replace(settings, transitions=False)
