"""Runs a recognizer system over notes, and again without each of its parts.

A recognizer looks at a document once, for the system and for every system that lacks another part. So an ablation costs
little more than one run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deid_agent import systems
from deid_agent.context import facts_of_context, together
from deid_agent.errors import ConfigurationError, MessageError
from deid_agent.eval.markup import Note
from deid_agent.eval.score import Pair
from deid_agent.phi import PhiType
from deid_agent.recognize import registry
from deid_agent.recognize.base import Recognizer
from deid_agent.recognize.charcrf import CharacterCrf
from deid_agent.recognize.filter import NameFilter
from deid_agent.recognize.network import NetworkTagger
from deid_agent.recognize.tokencrf import Speaker, TokenCrf
from deid_agent.resolve import Profile
from deid_agent.sites import Fact, Kind, Subject
from deid_agent.spans import Span
from deid_agent.tagger import Model, Tagger
from deid_agent.text import Document

Facts = Callable[[Note], tuple[Fact, ...]]
Reader = TokenCrf | CharacterCrf | NameFilter | NetworkTagger
"""Models that read lists."""
LIST = "list "
"""Stands before the name of a list where an ablation tells what the list adds."""


Finder = Callable[[Document], Sequence[Span]]
"""Disjoint spans of a document, in order."""


@dataclass(frozen=True, slots=True)
class System:
    """What is scored, and the same without each of its parts by name (none where it has a single one)."""

    find: Finder
    without: Mapping[str, Finder]


@dataclass(frozen=True, slots=True)
class Run:
    """What was found in the notes; ``without`` has the same for each part left out."""

    pairs: list[Pair] = field(repr=False)
    without: Mapping[str, list[Pair]] = field(repr=False)


def load(rules: Path, models: Path, system: str, profile: str) -> System:
    """Raises ``ConfigurationError`` for a bad rule, a model that is not what it should be, an unknown name."""
    whole = systems.tagger(registry.load_rules(rules), models, system, Profile(profile))
    whole = replace(whole, recognizers=tuple(_Once(recognizer) for recognizer in whole.recognizers))
    without: dict[str, Finder] = {}
    if len(whole.recognizers) + len(whole.models) > 1:
        for out in whole.recognizers:
            without[out.name] = replace(whole, recognizers=tuple(r for r in whole.recognizers if r is not out)).find
        for model in whole.models:
            without[model.name] = replace(whole, models=tuple(m for m in whole.models if m is not model)).find
            if isinstance(model, TokenCrf):
                for other in model.others:
                    heard = tuple(_deaf(m, model, other) for m in whole.models)
                    without[other.name] = replace(whole, models=heard).find
    if whole.again is not None:
        without["second-pass"] = replace(whole, again=None).find
    for name in _lists(whole):
        without[f"{LIST}{name}"] = _hiding(whole, name).find
    return System(whole.find, without)


def _lists(tagger: Tagger) -> tuple[str, ...]:
    readers = [each for each in (*tagger.models, tagger.again) if isinstance(each, Reader)]
    return readers[0].dictionaries.names if readers else ()


def _hiding(tagger: Tagger, name: str) -> Tagger:
    """The same without one list: models have learned with it and now miss it, so this tells no more than its use."""
    models = tuple(_blind(model, name) if isinstance(model, Reader) else model for model in tagger.models)
    again = None if tagger.again is None else replace(tagger.again, dictionaries=tagger.again.dictionaries.hiding(name))
    return replace(tagger, models=models, again=again)


def _deaf(model: Model, to: TokenCrf, other: Speaker) -> Model:
    """``model``, if it is that one, without one of its other voices."""
    return replace(to, others=tuple(each for each in to.others if each is not other)) if model is to else model


def _blind(model: Reader, name: str) -> Reader:
    return replace(model, dictionaries=model.dictionaries.hiding(name))


def run(system: System, notes: Iterable[Note], facts: Facts, *, ablate: bool = False) -> Run:
    """Tag every note, knowing what ``facts`` says of it."""
    pairs: list[Pair] = []
    without: dict[str, list[Pair]] = {part: [] for part in system.without} if ablate else {}
    for note in notes:
        doc = Document(note.annotated.text, facts(note))
        pairs.append(Pair(note, tuple(system.find(doc))))
        for part, found in without.items():
            found.append(Pair(note, tuple(system.without[part](doc))))
    return Run(pairs, without)


class _Once:
    """A recognizer that remembers what it said of the last document."""

    def __init__(self, recognizer: Recognizer) -> None:
        self.name = recognizer.name
        self._recognizer = recognizer
        self._last: tuple[Document, tuple[Span, ...]] | None = None

    def recognize(self, doc: Document) -> Iterable[Span]:
        if self._last is None or self._last[0] is not doc:
            self._last = (doc, tuple(self._recognizer.recognize(doc)))
        return self._last[1]


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


def patient_known(system: System, notes: Iterable[Note], facts: Facts, introduced: frozenset[str]) -> Facts:
    """All that the notes say of each patient: facts, and names that a rule of ``introduced`` finds in any of them."""
    gathered: dict[str, dict[tuple[Fact, ...], None]] = {}
    for note in notes:
        of_patient = gathered.setdefault(note.patient, {})
        of_patient[facts(note)] = None
        text = note.annotated.text
        for span in system.find(Document(text)):
            if span.source in introduced:
                subject = Subject.PATIENT if span.type is PhiType.PATIENT else Subject.PROVIDER
                of_patient[(Fact(span.type, Kind.NAME, subject, "note", text[span.start : span.end]),)] = None
    known = {patient: together(each) for patient, each in gathered.items()}
    return lambda note: known[note.patient]
