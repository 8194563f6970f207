"""Where the outputs of ``deid-agent batch`` may be: never in an input, and never in a table of others."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from deid_agent.batch import DELTA_LOG, ICEBERG_METADATA, MANIFEST, InputFile, OutputFormat, is_same_place
from deid_agent.model import ConfigurationError


def check_folder(paths: Iterable[Path], out: Path) -> None:
    """Raises ``ConfigurationError`` if OUT is a file, an input, or if one is inside the other."""
    if out.exists() and not out.is_dir():
        raise ConfigurationError("OUT is a file: name a folder")
    folder = out.resolve()
    for path in paths:
        whole = path.resolve()
        if whole == folder or whole in folder.parents or folder in whole.parents or is_same_place(path, out):
            raise ConfigurationError("OUT is an input, or one is inside the other: name another folder")


def check_table_folder(paths: Iterable[Path], sources: Sequence[InputFile], out: Path, format_: OutputFormat) -> None:
    """As ``check_folder``, also for the places of tables: old versions of an input keep the originals.

    Raises ``ConfigurationError`` if OUT has a table that no run has made.
    """
    roots = {Path(source.layout.root) for source in sources if source.layout is not None}
    check_folder([*paths, *sorted(roots)], out)
    # A table may name data files elsewhere.
    if any(out.resolve() in source.path.resolve().parents for source in sources):
        raise ConfigurationError("OUT has data files of an input: name another folder")
    own = {OutputFormat.DELTA: DELTA_LOG, OutputFormat.ICEBERG: ICEBERG_METADATA}.get(format_)
    for name in (DELTA_LOG, ICEBERG_METADATA):
        if (out / name).exists() and not (name == own and (out / MANIFEST).exists()):
            raise ConfigurationError(f"OUT has {name}, the log of a table that this run does not write: name another")
