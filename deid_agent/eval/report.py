"""Writes scores as a JSON object and as a table for a terminal. Neither contains text of a note."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deid_agent.eval.claims import Altered
from deid_agent.eval.counts import Criterion
from deid_agent.eval.mistakes import Mistake, SourceCounts, count_by_source, count_confusions, find_mistakes
from deid_agent.eval.risk_control import LeakBound
from deid_agent.eval.score import Figure, Pair, Prf, Scores, TypeScore
from deid_agent.model import PhiType, Span

Json = dict[str, object]
_GROUPED = (
    Criterion.STRICT,
    Criterion.TOKEN,
    Criterion.BINARY_HIPAA_TOKEN,
    Criterion.BINARY_COVERED,
    Criterion.NAMES,
)


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """The findings in texts without PHI. Each is a false alarm, except that ages in such texts are real ages."""

    notes: int
    words: int
    alarms: int
    ages: int
    sources: Mapping[str, int] = field(default_factory=dict)

    @property
    def per_thousand(self) -> float:
        """False alarms per 1,000 words, without ages."""
        return 1000 * (self.alarms - self.ages) / self.words if self.words else 0.0


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The settings and scores of one run. ``without`` holds the scores of the ablated systems, by part name."""

    about: Mapping[str, object]
    scores: Scores = field(repr=False)
    without: Mapping[str, Scores] = field(default_factory=dict, repr=False)
    false_alarms: FalseAlarms | None = None
    authors: bool = False
    altered: Altered | None = None
    bound: LeakBound | None = None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The notes with their findings."""
        return self.scores.pairs


def count_false_alarms(pairs: Sequence[Pair]) -> FalseAlarms:
    """Count the findings in notes without PHI, by source."""
    sources: dict[str, int] = {}
    for pair in pairs:
        for span in pair.found:
            if span.type is not PhiType.AGE:
                sources[str(span.source)] = sources.get(str(span.source), 0) + 1
    ages = sum(span.type is PhiType.AGE for pair in pairs for span in pair.found)
    return FalseAlarms(
        notes=len(pairs),
        words=sum(len(pair.note.annotated.text.split()) for pair in pairs),
        alarms=sum(len(pair.found) for pair in pairs),
        ages=ages,
        sources=dict(sorted(sources.items(), key=lambda item: (-item[1], item[0]))),
    )


def report_as_json(report: EvaluationReport) -> Json:
    """Return the report as plain JSON values. A mistake is given by the offsets of its spans."""
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
        "components": _sources(count_by_source(report.pairs, whole=False)),
        "sources": _sources(count_by_source(report.pairs, whole=True)),
        "confusion": {
            _label(gold): {_label(found): n for found, n in row.most_common()}
            for gold, row in count_confusions(report.pairs).items()
        },
        "mistakes": [_mistake(m) for m in find_mistakes(report.pairs)],
    }
    if report.authors:
        out["authors"] = _groups(scores, scores.groups(lambda note: note.author))
    if report.false_alarms is not None:
        one = report.false_alarms
        out["benign"] = {
            "notes": one.notes,
            "words": one.words,
            "alarms": one.alarms,
            "ages": one.ages,
            "per_thousand_words": one.per_thousand,
            "sources": dict(one.sources),
        }
    if report.altered is not None:
        altered = report.altered
        out["altered"] = {"tokens": altered.tokens, "words": altered.words, "numbers": altered.numbers}
    if report.bound is not None:
        bound = report.bound
        out["bound"] = {
            "notes": bound.notes,
            "patients": bound.patients,
            "mean": bound.mean,
            "bound": bound.bound,
            "alpha": bound.alpha,
        }
    if report.without:
        out["ablation"] = {part: _ablated(scores, less) for part, less in report.without.items()}
    return out


def score_table(report: EvaluationReport) -> str:
    """Return a table: types under the strict criterion, then the totals with their intervals."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: EvaluationReport) -> Iterator[str]:
    scores = report.scores
    texts = scores.with_text
    yield f"{'type':15}{'gold':>7}{'found':>7}{'P':>7}{'R':>7}{'F1':>7}" + (
        f"{'covered':>9}{'leaked':>8}" if texts else ""
    )
    for kind, one in scores.by_type().items():
        line = f"{kind:15}{one.gold:7}{one.found:7}{_format_prf(one.strict)}"
        yield line + (f"{one.covered.value:9.3f}{one.leaks:8}" if texts else "")
    yield ""
    yield f"{'criterion':20}{'P':>7}{'R':>7}{'F':>7}   {'95 % of F':15}{'macro P':>9}{'R':>7}{'F':>7}"
    for criterion in scores.applicable():
        micro, macro = scores.prf(criterion), scores.prf(criterion, macro=True)
        name = criterion.value + (" (F2)" if criterion.beta == 2 else "")
        yield (
            f"{name:20}{_format_prf(micro)}   {_format_interval(micro.f):15}{macro.precision.value:9.3f}"
            + _format_recall_and_f(macro)
        )
    if texts:
        leaked = scores.leaked()
        spans = sum(t.leaks for t in scores.by_type().values())
        yield f"leaked spans: {spans}, {100 * leaked.value:.1f} % ({100 * leaked.low:.1f} to {100 * leaked.high:.1f})"
    if report.altered is not None:
        altered = report.altered
        yield (
            f"altered text that is no PHI: {altered.words_per_thousand:.2f} words and "
            f"{altered.numbers_per_thousand:.2f} numbers of 1,000 tokens"
        )
    if report.bound is not None:
        yield report.bound.sentence
    if report.false_alarms is not None:
        clean = report.false_alarms
        yield (
            f"text without PHI: {clean.per_thousand:.2f} false alarms per 1,000 words "
            f"({clean.alarms - clean.ages} in {clean.words} words; {clean.ages} ages apart)"
        )
    if report.without:
        yield ""
        yield f"{'contribution by part':28}{'strict F1':>10}{'token F1':>10}{'names F2':>10}{'hipaa R':>9}{'leaked':>9}"
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
    """Return the loss without the part: positive if the part helps, but negative for leaks."""

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


def _format_prf(one: Prf) -> str:
    return f"{one.precision.value:7.3f}{_format_recall_and_f(one)}"


def _format_recall_and_f(one: Prf) -> str:
    return f"{one.recall.value:7.3f}{one.f.value:7.3f}"


def _format_interval(one: Figure) -> str:
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
        "fault": one.kind.value,
        "leaks": one.leaks,
        "gold": _span_offsets(one.gold),
        "found": _span_offsets(one.found),
    }


def _label(kind: PhiType | None) -> str:
    return kind.value if kind is not None else "-"


def _span_offsets(span: Span | None) -> Json | None:
    if span is None:
        return None
    return {"start": span.start, "end": span.end, "type": span.type.value, "source": str(span.source)}
