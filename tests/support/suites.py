"""Two suites of invented lines by authors who have not seen the rules: clinical facts, and names in hard places.

``PYTHONPATH=.:tests python -m support.suites`` prints the tables. The files ``-seen`` were looked at when rules were
written. The files ``-unseen`` and ``-stranger`` were not; the author of the latter has never seen the project.
``integrity-dense`` is of the author of the rules: short lines with many facts each, whose numbers are the facts.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.model import Document, Span
from deid_agent.pipeline import facts_from_context
from deid_agent.recognize import Profile, Tagger, load_rules, load_tagger
from deid_agent.rules import data_folder

PARTS = {"integrity": ("seen", "unseen", "stranger", "dense"), "hard-names": ("seen", "unseen", "stranger")}
FOLDER = Path(__file__).resolve().parents[1] / "cases" / "suites"


@dataclass(frozen=True, slots=True)
class Line:
    """One invented line. ``marked`` are facts that must stay, or names that must go."""

    id: str
    kind: str
    text: str
    marked: tuple[str, ...]
    context: Mapping[str, object] | None = None


@dataclass(slots=True)
class Result:
    """The lost lines by kind, and the counts of lines, marked texts and lost marked texts."""

    lines: Counter[str] = field(default_factory=Counter)
    lost_lines: dict[str, list[str]] = field(default_factory=dict)
    marked: int = 0
    lost: int = 0

    @property
    def lost_line_count(self) -> int:
        return sum(map(len, self.lost_lines.values()))

    def table(self) -> str:
        rows = [f"{kind:16s} {len(self.lost_lines.get(kind, [])):3d} of {n}" for kind, n in sorted(self.lines.items())]
        total = self.lines.total()
        return "\n".join([*rows, f"lines {self.lost_line_count} of {total}; marked {self.lost} of {self.marked}"])


def read_lines(name: str) -> list[Line]:
    rows = (json.loads(row) for row in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines())
    return [
        Line(row["id"], row["kind"], row["text"], tuple(row.get("facts") or row["names"]), row.get("context"))
        for row in rows
    ]


def _document(line: Line) -> Document:
    return Document(line.text, facts_from_context(line.context) if line.context else ())


def _tag(lines: Sequence[Line], tagger: Tagger) -> Iterator[tuple[Line, bytearray]]:
    for line, spans in zip(lines, tagger.find_all([_document(line) for line in lines]), strict=True):
        yield line, _cover(line.text, spans)


def _cover(text: str, spans: Sequence[Span]) -> bytearray:
    covered = bytearray(len(text))
    for span in spans:
        covered[span.start : span.end] = b"\1" * len(span)
    return covered


def check_facts(lines: Sequence[Line], tagger: Tagger) -> Result:
    """A line is lost if anything in it is altered; a fact is lost if a character of it is."""
    result = Result()
    for line, covered in _tag(lines, tagger):
        result.lines[line.kind] += 1
        result.marked += len(line.marked)
        result.lost += sum(any(covered[at] for at in _first(line.text, fact)) for fact in line.marked)
        if any(covered):
            result.lost_lines.setdefault(line.kind, []).append(line.id)
    return result


def check_names(lines: Sequence[Line], tagger: Tagger) -> Result:
    """A name is lost if a letter of one of its occurrences is not covered; a line is lost if a name of it is."""
    result = Result()
    for line, covered in _tag(lines, tagger):
        result.lines[line.kind] += 1
        leaked = [name for name in line.marked if _leaks(line.text, name, covered)]
        result.marked += len(line.marked)
        result.lost += len(leaked)
        if leaked:
            result.lost_lines.setdefault(line.kind, []).append(line.id)
    return result


def _first(text: str, part: str) -> range:
    start = text.index(part)
    return range(start, start + len(part))


def _leaks(text: str, name: str, covered: bytearray) -> bool:
    at = text.find(name)
    while at >= 0:
        inside_word = len(name) < 4 and (
            text[at - 1 : at].isalnum() or text[at + len(name) : at + len(name) + 1].isalnum()
        )
        if not inside_word and any(c.isalnum() and not covered[at + n] for n, c in enumerate(name)):
            return True
        at = text.find(name, at + 1)
    return False


def load_default(profile: Profile = Profile.RECALL) -> Tagger:
    return load_tagger(load_rules(data_folder("rules")), data_folder("models"), "default", profile)


if __name__ == "__main__":
    tagger = load_default(Profile(sys.argv[1] if len(sys.argv) > 1 else "recall"))
    for name, check in (("integrity", check_facts), ("hard-names", check_names)):
        for part in PARTS[name]:
            print(name, part, check(read_lines(f"{name}-{part}"), tagger).table(), sep="\n")  # noqa: T201
    known = [line for part in PARTS["hard-names"] for line in read_lines(f"hard-names-{part}") if line.context]
    print("names of the context", check_names(known, tagger).table(), sep="\n")  # noqa: T201
