"""``message`` over third-party messages: each is published or refused with a reason."""

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.shared import shared

from deid_agent.cli import main
from deid_agent.model.errors import Reason

FOLDERS = [("messages", "hl7"), ("messages", "hl7-odd"), ("messages", "hl7-batch"), ("messages", "fhir")]


def run(source: Path, out: Path, policy: str) -> list[dict[str, object]]:
    remarks = out / "remarks.jsonl"
    out.mkdir()
    done = CliRunner(catch_exceptions=False).invoke(
        main,
        ["message", str(source), "--out", str(out / "m"), "--remarks", str(remarks), "--demo-key", "--policy", policy],
    )
    assert done.exit_code in {0, 1}, done.stderr
    assert "Traceback" not in done.stderr
    return [json.loads(line) for line in remarks.read_bytes().splitlines()]


@pytest.mark.parametrize("parts", FOLDERS, ids="/".join)
def test_every_file_is_published_or_refused_with_a_reason(parts: tuple[str, ...], tmp_path: Path) -> None:
    source = shared(*parts)
    lines = run(source, tmp_path / "out", "pseudonymised")
    assert len(lines) == sum(1 for path in source.rglob("*") if path.is_file())
    for line in lines:
        target = tmp_path / "out" / "m" / str(line["file"])
        if line["outcome"] == "published":
            assert target.is_file()
            assert "reason" not in line
        else:
            assert line["reason"] in set(Reason) - {Reason.INTERNAL}
            assert not target.exists()
    outcomes = Counter(str(line["outcome"]) for line in lines)
    assert outcomes["published"] > 0.9 * len(lines)


@pytest.mark.parametrize("parts", FOLDERS, ids="/".join)
def test_keep_returns_every_file_unchanged(parts: tuple[str, ...], tmp_path: Path) -> None:
    source = shared(*parts)
    for line in run(source, tmp_path / "out", "keep"):
        if line["outcome"] == "published":
            name = str(line["file"])
            assert (tmp_path / "out" / "m" / name).read_bytes() == (source / name).read_bytes(), name
