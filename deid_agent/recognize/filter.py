"""The filter of names: candidates first, then a machine that keeps the right ones.

Source: Ferrandez 2012 section 3.2: a machine decides of whole candidates and not of tokens, so few examples teach it.
A second machine tells whether the person is of the care team. The runtime needs no training library.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deid_agent.crf.columns import View
from deid_agent.dictionary import Dictionaries
from deid_agent.phi import PhiType
from deid_agent.recognize.candidates import Candidate, candidates
from deid_agent.recognize.namefeatures import Sight
from deid_agent.recognize.svm import Ints, Machines, take
from deid_agent.recognize.tokencrf import Asked
from deid_agent.spans import Span
from deid_agent.text import Document

SURE, WEAK = "filter:name", "filter:name-weak"
NAME, TEAM = "name", "team"
"""The machines: is it the name of a person; is it one of the care team."""

First = Callable[[Document], Sequence[Span]]
"""The disjoint findings of a first pass."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate with what the machine says of it: the higher, the surer a name. ``row`` are its features."""

    start: int
    end: int
    score: float
    row: Ints = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Names of persons, those of the first pass among them."""

    model: Machines
    dictionaries: Dictionaries = field(repr=False)
    name: str = "name-filter"

    def propose(self, doc: Document, first: Sequence[Span]) -> list[Span]:
        """Disjoint names in order; from the threshold ``sure`` on as ``filter:name``, else ``filter:name-weak``."""
        sure, likely = self.model.thresholds["sure"], self.model.thresholds["likely"]
        kept = chosen(self.judge(doc, first), likely)
        (team,) = take(self.model.machines, (TEAM,))
        return [
            Span(
                each.start,
                each.end,
                PhiType.DOCTOR if score >= 0 else PhiType.PATIENT,
                SURE if each.score >= sure else WEAK,
            )
            for each, score in zip(kept, team.decide([each.row for each in kept]).tolist(), strict=True)
        ]

    def propose_all(self, asked: Sequence[Asked]) -> list[list[Span]]:
        """As ``propose`` of each."""
        return [self.propose(doc, first) for doc, first in asked]

    def judge(self, doc: Document, first: Sequence[Span]) -> list[Judged]:
        """Every candidate that passes the screen, with its scores."""
        if not doc.tokens:
            return []
        view = View(doc, first, self.dictionaries)
        found = candidates(view)
        rows = rows_of_candidates(self.model, view, found)
        passed = self.model.screen.passes(rows).tolist()
        rows = [row for row, yes in zip(rows, passed, strict=True) if yes]
        found = [candidate for candidate, yes in zip(found, passed, strict=True) if yes]
        (machine,) = take(self.model.machines, (NAME,))
        scores = machine.decide(rows).tolist()
        ranges = [candidate.range(doc.tokens) for candidate in found]
        return [Judged(a, b, score, row) for (a, b), score, row in zip(ranges, scores, rows, strict=True)]


@dataclass(frozen=True, slots=True)
class FilteredNames:
    """The system of Ferrandez 2012 as a recognizer: what the filter keeps of the first pass and of its own candidates.

    What a first pass finds of other types is left out: this system finds persons only.
    """

    first: First
    filter: NameFilter
    name: str = "ferrandez2012"

    def recognize(self, doc: Document) -> Iterator[Span]:
        """Names of persons."""
        yield from self.filter.propose(doc, self.first(doc))


def rows_of_candidates(model: Machines, view: View, found: Sequence[Candidate]) -> list[Ints]:
    """The features of candidates as rows."""
    sight = Sight.of(view)
    return model.rows(sight.features(candidate) for candidate in found)


def chosen(judged: Iterable[Judged], least: float) -> list[Judged]:
    """From the threshold on the best candidate, then the best that does not overlap it, and so on; by place."""
    kept: list[Judged] = []
    for each in sorted(judged, key=lambda j: (-j.score, j.start, -j.end)):
        if each.score < least:
            break
        if all(each.end <= other.start or other.end <= each.start for other in kept):
            kept.append(each)
    return sorted(kept, key=lambda j: j.start)
