"""The de-identifier: sanitizes one message or note in the stages plan, recognize and apply.

It is synchronous and has no side effects. ``Deidentifier.message`` runs the three stages for one message. A caller with
several messages plans each, recognizes all plans at once, and applies each.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deid_agent.codec import Codec, Envelope
from deid_agent.model import (
    Document,
    Fact,
    Headers,
    MessageError,
    PatientIdentifier,
    PhiType,
    Range,
    Reason,
    Remark,
    Span,
    Subject,
    Timings,
    filter_headers,
    splice,
)
from deid_agent.pipeline.applying import Applier, ChangeCounts, explain_change, summarize_changes
from deid_agent.pipeline.leak_guard import LeakGuard
from deid_agent.pipeline.planning import Planner, check_length, make_scope
from deid_agent.pipeline.plans import MessagePlan
from deid_agent.pipeline.policy import Policy
from deid_agent.pipeline.recognition import PlannedText, Recognition, recognize_texts
from deid_agent.pipeline.replacement import LinkCodes, Replacer, name_document, sanitize_key
from deid_agent.pipeline.tracing import NO_TRACE, Tracer
from deid_agent.pipeline.unexamined import UnexaminedCounts, count_unexamined
from deid_agent.recognize import Findings, NameMemory, PatientNames, Tagger
from deid_agent.surrogate import Surrogates


@dataclass(frozen=True, slots=True)
class Deidentified:
    """A sanitized message that may be published, with its remarks. ``timings`` are seconds by stage."""

    payload: bytes = field(repr=False)
    remarks: tuple[Remark, ...]
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    timings: tuple[tuple[str, float], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class DeidentifiedText:
    """A sanitized note. ``spans`` are the findings in the original text."""

    text: str = field(repr=False)
    spans: tuple[Span, ...]
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class _NamingReader:
    """Reads documents with a tagger, and keeps the tokens that its models are sure are parts of names, by text."""

    tagger: Tagger
    named: dict[str, list[Range]] = field(default_factory=dict, repr=False)

    def find_all(self, docs: Sequence[Document]) -> list[list[Span]]:
        """See ``Tagger.find_all``."""
        found = self.tagger.read_all(docs)
        self.named.update((doc.text, each.named) for doc, each in zip(docs, found, strict=True))
        return [each.spans for each in found]


class Deidentifier:
    """Holds everything that is loaded once (rules, models, key). Messages do not change it."""

    def __init__(
        self,
        *,
        codecs: Sequence[Codec],
        tagger: Tagger,
        surrogates: Surrogates,
        policy: Policy,
        guard: LeakGuard,
        attachment_codecs: Sequence[Codec] = (),
        fhir_types: frozenset[str] = frozenset(),
    ) -> None:
        """``attachment_codecs`` are formats that come as attachments only; they are tried before ``codecs``.

        ``fhir_types`` are the resource types of FHIR: a record key may be a reference to one.
        """
        self._codecs = tuple(codecs)
        self._key_tagger = tagger.without_models()
        self._policy = policy
        self._replacer = Replacer(policy, surrogates)
        self._tagger = tagger
        self._guard = guard
        self._attachment_codecs = tuple(attachment_codecs)
        self._fhir_types = fhir_types

    def message(
        self,
        payload: bytes,
        *,
        key: bytes | None = None,
        tracer: Tracer = NO_TRACE,
        memory: NameMemory | None = None,
        envelope: Envelope | None = None,
    ) -> Deidentified:
        """De-identify one payload (a message, a batch, NDJSON) and its record key. ``tracer`` receives each change.

        With an ``envelope`` the payload is a record around messages. For ``memory`` see ``recognize``.

        Raises ``MessageError`` if the payload cannot be understood or an identifier remains in it. No part of it may
        then be published.
        """
        plan = self.plan(payload, key=key, envelope=envelope)
        (recognition,) = self.recognize([plan], memory)
        return self.apply(plan, recognition, tracer=tracer)

    @property
    def prefers_batches(self) -> bool:
        """True if ``recognize`` costs less for several plans at once. That is so for models."""
        return bool(self._tagger.models)

    def plan(
        self,
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        envelope: Envelope | None = None,
    ) -> MessagePlan:
        """Stage 1: parse a record's payload with its attachments and list the texts to read.

        With an ``envelope`` the payload is a record around messages.

        Raises ``MessageError`` if the payload cannot be understood or the policy refuses it.
        """
        planner = Planner(self._policy, self._codecs, self._attachment_codecs)
        return planner.plan_message(payload, key, headers, envelope)

    def recognize(self, plans: Sequence[MessagePlan], memory: NameMemory | None = None) -> list[Recognition]:
        """Stage 2: read the texts of all plans in shared batches. An error is kept for the plan that causes it.

        With a ``memory`` the findings also depend on earlier messages: each plan adds the names of its patient to the
        memory, then its texts are searched for all remembered names. Plans of one batch give the same findings as one
        by one.
        """
        texts = [plan.texts for plan in plans]
        reader = _NamingReader(self._tagger)
        find_all = self._tagger.find_all if memory is None else reader.find_all
        results = recognize_texts(texts, find_all, find_in_labels=self._key_tagger.find_all)
        for plan, result in zip(plans, results, strict=True):
            if result.error is not None:
                continue
            try:
                self._find_across(plan, result)
                if memory is not None:
                    self._remember(plan, result, reader.named, memory)
            except Exception as error:  # noqa: BLE001 - kept for the message at fault
                result.error = error
        return results

    def _remember(
        self, plan: MessagePlan, result: Recognition, named: Mapping[str, list[Range]], memory: NameMemory
    ) -> None:
        """Teach ``memory`` the names of a message, and add the remembered ones to the findings in its texts."""
        for part in (part for outer in plan.parts for part in outer.all_parts()):
            if part.scope.patient is None:
                continue
            names = memory.of_patient(part.scope.patient)
            self._tagger.learn_facts(names, part.facts)
            texts = [(text, Document(text.text, text.facts)) for text in part.own_texts() if not text.label]
            for text, doc in texts:
                findings = Findings(list(result.spans[text.index]), named.get(text.text, []))
                self._tagger.learn_names(names, doc, findings)
            for text, doc in texts:
                result.spans[text.index] = self._tagger.find_remembered(names, doc, result.spans[text.index])

    def _find_across(self, plan: MessagePlan, result: Recognition) -> None:
        """Add the names that one text of the message introduces to the findings in its other texts."""
        prose = [text for text in plan.texts if not text.label]
        spans = self._tagger.find_across([text.text for text in prose], [result.spans[text.index] for text in prose])
        for text, found in zip(prose, spans, strict=True):
            result.spans[text.index] = tuple(found)

    def apply(self, plan: MessagePlan, recognition: Recognition, *, tracer: Tracer = NO_TRACE) -> Deidentified:
        """Stage 3: make the edits, run the leak guard and assemble the bytes.

        Raises the error of the recognition, if it has one, and ``MessageError`` with LEAK if an identifier remains.
        """
        timings = plan.timings
        if not self._policy.changes_nothing:
            timings.add("recognize", recognition.seconds)
        if recognition.error is not None:
            raise recognition.error
        codes = LinkCodes(self._replacer.surrogates, plan.payload)
        applier = Applier(self._policy, self._replacer, self._guard, recognition.spans, codes, timings, tracer)
        with timings.measure("edit"):
            payload = applier.apply_plan(plan)
            with timings.measure("surrogate"):
                key = self._sanitize_key(plan)
        remarks = summarize_changes(applier.counts)
        return Deidentified(payload, remarks, key, self._select_headers(plan.headers), timings.seconds_by_stage)

    def count_unexamined(self, payload: bytes, envelope: Envelope | None = None) -> UnexaminedCounts:
        """The values of a payload that leave it unchanged and unread. Raises as ``plan``."""
        return self.count_unexamined_in(self.plan(payload, envelope=envelope))

    def count_unexamined_in(self, plan: MessagePlan) -> UnexaminedCounts:
        """The values of a planned message that leave it unchanged and unread."""
        return count_unexamined(plan, self._policy)

    def tombstone(self, *, key: bytes | None, headers: Headers = ()) -> Deidentified:
        """De-identify a record without a value, which deletes its key in a compacted topic: only key and headers."""
        return Deidentified(
            b"", (), self._sanitize_key(MessagePlan(b"", key, (), (), (), Timings())), self._select_headers(headers)
        )

    def text(
        self,
        text: str,
        *,
        facts: tuple[Fact, ...] = (),
        document: str = "",
        patient: str | None = None,
        tracer: Tracer = NO_TRACE,
        names: PatientNames | None = None,
    ) -> DeidentifiedText:
        """De-identify one note. ``document`` names it: the scope of its date shift. The default is a digest of it.

        The note adds its names to ``names``, and is then searched for all of them.

        The patient is the one whose medical record number is in ``facts``, as in a message, else ``patient``.
        Raises ``MessageError``: RESOURCE for a text that is too long, UNSUPPORTED if the policy publishes paths only.
        """
        if self._policy.published is not None:
            raise MessageError(Reason.UNSUPPORTED, "text", "the policy publishes listed paths, and a note has none")
        check_length("text", text)
        self._policy.languages.check("text", text)
        reader = _NamingReader(self._tagger)
        find_all = self._tagger.find_all if names is None else reader.find_all
        (recognition,) = recognize_texts([[PlannedText(0, text, facts)]], find_all)
        if recognition.error is not None:
            raise recognition.error
        spans = tuple(recognition.spans[0])
        if names is not None:
            doc = Document(text, facts)
            self._tagger.learn_facts(names, facts)
            self._tagger.learn_names(names, doc, Findings(list(spans), reader.named.get(text, [])))
            spans = tuple(self._tagger.find_remembered(names, doc, spans))
        name = document or name_document(text)
        replacer = self._replacer.of_document(name.encode("utf-8", "surrogatepass"))
        today = replacer.find_latest_day(text, spans)
        scope = make_scope(name, self._find_patient(patient, facts), facts, today=today)
        people = dict.fromkeys((*scope.people, *replacer.find_people(text, spans)))
        scope = replace(scope, people=tuple(people))
        changes = replacer.replace_spans(text, "text", spans, scope)
        counts: ChangeCounts = Counter()
        for change in changes:
            counts["text", change.span.type, change.method, str(change.span.source)] += 1
        sanitized = splice(text, (change.replacement for change in changes))
        edits = ((c.span.start, c.span.end, c.text, explain_change("text", text, c)) for c in changes)
        tracer.record_text(text, edits, sanitized)
        return DeidentifiedText(sanitized, spans, summarize_changes(counts))

    def _find_patient(self, patient: str | None, facts: tuple[Fact, ...]) -> str | None:
        own = (f for f in facts if f.type is PhiType.MEDICALRECORD and f.subject is Subject.PATIENT)
        choice = self._policy.patient
        return choice.scope(PatientIdentifier(fact.value) for fact in own) or choice.scope_of(patient)

    def _sanitize_key(self, plan: MessagePlan) -> bytes | None:
        """The key of a record with these messages. The dates of a file name move with the dates of its message."""
        key, scopes = plan.key, [part.scope for part in plan.parts]
        facts = tuple(dict.fromkeys(fact for part in plan.parts for each in part.all_parts() for fact in each.facts))
        documents = {(scope.document, scope.patient) for scope in scopes}
        name = "" if key is None else name_document(key.decode("utf-8", "replace"))
        document, patient = documents.pop() if len(documents) == 1 else (name, None)
        scope = make_scope(document, patient, facts, today=scopes[0].today if scopes else None)
        replacer = self._replacer.of_document(plan.payload)
        return sanitize_key(key, facts, scope, replacer, self._key_tagger.find, self._fhir_types)

    def _select_headers(self, headers: Headers) -> Headers:
        return filter_headers(headers, self._policy.headers)
