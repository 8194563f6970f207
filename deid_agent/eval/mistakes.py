"""Lists every miss and false alarm as a pair of spans, and counts the types that were confused."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from deid_agent.eval.counts import Coverage, is_leaked
from deid_agent.eval.markup import Note
from deid_agent.eval.score import Pair
from deid_agent.model import PhiType, Source, SourceKind, Span, in_order


class MistakeKind(StrEnum):
    """The kind of a mistake. Each gold span has at most one; a finding that overlaps no gold span is an alarm."""

    MISSED = "missed"
    TYPE = "type"
    BOUNDS = "bounds"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in one note. ``gold`` is ``None`` for an alarm, ``found`` for a miss."""

    note: Note = field(repr=False)
    kind: MistakeKind
    gold: Span | None
    found: Span | None
    leaks: bool

    @property
    def span(self) -> Span:
        """The span to look at: the gold span, or the finding of an alarm."""
        span = self.gold or self.found
        if span is None:
            raise ValueError("a mistake without a span")
        return span

    @property
    def type(self) -> PhiType:
        """The type under which the mistake is listed."""
        return self.span.type


def find_mistakes(pairs: Iterable[Pair]) -> Iterator[Mistake]:
    """Yield all mistakes, note by note, by offset."""
    for pair in pairs:
        yield from sorted(_find_in_note(pair), key=lambda m: (m.span.start, m.span.end, m.kind))


def count_confusions(pairs: Iterable[Pair]) -> dict[PhiType | None, Counter[PhiType | None]]:
    """Count, for each gold type, the types of the findings that overlap its spans most.

    The inner key ``None`` counts gold spans that no finding overlaps, the outer key ``None`` findings that overlap no
    gold span.
    """
    out: dict[PhiType | None, Counter[PhiType | None]] = {}
    for pair in pairs:
        gold, found = in_order(pair.note.annotated.spans), in_order(pair.found)
        for span in gold:
            best = _most_overlapping(span, found)
            out.setdefault(span.type, Counter())[None if best is None else best.type] += 1
        for span in found:
            if _most_overlapping(span, gold) is None:
                out.setdefault(None, Counter())[span.type] += 1
    return out


@dataclass(slots=True)
class SourceCounts:
    """The findings of one rule or component: all, exactly right, overlapping a gold span, and false alarms."""

    found: int = 0
    right: int = 0
    partly: int = 0
    alarms: int = 0


def count_by_source(pairs: Iterable[Pair], *, whole: bool) -> dict[str, SourceCounts]:
    """Count findings by source, the most frequent first: by the full source with ``whole``, else by component."""
    out: dict[str, SourceCounts] = {}
    for pair in pairs:
        gold = in_order(pair.note.annotated.spans)
        keys = {(s.type, s.start, s.end) for s in gold}
        for span in pair.found:
            counts = out.setdefault(str(span.source) if whole else component_name(span.source), SourceCounts())
            counts.found += 1
            if (span.type, span.start, span.end) in keys:
                counts.right += 1
            elif _most_overlapping(span, gold) is None:
                counts.alarms += 1
            else:
                counts.partly += 1
    return dict(sorted(out.items(), key=lambda item: (-item[1].found, item[0])))


def component_name(source: Source) -> str:
    """Return the part of a system that found a span: ``pattern`` for a rule, else the prefix of the written source."""
    match source.kind:
        case SourceKind.RULE | SourceKind.ANNOTATION:
            return "pattern"
        case SourceKind.FOREIGN:
            return source.id.partition(":")[0]
        case kind:
            return kind.value


def _find_in_note(pair: Pair) -> Iterator[Mistake]:
    note = pair.note
    gold, found = in_order(note.annotated.spans), in_order(pair.found)
    had = {(s.type, s.start, s.end) for s in found}
    covered = Coverage(note.annotated.text, found)
    for span in gold:
        if (span.type, span.start, span.end) in had:
            continue
        best = _most_overlapping(span, found)
        leaking = bool(note.annotated.text) and is_leaked(note.annotated.text, span, covered)
        kind = (
            MistakeKind.MISSED if best is None else MistakeKind.BOUNDS if best.type is span.type else MistakeKind.TYPE
        )
        yield Mistake(note, kind, span, best, leaking)
    for span in found:
        if _most_overlapping(span, gold) is None:
            yield Mistake(note, MistakeKind.ALARM, None, span, False)


def _most_overlapping(span: Span, others: Iterable[Span]) -> Span | None:
    """Return the span that shares most characters with this one; of several, one of its own type, then the first."""
    near = [(min(span.end, o.end) - max(span.start, o.start), o.type is span.type, -o.start, o) for o in others]
    shared = [n for n in near if n[0] > 0]
    return max(shared, key=lambda n: n[:3])[3] if shared else None
