"""Whole notes in markup: the default system finds exactly these spans, but for the listed failures."""

from pathlib import Path

from deid_agent.eval.markup import Note, read_corpus
from deid_agent.model.text import Document
from deid_agent.pipeline.facts import facts_from_context
from deid_agent.recognize.registry import assemble_recognizers, load_rules
from deid_agent.recognize.resolve import Profile, Resolver

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests/cases/notes"
RULES = load_rules(ROOT / "rules")
RECOGNIZERS = assemble_recognizers(RULES, "default")


def faults(note: Note) -> set[str]:
    """Differences as lines of ``expected-failures.lst``."""
    doc = Document(note.annotated.text, facts_from_context(note.profile))
    proposals = [span for recognizer in RECOGNIZERS for span in recognizer.recognize(doc)]
    found = {(s.start, s.end, s.type) for s in Resolver(Profile.RECALL, RULES).resolve(proposals, doc)}
    wanted = {(s.start, s.end, s.type) for s in note.annotated.spans}
    return {
        f"{note.id} {sign} {kind} {start}"
        for sign, spans in (("-", wanted - found), ("+", found - wanted))
        for start, _, kind in spans
    }


def test_the_failures_equal_the_list() -> None:
    listed = {
        line for line in (CASES / "expected-failures.lst").read_text("utf-8").splitlines() if line and line[0] != "#"
    }
    got = set().union(*(faults(note) for note in read_corpus(CASES)))
    assert got - listed == set(), "new failures"
    assert listed - got == set(), "fixed failures: remove them from the list"
