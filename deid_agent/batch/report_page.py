"""The report and the review of a sample as pages: one file each, without scripts, and nothing is loaded.

Everything that comes from elsewhere is escaped: names of columns, and on the review page the cells of rows.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from html import escape

from deid_agent.batch.reporting import BatchReport, describe_bound
from deid_agent.batch.sampling import SampledCell, SealedRow
from deid_agent.web import close_page, open_page, render_counts, render_table

_PIECE = re.compile(r"\w+\s*|\s+|[^\w\s]\s*")
_MOST_PIECES = 4000
_MISSES = 4


def report_page(report: BatchReport, sampled: int | None) -> str:
    """The report as a page, without a value of a row. ``sampled`` is the number of rows in the sample, if any."""
    head = report.head
    parts = [
        open_page("Report of a batch"),
        render_table(
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
        parts.append(f"<h2>{title}</h2>" + render_counts(name, counts))
    parts += ["<h2>Units that differ</h2>", _unusual(report)]
    if sampled is not None:
        parts.append(f"<h2>Sample</h2><p>If readers find nothing: {escape(describe_bound(sampled))}.</p>")
    return "".join([*parts, close_page()])


def _unusual(report: BatchReport) -> str:
    if report.median is None:
        return "<p>No unit has enough words.</p>"
    text = f"<p>The median is {report.median:.1f} replacements per 1,000 words of text.</p>"
    if not report.unusual:
        return text + "<p>No unit leaves it.</p>"
    rows = [(each.file, each.words, each.replacements, each.rate) for each in report.unusual]
    return text + render_table(("Output", "Words", "Replacements", "Per 1,000 words"), rows)


def review_page(rows: Sequence[tuple[SealedRow, Sequence[SampledCell]]], files: Mapping[str, str]) -> str:
    """The rows of a sample in the clear, before and after. ``files`` are the outputs of the units."""
    parts = [open_page("Review of a sample")]
    parts.append('<p class="warn">This page has originals in the clear, with all PHI. Delete it after the review.</p>')
    parts.append(
        "<p>Search each text after the change for a name, a number, a place or a date that was not replaced.</p>"
    )
    bounds = [(missed, describe_bound(len(rows), missed)) for missed in range(min(_MISSES, len(rows)))]
    parts.append(render_table(("Rows with a miss", "Then"), [(str(missed), text) for missed, text in bounds]))
    for number, (row, cells) in enumerate(rows, 1):
        place = f"{files.get(row.unit, row.unit)}, row {row.row + 1}"
        parts.append(f"<section><h2>{number}. {escape(place)}</h2><table>")
        parts.append("<tr><th>Column</th><th>Before</th><th>After</th></tr>")
        for name, kind, before, after in cells:
            old, new = _mark(before or "", after or "")
            parts.append(f"<tr><td>{escape(name)}<br><small>{escape(kind)}</small></td>")
            parts.append(f"<td><pre>{old}</pre></td><td><pre>{new}</pre></td></tr>")
        parts.append("</table></section>")
    return "".join([*parts, close_page()])


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
