"""The ``rules/`` and ``models/`` folders, and their files read as checked values: TOML, word lists, word senses.

A word list of ``rules/lexicon`` is a file ``<name>.txt`` with one term per line. ``#`` at the start or after a blank
begins a comment. Terms are kept and compared in lower case. Rules use a list to find the end of a name, and known PHI
uses lists to distinguish names from words.
"""

import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from itertools import repeat
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from deid_agent.model import ConfigurationError

T = TypeVar("T")

_PACKAGE = Path(__file__).resolve().parents[1]
_ADVICE = {
    "missing": "is missing: add it",
    "string_type": "must be a string",
    "string_too_short": "is empty: fill it in",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "too_short": "is empty: give at least one",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
}


def data_folder(name: str, given: str | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder ``rules`` or ``models``: ``given``, else ``$DEID_RULES`` or ``$DEID_MODELS``, else the packaged one.

    The wheel has both folders in the package; in a checkout they are beside the package. Raises ``ConfigurationError``
    if the chosen folder does not exist: a wrong choice never falls back to the packaged folder.
    """
    variable = f"DEID_{name.upper()}"
    chosen = given or environ.get(variable)
    if chosen:
        path = Path(chosen)
        if not path.is_dir():
            raise ConfigurationError(f"{name} folder {chosen}: no such folder; correct the setting or ${variable}")
        return path
    for path in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if path.is_dir():
            return path
    raise ConfigurationError(f"{name} folder: none in the package; reinstall, or set ${variable}")


def digest_folder(root: Path) -> str:
    """SHA-256 (hex) over the names and contents of all files below ``root``, hidden files excluded.

    The digest identifies a rule set. Raises ``ConfigurationError`` with the name of a file that cannot be read.
    """
    total = hashlib.sha256()
    try:
        for path in sorted(p for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")):
            data = path.read_bytes()
            total.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
            total.update(data)
    except OSError as problem:
        raise ConfigurationError(f"{problem.filename}: cannot be read ({type(problem).__name__})") from None
    return total.hexdigest()


READ_BY_MODELS = ("patterns", "vetoes", "measures", "lexicon", "dictionary", "fragments.toml", "senses.txt")
"""The parts of the rules folder from which the features of models come."""


def digest_features(rules: Path) -> str:
    """SHA-256 (hex) over the files of ``rules`` that models read, as in ``digest_folder``.

    A model was trained with the rules of this tree if its card has this digest.
    """
    total = hashlib.sha256()
    for name in READ_BY_MODELS:
        part = rules / name
        digest = digest_folder(part) if part.is_dir() else hashlib.sha256(part.read_bytes()).hexdigest()
        total.update(f"{name}\0{digest}\0".encode())
    return total.hexdigest()


def load_toml(path: Path) -> dict[str, object]:
    """The content of a TOML file. Raises ``ConfigurationError`` with the file if it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{path}: cannot be read ({type(problem).__name__})") from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigurationError(f"{path}: is not TOML: {problem}") from None


def read_toml(path: Path, schema: TypeAdapter[T]) -> T:
    """The content of a TOML file, checked against ``schema``.

    Raises ``ConfigurationError`` with the file, the key and advice if the file cannot be read, is not TOML or does not
    fit the schema.
    """
    raw = load_toml(path)
    try:
        return schema.validate_python(raw)
    except ValidationError as problem:
        raise ConfigurationError(f"{path}: {describe_validation(problem)}") from None


def describe_validation(problem: ValidationError) -> str:
    """The first error of a validation in one line: the key, and the remedy."""
    first = problem.errors(include_url=False, include_context=True)[0]
    kind, key = first["type"], ".".join(str(part) for part in first["loc"])
    if kind == "extra_forbidden":
        return f"unknown key {key}: correct or remove it"
    if kind == "enum":
        return f"{key}: must be one of {first['ctx']['expected']}"
    if kind == "value_error":
        return f"{key}: {first['ctx']['error']}"
    return f"{key}: {_ADVICE.get(kind) or first['msg']}"


Lexicon = frozenset[str]

_COMMENT = re.compile(r"(?:^|\s)#.*")


def load_lexicons(rules: Path) -> Mapping[str, Lexicon]:
    """Every list of folder ``lexicon`` in ``rules`` by file stem.

    Raises ``ConfigurationError`` with the file and line for a repeated term, an empty list or bytes that are not UTF-8.
    """
    folder = rules / "lexicon"
    return MappingProxyType({path.stem: _read_lexicon(path) for path in sorted(folder.glob("*.txt"))})


def read_lines(path: Path) -> list[str]:
    """The lines of a list. Raises ``ConfigurationError`` if the file cannot be read or is not UTF-8."""
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{path}: cannot be read as UTF-8 ({type(problem).__name__})") from None


def _read_lexicon(path: Path) -> Lexicon:
    terms: set[str] = set()
    for number, line in enumerate(read_lines(path), 1):
        term = (_COMMENT.sub("", line) if "#" in line else line).strip().lower()
        if not term:
            continue
        if term in terms:
            raise ConfigurationError(f"{path}:{number}: the term occurs twice: remove one")
        terms.add(term)
    if not terms:
        raise ConfigurationError(f"{path}: the list is empty: add a term or remove the file")
    return frozenset(terms)


# Word senses: words with a similar use, so that a model can generalize from one to the others. They replace the Brown
# clusters of Liu 2015 section 3.2.2. A line is ``field/group/sense word word ...``; a group combines senses and a field
# combines groups.

Sense = tuple[str, str, str]
"""The field, group and sense of a word."""
NO_SENSE: Sense = ("", "", "")

_LINE_HEAD = re.compile(r"\d+/\d+/\d+")


def load_senses(rules: Path) -> Mapping[str, Sense]:
    """The sense of each word, by the word in lower case.

    Raises ``ConfigurationError`` with the file and line for a line in another form or a repeated word.
    """
    path = rules / "senses.txt"
    found: dict[str, Sense] = {}
    words = 0
    for number, line in enumerate(read_lines(path), 1):
        if line.startswith("#"):
            continue
        head, *members = line.split() or [""]
        # The join is the line if single blanks separate the words.
        if not members or not _LINE_HEAD.fullmatch(head) or " ".join((head, *members)) != line:
            raise ConfigurationError(f"{path}:{number}: write field/group/sense and words, such as 1/2/3 word word")
        field, group, sense = head.split("/")
        found.update(zip(members, repeat((field, group, sense))))
        words += len(members)
        if len(found) < words:
            raise ConfigurationError(f"{path}:{number}: a word of this line occurs twice in the file: remove one")
    return found
