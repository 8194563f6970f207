"""Counts over an annotated corpus: strict, token and leak figures per type.

A gold span leaks where any of its words stays uncovered, whatever type covers the rest.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deid_agent.phi import PhiType
from deid_agent.spans import Span

_WORD = re.compile(r"[^\W_]+")


@dataclass(slots=True)
class Score:
    """Sums over notes."""

    gold: Counter[PhiType] = field(default_factory=Counter)
    found: Counter[PhiType] = field(default_factory=Counter)
    right: Counter[PhiType] = field(default_factory=Counter)
    leaked: Counter[PhiType] = field(default_factory=Counter)
    gold_tokens: Counter[PhiType] = field(default_factory=Counter)
    covered_tokens: Counter[PhiType] = field(default_factory=Counter)
    found_tokens: int = 0
    right_tokens: int = 0
    words: int = 0

    def add(self, text: str, gold: Sequence[Span], found: Sequence[Span]) -> None:
        """Count one note; ``found`` is disjoint."""
        self.words += len(text.split())
        self.gold.update(s.type for s in gold)
        self.found.update(s.type for s in found)
        exact = {(s.start, s.end, s.type) for s in found}
        self.right.update(s.type for s in gold if (s.start, s.end, s.type) in exact)
        covered, wanted = _characters(found), _characters(gold)
        for span in gold:
            tokens = [m.start() + span.start for m in _WORD.finditer(text[span.start : span.end])]
            hit = [t for t in tokens if t in covered]
            self.gold_tokens[span.type] += len(tokens)
            self.covered_tokens[span.type] += len(hit)
            self.leaked[span.type] += len(hit) < len(tokens)
        for match in _WORD.finditer(text):
            if match.start() in covered:
                self.found_tokens += 1
                self.right_tokens += match.start() in wanted

    def strict(self, types: Iterable[PhiType] | None = None) -> tuple[float, float, float]:
        """Precision, recall and F1 of spans with the right bounds and type."""
        chosen = list(PhiType) if types is None else list(types)
        right = sum(self.right[t] for t in chosen)
        precision = right / max(1, sum(self.found[t] for t in chosen))
        recall = right / max(1, sum(self.gold[t] for t in chosen))
        return precision, recall, 2 * precision * recall / max(1e-9, precision + recall)

    def report(self) -> str:
        """One line per type and the totals."""
        lines = [f"{'type':15}{'gold':>6}{'found':>7}{'P':>6}{'R':>6}{'F1':>6}{'tokR':>7}{'leaked':>8}"]
        for kind in PhiType:
            if self.gold[kind] or self.found[kind]:
                p, r, f = self.strict([kind])
                token = self.covered_tokens[kind] / max(1, self.gold_tokens[kind])
                lines.append(
                    f"{kind:15}{self.gold[kind]:6}{self.found[kind]:7}{p:6.2f}{r:6.2f}{f:6.2f}"
                    f"{token:7.2f}{self.leaked[kind]:8}"
                )
        p, r, f = self.strict()
        token_p = self.right_tokens / max(1, self.found_tokens)
        token_r = self.covered_tokens.total() / max(1, self.gold_tokens.total())
        lines.append(f"strict P {p:.3f} R {r:.3f} F1 {f:.3f}; binary token P {token_p:.3f} R {token_r:.3f}")
        lines.append(f"leaked {self.leaked.total()} of {self.gold.total()}; {self.words} words")
        return "\n".join(lines)


def _characters(spans: Iterable[Span]) -> set[int]:
    return {at for span in spans for at in range(span.start, span.end)}
