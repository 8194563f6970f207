"""Writes scores as one self-contained HTML page.

The page loads nothing from another host. It works without its script, which only filters the list of mistakes. It shows
text of the notes around every mistake, so it is as confidential as the notes. All text is escaped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby, pairwise

from deid_agent.eval.counts import Criterion
from deid_agent.eval.mistakes import (
    Mistake,
    MistakeKind,
    SourceCounts,
    count_by_source,
    count_confusions,
    find_mistakes,
)
from deid_agent.eval.report import EvaluationReport
from deid_agent.eval.score import Figure, Scores, TypeScore
from deid_agent.model import PhiType, Span
from deid_agent.web import report_policy, report_script, report_style

_CONTEXT_CHARACTERS = 60


def render_page(report: EvaluationReport) -> str:
    """Return the page as an HTML document."""
    return "".join(_page(report))


def _page(report: EvaluationReport) -> Iterator[str]:
    scores = report.scores
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{report_policy()}">'
        f"<title>Evaluation · deid-agent</title><style>{report_style()}</style></head><body><main><h1>Evaluation</h1>"
    )
    yield _about(report)
    yield "<h2>Totals</h2>" + _totals(report)
    yield "<h2>Types</h2>" + _types({k.value: v for k, v in scores.by_type().items()}, scores.with_text)
    yield "<h2>Categories</h2>" + _types({k.value: v for k, v in scores.by_category().items()}, scores.with_text)
    if report.without:
        yield "<h2>Contribution of each part</h2>" + _ablation(report)
    yield "<h2>Kinds of notes</h2>" + _groups(scores, scores.groups(lambda note: note.kind))
    if report.authors:
        yield "<h2>Authors</h2>" + _groups(scores, scores.groups(lambda note: note.author))
    yield "<h2>Components</h2>" + _sources(count_by_source(report.pairs, whole=False))
    yield "<h2>Rules and sources</h2>" + _fold(_sources(count_by_source(report.pairs, whole=True)), "all")
    yield "<h2>Confused types</h2>" + _fold(_confusion(report), "annotated by found")
    yield "<h2>Every mistake</h2>"
    yield from _mistakes(report)
    yield f"</main><script>{report_script()}</script></body></html>\n"


def _format_setting(value: object) -> str:
    return " + ".join(map(str, value)) if isinstance(value, list) else str(value)


def _about(report: EvaluationReport) -> str:
    settings = ", ".join(
        f"{key}: {_format_setting(value)}" for key, value in report.about.items() if value not in (None, False, "")
    )
    size = f"{len(report.pairs)} notes of {len({p.note.patient for p in report.pairs})} patients"
    words = f", {report.scores.words} words" if report.scores.with_text else ""
    return (
        f"<p>{escape(settings)}<br>{size}{words}.</p>"
        "<p>Intervals hold the figure with 95 %, by resampling patients. This page holds text of the notes.</p>"
    )


def _totals(report: EvaluationReport) -> str:
    scores = report.scores
    rows = []
    for criterion in scores.applicable():
        micro, macro = scores.prf(criterion), scores.prf(criterion, macro=True)
        name = criterion.value + (" (F2)" if criterion.beta == 2 else "")
        figures = [_cell(f) for f in (micro.precision, micro.recall, micro.f)]
        rows.append([name, *figures, *(f"{f.value:.3f}" for f in (macro.precision, macro.recall, macro.f))])
    out = _table(["criterion", "P", "R", "F", "macro P", "R", "F"], rows)
    if scores.with_text:
        out += f"<p>Leaked spans: {_cell(scores.leaked(), 100)} %.</p>"
    if report.false_alarms is not None:
        one = report.false_alarms
        out += (
            f"<p>Text without PHI: {one.per_thousand:.2f} false alarms per 1,000 words "
            f"({one.alarms - one.ages} in {one.words} words, {one.ages} ages apart).</p>"
        )
        out += _fold(_table(["source", "alarms"], [[escape(k), str(n)] for k, n in one.sources.items()]), "by source")
    return out


def _types(types: Mapping[str, TypeScore], with_text: bool) -> str:
    rows = []
    for name, one in types.items():
        row = [name, str(one.gold), str(one.found), _cell(one.strict.precision), _cell(one.strict.recall)]
        row.append(_cell(one.strict.f))
        rows.append(
            row + ([f"{one.token.f.value:.3f}", f"{one.covered.value:.3f}", str(one.leaks)] if with_text else [])
        )
    head = ["type", "gold", "found", "P", "R", "F1"] + (["token F1", "covered", "leaked"] if with_text else [])
    return _table(head, rows)


def _groups(scores: Scores, groups: Mapping[str, Sequence[bool]]) -> str:
    rows = []
    for name, only in groups.items():
        strict, names = scores.prf(Criterion.STRICT, only=only), scores.prf(Criterion.NAMES, only=only)
        row = [escape(name), str(sum(only)), str(int(strict.sums[3])), f"{strict.precision.value:.3f}"]
        row += [f"{strict.recall.value:.3f}", f"{strict.f.value:.3f}", f"{names.f.value:.3f}"]
        rows.append((strict.f.value, [*row, f"{100 * scores.leaked(only).value:.1f}" if scores.with_text else ""]))
    head = ["group", "notes", "gold", "P", "R", "F1", "names F2", "leaked %"]
    worst_first = [row for _, row in sorted(rows, key=lambda r: (r[0], r[1]))]
    return _fold(_table(head, worst_first), f"{len(rows)}, worst first")


def _ablation(report: EvaluationReport) -> str:
    rows = []
    for part, less in report.without.items():
        row = [escape(part)]
        for criterion in (Criterion.STRICT, Criterion.TOKEN, Criterion.NAMES):
            row.append(f"{report.scores.prf(criterion).f.value - less.prf(criterion).f.value:+.3f}")
        rows.append([*row, f"{100 * (report.scores.leaked().value - less.leaked().value):+.1f}"])
    return _table(["part", "strict F1", "token F1", "names F2", "leaked %"], rows)


def _sources(counts: Mapping[str, SourceCounts]) -> str:
    rows = [
        [escape(name or "-"), str(c.found), str(c.right), str(c.partly), str(c.alarms), f"{c.right / c.found:.3f}"]
        for name, c in counts.items()
    ]
    return _table(["source", "found", "right", "partly", "alarms", "share right"], rows)


def _confusion(report: EvaluationReport) -> str:
    grid = count_confusions(report.pairs)
    columns = [t for t in (*PhiType, None) if any(row[t] for row in grid.values())]
    rows = []
    for gold in (*PhiType, None):
        if gold in grid:
            cells = [f"<b>{n}</b>" if (n := grid[gold][t]) and t is gold else str(n or "") for t in columns]
            rows.append([gold.value if gold else "(nothing)", *cells])
    return _table(["annotated", *(t.value if t else "(nothing)" for t in columns)], rows)


def _mistakes(report: EvaluationReport) -> Iterator[str]:
    found = sorted(
        find_mistakes(report.pairs), key=lambda m: (list(PhiType).index(m.type), list(MistakeKind).index(m.kind))
    )
    kinds = sorted({m.note.kind for m in found} - {""})
    yield (
        '<form hidden><input name="t" type="search" placeholder="text, note, rule" aria-label="text, note or rule">'
        '<select name="k" aria-label="fault"><option value="">every fault</option>'
        + "".join(f"<option>{fault}</option>" for fault in MistakeKind)
        + '</select><select name="n" aria-label="kind of note"><option value="">every kind of note</option>'
        + "".join(f"<option>{escape(kind)}</option>" for kind in kinds)
        + "</select></form>"
        '<p><span class="g">annotated</span> <span class="f">found</span> <span class="g f">both</span></p>'
    )
    for kind, of_type in groupby(found, key=lambda m: m.type):
        group = list(of_type)
        by_fault = ", ".join(f"{n} {fault}" for fault in MistakeKind if (n := sum(m.kind is fault for m in group)))
        yield f'<details class="t"><summary>{kind.value}: {by_fault}</summary>'
        yield from map(_mistake, group)
        yield "</details>"


def _mistake(one: Mistake) -> str:
    mistaken_type = ""
    if one.kind is MistakeKind.TYPE and one.found is not None:
        mistaken_type = f" taken for {one.found.type.value}"
    source = f" by {escape(str(one.found.source))}" if one.found is not None and str(one.found.source) else ""
    leak = ' <b class="l">leaks</b>' if one.leaks else ""
    note = f"{escape(one.note.id)} at {one.span.start}"
    return (
        f'<div class="m" data-k="{one.kind}" data-n="{escape(one.note.kind)}"><b>{one.kind}</b>'
        f"{mistaken_type}{source}{leak} <small>{note}</small><p>{_context(one)}</p></div>"
    )


def _context(one: Mistake) -> str:
    """Return the text around the mistake, with the annotation and the finding marked."""
    text = one.note.annotated.text
    if not text:
        return ""
    spans = [span for span in (one.gold, one.found) if span is not None]
    start = max(0, min(s.start for s in spans) - _CONTEXT_CHARACTERS)
    end = min(len(text), max(s.end for s in spans) + _CONTEXT_CHARACTERS)
    cuts = sorted({start, end, *(at for s in spans for at in (s.start, s.end) if start < at < end)})
    return "".join(
        _mark(escape(text[a:b]), _is_inside(one.gold, a), _is_inside(one.found, a)) for a, b in pairwise(cuts)
    )


def _is_inside(span: Span | None, at: int) -> bool:
    return span is not None and span.start <= at < span.end


def _mark(text: str, gold: bool, found: bool) -> str:
    names = " ".join(name for name, on in (("g", gold), ("f", found)) if on)
    return f'<span class="{names}">{text}</span>' if names else text


def _cell(one: Figure, scale: float = 1) -> str:
    form = ".3f" if scale == 1 else ".1f"
    value, low, high = (format(scale * n, form) for n in (one.value, one.low, one.high))
    return f"{value} <small>{low}-{high}</small>"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table. ``head`` and the cells are HTML: the caller escapes them."""
    top = "".join(f'<th scope="col">{name}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _fold(inside: str, summary: str) -> str:
    return f"<details><summary>{summary}</summary>{inside}</details>"
