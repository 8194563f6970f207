"""No late veto reaches a person, a place or a date in lines that were written to be mistaken for a term.

``tests/cases/late-vetoes/phi.txt`` has one line a note; ``[...]`` is PHI, and ``\\n`` is the end of a line. Each
of them was inside a late veto once.
"""

import re
from pathlib import Path

from support.suites import load_default

from deid_agent.model import Document
from deid_agent.recognize import load_rules
from deid_agent.recognize.resolve import Profile

ROOT = Path(__file__).resolve().parents[3]
LINES = (ROOT / "tests" / "cases" / "late-vetoes" / "phi.txt").read_text("utf-8").splitlines()
_MARK = re.compile(r"\[([^\[\]]+)\]")


def parse(line: str) -> tuple[str, list[tuple[int, int]]]:
    text, phi, at = "", [], 0
    line = line.replace("\\n", "\n")
    for mark in _MARK.finditer(line):
        text += line[at : mark.start()]
        phi.append((len(text), len(text) + len(mark[1])))
        text += mark[1]
        at = mark.end()
    return text + line[at:], phi


def test_no_late_veto_reaches_phi() -> None:
    vetoes = load_rules(ROOT / "rules").late_vetoes
    reached = []
    for line in LINES:
        text, phi = parse(line)
        doc = Document(text)
        ranges = [found for veto in vetoes for found in veto.find(doc)]
        reached += [line for start, end in phi for first, last in ranges if first < end and start < last]
    assert len(LINES) >= 350
    assert reached == []


def test_a_name_in_a_list_of_patients_goes() -> None:
    tagger = load_default(Profile.BALANCED)
    for text, name in (
        ("Bloom, stable overnight, home in am", "Bloom"),
        ("Maria Lopez disease, stable on scans", "Maria Lopez"),
        ("Bed 4 Baker tube feeds 50 ml/h", "Baker"),
        ("told David I would call him back tomorrow", "David"),
    ):
        [spans] = tagger.find_all([Document(text)])
        assert any(span.start <= text.index(name) < span.end for span in spans), text
