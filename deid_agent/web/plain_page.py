"""The frame and the tables of a page that is one file: no script, nothing is loaded, and it prints on paper.

Everything that comes from elsewhere is escaped. The Content-Security-Policy names the style by its digest, so that a
value that is not escaped by mistake could still load and run nothing.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{text-align:left;padding:.15rem 1rem .15rem 0;"
    "vertical-align:top;border-bottom:1px solid #ddd}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    "pre{white-space:pre-wrap;font:13px/1.5 ui-monospace,monospace;margin:0}"
    "ins{background:#cfe8cf;text-decoration:none}"
    "del{background:#f3d0d0;text-decoration:none}"
    "section{margin:2rem 0}.warn{background:#f3d0d0;padding:.5rem 1rem}.good{background:#dcefdc;padding:.5rem 1rem}"
    "@media print{section{break-inside:avoid}}"
)
PAPER_STYLE: Final = (
    "@page{size:A4;margin:12mm 15mm}"
    "@media print{body{font-size:10.5px;line-height:1.25;margin:0;padding:0;max-width:none}"
    "h1{font-size:18px;margin:0 0 .3rem}h2{font-size:13px;margin:.5rem 0 .1rem;break-after:avoid}"
    "p,ul,dl{margin:.15rem 0}dl{columns:2}dd{break-inside:avoid}"
    "table{margin:.1rem 0 .3rem}td,th{padding:.01rem .5rem .01rem 0}tr{break-inside:avoid}"
    ".warn,.good{padding:.2rem .5rem;print-color-adjust:exact}}"
    "dt{font-weight:600;float:left;clear:left;margin-right:.4rem}dd{margin:0}"
    "td{overflow-wrap:anywhere}td:first-child{overflow-wrap:normal}td.n{white-space:nowrap}"
)
"""For pages that are read on paper: small type, few margins."""


def open_page(title: str, style: str = "") -> str:
    """The begin of a page up to its heading; ``style`` is added to the common one."""
    sheet = _STYLE + style
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        f"content=\"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'\">"
        f'<meta name="referrer" content="no-referrer"><style>{sheet}</style>'
        f"<title>{escape(title)}</title></head><body><h1>{escape(title)}</h1>"
    )


def close_page() -> str:
    """The end of a page."""
    return "</body></html>\n"


def render_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers are on the right. Without any text in ``heads`` it has no head line."""
    lines = ["<table>"]
    if any(heads):
        lines.append("<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>")
    for row in rows:
        cells = (f'<td class="n">{each:,}</td>' if isinstance(each, int) else _cell(each) for each in row)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "".join([*lines, "</table>"])


def _cell(value: object) -> str:
    return f'<td class="n">{value:.1f}</td>' if isinstance(value, float) else f"<td>{escape(str(value))}</td>"


def render_counts(name: str, counts: Mapping[str, int]) -> str:
    """A table of counts by ``name``, or a sentence if there is none."""
    return render_table((name, "Count"), counts.items()) if counts else "<p>None.</p>"
