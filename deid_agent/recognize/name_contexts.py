"""Decides by the words around a name whether it is a person (``rules/contexts/person.toml``)."""

import re
from dataclasses import dataclass, field

from deid_agent.recognize.boundaries import UPPER
from deid_agent.rules import Context, Ruleset, select_contexts

_BEGINS = re.compile(r"(?:\A|[\n.;?!][ \t]{0,3}|\n[ \t]{0,4}[-*•][ ])\Z")
_TERM_AFTER = re.compile(r"[\w:+/#%&*-]|['’](?!s\b)")
_DOTTED_LETTER = re.compile(rf"[ ]?[{UPPER}]\.(?!\w)")
_LOWER_AFTER = re.compile(r"[ \t]{1,2}[a-zß-öø-ÿ]")


@dataclass(frozen=True, slots=True)
class PersonContexts:
    """The contexts of a name; the file has the purpose of each."""

    act: Context = field(repr=False)
    condition: Context = field(repr=False)
    predicate: Context = field(repr=False)
    deed: Context = field(repr=False)
    open_predicate: Context = field(repr=False)
    apposition: Context = field(repr=False)
    capitals: Context = field(repr=False)
    task: Context = field(repr=False)
    addressed: Context = field(repr=False)
    ends_clause: Context = field(repr=False)
    by: Context = field(repr=False)
    ends_person: Context = field(repr=False)
    inside: Context = field(repr=False)
    goes_on: Context = field(repr=False)
    cue: Context = field(repr=False)
    kin: Context = field(repr=False)
    credential: Context = field(repr=False)
    owns: Context = field(repr=False)
    answers: Context = field(repr=False)
    person_after: Context = field(repr=False)
    section: Context = field(repr=False)
    thing: Context = field(repr=False)
    calendar: Context = field(repr=False)

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

    patient: Context = field(repr=False)
    patient_act: Context = field(repr=False)
    labelled: Context = field(repr=False)
    staff: Context = field(repr=False)
    dictates: Context = field(repr=False)
    staff_act: Context = field(repr=False)
    typist: Context = field(repr=False)

    @staticmethod
    def of(rules: Ruleset) -> "InitialsContexts":
        """The contexts of a rule set. Raises ``ConfigurationError`` if it lacks one."""
        return select_contexts(rules.contexts, "initials", InitialsContexts)
