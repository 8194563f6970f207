"""The commands of the how-to pages that need Kafka, on a real broker."""

import os
import sys
from pathlib import Path

import pytest
from support.kafka_broker import KafkaBroker
from support.pages import Kind, Shell, is_alike, steps, walk

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
KAFKA_PROGRAMS = ROOT / "tests" / "support" / "kafka_programs.py"
PAGES = [page for page in sorted(DOCS.glob("*.md")) if any(step.kind is Kind.BROKER for step in steps(page))]
PROGRAMS = ("kafka-topics.sh", "kafka-console-producer.sh", "kafka-console-consumer.sh")
pytestmark = pytest.mark.broker


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with substitutes for the programs of a Kafka distribution."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {KAFKA_PROGRAMS} {name} "$@"\n')
        script.chmod(0o755)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_the_output_of_its_commands(
    page: Path, programs: Path, own_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "work"
    folder.mkdir()
    shell = Shell(folder, own_broker.bootstrap)
    try:
        for step, code, printed in walk(page, shell, folder, broker=True):
            assert is_alike(printed, step.shown), f"{step.text}\n--- printed\n{printed}\n--- shown\n{step.shown}"
            assert code == 0, (step.text, printed)
    finally:
        shell.close()
