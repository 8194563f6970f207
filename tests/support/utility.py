"""Utility cases: clinical text that other tools replace by mistake, often beside PHI that must go.

``tests/cases/utility/cases.jsonl`` has one case a line. In its text ``{...}`` must stay, and ``[...]`` is PHI. A source
is the issue of another tool that reported the kind of mistake. The cases were written before the first run on them.

``PYTHONPATH=.:tests python -m support.utility`` prints the counts, and with ``--seen`` also the altered texts of the
half that is not blind. Decide about rules by that half only.
"""

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.suites import load_default

from deid_agent.model import Document, Range, Span
from deid_agent.recognize import Profile, Tagger

FOLDER = Path(__file__).resolve().parents[1] / "cases" / "utility"
_MARK = re.compile(r"\{([^{}]+)\}|\[([^\[\]]+)\]")


@dataclass(frozen=True, slots=True)
class Case:
    """One case: its plain text, the ranges that must stay and those that must go."""

    id: str
    kind: str
    text: str
    keep: tuple[Range, ...]
    phi: tuple[Range, ...]
    source: str = ""

    @property
    def blind(self) -> bool:
        """True for half of the cases, whose single results nobody looks at when rules are written."""
        return hashlib.sha256(self.id.encode()).digest()[0] % 2 == 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The texts of a case that were altered although they must stay, and the PHI that was not covered."""

    case: Case
    altered: tuple[Range, ...]
    leaked: tuple[Range, ...]
    spans: tuple[Span, ...]


@cache
def read_cases() -> tuple[Case, ...]:
    lines = (FOLDER / "cases.jsonl").read_text("utf-8").splitlines()
    return tuple(_parse(json.loads(line)) for line in lines)


def _parse(row: dict[str, str]) -> Case:
    plain, at = "", 0
    keep: list[Range] = []
    phi: list[Range] = []
    for mark in _MARK.finditer(row["text"]):
        plain += row["text"][at : mark.start()]
        inner = mark[1] or mark[2]
        (keep if mark[1] else phi).append((len(plain), len(plain) + len(inner)))
        plain += inner
        at = mark.end()
    plain += row["text"][at:]
    return Case(row["id"], row["kind"], plain, tuple(keep), tuple(phi), row.get("source", ""))


def check_cases(tagger: Tagger, cases: Sequence[Case] = ()) -> list[Outcome]:
    cases = cases or read_cases()
    found = tagger.find_all([Document(case.text) for case in cases])
    return [_check(case, spans) for case, spans in zip(cases, found, strict=True)]


def _check(case: Case, spans: Sequence[Span]) -> Outcome:
    covered = {at for span in spans for at in range(span.start, span.end)}
    letters = {at for at, char in enumerate(case.text) if char.isalnum()}
    altered = tuple(r for r in case.keep if letters & covered & set(range(*r)))
    leaked = tuple(r for r in case.phi if (letters & set(range(*r))) - covered)
    return Outcome(case, altered, leaked, tuple(spans))


def table(outcomes: Sequence[Outcome]) -> str:
    """Altered cases by kind, then the totals of both halves."""
    kinds = Counter(o.case.kind for o in outcomes)
    lost = Counter(o.case.kind for o in outcomes if o.altered)
    rows = [f"{kind:20s} {lost[kind]:3d} of {n}" for kind, n in kinds.items()]
    for name, half in (("seen", False), ("blind", True)):
        own = [o for o in outcomes if o.case.blind is half]
        with_phi = [o for o in own if o.case.phi]
        altered, leaks = sum(bool(o.altered) for o in own), sum(bool(o.leaked) for o in with_phi)
        rows.append(f"{name:20s} altered {altered} of {len(own)}; leaks {leaks} of {len(with_phi)}")
    return "\n".join(rows)


def _show(outcome: Outcome) -> str:
    text = outcome.case.text
    parts = [f"{text[s.start : s.end]!r} {s.type} {s.source}" for s in outcome.spans]
    marks = [text[a:b] for a, b in outcome.altered], [text[a:b] for a, b in outcome.leaked]
    return f"{outcome.case.id} | {text} | altered {marks[0]} leaked {marks[1]} | {'; '.join(parts)}"


if __name__ == "__main__":
    for profile in Profile:
        outcomes = check_cases(load_default(profile))
        print(profile, table(outcomes), sep="\n")  # noqa: T201
        if "--seen" in sys.argv:
            print(*(_show(o) for o in outcomes if not o.case.blind and (o.altered or o.leaked)), sep="\n")  # noqa: T201
