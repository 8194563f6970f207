"""The inputs of ``text`` and ``message``: files, the files of folders, standard input; and a folder for the outputs."""

import errno
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from deid_agent.cli.common import fault_text, printable
from deid_agent.model import ConfigurationError

_LONGEST_NAME = 255
"""The bytes of a file name on the usual file systems."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input: the relative ``name`` of its output, and its ``label``, the file as the caller names it.

    ``skipped`` is the reason if it is not a file.

    Without a ``path`` it is standard input, or a copy of it that can be read again.
    """

    name: str
    path: Path | None = field(repr=False)
    skipped: str = ""
    label: str = ""
    copy: BinaryIO | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The label as one line."""
        return printable(self.label or self.name)


def list_inputs(sources: Iterable[str]) -> Iterator[Input]:
    """Files, and the files of folders by name. Raises ``ConfigurationError`` for a source that does not exist."""
    for source in sources:
        path = Path(source)
        try:
            if source == "-":
                yield Input("-", None)
            elif path.is_dir():
                yield from _list_folder(path)
            elif path.exists():
                yield Input(path.name, path, label=source)
            else:
                raise ConfigurationError(f"{printable(source)}: no such file or folder; correct the path")
        except OSError as problem:
            raise ConfigurationError(f"{printable(source)}: cannot be read ({fault_text(problem)})") from None


def standard_input() -> BinaryIO:
    """Standard input in bytes. Raises ``OSError`` if the caller closed it."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    return sys.stdin.buffer


def standard_output() -> BinaryIO:
    """Standard output in bytes. Raises ``OSError`` if the caller closed it."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    return sys.stdout.buffer


def _list_folder(folder: Path) -> list[Input]:
    """The entries of a folder by name: files, links to files, and skipped entries. Hidden files are left out."""
    # Imported here: a note on standard input needs no transport.
    from deid_agent.transport.folder import Skipped, walk_files  # noqa: PLC0415

    skipped: dict[bytes, Skipped] = {}
    found = {os.fsdecode(name): "" for name, _ in walk_files(folder, skipped.__setitem__)}
    for raw, why in skipped.items():
        name = os.fsdecode(raw)
        found[name] = "" if why is Skipped.LINK and (folder / name).is_file() else why.value
    return [Input(name, folder / name, found[name]) for name in sorted(found, key=lambda n: Path(n).parts)]


def check_names(inputs: Iterable[Input], out: Path | None) -> None:
    """Raise ``ConfigurationError`` if two outputs have one name, or an output would overwrite an input."""
    if out is None:
        return
    inputs = list(inputs)
    read = {item.path.resolve() for item in inputs if item.path is not None and not item.skipped}
    seen: set[str] = set()
    for item in inputs:
        if item.skipped:
            continue
        if item.name in seen:
            raise ConfigurationError(f"two inputs are named {item.shown}: run them with two --out folders")
        seen.add(item.name)
        if item.path is not None and item.path.resolve() == (out / item.name).resolve():
            raise ConfigurationError(f"--out {out}: would overwrite its own input")
        if (out / item.name).resolve() in read:
            raise ConfigurationError(f"--out {out}: would overwrite another input, {item.shown}; use another folder")


def prepare_folder(out: Path, demo: bool) -> None:
    """Make the folder of the outputs. A file in it names the demonstration key if outputs are made with it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if demo:
            (out / "DEMO-KEY.txt").write_text("Made with the public demonstration key: everyone can reverse it.\n")
    except OSError as problem:
        raise ConfigurationError(f"--out {out}: cannot be written ({fault_text(problem)})") from None


@dataclass(slots=True)
class OutputFile:
    """A file that gets its name when it is complete: a reader of the folder never sees a part of it.

    As a context manager it is removed if the block fails.
    """

    target: Path
    _stream: BinaryIO | None = field(default=None, repr=False)

    def __enter__(self) -> "OutputFile":
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._partial.open("wb")
        return self

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        if self._stream is not None:
            self._stream.write(data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._stream is not None:
                self._stream.close()
            if kind is None:
                self._partial.replace(self.target)
        finally:
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)

    @property
    def _partial(self) -> Path:
        name = os.fsencode(self.target.name)
        if len(name) > _LONGEST_NAME - len("..part"):
            name = hashlib.sha256(name).hexdigest().encode()
        return self.target.with_name(f".{os.fsdecode(name)}.part")
