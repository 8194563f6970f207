"""Streaming de-identification of HL7 v2 messages and FHIR resources."""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

__all__ = ["__version__", "lazy_names", "pause_gc"]

__version__ = "0.1.0"


def lazy_names(package: str, names: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """The ``__getattr__`` of ``package``, which imports a name on first use (PEP 562).

    ``names`` lists the names by the module of the package that defines them. Other names are an ``AttributeError``.
    """
    module_of = {name: module for module, defined in names.items() for name in defined}

    def import_name(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next use finds it without this function
        return value

    return import_name


@contextmanager
def pause_gc() -> Iterator[None]:
    """Without garbage collection: it would walk what is imported or loaded here again and again as it grows.

    Afterwards the collector leaves these objects out, until the next use gives them back to it.
    """
    enabled = gc.isenabled()
    gc.disable()
    gc.unfreeze()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()
