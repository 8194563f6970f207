"""Word lists of ``rules/lexicon``: one term a line, checked once.

A list is a file ``<name>.txt``; ``#`` at the start or after a blank starts a comment. Terms are compared in
lower case, so they are kept in lower case. Rules name a list to say where a
name ends; known PHI uses one to tell a name from a word.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from deid_agent.errors import ConfigurationError

Lexicon = frozenset[str]

_COMMENT = re.compile(r"(?:^|\s)#.*")


def load(rules: Path) -> Mapping[str, Lexicon]:
    """Every list under ``rules/lexicon`` by file stem.

    Raises ``ConfigurationError`` naming file and line for a term twice in a list,
    an empty list or bytes that are not UTF-8.
    """
    folder = rules / "lexicon"
    return MappingProxyType({path.stem: _read(path) for path in sorted(folder.glob("*.txt"))})


def _read(path: Path) -> Lexicon:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigurationError(f"{path}: cannot be read as UTF-8 ({type(fault).__name__})") from None
    terms: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        term = _COMMENT.sub("", line).strip().lower()
        if not term:
            continue
        if term in terms:
            raise ConfigurationError(f"{path}:{number}: the term stands twice: remove one")
        terms.add(term)
    if not terms:
        raise ConfigurationError(f"{path}: the list is empty: add a term or remove the file")
    return frozenset(terms)
