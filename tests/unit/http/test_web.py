"""The files of the pages: no other host, no inline scripts or styles, no text that is parsed as markup."""

import re

import pytest

from deid_agent.agent.ports import Outcome
from deid_agent.http.console import load_assets
from deid_agent.model.errors import Reason
from deid_agent.web import read_files, report_policy, report_style

FILES = {name: content.decode() for name, content in sorted(read_files().items())}
ALLOWED = {"http://www.w3.org/2000/svg"}
"""The name of a namespace, which no browser requests."""


@pytest.mark.parametrize("name", FILES)
def test_no_other_host_is_named(name: str) -> None:
    assert set(re.findall(r"https?://[^\s\"')]+", FILES[name])) <= ALLOWED
    assert not re.search(r"url\(|@import|[\"']//", FILES[name])


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_no_script_builds_markup_from_text_or_stores_data(name: str) -> None:
    text = FILES[name]
    if name == "common.js":  # except the page key of a session, which is removed at logout
        text, used = re.subn(r"\blocalStorage\.(?:set|get|remove)Item\(STORAGE_KEY\b", "", text)
        assert used == 3
    for word in (
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser",
        "srcdoc", "localStorage", "sessionStorage", "indexedDB", "caches", "console.",
    ):  # fmt: skip
        assert word not in text, word


def test_no_page_has_an_inline_script_or_style() -> None:
    loaded = load_assets()
    for text in (*loaded.pages.values(), loaded.login):
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=|javascript:|\{[a-z]+\}", text)
        assert text.count("<h1") == 1 and '<html lang="en">' in text
        for name in re.findall(r'(?:src|href)="/console/web/([^"]+)"', text):
            assert name in loaded.files


def test_no_page_formats_a_time_by_the_locale() -> None:
    """All times are ISO 8601 in UTC, so that they can be compared with the log and sent to a colleague."""
    for name, text in FILES.items():
        assert not re.search(r"toLocale(Date|Time)String|DateTimeFormat|dateStyle|timeStyle", text), name


def test_the_pages_know_every_reason_and_every_outcome() -> None:
    """A missing reason would have no explanation in the dead letters, and could not be searched in the audit."""
    loaded = load_assets()
    (meaning,) = re.findall(r"^const MEANING = \{\n(.*?)^\};", loaded.files["dead-letters.js"][0].decode(), re.M | re.S)
    assert re.findall(r'^  ([A-Z]+): "\w[^"]+",$', meaning, re.MULTILINE) == list(Reason)
    select = r'<select name="(\w+)"><option value="">all</option>(.*?)</select>'
    choices = dict(re.findall(select, loaded.pages["audit"]))
    assert re.findall(r"<option>(\w+)</option>", choices["reason"]) == list(Reason)
    assert re.findall(r"<option>(\w+)</option>", choices["outcome"]) == list(Outcome)


def test_the_evaluation_report_has_the_same_style_and_allows_no_other() -> None:
    assert report_style().startswith(FILES["base.css"])
    assert "unsafe" not in report_policy() and report_policy().count("'sha256-") == 2
