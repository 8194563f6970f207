"""The sites and narratives of messages: the cases of ``tests/cases/hl7``."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.hl7 import MSH, codec

CASES = Path(__file__).resolve().parents[2] / "cases" / "hl7"


def cases() -> list[dict[str, Any]]:
    return [case for file in sorted(CASES.glob("*.toml")) for case in tomllib.loads(file.read_text("utf-8"))["case"]]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    raw = case["message"].replace("{MSH}", MSH).replace("\n", "\r").encode()
    (parsed,) = codec().parse(raw)
    sites = [[s.path, s.type.value, s.kind.value, s.subject.value, s.value] for s in parsed.sites]
    assert sites == case["sites"]
    assert [[n.path, n.mapped.text] for n in parsed.narratives] == case["narratives"]


def test_a_group_is_the_repetition_so_that_names_stay_together() -> None:
    (parsed,) = codec().parse(f"{MSH}\rPID|||||Okafor&van^Ada~Bell^Ann\r".encode())
    assert [s.group for s in parsed.sites] == ["PID-5[1]"] * 3 + ["PID-5[2]"] * 2


def test_a_second_segment_is_counted_in_the_path() -> None:
    (parsed,) = codec().parse(f"{MSH}\rNK1||A\rNK1||B\r".encode())
    assert [s.path for s in parsed.sites] == ["NK1-2[1].1", "NK1(2)-2[1].1"]
