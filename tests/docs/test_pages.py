"""Every command of the how-to pages runs and prints the output on its page."""

import re
from pathlib import Path

import pytest
from support.pages import Kind, Shell, is_alike, steps, walk

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Pages with a test module of their own, which also checks other properties.
ELSEWHERE = {"audit.md", "console.md", "dead-letters.md", "keys.md", "mllp.md"}
PAGES = sorted(path for path in DOCS.glob("*.md") if path.name not in ELSEWHERE)
TO_RUN = [page for page in PAGES if any(step.kind is Kind.HERE for step in steps(page))]


@pytest.mark.parametrize("page", TO_RUN, ids=lambda page: page.stem)
def test_a_page_shows_the_output_of_its_commands(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        for step, code, printed in walk(page, shell, tmp_path, broker=False):
            assert "Traceback" not in printed, step.text
            assert is_alike(printed, step.shown), f"{step.text}\n--- printed\n{printed}\n--- shown\n{step.shown}"
            assert code == 0, (step.text, printed)
    finally:
        shell.close()


def test_every_page_with_commands_is_tested() -> None:
    assert {path.name for path in TO_RUN} >= {
        "first-stream.md",
        "rules.md",
        "own-corpus.md",
        "profiles.md",
        "operate.md",
    }
    for path in DOCS.glob("*.md"):
        assert path.name in ELSEWHERE or list(steps(path)) or "```console" not in path.read_text("utf-8"), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_block_that_is_not_run_has_a_reason(page: Path) -> None:
    for step in steps(page):
        assert step.kind is not Kind.NOT_RUN or len(step.shown) > 10, step.text


@pytest.mark.parametrize("page", sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")]), ids=lambda page: page.stem)
def test_every_link_has_a_target(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)", page.read_text("utf-8")):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in anchors, (target, anchor)


def test_different_output_is_detected() -> None:
    assert is_alike("key 5e0c41d7: a\nb\n", "key 93b1f0a2: a\nb\n")
    assert is_alike("first\n1\n2\nlast\n", "first\n...\nlast\n")
    assert not is_alike("first\nlast\n", "last\n")
    assert not is_alike("a\n", "a\nb\n")
    assert not is_alike("1 refused\n", "2 refused\n")
