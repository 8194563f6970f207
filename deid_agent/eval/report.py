"""Scores as one JSON object and as a table for a terminal. Neither holds text of a note."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deid_agent.eval.counts import Criterion
from deid_agent.eval.mistakes import Mistake, SourceCounts, by_source, confusion, mistakes
from deid_agent.eval.score import Figure, Pair, Prf, Scores, TypeScore
from deid_agent.phi import PhiType
from deid_agent.spans import Span

Json = dict[str, object]
_GROUPED = (
    Criterion.STRICT,
    Criterion.TOKEN,
    Criterion.BINARY_HIPAA_TOKEN,
    Criterion.BINARY_COVERED,
    Criterion.NAMES,
)


@dataclass(frozen=True, slots=True)
class Benign:
    """Findings on text without PHI, each of them a false alarm (ages of such notes are true ones)."""

    notes: int
    words: int
    alarms: int
    ages: int
    sources: Mapping[str, int] = field(default_factory=dict)

    @property
    def per_thousand(self) -> float:
        """False alarms per 1,000 words, ages apart."""
        return 1000 * (self.alarms - self.ages) / self.words if self.words else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """All that one run says."""

    about: Mapping[str, object]
    scores: Scores = field(repr=False)
    without: Mapping[str, Scores] = field(default_factory=dict, repr=False)
    benign: Benign | None = None
    authors: bool = False

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Notes with what was found in them."""
        return self.scores.pairs


def benign(pairs: Sequence[Pair]) -> Benign:
    """Count the alarms of notes without PHI."""
    sources: dict[str, int] = {}
    for pair in pairs:
        for span in pair.found:
            if span.type is not PhiType.AGE:
                sources[span.source] = sources.get(span.source, 0) + 1
    ages = sum(span.type is PhiType.AGE for pair in pairs for span in pair.found)
    return Benign(
        notes=len(pairs),
        words=sum(len(pair.note.annotated.text.split()) for pair in pairs),
        alarms=sum(len(pair.found) for pair in pairs),
        ages=ages,
        sources=dict(sorted(sources.items(), key=lambda item: (-item[1], item[0]))),
    )


def as_json(report: Report) -> Json:
    """Everything, as plain values. Places of mistakes are offsets."""
    scores = report.scores
    out: Json = {
        **report.about,
        "totals": {
            criterion.value: {
                "micro": _prf(scores.prf(criterion)),
                "macro": _prf(scores.prf(criterion, macro=True)),
            }
            for criterion in scores.applicable()
        },
        "leaked": {
            **_figure(scores.leaked()),
            "spans": sum(t.leaks for t in scores.by_type().values()),
        }
        if scores.with_text
        else None,
        "types": {kind.value: _type(one, scores.with_text) for kind, one in scores.by_type().items()},
        "categories": {kind.value: _type(one, scores.with_text) for kind, one in scores.by_category().items()},
        "kinds": _groups(scores, scores.groups(lambda note: note.kind)),
        "components": _sources(by_source(report.pairs, whole=False)),
        "sources": _sources(by_source(report.pairs, whole=True)),
        "confusion": {
            _label(gold): {_label(found): n for found, n in row.most_common()}
            for gold, row in confusion(report.pairs).items()
        },
        "mistakes": [_mistake(m) for m in mistakes(report.pairs)],
    }
    if report.authors:
        out["authors"] = _groups(scores, scores.groups(lambda note: note.author))
    if report.benign is not None:
        one = report.benign
        out["benign"] = {
            "notes": one.notes,
            "words": one.words,
            "alarms": one.alarms,
            "ages": one.ages,
            "per_thousand_words": one.per_thousand,
            "sources": dict(one.sources),
        }
    if report.without:
        out["ablation"] = {part: _ablated(scores, less) for part, less in report.without.items()}
    return out


def table(report: Report) -> str:
    """Types under the strict criterion, then the totals with their intervals."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    scores = report.scores
    texts = scores.with_text
    yield f"{'type':15}{'gold':>7}{'found':>7}{'P':>7}{'R':>7}{'F1':>7}" + (
        f"{'covered':>9}{'leaked':>8}" if texts else ""
    )
    for kind, one in scores.by_type().items():
        line = f"{kind:15}{one.gold:7}{one.found:7}{_three(one.strict)}"
        yield line + (f"{one.covered.value:9.3f}{one.leaks:8}" if texts else "")
    yield ""
    yield f"{'criterion':20}{'P':>7}{'R':>7}{'F':>7}   {'95 % of F':15}{'macro P':>9}{'R':>7}{'F':>7}"
    for criterion in scores.applicable():
        micro, macro = scores.prf(criterion), scores.prf(criterion, macro=True)
        name = criterion.value + (" (F2)" if criterion.beta == 2 else "")
        yield f"{name:20}{_three(micro)}   {_interval(micro.f):15}{macro.precision.value:9.3f}" + _two(macro)
    if texts:
        leaked = scores.leaked()
        spans = sum(t.leaks for t in scores.by_type().values())
        yield f"leaked spans: {spans}, {100 * leaked.value:.1f} % ({100 * leaked.low:.1f} to {100 * leaked.high:.1f})"
    if report.benign is not None:
        clean = report.benign
        yield (
            f"text without PHI: {clean.per_thousand:.2f} false alarms per 1,000 words "
            f"({clean.alarms - clean.ages} in {clean.words} words; {clean.ages} ages apart)"
        )
    if report.without:
        yield ""
        yield f"{'what each part adds':28}{'strict F1':>10}{'token F1':>10}{'names F2':>10}{'hipaa R':>9}{'leaked':>9}"
        for part, less in report.without.items():
            d = _ablated(scores, less)
            yield f"{part:28}" + "".join(
                f"{d[key]:+{width}.3f}"
                for key, width in (
                    ("strict", 10),
                    ("token", 10),
                    ("names", 10),
                    ("binary-hipaa-recall", 9),
                    ("leaked", 9),
                )
            )
    words = f", {scores.words} words" if texts else ""
    yield f"{len(scores.pairs)} notes of {len({p.note.patient for p in scores.pairs})} patients{words}"


def _ablated(whole: Scores, less: Scores) -> dict[str, float]:
    """What is lost without the part: positive where it helps, of leaks negative."""

    def drop(criterion: Criterion) -> float:
        return whole.prf(criterion).f.value - less.prf(criterion).f.value

    recalls = [s.prf(Criterion.BINARY_HIPAA_TOKEN).recall.value for s in (whole, less)]
    return {
        "strict": drop(Criterion.STRICT),
        "token": drop(Criterion.TOKEN),
        "names": drop(Criterion.NAMES),
        "binary-hipaa-recall": recalls[0] - recalls[1],
        "leaked": whole.leaked().value - less.leaked().value,
    }


def _three(one: Prf) -> str:
    return f"{one.precision.value:7.3f}{_two(one)}"


def _two(one: Prf) -> str:
    return f"{one.recall.value:7.3f}{one.f.value:7.3f}"


def _interval(one: Figure) -> str:
    return f"{one.low:.3f} to {one.high:.3f}"


def _figure(one: Figure) -> Json:
    return {"value": one.value, "low": one.low, "high": one.high}


def _prf(one: Prf) -> Json:
    names = ("right", "found", "recalled", "gold")
    return {
        "precision": _figure(one.precision),
        "recall": _figure(one.recall),
        "f": _figure(one.f),
        "beta": one.beta,
        "sums": dict(zip(names, one.sums, strict=True)),
    }


def _type(one: TypeScore, with_text: bool) -> Json:
    out: Json = {"gold": one.gold, "found": one.found, "strict": _prf(one.strict)}
    if with_text:
        out |= {"token": _prf(one.token), "covered": _figure(one.covered)}
        out |= {"leaked": _figure(one.leaked), "leaks": one.leaks}
    return out


def _groups(scores: Scores, groups: Mapping[str, list[bool]]) -> Json:
    chosen = [c for c in _GROUPED if c in scores.applicable()]
    out: Json = {}
    for name, only in groups.items():
        own: Json = {c.value: _prf(scores.prf(c, only=only)) for c in chosen}
        out[name] = {"notes": sum(only), **own, "leaked": _figure(scores.leaked(only)) if scores.with_text else None}
    return out


def _sources(counts: Mapping[str, SourceCounts]) -> Json:
    return {
        name or "-": {"found": c.found, "right": c.right, "partly": c.partly, "alarms": c.alarms}
        for name, c in counts.items()
    }


def _mistake(one: Mistake) -> Json:
    return {
        "note": one.note.id,
        "fault": one.fault.value,
        "leaks": one.leaks,
        "gold": _place(one.gold),
        "found": _place(one.found),
    }


def _label(kind: PhiType | None) -> str:
    return kind.value if kind is not None else "-"


def _place(span: Span | None) -> Json | None:
    if span is None:
        return None
    return {"start": span.start, "end": span.end, "type": span.type.value, "source": span.source}
