"""Whether ``review add --chosen`` finds notes with more errors: those at invented sites that no model has seen.

``PYTHONPATH=.:tests python tests/bench/review_choice.py [sites|dev]`` prints errors and leaked annotations of all notes
and of the chosen ones, and the share of wrong spans among the uncertain ones.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deid_agent.eval import CorpusPart, Note, read_annotated, select_part
from deid_agent.model import Document
from deid_agent.recognize import Profile, load_rules, load_tagger
from deid_agent.review import NoteReading, TaggerReader
from deid_agent.review.queue import choose, score_note
from deid_agent.rules import data_folder

CORPUS = Path(__file__).resolve().parents[2] / "corpus"


@dataclass(frozen=True)
class Result:
    """A note with its errors: spans that differ from the annotations, and annotations that are not covered."""

    note: Note
    score: float
    errors: int
    leaks: int
    spans: tuple[tuple[bool, bool], ...]  # uncertain, wrong


def compare(note: Note, reading: NoteReading) -> Result:
    text, gold = note.annotated.text, note.annotated.spans
    right = {(span.start, span.end, span.type) for span in gold}
    spans = [each.span for each in reading.proposals]
    found = {(span.start, span.end, span.type) for span in spans}
    return Result(
        note,
        score_note(reading, 0, len(text)),
        len(right ^ found),
        sum(not any(span.covers(each) for span in spans) for each in gold),
        tuple(
            (each.uncertain, (each.span.start, each.span.end, each.span.type) not in right)
            for each in reading.proposals
        ),
    )


def show(label: str, results: Sequence[Result]) -> None:
    characters = sum(len(each.note.annotated.text) for each in results) / 1000
    errors = sum(each.errors for each in results) / characters
    leaks = sum(each.leaks for each in results) / characters
    sys.stdout.write(f"{label:<10} {len(results)} notes, of 1,000 characters: {errors:.2f} errors, {leaks:.2f} leaks\n")


def main() -> None:
    part = CorpusPart(sys.argv[1] if len(sys.argv) > 1 else "sites")
    tagger = load_tagger(load_rules(data_folder("rules"), ()), data_folder("models"), "default", Profile.RECALL)
    reader = TaggerReader(tagger)
    notes = select_part(read_annotated(CORPUS).notes, part)
    results = [compare(note, reader.read(Document(note.annotated.text))) for note in notes]
    show("all", results)
    for most in (10, 25, 50):
        ids = {*choose([(each.score, each.note.id, each.note.patient) for each in results], most, 2, {})}
        show("chosen", [each for each in results if each.note.id in ids])
    for kind in (True, False):
        wrong = [is_wrong for each in results for uncertain, is_wrong in each.spans if uncertain is kind]
        share = sum(wrong) / len(wrong)
        sys.stdout.write(f"{'uncertain' if kind else 'other':<10} {len(wrong)} spans, {100 * share:.0f} % wrong\n")


if __name__ == "__main__":
    main()
