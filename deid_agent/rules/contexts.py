"""Reads ``rules/contexts``: the words around a name that show whether it is a person.

A file has the contexts of one recognizer, one table for each. ``ContextEntry`` defines the keys. A context reads the
text beside a word, or the word itself, and is therefore a Python pattern, which may look ahead. Repetition must be
bounded, as in rules.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from deid_agent.model import ConfigurationError, MarkupError, parse_annotated
from deid_agent.rules.files import read_toml

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_UNBOUNDED = re.compile(r"\\.|\[(?:\\.|[^\]\\])+\]|(?P<bad>[*+]|\{\d*,\})", re.DOTALL)
_REACH = 24
"""Characters before a word that a context may read."""


class ContextEntry(BaseModel):
    """The keys of a context."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    why: str = Field(min_length=1)
    """One sentence about the purpose of the context."""
    place: Literal["before", "after", "word"]
    """``before``: the pattern ends at the name; ``after``: it begins at its end; ``word``: it matches the name."""
    words: tuple[str, ...] = Field(min_length=1)
    """Python patterns, of which one must match."""
    lead: str = ""
    """Pattern before the words."""
    tail: str = ""
    """Pattern after the words."""
    any_case: bool = False
    """Capital and small letters are equal."""
    hit: tuple[str, ...] = Field(min_length=1)
    """Samples in guideline markup: each marked span is in the context."""
    miss: tuple[str, ...] = Field(min_length=1)
    """Samples in which no marked span is in the context."""


@dataclass(frozen=True, slots=True)
class Context:
    """A compiled context."""

    place: str
    pattern: re.Pattern[str] = field(repr=False)
    hit: tuple[str, ...] = field(default=(), repr=False)
    miss: tuple[str, ...] = field(default=(), repr=False)

    def precedes(self, text: str, start: int) -> re.Match[str] | None:
        """The match that ends at ``start``."""
        return self.pattern.search(text, max(0, start - _REACH), start)

    def follows(self, text: str, end: int) -> re.Match[str] | None:
        """The match that begins at ``end``."""
        return self.pattern.match(text, end)

    def is_word(self, word: str) -> bool:
        """Return true if the whole ``word`` matches."""
        return self.pattern.fullmatch(word) is not None

    def holds(self, text: str, start: int, end: int) -> bool:
        """Return true if the word from ``start`` to ``end`` is in this context."""
        match self.place:
            case "before":
                return self.precedes(text, start) is not None
            case "after":
                return self.follows(text, end) is not None
            case _:
                return self.is_word(text[start:end])


Contexts = Mapping[str, Mapping[str, Context]]
"""The contexts by the stem of their file and by their id."""
_FILE = TypeAdapter(dict[str, ContextEntry])


def load_contexts(rules: Path) -> Contexts:
    """All contexts of folder ``rules``. Raises ``ConfigurationError`` with the file and the key for an invalid one."""
    return MappingProxyType({path.stem: _load_file(path) for path in sorted((rules / "contexts").glob("*.toml"))})


def _load_file(path: Path) -> Mapping[str, Context]:
    return MappingProxyType({id_: _compile(path, id_, entry) for id_, entry in read_toml(path, _FILE).items()})


def _compile(path: Path, id_: str, entry: ContextEntry) -> Context:
    body = f"{entry.lead}(?:{'|'.join(entry.words)}){entry.tail}"
    if unbounded := next((found for found in _UNBOUNDED.finditer(body) if found["bad"]), None):
        raise ConfigurationError(f"{path}: {id_}: {unbounded['bad']} has no upper bound: write {{m,n}}")
    try:
        pattern = re.compile(f"(?:{body})\\Z" if entry.place == "before" else body, re.IGNORECASE * entry.any_case)
    except re.error as problem:
        raise ConfigurationError(f"{path}: {id_}: does not compile: {problem}") from None
    return Context(entry.place, pattern, entry.hit, entry.miss)


D = TypeVar("D", bound="DataclassInstance")


def select_contexts(contexts: Contexts, name: str, kind: Callable[..., D]) -> D:
    """The contexts of file ``name`` as the dataclass ``kind``, which has one field for each (``_`` for ``-``).

    Raises ``ConfigurationError`` for a missing file and for a missing or unknown context.
    """
    found = {id_.replace("-", "_"): context for id_, context in contexts.get(name, {}).items()}
    if not found:
        raise ConfigurationError(f"rules/contexts/{name}.toml: missing: copy it from the packaged rules")
    wanted = {each.name for each in fields(kind)}  # type: ignore[arg-type]  # the class of a dataclass
    for id_ in sorted(wanted ^ found.keys()):
        fault = "missing: copy it from the packaged rules" if id_ in wanted else "unknown: remove it"
        raise ConfigurationError(f"rules/contexts/{name}.toml: {id_.replace('_', '-')}: {fault}")
    return kind(**found)


def check_contexts(contexts: Contexts) -> Iterator[str]:
    """One line for each sample that a context gets wrong: its file and id, the key and the number of the sample."""
    for name, entries in contexts.items():
        for id_, context in entries.items():
            for key, samples in (("hit", context.hit), ("miss", context.miss)):
                for number, sample in enumerate(samples, 1):
                    if fault := _sample_fault(context, sample, must_hit=key == "hit"):
                        yield f"contexts/{name}: {id_}: {key} {number}: {fault}"


def _sample_fault(context: Context, sample: str, *, must_hit: bool) -> str:
    try:
        annotated = parse_annotated(sample)
    except MarkupError as fault:
        return str(fault)
    if not annotated.spans:
        return "marks no name"
    if all(context.holds(annotated.text, span.start, span.end) is must_hit for span in annotated.spans):
        return ""
    return "the marked name is not in the context" if must_hit else "the marked name is in the context"
