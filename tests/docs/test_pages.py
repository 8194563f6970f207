"""Every command of the how-to pages runs as it stands and prints what its page shows."""

import re
from pathlib import Path

import pytest
from support.pages import Kind, Shell, alike, steps, walk

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# Pages whose commands a test of their own runs, with what it looks at besides.
ELSEWHERE = {"audit.md", "console.md", "dead-letters.md", "keys.md", "mllp.md"}
PAGES = sorted(path for path in DEPLOY.glob("*.md") if path.name not in ELSEWHERE)
TO_RUN = [page for page in PAGES if any(step.kind is Kind.HERE for step in steps(page))]


@pytest.mark.parametrize("page", TO_RUN, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        for step, code, told in walk(page, shell, tmp_path, broker=False):
            assert "Traceback" not in told, step.text
            assert alike(told, step.shown), f"{step.text}\n--- told\n{told}\n--- shown\n{step.shown}"
            assert code == 0, (step.text, told)
    finally:
        shell.close()


def test_every_page_is_looked_at() -> None:
    assert {path.name for path in TO_RUN} >= {
        "first-stream.md",
        "rules.md",
        "own-corpus.md",
        "profiles.md",
        "operate.md",
    }
    for path in DEPLOY.glob("*.md"):
        assert path.name in ELSEWHERE or list(steps(path)) or "```" not in path.read_text("utf-8"), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_not_run_has_a_reason(page: Path) -> None:
    for step in steps(page):
        assert step.kind is not Kind.NOT_RUN or len(step.shown) > 10, step.text


@pytest.mark.parametrize("page", sorted([*DEPLOY.rglob("*.md"), ROOT / "README.md"]), ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)", page.read_text("utf-8")):
        there = page.parent / target if target else page
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", there.read_text("utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in anchors, (target, anchor)


def test_output_that_differs_is_found() -> None:
    assert alike("key 5e0c41d7: a\nb\n", "key 93b1f0a2: a\nb\n")
    assert alike("first\n1\n2\nlast\n", "first\n...\nlast\n")
    assert not alike("first\nlast\n", "last\n")
    assert not alike("a\n", "a\nb\n")
    assert not alike("1 refused\n", "2 refused\n")
