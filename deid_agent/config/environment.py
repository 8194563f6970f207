"""The environment: names of settings and ``DEID_`` variables, and the threads of BLAS. Imports no pydantic.

An unknown variable is an error: a mistyped ``DEID_POLCY`` that silently runs the default policy would leak.
"""

import os
import re
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Final

from deid_agent.model import ConfigurationError

PREFIX: Final = "DEID_"

TOP_LEVEL: Final = frozenset(
    {
        "transport",
        "output",
        "policy",
        "profile",
        "budget",
        "drift",
        "system",
        "key_file",
        "keys",
        "projects",
        "crosswalks",
        "routes",
        "labels",
        "provenance",
        "provenance_topic",
        "sha256_pseudonyms",
        "anonymize_k",
        "allow_demo_key",
        "allow_rekey",
        "age_date",
        "on_restricted_zip",
        "shape",
        "rules",
        "models",
        "scope_table",
        "log_level",
        "agent",
        "dead_letters",
        "kafka",
        "directory",
        "envelopes",
        "mllp",
        "mllp_out",
        "service",
        "registry",
        "audit",
        "http",
        "jobs",
    }
)
"""The plain settings and the sections; a test compares them with ``Settings``."""

RENAMED: Final[Mapping[str, str]] = {"directory.settle_s": "directory.stable_s"}
"""Old dotted names of settings with their new ones; using an old one is an error that names the new one."""

_OTHER_VARIABLES = frozenset(
    {"DEID_KEY", "DEID_SHARED", "DEID_REQUIRE_BROKER", "DEID_REQUIRE_BROWSER", "DEID_REQUIRE_ENGINES"}
)


def variable_name(setting: str) -> str:
    """The environment variable of a dotted setting name: ``DEID_AGENT__WORKERS`` for ``agent.workers``."""
    return PREFIX + setting.upper().replace(".", "__")


def refuse_unknown_variables(environ: Mapping[str, str] = os.environ) -> None:
    """Raise ``ConfigurationError`` if the environment has a ``DEID_`` variable that is renamed or unknown."""
    known = {variable_name(name) for name in TOP_LEVEL} | _OTHER_VARIABLES
    renamed = {variable_name(old): variable_name(new) for old, new in RENAMED.items()}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable.startswith("DEID_TEST_"):
            continue
        if variable in renamed:
            raise ConfigurationError(f"environment variable {variable}: renamed; set {renamed[variable]} instead")
        if variable.split("__")[0] not in known:
            raise ConfigurationError(f"environment variable {variable}: unknown setting; unset it or correct its name")


def variable_at(
    place: Sequence[str | int], values: Mapping[str, object], environ: Mapping[str, str] = os.environ
) -> str | None:
    """The variable that gave the value at ``place``, the path of a setting; None if no variable did.

    ``values`` are the nested settings that the environment gives. A variable may hold a whole section as JSON, so the
    longest name that is set counts. Upper and lower case are the same, as they are to pydantic-settings.
    """
    value: object = values
    for part in place:
        if not isinstance(value, Mapping):
            break
        if part not in value:
            return None
        value = value[part]
    names = {name.upper(): name for name in environ}
    paths = (".".join(map(str, place[:length])) for length in range(len(place), 0, -1))
    return next((names[name] for path in paths if (name := variable_name(path)) in names), None)


def variables_below(place: Sequence[str | int], environ: Mapping[str, str] = os.environ) -> list[str]:
    """The variables that set anything in the section at ``place``, by name; all settings for the empty place."""
    start = variable_name("".join(f"{part}." for part in place))
    return sorted(name for name in environ if name.upper().startswith(start) and name not in _OTHER_VARIABLES)


_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def limit_blas_threads(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set the BLAS libraries to one thread, unless the environment sets a number of threads.

    The matrices of a message are small: more threads cost up to three times the CPU and save no time. BLAS libraries
    read the variables when numpy is imported, so call this before. Child processes inherit them.
    """
    if not any(variable in environ for variable in _THREAD_VARIABLES):
        environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))


_OPENBLAS = re.compile(r"(/\S*openblas\S*)$", re.MULTILINE)
_SET_THREADS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")


def limit_loaded_blas(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set OpenBLAS to one thread in a process of an engine, unless ``OPENBLAS_NUM_THREADS`` is set.

    Engines import numpy before our code runs, and set ``OMP_NUM_THREADS`` to the number of cores.
    """
    if "OPENBLAS_NUM_THREADS" in environ:
        return
    environ["OPENBLAS_NUM_THREADS"] = "1"
    import ctypes  # noqa: PLC0415 - commands start without it

    for path in set(_OPENBLAS.findall(Path("/proc/self/maps").read_text("utf-8", "replace"))):
        library = ctypes.CDLL(path)
        for name in _SET_THREADS:
            if hasattr(library, name):
                getattr(library, name)(1)
