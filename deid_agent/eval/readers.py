"""Any annotated corpus as notes: ours, i2b2 2014 and 2006, brat, JSON lines. The form is detected."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from deid_agent.errors import ConfigurationError
from deid_agent.eval.brat import read_brat
from deid_agent.eval.i2b2 import read_2006, read_2014
from deid_agent.eval.lines import read_lines
from deid_agent.eval.markup import Note, read_corpus, read_file


class Form(StrEnum):
    """The forms that are read."""

    MARKUP = "markup"
    I2B2_2014 = "i2b2-2014"
    I2B2_2006 = "i2b2-2006"
    BRAT = "brat"
    JSONL = "jsonl"


_ENDINGS: Mapping[str, Form] = MappingProxyType(
    {".txt": Form.MARKUP, ".xml": Form.I2B2_2014, ".jsonl": Form.JSONL, ".ndjson": Form.JSONL}
)
_ROOT = re.compile(rb"<([A-Za-z][\w.-]*)")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Notes as they were read. ``remarks`` are doubts that a person should hear of, without text."""

    form: Form
    notes: tuple[Note, ...] = field(repr=False)
    remarks: tuple[str, ...] = ()


def read(path: Path, form: Form | None = None) -> Corpus:
    """The corpus at ``path``, a folder or a file.

    Raises ``ConfigurationError`` naming file and line; also where nobody knows the form, or no note is inside.
    """
    if not path.exists():
        raise ConfigurationError(f"{path}: no such file or folder")
    remarks: list[str] = []
    chosen = form or detect(path)
    try:
        notes = tuple(_READERS[chosen](path, remarks))
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not UTF-8: convert it first") from None
    if not notes:
        raise ConfigurationError(f"{path}: holds no note in the form {chosen}; say another with --format")
    return Corpus(chosen, notes, tuple(remarks))


def detect(path: Path) -> Form:
    """The form by names and first bytes. Raises ``ConfigurationError`` where nothing tells."""
    if path.is_dir():
        if any(path.glob("*.ann")):
            return Form.BRAT
        files = (file for ending in _ENDINGS for file in sorted(path.glob(f"*{ending}")))
        path = next(files, path)
    if path.suffix == ".xml":
        with path.open("rb") as stream:
            root = _ROOT.search(stream.read(4096))
        return Form.I2B2_2006 if root is not None and root[1] == b"ROOT" else Form.I2B2_2014
    if path.suffix in _ENDINGS and path.is_file():
        return _ENDINGS[path.suffix]
    raise ConfigurationError(f"{path}: no known form of corpus; say it with --format ({', '.join(Form)})")


def _files(path: Path, ending: str) -> list[Path]:
    return sorted(path.glob(f"*{ending}")) if path.is_dir() else [path]


def _markup(path: Path, _remarks: list[str]) -> Iterator[Note]:
    return read_corpus(path) if path.is_dir() else read_file(path)


def _2014(path: Path, remarks: list[str]) -> Iterator[Note]:
    return (read_2014(each, remarks) for each in _files(path, ".xml"))


def _2006(path: Path, _remarks: list[str]) -> Iterator[Note]:
    return chain.from_iterable(map(read_2006, _files(path, ".xml")))


def _brat(path: Path, _remarks: list[str]) -> Iterator[Note]:
    return read_brat(path)


def _jsonl(path: Path, _remarks: list[str]) -> Iterator[Note]:
    return chain.from_iterable(map(read_lines, _files(path, ".jsonl")))


_READERS: Mapping[Form, Callable[[Path, list[str]], Iterator[Note]]] = MappingProxyType(
    {
        Form.MARKUP: _markup,
        Form.I2B2_2014: _2014,
        Form.I2B2_2006: _2006,
        Form.BRAT: _brat,
        Form.JSONL: _jsonl,
    }
)
