"""Known PHI: what the message's own structured part says, found again in its narrative.

The strongest recognizer there is: names, numbers, addresses and days that a
message carries in its fields identify its patient wherever else they stand.
When a common word or a short number counts as one of them is written down in
``knownnames`` and ``knownvalues``. The type of a span is the type of the fact,
its source ``known:<subject>-<kind>``.

Source: Dehghan 2015 section 2.4 (run-time dictionaries), seeded from the message instead of a first pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from deid_agent.recognize.knownnames import NameFinder, Words, people
from deid_agent.recognize.knownvalues import ValueFinder
from deid_agent.spans import Span
from deid_agent.text import Document


@dataclass(frozen=True, slots=True)
class KnownRecognizer:
    """Finds ``doc.facts`` in ``doc.text``. Costs nothing where there are no facts.

    ``exact`` is for text that nobody wrote as prose (codes, addresses of the net): no nicknames, misspellings and
    dotted initials there, but a patient's number of eight signs and more also as a part of a longer number.
    """

    words: Words = field(repr=False)
    name: str = "known"
    exact: bool = False

    def recognize(self, doc: Document) -> Iterator[Span]:
        """Spans of every fact that the text repeats, in any of its usual forms."""
        if not doc.facts:
            return
        named = people(doc.facts, self.words, nicknames=not self.exact)
        yield from NameFinder(named, self.words, self.exact).find(doc)
        yield from ValueFinder(doc.facts, self.words, self.exact).find(doc)
