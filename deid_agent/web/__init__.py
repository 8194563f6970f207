"""The files of the web pages: the console, and the style and script of reports."""

import base64
import hashlib
from importlib import resources

from deid_agent.web.plain_page import PAPER_STYLE, close_page, open_page, render_counts, render_table

__all__ = [
    "PAPER_STYLE",
    "base_style",
    "close_page",
    "open_page",
    "read_files",
    "render_counts",
    "render_table",
    "report_policy",
    "report_script",
    "report_style",
]

_ENDINGS = (".html", ".css", ".js", ".svg")


def read_files() -> dict[str, bytes]:
    """The content of every file of this folder, by file name."""
    folder = resources.files("deid_agent.web")
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith(_ENDINGS)}


def base_style() -> str:
    """The style sheet of all pages: colours, type and tables."""
    return _read_text("base.css")


def report_style() -> str:
    """The style sheet that an evaluation report contains: the base style of the console and its own rules."""
    return base_style() + _read_text("report.css")


def report_script() -> str:
    """The script that an evaluation report contains. It filters the list of errors; the page works without it."""
    return _read_text("report.js")


def report_policy() -> str:
    """The Content-Security-Policy of an evaluation report: its own style and script, by digest, and nothing else."""
    style, script = _digest(report_style()), _digest(report_script())
    return f"default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'"


def _read_text(name: str) -> str:
    return (resources.files("deid_agent.web") / name).read_text("utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
