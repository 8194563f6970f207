"""Options of ``deid-agent train`` that change how a component is trained."""

from dataclasses import dataclass, replace

from deid_agent.model import ConfigurationError
from deid_agent.train import (
    Adaptation,
    CrfAdaptation,
    CrfSettings,
    FilterSettings,
    NetworkAblation,
    NetworkAdaptation,
    NetworkSettings,
    Recipe,
)


def refuse_with_base(*options: object) -> None:
    """Raise ``ConfigurationError`` if one of ``options``, which a warm start does not have, was given."""
    if any(option is not None and option is not False and option != () for option in options):
        raise ConfigurationError(
            "--from excludes --hold-out, --cross-validate, --per-type, --without, --augment and --fraction"
        )


def adaptation(iterations: int | None, epochs: int | None, seed: int | None) -> Adaptation:
    """The settings of a warm start with the options of the call."""
    crf, network = CrfAdaptation(), NetworkAdaptation()
    if iterations is not None:
        crf = replace(crf, iterations=iterations)
    if epochs is not None:
        network = replace(network, epochs=epochs)
    return Adaptation(crf, network if seed is None else replace(network, seed=seed))


@dataclass(frozen=True, slots=True)
class Changes:
    """The options of the call that change a recipe; None keeps the value of the recipe."""

    augment: int | None
    iterations: int | None
    epochs: int | None
    fraction: float | None
    without: tuple[NetworkAblation, ...]
    seed: int | None

    def of(self, one: Recipe) -> Recipe:
        if self.augment is not None:
            one = replace(one, augment=self.augment)
        match one.settings:
            case CrfSettings():
                return replace(one, settings=self._crf(one.settings))
            case FilterSettings() if self.fraction is not None:
                return replace(one, settings=replace(one.settings, fraction=self.fraction))
            case NetworkSettings():
                return replace(one, settings=self._network(one.settings))
        return one

    def _crf(self, settings: CrfSettings) -> CrfSettings:
        if self.iterations is not None:
            settings = replace(settings, iterations=self.iterations)
        return settings if self.fraction is None else replace(settings, fraction=self.fraction)

    def _network(self, settings: NetworkSettings) -> NetworkSettings:
        if self.epochs is not None:
            settings = replace(settings, epochs=self.epochs)
        if self.fraction is not None:
            settings = replace(settings, fraction=self.fraction)
        if self.seed is not None:
            settings = replace(settings, seed=self.seed)
        for missing in self.without:
            settings = missing.apply(settings)
        return settings
