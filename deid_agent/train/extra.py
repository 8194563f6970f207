"""The libraries that training alone needs: the extras of the package for it. Serving imports none of them."""

from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from types import MappingProxyType

from deid_agent.errors import ConfigurationError


class Extra(StrEnum):
    """What ``pip install 'deid-agent[...]'`` may name."""

    TRAIN = "train"
    NEURAL = "train-neural"


_MODULES: Mapping[Extra, Mapping[str, str]] = MappingProxyType(
    {
        Extra.TRAIN: {"pycrfsuite": "sklearn-crfsuite", "sklearn": "scikit-learn", "scipy": "scikit-learn"},
        Extra.NEURAL: {"jax": "jax", "optax": "optax"},
    }
)
"""What is imported, and what brings it."""


def require(extra: Extra = Extra.TRAIN) -> None:
    """Raises ``ConfigurationError`` that says how to install what is missing: before a training, not in its middle."""
    missing = sorted({package for module, package in _MODULES[extra].items() if find_spec(module) is None})
    if missing:
        raise ConfigurationError(
            f"training needs {' and '.join(missing)}, which a plain installation leaves out: "
            f"run pip install 'deid-agent[{extra}]' (in a checkout: pip install -e '.[{extra}]'), then train again"
        )
