"""Runs a recognizer system over notes, and again without each of its parts.

Each recognizer reads a document once, for the whole system and for every ablated one, so an ablation costs little more
than a single run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deid_agent.eval.markup import Note
from deid_agent.eval.score import Pair
from deid_agent.model import (
    ConfigurationError,
    Document,
    Fact,
    MessageError,
    PhiType,
    Source,
    SourceTraits,
    Span,
    Subject,
    ValueKind,
)
from deid_agent.nlp import CharacterCrf, NameFilter, NetworkTagger, ProbabilitySource, TokenCrf
from deid_agent.pipeline import facts_from_context, unite_facts
from deid_agent.recognize import (
    INTRODUCING,
    Model,
    NameMemory,
    Profile,
    Recognizer,
    Tagger,
    lean_models,
    load_rules,
    load_tagger,
)
from deid_agent.rules import RuleFolders

FactLookup = Callable[[Note], tuple[Fact, ...]]
"""Returns the facts that are known about a note before it is read."""
DictionaryModel = TokenCrf | CharacterCrf | NameFilter | NetworkTagger
"""The models that use the lists of the dictionary."""
Finder = Callable[[Document], Sequence[Span]]
"""Returns the disjoint spans of a document, in order."""
ABLATED_LIST_PREFIX = "list "
"""Prefix of the part names in an ablation that leave out one list of the dictionary."""


@dataclass(frozen=True, slots=True)
class EvaluatedSystem:
    """A system to score, and the same system without each of its parts, by part name."""

    tagger: Tagger = field(repr=False)
    without: Mapping[str, Finder]
    """Has no entry for recognizers and models if the system consists of a single one."""

    @property
    def find(self) -> Finder:
        """The finder of the whole system."""
        return self.tagger.find

    def lean(self, lean: float) -> "EvaluatedSystem":
        """The same system with models that lean as far; without its ablations."""
        return EvaluatedSystem(lean_models(self.tagger, lean), {})


@dataclass(frozen=True, slots=True)
class TaggingRun:
    """The findings in the notes; ``without`` holds the findings of each ablated system, by part name."""

    pairs: list[Pair] = field(repr=False)
    without: Mapping[str, list[Pair]] = field(repr=False)


def load_system(rules: RuleFolders | Path, models: Path, system: str, profile: str) -> EvaluatedSystem:
    """Load a system by name, with its ablations.

    Raises ``ConfigurationError`` for a bad rule, an invalid model, or an unknown name.
    """
    found = RuleFolders(rules) if isinstance(rules, Path) else rules
    whole = load_tagger(load_rules(found.folder, found.sites), models, system, Profile(profile))
    whole = replace(whole, recognizers=tuple(_CachingRecognizer(recognizer) for recognizer in whole.recognizers))
    without: dict[str, Finder] = {}
    if len(whole.recognizers) + len(whole.models) > 1:
        for out in whole.recognizers:
            without[out.name] = replace(whole, recognizers=tuple(r for r in whole.recognizers if r is not out)).find
        for model in whole.models:
            without[model.name] = replace(whole, models=tuple(m for m in whole.models if m is not model)).find
            if isinstance(model, TokenCrf):
                for member in model.ensemble:
                    remaining = tuple(_drop_member(m, member) if m is model else m for m in whole.models)
                    without[member.name] = replace(whole, models=remaining).find
    if whole.consistency is not None:
        without["second-pass"] = replace(whole, consistency=None).find
    for name in _list_names(whole):
        without[f"{ABLATED_LIST_PREFIX}{name}"] = _drop_list(whole, name).find
    return EvaluatedSystem(whole, without)


class _CachingRecognizer:
    """A recognizer that keeps its findings for the last document, which the ablated systems read next."""

    def __init__(self, recognizer: Recognizer) -> None:
        self.name = recognizer.name
        self._recognizer = recognizer
        self._last: tuple[Document, tuple[Span, ...]] | None = None

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """The sources of the wrapped recognizer."""
        return self._recognizer.sources

    def recognize(self, doc: Document) -> Iterable[Span]:
        if self._last is None or self._last[0] is not doc:
            self._last = (doc, tuple(self._recognizer.recognize(doc)))
        return self._last[1]


def _drop_member(model: TokenCrf, member: ProbabilitySource) -> Model:
    """Return the model without one member of its ensemble."""
    return replace(model, ensemble=tuple(each for each in model.ensemble if each is not member))


def _list_names(tagger: Tagger) -> tuple[str, ...]:
    models = [each for each in (*tagger.models, tagger.consistency) if isinstance(each, DictionaryModel)]
    return models[0].dictionaries.names if models else ()


def _drop_list(tagger: Tagger, name: str) -> Tagger:
    """Return the tagger without one list of the dictionary.

    The models were trained with the list and are not retrained, so the difference shows how much they use the list and
    not how well they would do without it.
    """
    models = tuple(
        _drop_list_of_model(model, name) if isinstance(model, DictionaryModel) else model for model in tagger.models
    )
    consistency = tagger.consistency
    if consistency is not None:
        consistency = replace(consistency, dictionaries=consistency.dictionaries.without_lists(name))
    return replace(tagger, models=models, consistency=consistency)


def _drop_list_of_model(model: DictionaryModel, name: str) -> DictionaryModel:
    return replace(model, dictionaries=model.dictionaries.without_lists(name))


def run_system(
    system: EvaluatedSystem,
    notes: Iterable[Note],
    lookup: FactLookup,
    *,
    memory: NameMemory | None = None,
    ablate: bool = False,
) -> TaggingRun:
    """Tag every note, given the facts that ``lookup`` returns for it; with ``ablate`` also without each part.

    With a ``memory``, the names that it has of the patient are found too.
    """
    pairs: list[Pair] = []
    without: dict[str, list[Pair]] = {part: [] for part in system.without} if ablate else {}
    for note in notes:
        doc = Document(note.annotated.text, lookup(note))
        names = None if memory is None else memory.of_patient(note.patient)
        for find, found in ((system.find, pairs), *((system.without[part], own) for part, own in without.items())):
            spans = find(doc)
            more = spans if names is None else system.tagger.find_remembered(names, doc, spans)
            found.append(Pair(note, tuple(more)))
    return TaggingRun(pairs, without)


def no_facts(_note: Note) -> tuple[Fact, ...]:
    """A ``FactLookup`` that returns no facts: the text is all that is known."""
    return ()


def facts_from_profile(note: Note) -> tuple[Fact, ...]:
    """A ``FactLookup`` that returns the facts of the note's patient profile, as the structured part of a message does.

    Raises ``ConfigurationError`` naming the note if its profile is not a valid context.
    """
    try:
        return facts_from_context(note.profile)
    except MessageError as error:
        raise ConfigurationError(f"note {note.id}: {error.where}: {error.detail}") from None


def gather_patients(
    system: EvaluatedSystem, notes: Sequence[Note], progress: Iterable[Note], lookup: FactLookup
) -> tuple[FactLookup, NameMemory]:
    """A ``FactLookup`` that unites the facts of all ``notes`` of a patient, and the memory of the patients' names.

    The facts of a note are those of ``lookup`` and the names that a label or title introduces in its text. ``progress``
    iterates over the notes.
    """
    memory = NameMemory(b"evaluation", len(notes))
    gathered: dict[str, dict[tuple[Fact, ...], None]] = {}
    for note in progress:
        of_patient = gathered.setdefault(note.patient, {})
        facts = lookup(note)
        of_patient[facts] = None
        doc, names = Document(note.annotated.text), memory.of_patient(note.patient)
        (findings,) = system.tagger.read_all([doc])
        system.tagger.learn_facts(names, facts)
        system.tagger.learn_names(names, doc, findings)
        for span in findings.spans:
            if span.source in INTRODUCING:
                subject = Subject.PATIENT if span.type is PhiType.PATIENT else Subject.PROVIDER
                value = doc.text[span.start : span.end]
                of_patient[(Fact(span.type, ValueKind.NAME, subject, "note", value),)] = None
    known = {patient: unite_facts(facts) for patient, facts in gathered.items()}
    return (lambda note: known[note.patient]), memory
