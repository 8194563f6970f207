"""Rules as data: files under ``rules/patterns`` and ``rules/vetoes``, checked and compiled once.

One TOML file is one idea; its stem is its id. Keys:

    id, why            the file's stem; one sentence that says what the rule is for
    type               (patterns) the one type it proposes
    types              (vetoes) the types that are false inside its matches
    pattern            RE2 syntax; a group named ``phi`` is the span, else the whole match
                       (alternatives may have ``phi2``, ``phi3``...: the one that took part is the span)
    edges              "word" (default): no letter or digit is glued to either side of the match;
                       "digit": no digit; "left": letters and digits on the left only; "none"
    before, after      RE2 patterns that must touch the span from outside (at most ``WINDOW`` bytes are read)
    not_before, not_after   ... that must not
    needs              the rule runs only on text that holds one of these (lower case): a cheap gate
    check              name of a check that the span's text must pass (checksum, calendar)
    stop               name of a word list: the span ends before the first of its words (``I.`` is an initial, no word)
    beyond             name of a word list: at least one word of the span must stand outside of it
    confidence         "high" (default), "low": the precision profile drops low ones, or "certain": what it finds
                       is PHI in 95 of 100 places of the corpus, and stands under recall whatever a model says
    hit, miss          guideline markup; every mark of the rule's type must be found and nothing else

Rules read a text in which every dash up to the en dash is ``-`` and every blank on a line a space.

``(?&name)`` inside any pattern stands for the fragment ``name`` of
``rules/fragments.toml``. Repetition must be bounded (no ``*``, ``+``, ``{n,}``)
and other groups must not capture: so every match is short and a
scan is linear in the text, whatever the text. A bad rule stops the start.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from deid_agent import lexicon
from deid_agent.errors import ConfigurationError
from deid_agent.lexicon import Lexicon
from deid_agent.linear import Regexp, compile_pattern
from deid_agent.phi import PhiType
from deid_agent.ruleset import Check, Conditions, Confidence, Edges, Rule, Ruleset

T = TypeVar("T")
D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)

_LEFT = {Edges.WORD: r"(?:\A|[^0-9A-Za-z])", Edges.DIGIT: r"(?:\A|[^0-9])", Edges.NONE: ""}
_RIGHT = {Edges.WORD: r"(?:\z|[^0-9A-Za-z])", Edges.DIGIT: r"(?:\z|[^0-9])", Edges.NONE: ""}
_TEXTS = frozenset({"id", "type", "why", "pattern", "edges", "before", "after", "not_before", "not_after", "check"})
_KEYS = _TEXTS | {"stop", "beyond", "confidence", "types", "needs", "hit", "miss"}
_FRAGMENT = re.compile(r"\(\?&([a-z0-9-]+)\)")
_PHI = re.compile(r"phi\d?")
_UNBOUNDED = re.compile(r"\\.|\[(?:\\.|\[:\^?\w+:\]|[^\]\\])+\]|(?P<bad>[*+]|\{\d*,\})", re.DOTALL)


def load(rules: Path, checks: Mapping[str, Check]) -> Ruleset:
    """The rules under ``rules``, compiled; ``checks`` are the checks that files may name.

    Raises ``ConfigurationError`` naming file and key for whatever is wrong with a file.
    """
    if not (rules / "patterns").is_dir():
        raise ConfigurationError(f"{rules}: no folder patterns/: point to the rules folder of the package")
    lists = lexicon.load(rules)
    reader = _Reader(_fragments(rules / "fragments.toml"), checks, lists)
    patterns = tuple(reader.read(path, veto=False) for path in sorted((rules / "patterns").glob("*.toml")))
    vetoes = tuple(reader.read(path, veto=True) for path in sorted((rules / "vetoes").glob("*.toml")))
    shared = {rule.id for rule in patterns} & {rule.id for rule in vetoes}
    if shared:
        raise ConfigurationError(f"{rules}: {min(shared)} is a pattern and a veto: rename one")
    return Ruleset(patterns, vetoes, lists, rules)


def _fragments(path: Path) -> dict[str, str]:
    """Named pieces of pattern; a fragment may use those that stand above it."""
    raw = _toml(path) if path.exists() else {}
    done: dict[str, str] = {}
    for name, value in raw.items():
        if not isinstance(value, str):
            raise ConfigurationError(f"{path}: {name}: must be a string")
        done[name] = f"(?:{_expand(value, done, f'{path}: {name}')})"
    return done


def _toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise ConfigurationError(f"{path}: is not TOML: {fault}") from None


def _expand(pattern: str, fragments: Mapping[str, str], where: str) -> str:
    def piece(found: re.Match[str]) -> str:
        if found[1] not in fragments:
            raise ConfigurationError(f"{where}: unknown fragment {found[1]}: define it in fragments.toml")
        return fragments[found[1]]

    return _FRAGMENT.sub(piece, pattern)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns one file into one rule."""

    fragments: Mapping[str, str]
    checks: Mapping[str, Check]
    lists: Mapping[str, Lexicon]

    def read(self, path: Path, *, veto: bool) -> Rule:
        raw = _toml(path)
        unknown = raw.keys() - _KEYS
        if unknown:
            raise ConfigurationError(f"{path}: unknown key {min(unknown)}: use {', '.join(sorted(_KEYS))}")
        if raw.get("id") != path.stem:
            raise ConfigurationError(f"{path}: id: must be the file's name, {path.stem}")
        edges = self._member(path, raw, "edges", Edges, Edges.WORD)
        if not self._string(path, raw, "why"):
            raise ConfigurationError(f"{path}: why: say in one sentence what the rule is for")
        return Rule(
            id=path.stem,
            types=self._types(path, raw, veto=veto),
            why=self._string(path, raw, "why"),
            regexp=self._main(path, raw, edges),
            edges=edges,
            conditions=Conditions(
                before=self._condition(path, raw, "before", r"(?:%s)\z"),
                not_before=self._condition(path, raw, "not_before", r"(?:%s)\z"),
                after=self._condition(path, raw, "after", r"\A(?:%s)"),
                not_after=self._condition(path, raw, "not_after", r"\A(?:%s)"),
            ),
            needs=self._needs(path, raw),
            check=self._named(path, raw, "check", self.checks, None),
            stop=self._named(path, raw, "stop", self.lists, frozenset()),
            beyond=self._named(path, raw, "beyond", self.lists, frozenset()),
            confidence=self._member(path, raw, "confidence", Confidence, Confidence.HIGH),
            hit=self._samples(path, raw, "hit"),
            miss=self._strings(path, raw, "miss"),
        )

    def _types(self, path: Path, raw: Mapping[str, object], *, veto: bool) -> tuple[PhiType, ...]:
        key, other = ("types", "type") if veto else ("type", "types")
        if other in raw:
            raise ConfigurationError(f"{path}: {other}: a {'veto' if veto else 'pattern'} has the key {key}")
        names = self._strings(path, raw, key) if veto else (self._string(path, raw, key),)
        try:
            types = tuple(PhiType(name) for name in names)
        except ValueError as fault:
            raise ConfigurationError(f"{path}: {key}: {fault}") from None
        if not types:
            raise ConfigurationError(f"{path}: {key}: name at least one type")
        return types

    def _main(self, path: Path, raw: Mapping[str, object], edges: Edges) -> Regexp:
        body = self._bounded(path, raw, "pattern")
        if not body:
            raise ConfigurationError(f"{path}: pattern: is missing")
        if "(?P<" not in body:
            body = f"(?P<phi>{body})"
        left = _LEFT[Edges.WORD if edges is Edges.LEFT else edges]
        right = _RIGHT[Edges.NONE if edges is Edges.LEFT else edges]
        regexp = self._compiled(path, "pattern", f"{left}(?:{body}){right}")
        if regexp.groups != len(regexp.groupindex) or not all(map(_PHI.fullmatch, regexp.groupindex)):
            raise ConfigurationError(f"{path}: pattern: only phi, phi2, ... may capture: write others as (?:...)")
        return regexp

    def _condition(self, path: Path, raw: Mapping[str, object], key: str, frame: str) -> Regexp | None:
        body = self._bounded(path, raw, key)
        return self._compiled(path, key, frame % body) if body else None

    def _bounded(self, path: Path, raw: Mapping[str, object], key: str) -> str:
        body = _expand(self._string(path, raw, key), self.fragments, f"{path}: {key}")
        for found in _UNBOUNDED.finditer(body):
            if found["bad"]:
                raise ConfigurationError(f"{path}: {key}: {found['bad']} has no bound: write {{m,n}}")
        return body

    def _compiled(self, path: Path, key: str, pattern: str) -> Regexp:
        try:
            return compile_pattern(pattern)
        except ValueError as fault:
            raise ConfigurationError(f"{path}: {key}: does not compile: {fault}") from None

    def _needs(self, path: Path, raw: Mapping[str, object]) -> tuple[str, ...]:
        words = self._strings(path, raw, "needs")
        if any(word != word.lower() or not word for word in words):
            raise ConfigurationError(f"{path}: needs: write the words in lower case")
        return words

    def _samples(self, path: Path, raw: Mapping[str, object], key: str) -> tuple[str, ...]:
        samples = self._strings(path, raw, key)
        if not samples:
            raise ConfigurationError(f"{path}: {key}: give at least one sample")
        return samples

    def _named(self, path: Path, raw: Mapping[str, object], key: str, table: Mapping[str, T], default: D) -> T | D:
        name = self._string(path, raw, key)
        if not name:
            return default
        if name not in table:
            raise ConfigurationError(f"{path}: {key}: unknown {name}: one of {', '.join(sorted(table))}")
        return table[name]

    def _member(self, path: Path, raw: Mapping[str, object], key: str, kind: type[E], default: E) -> E:
        try:
            return kind(self._string(path, raw, key) or default)
        except ValueError:
            raise ConfigurationError(f"{path}: {key}: one of {', '.join(kind)}") from None

    def _string(self, path: Path, raw: Mapping[str, object], key: str) -> str:
        value = raw.get(key, "")
        if not isinstance(value, str):
            raise ConfigurationError(f"{path}: {key}: must be a string")
        return value

    def _strings(self, path: Path, raw: Mapping[str, object], key: str) -> tuple[str, ...]:
        value = raw.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigurationError(f"{path}: {key}: must be a list of strings")
        return tuple(value)
