"""Care sites and other bodies: what it is stays, who it is changes.

One map for the whole feed, so that a site is one site in every message. First
letters are mapped as the words are, so an abbreviation gives the surrogate's initials.
"""

from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.lists import Lists
from deid_agent.surrogate.phrases import Phrase


def organization(key: Key, lists: Lists, value: str) -> str:
    """Hospital, Clinic, Nursing Home, Church, School stay; the other words and the numbers are others."""
    endings = tuple(sorted(lists.sets["abbreviation_endings"], key=lambda e: (-len(e), e)))
    kept = lists.sets["kind_words"]
    return Phrase(key, lists, "organization", kept, abbreviation_endings=endings).replaced(value)
