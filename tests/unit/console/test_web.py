"""The files of the pages: nothing of another host, nothing inline, no text that becomes markup."""

import re
from importlib import resources as packaged
from importlib.resources.abc import Traversable

import pytest

from deid_agent.agent.ports import Outcome
from deid_agent.console import assets
from deid_agent.errors import Reason
from deid_agent.eval import page

FILES = sorted((packaged.files("deid_agent") / "web").iterdir(), key=lambda item: item.name)
ALLOWED = {"http://www.w3.org/2000/svg"}
"""The name of a language, which nobody asks for."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_no_other_host_is_named(file: Traversable) -> None:
    assert set(re.findall(r"https?://[^\s\"')]+", file.read_text("utf-8"))) <= ALLOWED
    assert not re.search(r"url\(|@import|[\"']//", file.read_text("utf-8"))


@pytest.mark.parametrize("file", [f for f in FILES if f.name.endswith(".js")], ids=lambda file: str(file.name))
def test_no_script_makes_markup_of_text_or_keeps_anything(file: Traversable) -> None:
    text = file.read_text("utf-8")
    if file.name == "common.js":  # but its half of a session, which goes with the log out
        text, used = re.subn(r"\blocalStorage\.(?:set|get|remove)Item\(KEPT\b", "", text)
        assert used == 3
    for word in (
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser",
        "srcdoc", "localStorage", "sessionStorage", "indexedDB", "caches", "console.",
    ):  # fmt: skip
        assert word not in text, word


def test_no_page_has_a_script_or_style_of_its_own() -> None:
    loaded = assets.load()
    for text in (*loaded.pages.values(), loaded.login):
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=|javascript:|\{[a-z]+\}", text)
        assert text.count("<h1") == 1 and '<html lang="en">' in text
        for name in re.findall(r'(?:src|href)="/console/web/([^"]+)"', text):
            assert name in loaded.files


def test_the_pages_know_every_reason_and_every_outcome() -> None:
    """A reason that is missing there has no meaning in the list of letters, and cannot be searched for in the audit."""
    loaded = assets.load()
    (meaning,) = re.findall(r"^const MEANING = \{\n(.*?)^\};", loaded.files["letters.js"][0].decode(), re.M | re.S)
    assert re.findall(r'^  ([A-Z]+): "\w[^"]+",$', meaning, re.MULTILINE) == list(Reason)
    every = r'<select name="(\w+)"><option value="">every</option>(.*?)</select>'
    choices = dict(re.findall(every, loaded.pages["audit"]))
    assert re.findall(r"<option>(\w+)</option>", choices["reason"]) == list(Reason)
    assert re.findall(r"<option>(\w+)</option>", choices["outcome"]) == list(Outcome)


def test_the_report_of_an_evaluation_has_the_same_style_and_allows_no_other() -> None:
    assert page.style().startswith((packaged.files("deid_agent") / "web" / "base.css").read_text("utf-8"))
    assert "unsafe" not in page.policy() and page.policy().count("'sha256-") == 2
