"""What every recognizer is."""

from collections.abc import Iterable
from typing import Protocol

from deid_agent.spans import Span
from deid_agent.text import Document


class Recognizer(Protocol):
    """Proposes spans of one document. Pure: the same document gives the same spans in the same order."""

    @property
    def name(self) -> str:
        """What configuration and reports call it."""

    def recognize(self, doc: Document) -> Iterable[Span]:
        """Spans inside the text; they may overlap, ``resolve`` decides. Holds and logs no text."""
