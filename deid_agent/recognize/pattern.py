"""Pattern rules as a recognizer: each rule proposes its spans, its id is their source.

Source: Dehghan 2015 section 2.2, Liu 2015 table 2: orthographic, lexical and context conditions per type.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from deid_agent.ruleset import Rule
from deid_agent.spans import Span
from deid_agent.text import Document


@dataclass(frozen=True, slots=True)
class PatternRecognizer:
    """All pattern rules of a rule set, in the order of their ids."""

    rules: tuple[Rule, ...] = field(repr=False)
    name: str = "patterns"

    def recognize(self, doc: Document) -> Iterator[Span]:
        """Spans rule by rule; two rules may propose the same text."""
        for rule in self.rules:
            for start, end in rule.find(doc):
                yield Span(start, end, rule.types[0], rule.id)
