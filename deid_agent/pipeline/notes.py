"""Sanitizes notes: texts without a message around them, several at a time.

The stages are those of a message: the texts of all requests are read in shared batches, then each is edited and
searched for the facts that its request states.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from deid_agent.model import (
    Document,
    Fact,
    FoundPatient,
    MessageError,
    PatientField,
    PatientIdentifier,
    PhiType,
    Range,
    Reason,
    Remark,
    Span,
    Subject,
    Timings,
)
from deid_agent.pipeline.applying import Applier
from deid_agent.pipeline.changes import summarize_changes
from deid_agent.pipeline.facts import make_scope
from deid_agent.pipeline.leak_guard import LeakGuard
from deid_agent.pipeline.link_codes import LinkCodes
from deid_agent.pipeline.planning import check_decoded, check_length
from deid_agent.pipeline.policy import Policy
from deid_agent.pipeline.recognition import (
    MAX_BATCH_CHARACTERS,
    NamingReader,
    PlannedText,
    Recognition,
    recognize_texts,
)
from deid_agent.pipeline.replacement import Replacer, name_document
from deid_agent.pipeline.tracing import NO_TRACE, Tracer
from deid_agent.recognize import Findings, PatientNames, Tagger

PATH = "text"
"""The path of a note in remarks and errors."""
MAX_GROUP = 16
"""Notes that are read together. More cost no less: the models' arrays are then larger than the processor's cache."""


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A note to de-identify.

    ``document`` names it and is the scope of its date shift; the default is a digest of the text. ``facts`` are what is
    known of its patient. The patient is the one whose medical record number is in ``facts``, as in a message, else
    ``patient``, which is a number, or the key of ``patient_column`` in a table. The note adds its names to ``names``,
    and is then searched for all of them. ``reference`` is the day on which it was written, if known: "3/4" without a
    year is read near it.
    """

    text: str = field(repr=False)
    document: str = field(default="", repr=False)
    patient: str | None = field(default=None, repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    names: PatientNames | None = field(default=None, repr=False)
    reference: date | None = field(default=None, repr=False)
    patient_column: str = ""


@dataclass(frozen=True, slots=True)
class DeidentifiedText:
    """A sanitized note. ``spans`` are the findings in the original text."""

    text: str = field(repr=False)
    spans: tuple[Span, ...]
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class RefusedText:
    """A note that must not be published, with the reason.

    ``detail`` contains nothing of the note. For ``INTERNAL`` it is the class of the exception.
    """

    reason: Reason
    where: str = PATH
    detail: str = ""

    def __str__(self) -> str:
        return str(self.error)

    @property
    def text(self) -> str:
        """Raises the refusal as ``MessageError``: a refused note has no text."""
        raise self.error

    @property
    def error(self) -> MessageError:
        """The refusal as an exception."""
        return MessageError(self.reason, self.where, self.detail)


def group_requests(requests: Iterable[TextRequest]) -> Iterator[list[TextRequest]]:
    """The requests in groups that are read together: ``MAX_GROUP`` notes, ``MAX_BATCH_CHARACTERS`` or one."""
    group: list[TextRequest] = []
    size = 0
    for request in requests:
        if group and (len(group) == MAX_GROUP or size + len(request.text) > MAX_BATCH_CHARACTERS):
            yield group
            group, size = [], 0
        group.append(request)
        size += len(request.text)
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class NoteDeidentifier:
    """Sanitizes notes with one policy, tagger, replacer and leak guard."""

    policy: Policy
    tagger: Tagger
    replacer: Replacer
    guard: LeakGuard
    shaped: bool = False
    """Outputs have a shape, and a note cannot have it."""

    def deidentify(
        self, requests: Sequence[TextRequest], tracer: Tracer = NO_TRACE
    ) -> list[DeidentifiedText | RefusedText]:
        """The result of each request, the same as for the request alone. Never raises: a fault refuses its note.

        The texts are read in shared batches. Notes that share ``names`` are searched in their order.
        """
        refused = [self._refuse(request) for request in requests]
        texts = [
            [] if refusal else [PlannedText(0, request.text, request.facts)]
            for request, refusal in zip(requests, refused, strict=True)
        ]
        reader = NamingReader(self.tagger)
        shares_names = any(request.names is not None for request in requests)
        recognitions = recognize_texts(texts, reader.find_all if shares_names else self.tagger.find_all)
        return [
            refusal or self._apply_safely(request, recognition, reader.named.get(request.text, ()), tracer)
            for request, refusal, recognition in zip(requests, refused, recognitions, strict=True)
        ]

    def _refuse(self, request: TextRequest) -> RefusedText | None:
        """The refusal of a note that must not be read: too long, in another language, or outputs are no notes."""
        if self.shaped:
            return RefusedText(Reason.UNSUPPORTED, PATH, "outputs have a shape of FHIR, and a note has none")
        if self.policy.published is not None:
            return RefusedText(Reason.UNSUPPORTED, PATH, "the policy publishes listed paths, and a note has none")
        try:
            check_length(PATH, request.text)
            check_decoded(PATH, request.text)
            self.policy.languages.check(PATH, request.text)
        except MessageError as problem:
            return RefusedText(problem.reason, problem.where, problem.detail)
        return None

    def _apply_safely(
        self, request: TextRequest, recognition: Recognition, named: Sequence[Range], tracer: Tracer
    ) -> DeidentifiedText | RefusedText:
        try:
            if recognition.error is not None:
                raise recognition.error
            return self._apply(request, recognition.spans[0], named, tracer)
        except MessageError as problem:
            return RefusedText(problem.reason, problem.where, problem.detail)
        except Exception as error:  # noqa: BLE001 - the boundary: a fault in one note must not affect the others
            return RefusedText(Reason.INTERNAL, PATH, type(error).__name__)

    def _apply(
        self, request: TextRequest, found: Sequence[Span], named: Sequence[Range], tracer: Tracer
    ) -> DeidentifiedText:
        text, facts = request.text, request.facts
        spans = tuple(found)
        if request.names is not None:
            spans = self._find_remembered(request, spans, named, request.names)
        name = request.document or name_document(text)
        replacer = self.replacer.of_document(name.encode("utf-8", "surrogatepass"))
        today = request.reference or replacer.find_latest_day(text, spans)
        patient = find_patient(self.policy, facts, request.patient, request.patient_column).scope
        scope = make_scope(name, patient, facts, request.reference, today)
        scope = replace(scope, people=tuple(dict.fromkeys((*scope.people, *replacer.find_people(text, spans)))))
        codes = LinkCodes(replacer.surrogates, text.encode("utf-8", "surrogatepass"))
        applier = Applier(self.policy, replacer, self.guard, [spans], codes, Timings(), tracer)
        sanitized = applier.apply_note(PlannedText(0, text, facts), PATH, scope)
        return DeidentifiedText(sanitized, spans, summarize_changes(applier.counts))

    def _find_remembered(
        self, request: TextRequest, spans: Sequence[Span], named: Sequence[Range], names: PatientNames
    ) -> tuple[Span, ...]:
        """The spans with those of the names that earlier notes taught; the note adds its own names first."""
        doc = Document(request.text, request.facts)
        self.tagger.learn_facts(names, request.facts)
        self.tagger.learn_names(names, doc, Findings(list(spans), list(named)))
        return tuple(self.tagger.find_remembered(names, doc, spans))


def find_patient(policy: Policy, facts: Iterable[Fact], patient: str | None, column: str = "") -> FoundPatient:
    """The patient whose medical record number is in ``facts``, as in a message, else ``patient``.

    ``column`` is the one whose key ``patient`` is, if it is no number.
    """
    own = [
        PatientIdentifier(fact.value)
        for fact in facts
        if fact.type is PhiType.MEDICALRECORD and fact.subject is Subject.PATIENT
    ]
    if patient is not None:
        own.append(PatientIdentifier(patient, assigners=(column,) if column else (), field=PatientField.BESIDE))
    return policy.patient.find(own)
