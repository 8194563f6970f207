"""Every miss and false alarm as a pair of spans, and what was taken for what."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from deid_agent.eval.counts import Cover, leaks
from deid_agent.eval.markup import Note
from deid_agent.eval.score import Pair
from deid_agent.phi import PhiType
from deid_agent.spans import Span, in_order


class Fault(StrEnum):
    """What is wrong. Each gold span has at most one fault; a finding without gold is an alarm."""

    MISSED = "missed"
    TYPE = "type"
    BOUNDS = "bounds"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One fault of one note; ``gold`` is None for an alarm, ``found`` for a miss."""

    note: Note = field(repr=False)
    fault: Fault
    gold: Span | None
    found: Span | None
    leaks: bool

    @property
    def span(self) -> Span:
        """The place to look at: the gold span, of an alarm the finding."""
        span = self.gold or self.found
        if span is None:
            raise ValueError("a mistake without a span")
        return span

    @property
    def type(self) -> PhiType:
        """The type under which it is listed."""
        return self.span.type


def mistakes(pairs: Iterable[Pair]) -> Iterator[Mistake]:
    """All of them, note by note, in the order of their places."""
    for pair in pairs:
        yield from sorted(_of_note(pair), key=lambda m: (m.span.start, m.span.end, m.fault))


def confusion(pairs: Iterable[Pair]) -> dict[PhiType | None, Counter[PhiType | None]]:
    """Gold types by the type of the finding that overlaps most; ``None`` stands for nothing found, or nothing there."""
    out: dict[PhiType | None, Counter[PhiType | None]] = {}
    for pair in pairs:
        gold, found = in_order(pair.note.annotated.spans), in_order(pair.found)
        for span in gold:
            best = _best(span, found)
            out.setdefault(span.type, Counter())[None if best is None else best.type] += 1
        for span in found:
            if _best(span, gold) is None:
                out.setdefault(None, Counter())[span.type] += 1
    return out


@dataclass(slots=True)
class SourceCounts:
    """What the findings of one rule or component are worth."""

    found: int = 0
    right: int = 0
    partly: int = 0
    alarms: int = 0


def by_source(pairs: Iterable[Pair], *, whole: bool) -> dict[str, SourceCounts]:
    """Findings by their source: with ``whole`` the full id, else what stands before its colon (rules have none)."""
    out: dict[str, SourceCounts] = {}
    for pair in pairs:
        gold = in_order(pair.note.annotated.spans)
        keys = {(s.type, s.start, s.end) for s in gold}
        for span in pair.found:
            counts = out.setdefault(span.source if whole else component(span.source), SourceCounts())
            counts.found += 1
            if (span.type, span.start, span.end) in keys:
                counts.right += 1
            elif _best(span, gold) is None:
                counts.alarms += 1
            else:
                counts.partly += 1
    return dict(sorted(out.items(), key=lambda item: (-item[1].found, item[0])))


def component(source: str) -> str:
    """The part of a system that a source names: ``crf`` of ``crf:bio``; a rule's id has no prefix."""
    prefix, colon, _ = source.partition(":")
    return prefix if colon else "pattern"


def _of_note(pair: Pair) -> Iterator[Mistake]:
    note = pair.note
    gold, found = in_order(note.annotated.spans), in_order(pair.found)
    had = {(s.type, s.start, s.end) for s in found}
    covered = Cover(note.annotated.text, found)
    for span in gold:
        if (span.type, span.start, span.end) in had:
            continue
        best = _best(span, found)
        leaking = bool(note.annotated.text) and leaks(note.annotated.text, span, covered)
        fault = Fault.MISSED if best is None else Fault.BOUNDS if best.type is span.type else Fault.TYPE
        yield Mistake(note, fault, span, best, leaking)
    for span in found:
        if _best(span, gold) is None:
            yield Mistake(note, Fault.ALARM, None, span, False)


def _best(span: Span, others: Iterable[Span]) -> Span | None:
    """The span that shares most characters with this one; of its own type where several share as many."""
    near = [(min(span.end, o.end) - max(span.start, o.start), o.type is span.type, -o.start, o) for o in others]
    shared = [n for n in near if n[0] > 0]
    return max(shared, key=lambda n: n[:3])[3] if shared else None
