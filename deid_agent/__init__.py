"""Streaming de-identification of HL7 v2 messages and FHIR resources.

The Python interface is described in ``deid_agent.api``; its names are imported on first use:

    deidentifier = deid_agent.load(key_file="deid.key")
    frame["note"] = [note.text for note in deidentifier.texts(frame["note"])]
"""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deid_agent.api import *  # noqa: F403 - the names that ``__getattr__`` imports on first use

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


_pauses = 0
PAUSES_TO_A_COLLECTION = 8
"""A process that loads again and again collects once in so many pauses: each collection walks all objects."""


@contextmanager
def pause_gc() -> Iterator[None]:
    """Without garbage collection: it would walk what is imported or loaded here again and again as it grows.

    Afterwards the collector leaves these objects out, until the next use gives them back to it. Loads that are no
    longer used are collected in one use of ``PAUSES_TO_A_COLLECTION``: it takes most of a second in a large process.
    """
    global _pauses  # noqa: PLW0603 - of the process, as the collector is
    enabled = gc.isenabled()
    gc.disable()
    gc.unfreeze()
    _pauses += 1
    if _pauses % PAUSES_TO_A_COLLECTION == 0:
        gc.collect()  # a load that is no longer used would otherwise stay for ever
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()


_FUNCTIONS = frozenset({"facts_from_context", "load"})


def __getattr__(name: str) -> object:
    """A name of ``deid_agent.api``, imported on first use (PEP 562)."""
    # ``from deid_agent import core`` asks here first: other names in lower case are submodules, which import no API.
    if name in _FUNCTIONS or name[:1].isupper():
        api = import_module("deid_agent.api")
        if name in api.__all__:
            value: object = getattr(api, name)
            globals()[name] = value  # the next use finds it without this function
            return value
    raise AttributeError(f"module 'deid_agent' has no attribute {name!r}")
