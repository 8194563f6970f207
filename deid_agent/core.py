"""The compiled core ``deid_agent_core``, if it is installed: the only module that imports it.

A function with ``compiled_by`` is the reference: it defines the result. While the core is in use, calls go to another
function with the same result instead.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

INTERFACE: Final = 3
"""The number of the interface that this package uses. A core with another number is not used."""
WITHOUT_CORE: Final = "python"
"""The name of the implementation without the core."""


class Core(Protocol):
    """The module ``deid_agent_core``. Its README describes the arguments."""

    INTERFACE: int
    NetworkLayers: Callable[..., Any]
    TemplateWeights: Callable[..., Any]
    RuleScanner: Callable[..., Any]
    WordRows: Callable[..., Any]
    TextView: Callable[..., Any]
    FeatureReader: Callable[..., Any]
    WordReader: Callable[..., Any]
    marginals: Callable[..., None]
    best_labels: Callable[..., list[int]]
    decode: Callable[..., list[int]]
    instructions: Callable[[], str]
    use_at_most: Callable[[str], None]


def _load_core() -> tuple[Core | None, str]:
    """The core, or the reason why there is none."""
    try:
        core = cast(Core, import_module("deid_agent_core"))
    except ModuleNotFoundError:
        return None, "deid-agent-core is not installed"
    except ImportError:
        return None, "deid-agent-core cannot be loaded on this system"
    if getattr(core, "INTERFACE", 0) != INTERFACE:
        return None, "deid-agent-core has another version"
    return core, ""


_installed, _reason = _load_core()
_in_use: Core | None = _installed


def core_name() -> str:
    """The implementation in use: ``python``, or the instructions of the core: ``avx512``, ``avx2``, ``portable``."""
    return WITHOUT_CORE if _in_use is None else _in_use.instructions()


def describe_core() -> str:
    """The same, and the reason if no core can be used."""
    return f"{core_name()}: {_reason}" if _reason else core_name()


def is_installed() -> bool:
    """Whether a core with the right interface is installed."""
    return _installed is not None


def is_used() -> bool:
    """Whether the core runs instead of the references."""
    return _in_use is not None


@contextmanager
def without_core() -> Iterator[None]:
    """Run the references instead of the core. For tests and measurements, in one thread."""
    global _in_use  # noqa: PLW0603
    before, _in_use = _in_use, None
    try:
        yield
    finally:
        _in_use = before


@contextmanager
def core_limited_to(instructions: str) -> Iterator[None]:
    """Run the core with these instructions at most: ``avx512``, ``avx2`` or ``portable``. For tests, in one thread."""
    core = current()
    core.use_at_most(instructions)
    try:
        yield
    finally:
        core.use_at_most("avx512")


def compiled_by(compiled: Callable[..., R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a reference. While the core is in use, ``compiled`` runs instead, with the same arguments."""

    def decorate(reference: Callable[P, R]) -> Callable[P, R]:
        @wraps(reference)
        def choose(*args: P.args, **kwargs: P.kwargs) -> R:
            return reference(*args, **kwargs) if _in_use is None else compiled(*args, **kwargs)

        return choose

    return decorate


class Prepared:
    """The object of the core that holds the weights of one model, made on first use. It is not pickled."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: Any = None

    def get(self, make: Callable[[], R]) -> R:
        """The object that ``make`` returned on the first call."""
        if self._made is None:
            self._made = make()
        return cast(R, self._made)

    def __reduce__(self) -> tuple[type["Prepared"], tuple[()]]:
        return Prepared, ()


def current() -> Core:
    """The core in use. Raises ``RuntimeError`` if there is none."""
    if _in_use is None:
        raise RuntimeError("the core is not in use")
    return _in_use
