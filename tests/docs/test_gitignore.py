"""Files that the commands of a page create (keys, messages, audits, dead letters) cannot be committed by accident."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CREATES = re.compile(
    r"(?:mkdir(?: -p)?|--out|--remarks|--json|--html|[^&0-9]>{1,2}|cp -RL rules) ([a-z][\w.-]*)(?=[\s/;)])"
    r"|export DEID_\w+(?:PATH|OUTPUT|STATE)=([a-z][\w-]*-[\w-]*)(?=\s)"
)
"""Relative names after a part of a command that creates them: a folder, an output, a redirection."""


def created_by_pages() -> Iterator[str]:
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for line in block.splitlines():
                if line.startswith("$ "):
                    yield from ("".join(groups) for groups in CREATES.findall(f"{line} "))
        yield from re.findall(r"^<!-- file: (.+) -->$", page.read_text("utf-8"), re.MULTILINE)


def created_by_the_agent() -> Iterator[str]:
    for file in sorted((ROOT / "deploy").glob("*.toml")):
        settings = tomllib.loads(file.read_text("utf-8"))
        for section, names in {
            "directory": ("input", "output", "dead_letters", "state"),
            "mllp": ("dead_letters", "output"),
            "audit": ("path",),
            "dead_letters": ("public_key",),
        }.items():
            yield from (settings[section][name] for name in names if name in settings.get(section, {}))


def is_ignored(name: str) -> bool:
    # A pattern may match only files or only folders; a name that is ignored in either form cannot be added.
    forms = (name, f"{name}/file")
    return any(
        subprocess.run(["git", "check-ignore", "-q", "--no-index", form], cwd=ROOT, check=False).returncode == 0
        for form in forms
    )


def test_git_ignores_everything_that_the_pages_create() -> None:
    names = {*created_by_pages(), *created_by_the_agent()}
    assert len(names) > 10
    assert sorted(name for name in names if not is_ignored(name)) == []


def test_a_source_file_is_not_ignored() -> None:
    assert not is_ignored("deid_agent/app/__init__.py")
    assert not is_ignored("docs/keys.md")
