"""Several rules searched in one text together, by the compiled core if it is in use.

``Rule.find`` is the reference: each rule has the same ranges by itself. The core gets the text, and its errors contain
none of it.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from deid_agent import core
from deid_agent.model import Document, Range
from deid_agent.rules.ruleset import Edges, Regexp, Rule

_RIGHT_TOUCHES: Final = frozenset({Edges.WORD})
_LEFT_TOUCHES: Final = frozenset({Edges.WORD, Edges.LEFT})


SHORT_TOTAL: Final = 4_000
"""Characters that the reference reads before the core is made ready, which costs as much as it reading many more."""


class RuleScan:
    """Rules that are searched together. Their owner makes it once: the core takes a third of a second to get ready."""

    __slots__ = ("_prepared", "_total", "rules")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self._prepared = core.Prepared()
        self._total = 0

    def prepare(self) -> "RuleScan":
        """Use the core, if there is one, from the next text on."""
        self._total = SHORT_TOTAL
        return self

    def find(self, doc: Document) -> Sequence[Sequence[Range]]:
        """For each rule the ranges of ``Rule.find``, computed once for each document."""
        return doc.normalized.view(self, self._find) if self.rules else ()

    def _find(self, doc: Document) -> Sequence[Sequence[Range]]:
        if not core.is_used() or self._total < SHORT_TOTAL:
            self._total += len(doc.text)
            return [tuple(rule.find(doc)) for rule in self.rules]
        rules = self.rules

        def ask(number: int, begin: int, last: int) -> tuple[int, int, int] | None:
            accepted = rules[number].accept(doc, begin, last)
            return None if accepted is None else (*accepted, doc.byte(accepted[1]))

        ranges: list[Sequence[Range]] = [()] * len(rules)
        found, left = self._prepared.get(self._build).find(doc.utf8, doc.lower.encode("utf-8", "surrogatepass"), ask)
        for number, own in groupby(found, itemgetter(0)):
            ranges[number] = [(start, end) for _, start, end in own]
        for number in left:
            ranges[number] = tuple(rules[number].find(doc))
        return ranges

    def _build(self) -> Any:
        return core.current().RuleScanner([_describe(rule) for rule in self.rules])


def _describe(rule: Rule) -> tuple[object, ...]:
    conditions = rule.conditions
    patterns = (conditions.before, conditions.not_before, conditions.after, conditions.not_after)
    return (
        _translate_regexp(rule.regexp),
        (rule.edges in _LEFT_TOUCHES, rule.edges in _RIGHT_TOUCHES),
        tuple(None if each is None else _translate_regexp(each) for each in patterns),
        list(rule.needs),
        rule.check is not None or bool(rule.beyond or rule.within),
        frozenset(rule.stop) if rule.stop else None,
    )


def _translate_regexp(regexp: Regexp) -> str:
    return translate(regexp.pattern) or _UNREADABLE


# RE2 and the core have one syntax, with other readings of some of it. ``\s``, ``\d``, ``\w`` and ``\b`` are ASCII in
# RE2, and a bracket inside of a class has no meaning there.

_UNREADABLE: Final = "("
"""The core reports that this does not compile, and the reference runs."""
_PIECE = re.compile(r"\\[pP]\{\w+\}|\\x\{[0-9A-Fa-f]+\}|\\.|\[:\^?\w+:\]|.", re.DOTALL)
_OUTSIDE: Final = {
    r"\b": r"(?-u:\b)",
    r"\B": r"(?-u:\B)",
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\s": r"[\t\n\f\r ]",
    r"\S": r"[^\t\n\f\r ]",
    r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]",
}
_INSIDE: Final = {r"\d": "0-9", r"\s": r"\t\n\f\r ", r"\w": "0-9A-Za-z_", "[": r"\[", "&": r"\&", "~": r"\~"}
_KNOWN_ESCAPES: Final = re.compile(r"\\(?:[AztnrfbBdDsSwW]|[pP]\{\w+\}|x\{[0-9A-Fa-f]+\}|[^\w<>\s])")


def translate(pattern: str) -> str | None:
    """A pattern of RE2 in the syntax of the core; None if they may read it differently."""
    parts: list[str] = []
    in_class = first = False
    for found in _PIECE.finditer(pattern):
        piece = found[0]
        if piece.startswith("\\") and not (_KNOWN_ESCAPES.fullmatch(piece) and piece.isascii()):
            return None
        if not in_class:
            in_class = first = piece == "["
            parts.append(_OUTSIDE.get(piece, piece))
            continue
        if piece in {r"\D", r"\S", r"\W", r"\b", r"\B", r"\A", r"\z"} or (first and piece == "]"):
            return None
        if piece == "-" and parts[-1] == "-":
            return None
        in_class = piece != "]"
        first = first and piece == "^"
        parts.append(_INSIDE.get(piece, piece) if in_class else piece)
    return "".join(parts)
