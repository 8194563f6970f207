"""Decides by the words around a name whether it is a person (``rules/contexts/person.toml``)."""

import re
from dataclasses import dataclass

from deid_agent.recognize.boundaries import UPPER
from deid_agent.rules import Context, Ruleset, select_contexts

_BEGINS = re.compile(r"(?:\A|[\n.;?!][ \t]{0,3}|\n[ \t]{0,4}[-*•][ ])\Z")
_TERM_AFTER = re.compile(r"[\w:+/#%&*-]|['’](?!s\b)")
_DOTTED_LETTER = re.compile(rf"[ ]?[{UPPER}]\.(?!\w)")
_LOWER_AFTER = re.compile(r"[ \t]{1,2}[a-zß-öø-ÿ]")


@dataclass(frozen=True, slots=True)
class PersonContexts:
    """The contexts of a name; the file has the purpose of each."""

    act: Context
    condition: Context
    predicate: Context
    deed: Context
    open_predicate: Context
    apposition: Context
    capitals: Context
    task: Context
    addressed: Context
    ends_clause: Context
    by: Context
    ends_person: Context
    inside: Context
    goes_on: Context
    cue: Context
    kin: Context
    credential: Context
    owns: Context
    answers: Context
    person_after: Context
    section: Context
    thing: Context
    calendar: Context

    @staticmethod
    def of(rules: Ruleset) -> "PersonContexts":
        """The contexts of a rule set. Raises ``ConfigurationError`` if it lacks one."""
        return select_contexts(rules.contexts, "person", PersonContexts)

    def acts_like_person(self, text: str, start: int, end: int) -> bool:
        """True if the words around the capitalized word from ``start`` to ``end`` are those around a person.

        The word has another meaning too: it counts at the beginning of a sentence before a predicate of a person, and
        inside a sentence after a word that a person follows, unless a term follows.
        """
        word = text[start:end]
        begins = _BEGINS.search(text, max(0, start - 6), start) is not None
        if word.isupper() and len(word) > 1:
            return begins and self.capitals.follows(text, end) is not None
        thing = self.section.is_word(word) or self.thing.is_word(word)
        if begins:
            of_people = (self.act, self.condition, self.predicate)
            of_things = () if thing else (self.open_predicate, self.deed, self.apposition)
            return any(after.follows(text, end) for after in (*of_people, *of_things))
        if self.calendar.is_word(word):
            return False
        around = ((self.by, self.ends_person), (self.addressed, self.ends_clause), (self.inside, self.goes_on))
        return any(
            left.precedes(text, start) and right.follows(text, end) for left, right in around[: 2 if thing else 3]
        )

    def has_task(self, text: str, start: int, end: int) -> bool:
        """True if the word begins a line before a task or a reading of a patient: ``Love CBC pending``."""
        return (start == 0 or text[start - 1] == "\n") and self.task.follows(text, end) is not None

    def is_named(self, text: str, start: int, end: int) -> bool:
        """True if a title, a relative or a label precedes the name, or a credential follows it."""
        return self.cue.precedes(text, start) is not None or self.credential.follows(text, end) is not None

    def ends_initial(self, text: str, end: int) -> bool:
        """Return true if nothing after an initial that ends at ``end`` makes it a part of a term.

        A level (``C5``), a finding (``A-fib``), a heading (``A: sepsis``) or an organism (``H. pylori``) may follow a
        name.
        """
        if text[end : end + 1] == ".":
            end += 1
            if _DOTTED_LETTER.match(text, end):
                return True
        if _TERM_AFTER.match(text, end):
            return False
        if not _LOWER_AFTER.match(text, end):
            return True
        return any(words.follows(text, end) for words in (self.person_after, self.act, self.condition))


@dataclass(frozen=True, slots=True)
class InitialsContexts:
    """The contexts of initials (``rules/contexts/initials.toml``)."""

    patient: Context
    patient_act: Context
    labelled: Context
    staff: Context
    dictates: Context
    staff_act: Context
    typist: Context

    @staticmethod
    def of(rules: Ruleset) -> "InitialsContexts":
        """The contexts of a rule set. Raises ``ConfigurationError`` if it lacks one."""
        return select_contexts(rules.contexts, "initials", InitialsContexts)
