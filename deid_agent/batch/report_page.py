"""The report and the review of a sample as pages: one file each, without scripts, and nothing is loaded.

Everything that comes from elsewhere is escaped: names of columns, and on the review page the cells of rows.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from deid_agent.batch.reporting import BatchReport, describe_bound
from deid_agent.batch.sampling import SampledCell, SealedRow

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{text-align:left;padding:.15rem 1rem .15rem 0;"
    "vertical-align:top;border-bottom:1px solid #ddd}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    "pre{white-space:pre-wrap;font:13px/1.5 ui-monospace,monospace;margin:0}"
    "ins{background:#cfe8cf;text-decoration:none}"
    "del{background:#f3d0d0;text-decoration:none}"
    "section{margin:2rem 0}.warn{background:#f3d0d0;padding:.5rem 1rem}"
    "@media print{section{break-inside:avoid}}"
)
# No script and no address: a cell of a row that is not escaped by mistake could still load and run nothing.
_HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    f'<meta name="referrer" content="no-referrer"><style>{_STYLE}</style>'
)
_PIECE = re.compile(r"\w+\s*|\s+|[^\w\s]\s*")
_MOST_PIECES = 4000
_MISSES = 4


def report_page(report: BatchReport, sampled: int | None) -> str:
    """The report as a page, without a value of a row. ``sampled`` is the number of rows in the sample, if any."""
    head = report.head
    parts = [
        _open("Report of a batch"),
        _table(
            ("", ""),
            [
                ("Build", head.build),
                ("Version", head.version),
                ("Table", head.table),
                ("Policy", head.policy),
                ("Key", head.key),
                ("Units", report.units),
                ("Rows", report.rows),
                ("Refused rows", sum(report.refused.values())),
                ("Rows without a patient", report.no_patient),
                ("Rows whose patient has no identity", report.no_identity),
                ("Identities that no row has", report.unmatched),
                ("Words of texts", report.words),
                ("Replacements", report.replacements),
            ],
        ),
    ]
    for title, name, counts in (
        ("Refused rows by reason", "Reason", report.refused),
        ("Replacements by type", "Type", report.types),
        ("Replacements by column", "Column", report.columns),
        ("Replacements by rule", "Rule", report.rules),
    ):
        parts.append(f"<h2>{title}</h2>" + (_counts(name, counts) if counts else "<p>None.</p>"))
    parts += ["<h2>Units that differ</h2>", _unusual(report)]
    if sampled is not None:
        parts.append(f"<h2>Sample</h2><p>If readers find nothing: {escape(describe_bound(sampled))}.</p>")
    return "".join([*parts, "</body></html>\n"])


def _open(title: str) -> str:
    return f"{_HEAD}<title>{title}</title></head><body><h1>{title}</h1>"


def _counts(name: str, counts: Mapping[str, int]) -> str:
    return _table((name, "Count"), counts.items())


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["<table>"]
    if any(heads):
        lines.append("<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>")
    for row in rows:
        cells = (f'<td class="n">{each:,}</td>' if isinstance(each, int) else _cell(each) for each in row)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "".join([*lines, "</table>"])


def _cell(value: object) -> str:
    return f'<td class="n">{value:.1f}</td>' if isinstance(value, float) else f"<td>{escape(str(value))}</td>"


def _unusual(report: BatchReport) -> str:
    if report.median is None:
        return "<p>No unit has enough words.</p>"
    text = f"<p>The median is {report.median:.1f} replacements per 1,000 words of text.</p>"
    if not report.unusual:
        return text + "<p>No unit leaves it.</p>"
    rows = [(each.file, each.words, each.replacements, each.rate) for each in report.unusual]
    return text + _table(("Output", "Words", "Replacements", "Per 1,000 words"), rows)


def review_page(rows: Sequence[tuple[SealedRow, Sequence[SampledCell]]], files: Mapping[str, str]) -> str:
    """The rows of a sample in the clear, before and after. ``files`` are the outputs of the units."""
    parts = [_open("Review of a sample")]
    parts.append('<p class="warn">This page has originals in the clear, with all PHI. Delete it after the review.</p>')
    parts.append(
        "<p>Search each text after the change for a name, a number, a place or a date that was not replaced.</p>"
    )
    bounds = [(missed, describe_bound(len(rows), missed)) for missed in range(min(_MISSES, len(rows)))]
    parts.append(_table(("Rows with a miss", "Then"), [(str(missed), text) for missed, text in bounds]))
    for number, (row, cells) in enumerate(rows, 1):
        place = f"{files.get(row.unit, row.unit)}, row {row.row + 1}"
        parts.append(f"<section><h2>{number}. {escape(place)}</h2><table>")
        parts.append("<tr><th>Column</th><th>Before</th><th>After</th></tr>")
        for name, kind, before, after in cells:
            old, new = _mark(before or "", after or "")
            parts.append(f"<tr><td>{escape(name)}<br><small>{escape(kind)}</small></td>")
            parts.append(f"<td><pre>{old}</pre></td><td><pre>{new}</pre></td></tr>")
        parts.append("</table></section>")
    return "".join([*parts, "</body></html>\n"])


def _mark(before: str, after: str) -> tuple[str, str]:
    """Both texts, escaped, with their differences marked; very long ones are not compared."""
    old, new = _PIECE.findall(before), _PIECE.findall(after)
    if len(old) > _MOST_PIECES or len(new) > _MOST_PIECES:
        return escape(before), escape(after)
    left, right = list[str](), list[str]()
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        one, two = escape("".join(old[a:b])), escape("".join(new[c:d]))
        left.append(one if kind == "equal" or not one else f"<del>{one}</del>")
        right.append(two if kind == "equal" or not two else f"<ins>{two}</ins>")
    return "".join(left), "".join(right)
