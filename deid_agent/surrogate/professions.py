"""Jobs: another job, in the same number and case."""

from deid_agent.surrogate.keyed import Key
from deid_agent.surrogate.lists import Lists
from deid_agent.surrogate.shape import fold


def profession(key: Key, lists: Lists, scope: str, value: str) -> str:
    """A job from the list, never the original."""
    names = lists.phrases["professions"]
    folded = fold(value)
    singular = folded.removesuffix("s")
    at = key.index(len(names), "profession", scope, folded)
    new = names[at] if fold(names[at]) not in (folded, singular) else names[(at + 1) % len(names)]
    if folded.endswith("s") and not folded.endswith("ss"):
        new = new[:-3] + "men" if new.endswith("man") else new + ("es" if new.endswith("s") else "s")
    if value.isupper():
        return new.upper()
    if value[:1].isupper():
        return new.title() if all(w[:1].isupper() for w in value.split()) else new.capitalize()
    return new
