"""CONTRIBUTING.md names files, tests and make targets that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PATH = re.compile(r"(?:deid_agent|tests|rules|docs|deploy|corpus|models|\.ci)/[\w./-]*\w/?")


def test_every_path_exists() -> None:
    named = {path for code in re.findall(r"`([^`\n]+)`", PAGE) if "<" not in code for path in PATH.findall(code)}
    assert len(named) > 40
    assert sorted(path for path in named if not (ROOT / path).exists() and "PAGE" not in path) == []


def test_every_name_is_in_its_file() -> None:
    named = re.findall(r"`(\w+)`\s+(?:in|of)\s+`([\w./-]+\.py)`", PAGE)
    assert len(named) > 5
    for name, path in named:
        file = ROOT / path if (ROOT / path).exists() else next((ROOT / "deid_agent").rglob(path))
        assert re.search(rf"\b{name}\b", file.read_text("utf-8")), (name, path)


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"make ([a-z][\w-]+)", " ".join(re.findall(r"`(make [^`]+)`", PAGE)))) <= targets


def test_every_kind_of_change_has_its_proof() -> None:
    section = PAGE.partition("## Where do I change X?")[2].partition("\n## ")[0]
    entries = re.split(r"^### ", section, flags=re.MULTILINE)[1:]
    assert len(entries) == 10
    for entry in entries:
        assert re.search(r"^Proof: `", entry, re.MULTILINE), entry.splitlines()[0]
