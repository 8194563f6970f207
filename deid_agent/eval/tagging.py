"""Runs a recognizer system over notes, and again without each of its parts.

Every part proposes once per note; what is found without a part is resolved from the proposals of the others. So an
ablation costs little more than one run. A part that reads what others found would have to run again: none does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.context import facts_of_context, together
from deid_agent.errors import ConfigurationError, MessageError
from deid_agent.eval.markup import Note
from deid_agent.eval.score import Pair
from deid_agent.phi import PhiType
from deid_agent.recognize import registry
from deid_agent.recognize.base import Recognizer
from deid_agent.resolve import Profile, Resolver
from deid_agent.sites import Fact, Kind, Subject
from deid_agent.spans import Span
from deid_agent.text import Document

Facts = Callable[[Note], tuple[Fact, ...]]


@dataclass(frozen=True, slots=True)
class Tagger:
    """A system under a profile, as the commands use it."""

    recognizers: tuple[Recognizer, ...] = field(repr=False)
    resolver: Resolver = field(repr=False)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of its recognizers, in order."""
        return tuple(recognizer.name for recognizer in self.recognizers)

    def find(self, doc: Document) -> tuple[Span, ...]:
        """Disjoint spans in order."""
        return self.resolved(self.proposals(doc), doc)

    def proposals(self, doc: Document) -> list[list[Span]]:
        """What each part proposes."""
        return [list(recognizer.recognize(doc)) for recognizer in self.recognizers]

    def resolved(
        self, proposals: Sequence[Iterable[Span]], doc: Document, without: int | None = None
    ) -> tuple[Span, ...]:
        """What the resolver makes of the proposals, perhaps without those of one part."""
        taken = (span for at, spans in enumerate(proposals) if at != without for span in spans)
        return tuple(self.resolver.resolve(taken, doc))


@dataclass(frozen=True, slots=True)
class Run:
    """What was found in the notes; ``without`` has the same for each part left out."""

    pairs: list[Pair] = field(repr=False)
    without: Mapping[str, list[Pair]] = field(repr=False)


def load(rules: Path, system: str, profile: str) -> Tagger:
    """Raises ``ConfigurationError`` for a bad rule, an unknown system or profile."""
    loaded = registry.load_rules(rules)
    return Tagger(registry.assemble(loaded, system), Resolver(Profile(profile), loaded))


def run(tagger: Tagger, notes: Iterable[Note], facts: Facts, *, ablate: bool = False) -> Run:
    """Tag every note, knowing what ``facts`` says of it."""
    pairs: list[Pair] = []
    parts = tagger.parts if ablate and len(tagger.parts) > 1 else ()
    without: dict[str, list[Pair]] = {part: [] for part in parts}
    for note in notes:
        doc = Document(note.annotated.text, facts(note))
        proposals = tagger.proposals(doc)
        pairs.append(Pair(note, tagger.resolved(proposals, doc)))
        for at, part in enumerate(parts):
            without[part].append(Pair(note, tagger.resolved(proposals, doc, at)))
    return Run(pairs, without)


def nothing_known(_note: Note) -> tuple[Fact, ...]:
    """No facts: the text alone."""
    return ()


def profile_known(note: Note) -> tuple[Fact, ...]:
    """What the corpus says of the note's patient, as a message would.

    Raises ``ConfigurationError`` naming the note whose profile is not of the form of a context.
    """
    try:
        return facts_of_context(note.profile)
    except MessageError as problem:
        raise ConfigurationError(f"note {note.id}: {problem.where}: {problem.detail}") from None


def patient_known(tagger: Tagger, notes: Iterable[Note], facts: Facts, introduced: frozenset[str]) -> Facts:
    """All that the notes say of each patient: facts, and names that a rule of ``introduced`` finds in any of them."""
    gathered: dict[str, dict[tuple[Fact, ...], None]] = {}
    for note in notes:
        of_patient = gathered.setdefault(note.patient, {})
        of_patient[facts(note)] = None
        text = note.annotated.text
        for span in tagger.find(Document(text)):
            if span.source in introduced:
                subject = Subject.PATIENT if span.type is PhiType.PATIENT else Subject.PROVIDER
                of_patient[(Fact(span.type, Kind.NAME, subject, "note", text[span.start : span.end]),)] = None
    known = {patient: together(each) for patient, each in gathered.items()}
    return lambda note: known[note.patient]
