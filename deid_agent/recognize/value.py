"""Short values: what a model of notes says of them needs a witness.

A field, a cell or an answer of a few words has no context. There a model names codes and units as likely as people;
what it is in doubt of stands only where the lists know every word as a name of a person or a place.
"""

from itertools import islice

from deid_agent.dictionary import Dictionaries
from deid_agent.spans import Span
from deid_agent.text import Document

FEWEST = 8
"""Words of prose: over the messages of others, most doubts about shorter texts are wrong."""
_MOST = 64  # tokens: a page of dates is no value
_NAMES = frozenset({"given-male", "given-female", "family", "family-rare", "city", "county", "state", "hospital"})


def is_value(doc: Document) -> bool:
    """True where the text is short and has fewer words than prose. A word begins with a letter."""
    if len(doc.tokens) > _MOST:
        return False
    words = (True for start, _ in doc.tokens if doc.text[start].isalpha())
    return sum(islice(words, FEWEST)) < FEWEST


def witnessed(span: Span, doc: Document, lists: Dictionaries) -> bool:
    """True where lists hold each word of ``span`` as a name that is no other word."""
    words = [doc.text[start:end] for start, end in doc.tokens if span.start <= start and end <= span.end]
    return all(_is_name(word, lists) for word in words if word[0].isalnum())


def _is_name(word: str, lists: Dictionaries) -> bool:
    held = lists.lists_of(word)
    return "common-word" not in held and not _NAMES.isdisjoint(held)
