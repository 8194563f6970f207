"""Counts words of the style guide in comments and docstrings, and finds identifiers outside the vocabulary.

``python tests/support/wording.py [PATH...]`` (from the project's root) prints the rates of each file.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

WORDS = {
    "where": re.compile(r"\bwhere\b", re.IGNORECASE),
    "stand": re.compile(r"\b(?:stand|stands|standing|stood)\b", re.IGNORECASE),
    "tell": re.compile(r"\b(?:tell|tells|telling|told|say|says|saying|said)\b", re.IGNORECASE),
    "what": re.compile(r"\bwhat\b", re.IGNORECASE),
}
"""The counted words: conditionals, personification, and noun clauses."""

_NOUNS = ("lane", "lanes", "laps", "letterbox", "mend", "mends", "outlet", "outlets", "sight", "whose")
_VERBS = ("beaten", "bury", "heard", "mourn", "said", "told")
UNWANTED = frozenset([*_NOUNS, *_VERBS])
"""Parts of an identifier (``_`` and capitals separate them) that another word of the vocabulary replaces."""
UNWANTED_CLASSES = frozenset(["Armor", "Asking", "Bench", "Do", "Outside", "Pile", "Sight", "Told", "Workshop"])

_CODE = re.compile(r"``[^`]*``|`[^`]*`")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def prose(source: str) -> Iterator[str]:
    """The docstrings, string statements and comments of a module; code in backticks is left out."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", ())
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield _CODE.sub(" ", value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(?:noqa|type:)", token.string):
            yield _CODE.sub(" ", token.string)


def count_words(source: str) -> Counter[str]:
    """How often each of ``WORDS`` occurs in the prose of a module; ``total`` is the number of all its words."""
    counts: Counter[str] = Counter()
    for text in prose(source):
        counts["total"] += len(_WORD.findall(text))
        for name, pattern in WORDS.items():
            counts[name] += len(pattern.findall(text))
    return counts


def rates(files: Iterable[Path]) -> dict[str, float]:
    """Occurrences per 1,000 words over all ``files``."""
    counts: Counter[str] = Counter()
    for file in files:
        counts += count_words(file.read_text("utf-8"))
    return {name: 1000 * counts[name] / max(1, counts["total"]) for name in WORDS}


def defined_names(source: str) -> Iterator[str]:
    """Every name that a module defines: classes, functions, parameters, variables and attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def unwanted_names(source: str) -> set[str]:
    """The defined names that contain a word of ``UNWANTED`` or are one of ``UNWANTED_CLASSES``."""
    return {
        name
        for name in defined_names(source)
        if name in UNWANTED_CLASSES or UNWANTED & {part.lower() for part in _PART.findall(name)}
    }


if __name__ == "__main__":
    paths = [Path(name) for name in sys.argv[1:] or ["deid_agent"]]
    modules = sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py")))
    for module in modules:
        found = count_words(module.read_text("utf-8"))
        names = sorted(unwanted_names(module.read_text("utf-8")))
        if names or any(found[name] for name in WORDS):
            print(module, {name: found[name] for name in WORDS if found[name]}, *names)  # noqa: T201 - the report
    print({name: round(rate, 2) for name, rate in rates(modules).items()}, "per 1,000 words")  # noqa: T201 - the report
