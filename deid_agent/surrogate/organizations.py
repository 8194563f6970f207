"""Care sites and other bodies: what it is stays, who it is changes.

One map for the whole feed, so that a site is one site in every message. First
letters are mapped as the words are, so an abbreviation gives the surrogate's initials. A payer of a whole country
or state becomes another one (Medicaid for Medicare): what stands beside it is still read as a policy number.
"""

from collections.abc import Mapping
from functools import lru_cache

from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.lists import Lists
from deid_agent.surrogate.phrases import Phrase
from deid_agent.surrogate.shape import fold

_PAYERS = ("public_payers", "state_payers", "payers")


def organization(key: Key, lists: Lists, value: str) -> str:
    """Hospital, Clinic, Nursing Home, Church, School stay; the other words and the numbers are others."""
    if (payer := _payers(key, lists).get(fold(value))) is not None:
        listed = any(value in lists.phrases[kind] for kind in _PAYERS)  # AHCCCS is no line in capitals
        return payer if listed else payer.upper() if value.isupper() else payer.lower() if value.islower() else payer
    endings = tuple(sorted(lists.sets["abbreviation_endings"], key=lambda e: (-len(e), e)))
    kept = lists.sets["kind_words"]
    return Phrase(key, lists, "organization", kept, abbreviation_endings=endings).replaced(value)


@lru_cache(maxsize=4)
def _payers(key: Key, lists: Lists) -> Mapping[str, str]:
    """Every payer, folded, to another of its list, turned by a keyed number of places: no two become one."""
    out: dict[str, str] = {}
    for names in (lists.phrases[kind] for kind in _PAYERS):
        step = 1 + key.index(len(names) - 1, "payer")
        out |= {fold(name): names[(n + step) % len(names)] for n, name in enumerate(names)}
    return out
