"""Counts words of the style guide in prose, and finds identifiers and test names outside the vocabulary.

``python tests/support/wording.py [PATH...]`` (from the project's root) prints the rates of each file. Prose is the
docstrings and comments of a Python module, or the text of a Markdown page without code.
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

_IN_SENTENCES = ("heir", "heirs", "mended", "overhears", "says", "stands", "stood", "tells")
_FORMER_COMMIT = ("settle", "settled", "settles", "settling", "unsettled")
UNWANTED_IN_TESTS = UNWANTED | frozenset([*_IN_SENTENCES, *_FORMER_COMMIT])
"""The same for tests, whose names are sentences."""
_UNCLEAR = re.compile(
    r"_(?:what|whatever|whoever|where|wherever|comes?_again|goes?_on|come_back|(?:is|are)_no|is_none)(?=_|\Z)"
)
_BARE_LETTER = re.compile(r"(?<!dead_)(?<!dead)(?:(?<=_)|\A)letters?(?=_|\Z)", re.IGNORECASE)

_CODE = re.compile(r"``[^`]*``|`[^`]*`")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r"(?<=\])\([^)]*\)|<!--.*?-->", re.DOTALL)
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


def page_prose(source: str) -> str:
    """The text of a Markdown page, without blocks and spans of code, HTML comments and addresses of links."""
    return _CODE.sub(" ", _ADDRESS.sub(" ", _FENCE.sub(" ", source)))


def _count(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts["total"] += len(_WORD.findall(text))
        for name, pattern in WORDS.items():
            counts[name] += len(pattern.findall(text))
    return counts


def count_words(source: str) -> Counter[str]:
    """How often each of ``WORDS`` occurs in the prose of a module; ``total`` is the number of all its words."""
    return _count(prose(source))


def count_file(file: Path) -> Counter[str]:
    """The counts of a module or of a Markdown page."""
    source = file.read_text("utf-8")
    return _count([page_prose(source)]) if file.suffix == ".md" else count_words(source)


def rates(files: Iterable[Path]) -> dict[str, float]:
    """Occurrences per 1,000 words over all ``files``, modules or pages."""
    counts: Counter[str] = Counter()
    for file in files:
        counts += count_file(file)
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


def _parts(name: str) -> set[str]:
    return {part.lower() for part in _PART.findall(name)}


def unwanted_names(source: str, unwanted: frozenset[str] = UNWANTED) -> set[str]:
    """The defined names that contain a word of ``unwanted`` or are one of ``UNWANTED_CLASSES``."""
    return {name for name in defined_names(source) if name in UNWANTED_CLASSES or unwanted & _parts(name)}


def unclear_tests(source: str) -> set[str]:
    """The test functions with a noun clause, a conditional "where" or an idiom in their names."""
    return {name for name in defined_names(source) if name.startswith("test_") and _UNCLEAR.search(name)}


def bare_letters(source: str) -> set[str]:
    """The defined names that call a dead letter a letter. Not for modules about letters of an alphabet."""
    return {name for name in defined_names(source) if _BARE_LETTER.search(name)}


if __name__ == "__main__":
    paths = [Path(name) for name in sys.argv[1:] or ["deid_agent"]]
    every = sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("*")))
    every = [file for file in every if file.suffix in {".py", ".md"}]
    for file in every:
        found = count_file(file)
        source = file.read_text("utf-8") if file.suffix == ".py" else ""
        in_tests = "tests" in file.parts
        names = sorted(unwanted_names(source, UNWANTED_IN_TESTS if in_tests else UNWANTED) | unclear_tests(source))
        if names or any(found[name] for name in WORDS):
            print(file, {name: found[name] for name in WORDS if found[name]}, *names)  # noqa: T201 - the report
    print({name: round(rate, 2) for name, rate in rates(every).items()}, "per 1,000 words")  # noqa: T201 - the report
