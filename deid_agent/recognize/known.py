"""Known PHI: what the message's own structured part says, found again in its narrative.

The strongest recognizer there is: names, numbers, addresses and days that a
message carries in its fields identify its patient wherever else they stand.
When a common word or a short number counts as one of them is written down in
``namefinder`` and ``knownvalues``. The type of a span is the type of the fact,
its source ``known:<subject>-<kind>``.

Source: Dehghan 2015 section 2.4 (run-time dictionaries), seeded from the message instead of a first pass.
"""

from collections.abc import Iterator

from deid_agent.literal import Reading
from deid_agent.recognize.eastnames import EastFinder
from deid_agent.recognize.knownnames import Words, people
from deid_agent.recognize.knownvalues import ValueFinder
from deid_agent.recognize.namefinder import NameFinder
from deid_agent.sites import Fact
from deid_agent.spans import Span
from deid_agent.text import Document

_Finder = NameFinder | EastFinder | ValueFinder


class KnownRecognizer:
    """Finds ``doc.facts`` in ``doc.text``. Costs nothing where there are no facts.

    ``exact`` is for text that nobody wrote as prose (codes, addresses of the net): no nicknames, misspellings and
    dotted initials there, but a patient's number of eight signs and more also as a part of a longer number.
    """

    def __init__(self, words: Words, *, exact: bool = False) -> None:
        self._words = words
        self._exact = exact
        # The finders of the last facts: one message asks about the same tuple once per narrative.
        self._last: tuple[tuple[Fact, ...], tuple[_Finder, ...]] | None = None

    @property
    def name(self) -> str:
        """What configuration and reports call it."""
        return "known"

    def recognize(self, doc: Document) -> Iterator[Span]:
        """Spans of every fact that the text repeats, in any of its usual forms."""
        if not doc.facts:
            return
        for finder in self._finders(doc.facts):
            yield from finder.find(doc)

    def rules_out(self, reading: Reading, facts: tuple[Fact, ...]) -> bool:
        """True where no values of ``reading`` repeat a fact; of an ``exact`` recognizer alone.

        False says nothing: known PHI may be there.
        """
        if not self._exact:
            return False
        documents = [Document(text) for text in reading.texts]
        finders = self._finders(facts)
        return all(finder.rules_out(doc, rows=reading.rows) for finder in finders for doc in documents)

    def _finders(self, facts: tuple[Fact, ...]) -> tuple[_Finder, ...]:
        last = self._last
        if last is None or last[0] is not facts:
            named = people(facts, self._words, nicknames=not self._exact)
            names = NameFinder(named, self._words, self._exact)
            values = ValueFinder.of(facts, self._words, self._exact)
            last = self._last = (facts, (names, EastFinder.of(facts), values))
        return last[1]
