"""A report as one page that can be printed, for privacy officers and committees.

The page has no script, loads nothing, and shows the figures of ``evidence.json`` only. All text is escaped.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape

from deid_agent.evidence.figures import EvidenceFigure, EvidenceSection, percent
from deid_agent.evidence.report import EvidenceReport
from deid_agent.web import base_style

_STYLE = (
    "body{margin:0 auto;max-width:60rem;padding:1.2rem 1rem 3rem}h2{margin:2rem 0 .4rem}"
    "td.n,th.n{text-align:right;white-space:nowrap}td.bar{width:9rem;min-width:6rem}"
    "tbody th{white-space:normal;color:inherit;font-weight:500}td.n{padding-left:.5rem}"
    "svg{display:block;width:100%;height:14px}.axis{fill:var(--line)}.range{fill:var(--accent);opacity:.45}"
    ".point{fill:var(--ink)}.limit{border-left:3px solid var(--warn);padding-left:.7rem;color:var(--soft)}"
    ".absent{color:var(--warn)}ul{padding-left:1.1rem}dl{display:grid;grid-template-columns:auto 1fr;gap:.1rem 1rem}"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}"
    "@media print{:root{--ground:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#bbb;--accent:#0b6670}"
    "body{max-width:none;font-size:10pt}section{break-inside:avoid-page}tr{break-inside:avoid}thead{display:table-header-group}}"
)


def evidence_page(report: EvidenceReport) -> str:
    """The page as an HTML document."""
    style = base_style() + _STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Evidence · deid-agent</title><style>{style}</style></head><body><main>"
        f"<h1>Evidence about a de-identified feed</h1><p>Made {escape(report.time)}. Figures only: this report has no "
        "text, name or identifier of a patient.</p>",
        _findings(report),
        _contents(report),
        *(_section(section) for section in report.sections),
        _group("Feed", report.feed),
        _group("Settings", report.settings),
        _group("Software", report.build),
    ]
    return "".join([*parts, "</main></body></html>\n"])


def _findings(report: EvidenceReport) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in report.findings)
    missing = [section.title for section in report.sections if section.absent]
    without = f'<p class="absent">Without figures: {escape(", ".join(missing))}.</p>' if missing else ""
    return f"<h2>In short</h2>{f'<ul>{items}</ul>' if items else ''}{without}"


def _contents(report: EvidenceReport) -> str:
    links = " · ".join(f'<a href="#{escape(each.id)}">{escape(each.title)}</a>' for each in report.sections)
    return f"<nav><p>{links}</p></nav>"


def _section(section: EvidenceSection) -> str:
    parts = [
        f'<section id="{escape(section.id)}"><h2>{escape(section.title)}</h2>',
        f"<p><b>Method.</b> {escape(section.method)}</p>",
    ]
    if section.absent:
        parts.append(f'<p class="absent">No figures: {escape(section.absent)}.</p>')
    parts += [f"<p><b>{escape(sentence)}</b></p>" for sentence in section.findings]
    if section.figures:
        parts.append(_table(section.figures))
    if section.facts:
        parts.append(_list(section.facts))
    parts.append(f'<p class="limit"><b>This does not show:</b> {escape(section.limit)}</p></section>')
    return "".join(parts)


def _table(figures: Iterable[EvidenceFigure]) -> str:
    rows = "".join(map(_row, figures))
    head = "".join(
        f'<th scope="col"{style}>{name}</th>'
        for name, style in (
            ("", ""),
            ("Share", ' class="n"'),
            ("95 % interval", ' class="n"'),
            ("", ""),
            ("Cases", ' class="n"'),
            ("Of", ' class="n"'),
            ("Remark", ""),
        )
    )
    return f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(one: EvidenceFigure) -> str:
    if one.value is None:
        blank = f'<td class="n">{one.count:,}</td><td class="n">{one.of:,}</td>' if one.of else "<td></td><td></td>"
        return (
            f'<tr><th scope="row">{escape(one.name)}</th><td class="n">-</td><td></td><td></td>'
            f"{blank}<td>{escape(one.remark)}</td></tr>"
        )
    interval = (
        ""
        if one.low is None or one.high is None
        else f"{_percent(one.low, down=True)} to {_percent(one.high, up=True)}"
    )
    return (
        f'<tr><th scope="row">{escape(one.name)}</th><td class="n">{_percent(one.value)}</td>'
        f'<td class="n">{interval}</td>'
        f'<td class="bar">{_bar(one)}</td><td class="n">{one.count:,}</td><td class="n">{one.of:,}</td>'
        f"<td>{escape(one.remark)}</td></tr>"
    )


def _percent(value: float, *, up: bool = False, down: bool = False) -> str:
    return percent(value, up=up, down=down) if value >= 0 else f"-{percent(-value, up=down, down=up)}"


def _bar(one: EvidenceFigure) -> str:
    """The share and its interval on a scale from 0 to 1; of a difference nothing is drawn."""
    low, high = (one.value if end is None else end for end in (one.low, one.high))
    if one.value is None or low is None or high is None or low < 0:
        return ""
    x, width = 200 * low, max(2.0, 200 * (high - low))
    return (
        '<svg viewBox="0 0 204 14" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="axis" x="2" y="6" width="200" height="2"/>'
        f'<rect class="range" x="{2 + x:.1f}" y="4" width="{width:.1f}" height="6"/>'
        f'<rect class="point" x="{1 + 200 * one.value:.1f}" y="2" width="2" height="10"/></svg>'
    )


def _group(title: str, facts: Mapping[str, object]) -> str:
    return f"<section><h2>{escape(title)}</h2>{_list(facts)}</section>" if facts else ""


def _list(facts: Mapping[str, object]) -> str:
    items = "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{_value(value)}</dd>" for name, value in facts.items()
    )
    return f"<dl>{items}</dl>"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return _list({str(name): each for name, each in value.items()})
    if isinstance(value, list | tuple):
        return escape(", ".join(map(str, value))) or "none"
    return escape(f"{value:,}" if type(value) is int else "-" if value is None else str(value))
