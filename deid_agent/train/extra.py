"""The libraries that training alone needs: the extra ``train`` of the package. Serving imports none of them."""

from importlib.util import find_spec

from deid_agent.errors import ConfigurationError

_MODULES = {"pycrfsuite": "sklearn-crfsuite", "sklearn": "scikit-learn", "scipy": "scikit-learn"}
"""What is imported, and what brings it."""


def require() -> None:
    """Raises ``ConfigurationError`` that says how to install what is missing: before a training, not in its middle."""
    missing = sorted({package for module, package in _MODULES.items() if find_spec(module) is None})
    if missing:
        raise ConfigurationError(
            f"training needs {' and '.join(missing)}, which a plain installation leaves out: "
            "run pip install 'deid-agent[train]' (in a checkout: pip install -e '.[train]'), then train again"
        )
