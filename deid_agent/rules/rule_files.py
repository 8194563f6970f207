"""Reads the rule files under ``rules/patterns``, ``rules/vetoes`` and ``rules/late-vetoes``, checks and compiles them.

``RuleCompiler`` also compiles the forms of ``rules/measures``, which ``deid_agent.measure`` reads.

A TOML file holds one rule, and the file's stem is the rule's id. ``PatternFile`` and ``VetoFile`` define the keys.
Rules match a normalized text: every dash up to the en dash is ``-``, and every blank within a line is a space.

``(?&name)`` in a pattern inserts the fragment ``name`` of ``rules/fragments.toml``. Repetition must be bounded (no
``*``, ``+``, ``{n,}``) and only groups named ``phi`` may capture. Every match is therefore short, and the time of a
scan is linear in the length of any text. An invalid rule prevents the agent from starting.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from deid_agent.model import Confidence, ConfigurationError, PhiType
from deid_agent.rules.contexts import load_contexts
from deid_agent.rules.files import Lexicon, load_lexicons, read_toml
from deid_agent.rules.ruleset import Check, Conditions, Edges, Regexp, Rule, Ruleset, SiteRules
from deid_agent.rules.site_folder import check_parts, load_lists, load_removals

T = TypeVar("T")
D = TypeVar("D")

_LEFT = {Edges.WORD: r"(?:\A|[^0-9A-Za-z])", Edges.DIGIT: r"(?:\A|[^0-9])", Edges.NONE: ""}
_RIGHT = {Edges.WORD: r"(?:\z|[^0-9A-Za-z])", Edges.DIGIT: r"(?:\z|[^0-9])", Edges.NONE: ""}
_FRAGMENT = re.compile(r"\(\?&([a-z0-9-]+)\)")
_PHI_GROUP = re.compile(r"phi\d?")
_UNBOUNDED = re.compile(r"\\.|\[(?:\\.|\[:\^?\w+:\]|[^\]\\])+\]|(?P<bad>[*+]|\{\d*,\})", re.DOTALL)


def _require_lower_case(word: str) -> str:
    if not word or word != word.lower():
        raise ValueError("must be in lower case and not empty")
    return word


class RuleFile(BaseModel):
    """The keys that patterns and vetoes share. An empty string means the same as a missing key."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str
    """The stem of the file's name."""
    why: str = Field(min_length=1)
    """One sentence about the purpose of the rule."""
    pattern: str = Field(min_length=1)
    """RE2 syntax. The group ``phi`` is the span, else the whole match. Alternatives may have ``phi2``, ``phi3`` and so
    on: the group that took part in the match is the span."""
    edges: Annotated[Edges, BeforeValidator(lambda value: Edges.WORD if value == "" else value)] = Edges.WORD
    """``word``: no letter or digit touches either end of the match; ``digit``: no digit does; ``left``: no letter or
    digit touches the left end; ``none``: anything may."""
    before: str = ""
    """RE2 pattern that must match immediately before the span; at most ``WINDOW`` bytes are read."""
    after: str = ""
    """RE2 pattern that must match immediately after the span."""
    not_before: str = ""
    """RE2 pattern that must not match immediately before the span."""
    not_after: str = ""
    """RE2 pattern that must not match immediately after the span."""
    needs: tuple[Annotated[str, AfterValidator(_require_lower_case)], ...] = ()
    """The rule runs only on text that contains one of these words (lower case). This saves time."""
    check: str = ""
    """The name of a check that the span's text must pass (a check digit, a calendar date)."""
    stop: str = ""
    """The name of a word list: the span ends before the first of its words. ``I.`` is an initial and not a word."""
    beyond: str = ""
    """The name of a word list: at least one word of the span must not be in it."""
    within: str = ""
    """The name of a word list: the words of the span, or all but the last, must be one of its terms. Case, accents,
    hyphens and possessive endings do not count."""
    confidence: Annotated[Confidence, BeforeValidator(lambda value: Confidence.HIGH if value == "" else value)] = (
        Confidence.HIGH
    )
    """``low``: the precision profile drops the span. ``certain``: the span is PHI in at least 95 of 100 places of the
    corpus, and models do not overrule it under the recall profile."""
    hit: tuple[str, ...] = Field(min_length=1)
    """Samples in guideline markup: the rule must find every marked span of its type and nothing else."""
    miss: tuple[str, ...] = ()
    """Samples in which the rule must find nothing."""


class PatternFile(RuleFile):
    """A rule that proposes spans of one type."""

    type: PhiType


class VetoFile(RuleFile):
    """A rule that removes spans of some types if its match contains them."""

    types: tuple[PhiType, ...] = Field(min_length=1)
    spares_people: bool = False
    """The veto does not remove a name that the message or the document uses for a person."""


_FRAGMENTS = TypeAdapter(dict[str, str])
_PATTERN, _VETO = TypeAdapter(PatternFile), TypeAdapter(VetoFile)


def load_ruleset(rules: Path, checks: Mapping[str, Check], sites: Sequence[Path] = ()) -> Ruleset:
    """The compiled rules in folder ``rules`` and in site folders; ``checks`` are the checks that rule files may name.

    Raises ``ConfigurationError`` with the file and the key for an invalid file.
    """
    if not (rules / "patterns").is_dir():
        raise ConfigurationError(f"{rules}: no folder patterns/: point to the rules folder of the package")
    compiler = RuleCompiler.for_folder(rules, checks)
    patterns, vetoes = _compile_patterns(rules, compiler), _compile_vetoes(rules, compiler)
    late = _compile_vetoes(rules, compiler, "late-vetoes")
    uses = Counter(rule.id for rule in (*patterns, *vetoes, *late))
    shared = [id_ for id_, count in uses.items() if count > 1]
    if shared:
        raise ConfigurationError(f"{rules}: {min(shared)} is the id of two rules: rename one")
    site = _load_site(sites, compiler, frozenset(uses)) if sites else None
    return Ruleset(patterns, vetoes, late, compiler.lists, load_contexts(rules), rules, site)


def _compile_patterns(folder: Path, compiler: "RuleCompiler") -> tuple[Rule, ...]:
    paths = sorted((folder / "patterns").glob("*.toml"))
    return tuple(compiler.compile_file(path, read_toml(path, _PATTERN)) for path in paths)


def _compile_vetoes(folder: Path, compiler: "RuleCompiler", kind: str = "vetoes") -> tuple[Rule, ...]:
    paths = sorted((folder / kind).glob("*.toml"))
    return tuple(compiler.compile_file(path, read_toml(path, _VETO)) for path in paths)


def _load_site(sites: Sequence[Path], compiler: "RuleCompiler", shipped: frozenset[str]) -> SiteRules:
    """The site folders. Raises ``ConfigurationError`` for an invalid file, and for an id that another rule has."""
    patterns: list[Rule] = []
    vetoes: list[Rule] = []
    ids = set(shipped)
    for site in sites:
        check_parts(site)
        for kind, into, compile_all in (("patterns", patterns, _compile_patterns), ("vetoes", vetoes, _compile_vetoes)):
            for rule in compile_all(site, compiler):
                if rule.id in ids:
                    advice = (
                        "a shipped rule has this id: choose another one; to replace the shipped rule, name it in "
                        "remove.toml too"
                        if rule.id in shipped
                        else "another rule of a site has this id: rename one"
                    )
                    raise ConfigurationError(f"{site / kind / f'{rule.id}.toml'}: id: {advice}")
                ids.add(rule.id)
                into.append(rule)
    removed, cleared = load_removals(sites, shipped)
    lists = load_lists(sites, compiler.lists.get("name-particle", frozenset()))
    return SiteRules(lists, tuple(patterns), tuple(vetoes), removed, MappingProxyType(cleared), tuple(sites))


def _load_fragments(path: Path) -> dict[str, str]:
    """The fragments by name. A fragment may insert those above it in the file."""
    done: dict[str, str] = {}
    for name, pattern in (read_toml(path, _FRAGMENTS) if path.exists() else {}).items():
        done[name] = f"(?:{_insert_fragments(pattern, done, f'{path}: {name}')})"
    return done


def _insert_fragments(pattern: str, fragments: Mapping[str, str], place: str) -> str:
    def fragment(found: re.Match[str]) -> str:
        if found[1] not in fragments:
            raise ConfigurationError(f"{place}: unknown fragment {found[1]}: define it in fragments.toml")
        return fragments[found[1]]

    return _FRAGMENT.sub(fragment, pattern)


@dataclass(frozen=True, slots=True)
class RuleCompiler:
    """Compiles rules with the fragments, checks and word lists that they may name."""

    fragments: Mapping[str, str]
    checks: Mapping[str, Check]
    lists: Mapping[str, Lexicon]

    @staticmethod
    def for_folder(rules: Path, checks: Mapping[str, Check]) -> "RuleCompiler":
        """The compiler with the fragments and word lists of the folder ``rules``."""
        return RuleCompiler(_load_fragments(rules / "fragments.toml"), checks, load_lexicons(rules))

    def compile_file(self, path: Path, file: PatternFile | VetoFile) -> Rule:
        """The rule of a file. Raises ``ConfigurationError`` with the file and the key if it is invalid."""
        if file.id != path.stem:
            raise ConfigurationError(f"{path}: id: must be the stem of the file's name: write {path.stem}")
        return self.compile(path, file)

    def compile(self, path: Path, file: RuleFile) -> Rule:
        """The rule that ``file`` describes; ``path`` is named in errors. Raises ``ConfigurationError``."""
        return Rule(
            id=file.id,
            types=_types_of(file),
            why=file.why,
            regexp=self._compile_main(path, file),
            edges=file.edges,
            conditions=Conditions(
                before=self._compile_condition(path, "before", file.before, r"(?:%s)\z"),
                not_before=self._compile_condition(path, "not_before", file.not_before, r"(?:%s)\z"),
                after=self._compile_condition(path, "after", file.after, r"\A(?:%s)"),
                not_after=self._compile_condition(path, "not_after", file.not_after, r"\A(?:%s)"),
            ),
            needs=file.needs,
            check=_look_up(path, "check", file.check, self.checks, None),
            stop=_look_up(path, "stop", file.stop, self.lists, frozenset()),
            beyond=_look_up(path, "beyond", file.beyond, self.lists, frozenset()),
            within=_look_up(path, "within", file.within, self.lists, frozenset()),
            spares_people=isinstance(file, VetoFile) and file.spares_people,
            confidence=file.confidence,
            hit=file.hit,
            miss=file.miss,
        )

    def _compile_main(self, path: Path, file: RuleFile) -> Regexp:
        body = self._expand(path, "pattern", file.pattern)
        if "(?P<" not in body:
            body = f"(?P<phi>{body})"
        left = _LEFT[Edges.WORD if file.edges is Edges.LEFT else file.edges]
        right = _RIGHT[Edges.NONE if file.edges is Edges.LEFT else file.edges]
        regexp = _compile(path, "pattern", f"{left}(?:{body}){right}")
        if regexp.groups != len(regexp.groupindex) or not all(map(_PHI_GROUP.fullmatch, regexp.groupindex)):
            raise ConfigurationError(
                f"{path}: pattern: only groups phi, phi2, ... may capture: write other groups as (?:...)"
            )
        return regexp

    def _compile_condition(self, path: Path, key: str, pattern: str, frame: str) -> Regexp | None:
        body = self._expand(path, key, pattern)
        return _compile(path, key, frame % body) if body else None

    def _expand(self, path: Path, key: str, pattern: str) -> str:
        """``pattern`` with its fragments. Raises ``ConfigurationError`` for repetition without an upper bound."""
        body = _insert_fragments(pattern, self.fragments, f"{path}: {key}")
        for found in _UNBOUNDED.finditer(body):
            if found["bad"]:
                raise ConfigurationError(f"{path}: {key}: {found['bad']} has no upper bound: write {{m,n}}")
        return body


def _types_of(file: RuleFile) -> tuple[PhiType, ...]:
    match file:
        case PatternFile():
            return (file.type,)
        case VetoFile():
            return file.types
        case _:
            return ()


def _compile(path: Path, key: str, pattern: str) -> Regexp:
    try:
        return Regexp(pattern)
    except ValueError as problem:
        raise ConfigurationError(f"{path}: {key}: does not compile: {problem}") from None


def _look_up(path: Path, key: str, name: str, table: Mapping[str, T], default: D) -> T | D:
    if not name:
        return default
    if name not in table:
        raise ConfigurationError(f"{path}: {key}: unknown {name}: one of {', '.join(sorted(table))}")
    return table[name]
