"""The de-identifier: sanitizes one message or note in the stages plan, recognize and apply.

It is synchronous and has no side effects. ``Deidentifier.message`` runs the three stages for one message. A caller with
several messages plans each, recognizes all plans at once, and applies each.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from deid_agent.codec import Codec, Envelope
from deid_agent.model import (
    Fact,
    Headers,
    Marking,
    Origin,
    Remark,
    Timings,
    filter_headers,
)
from deid_agent.pipeline.applying import Applier
from deid_agent.pipeline.changes import summarize_changes
from deid_agent.pipeline.documents import plan_document
from deid_agent.pipeline.facts import make_scope
from deid_agent.pipeline.leak_guard import LeakGuard
from deid_agent.pipeline.link_codes import LinkCodes, LinkPairs
from deid_agent.pipeline.marking import Marker
from deid_agent.pipeline.notes import (
    DeidentifiedText,
    NoteDeidentifier,
    RefusedText,
    TextRequest,
    find_patient,
    group_requests,
)
from deid_agent.pipeline.output_shape import OutputShape
from deid_agent.pipeline.planning import Planner
from deid_agent.pipeline.plans import FindKnown, MessagePlan
from deid_agent.pipeline.policy import Policy
from deid_agent.pipeline.reading import PlanReader
from deid_agent.pipeline.recognition import Recognition
from deid_agent.pipeline.replacement import Replacer, name_document, sanitize_key
from deid_agent.pipeline.tracing import NO_TRACE, Tracer
from deid_agent.pipeline.unexamined import UnexaminedCounts, count_unexamined
from deid_agent.pipeline.values import ValueDeidentifier
from deid_agent.recognize import NameMemory, PatientNames, Tagger
from deid_agent.surrogate import Surrogates

NO_MARKING: Final = Marking()


@dataclass(frozen=True, slots=True)
class Deidentified:
    """A sanitized message that may be published, with its remarks. ``timings`` are seconds by stage.

    ``media`` is the media type of a document that came without a message. ``provenance`` is a FHIR Provenance for a
    topic of its own; empty if there is none.
    """

    payload: bytes = field(repr=False)
    remarks: tuple[Remark, ...]
    key: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    timings: tuple[tuple[str, float], ...] = field(default=(), compare=False)
    media: str = ""
    provenance: bytes = field(default=b"", repr=False)


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
        marking: Marking = NO_MARKING,
        shape: OutputShape | None = None,
    ) -> None:
        """``attachment_codecs`` are formats that come as attachments only; they are tried before ``codecs``.

        ``fhir_types`` are the resource types of FHIR: a record key may be a reference to one. ``marking`` is what
        FHIR outputs get in addition. With a ``shape`` outputs have it, and notes are refused.
        """
        self._codecs = tuple(codecs)
        self._key_tagger = tagger.without_models()
        self._policy = policy
        self._replacer = Replacer(policy, surrogates)
        self._tagger = tagger
        self._guard = guard
        self._attachment_codecs = tuple(attachment_codecs)
        self._fhir_types = fhir_types
        self._marking = marking
        self._shape = shape
        self._notes = NoteDeidentifier(policy, tagger, self._replacer, guard, shaped=shape is not None)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        raise TypeError("Deidentifier holds a secret and is not pickled: load one in each process")

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
        if not isinstance(payload, bytes):
            raise TypeError(f"a message is bytes, not {type(payload).__name__}: encode it, or read its file as bytes")
        plan = self.plan(payload, key=key, envelope=envelope)
        (recognition,) = self.recognize([plan], memory)
        return self.apply(plan, recognition, tracer=tracer)

    def document(
        self,
        data: bytes,
        media: str = "",
        *,
        facts: tuple[Fact, ...] = (),
        document: str = "",
        patient: str | None = None,
        tracer: Tracer = NO_TRACE,
    ) -> Deidentified:
        """De-identify a document: HTML, RTF, plain text, or the text of a PDF, as it is in an attachment of a message.

        The content decides how it is read; the media type in ``media`` can only make that stricter. The result names
        its own: the text of a PDF replaces the PDF. ``facts``, ``document`` and ``patient`` are as for ``text``.

        Raises ``MessageError``: REJECTED if the policy publishes no such document, UNSUPPORTED for one that cannot be
        read (a scan, an image, an encrypted file), and as ``message``.
        """
        if not isinstance(data, bytes):
            raise TypeError(f"a document is bytes, not {type(data).__name__}: read its file as bytes")
        plan = self.plan_document(data, media, facts=facts, document=document, patient=patient)
        (recognition,) = self.recognize([plan])
        return self.apply(plan, recognition, tracer=tracer)

    @property
    def values(self) -> ValueDeidentifier:
        """Replaces single values that come without a message, with the same policy and key."""
        return ValueDeidentifier(self._policy, self._replacer, self._guard)

    @property
    def policy(self) -> Policy:
        """The policy that it applies."""
        return self._policy

    @property
    def tagger(self) -> Tagger:
        """The tagger that reads the texts."""
        return self._tagger

    @property
    def is_shaped(self) -> bool:
        """True if outputs have a shape of their own, so that items of lists may be left out."""
        return self._shape is not None

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
        find_known: FindKnown | None = None,
    ) -> MessagePlan:
        """Stage 1: parse a record's payload with its attachments and list the texts to read.

        With an ``envelope`` the payload is a record around messages; else ``find_known`` gives the known
        messages about each.

        Raises ``MessageError`` if the payload cannot be understood or the policy refuses it.
        """
        planner = Planner(self._policy, self._codecs, self._attachment_codecs)
        return planner.plan_message(payload, key, headers, envelope, find_known)

    def plan_document(
        self,
        data: bytes,
        media: str = "",
        *,
        facts: tuple[Fact, ...] = (),
        document: str = "",
        patient: str | None = None,
    ) -> MessagePlan:
        """Stage 1 for a document that comes without a message. Raises as ``document``."""
        scope = find_patient(self._policy, facts, patient).scope
        planner = Planner(self._policy, self._codecs, self._attachment_codecs)
        return plan_document(planner, data, media, document, scope, facts)

    def recognize(self, plans: Sequence[MessagePlan], memory: NameMemory | None = None) -> list[Recognition]:
        """Stage 2: read the texts of all plans in shared batches. An error is kept for the plan that causes it.

        With a ``memory`` the findings also depend on earlier messages: each plan adds the names of its patient to the
        memory, then its texts are searched for all remembered names. Plans of one batch give the same findings as one
        by one.
        """
        return PlanReader(self._tagger, self._key_tagger).read(plans, memory)

    def apply(
        self,
        plan: MessagePlan,
        recognition: Recognition,
        *,
        tracer: Tracer = NO_TRACE,
        origin: Origin | None = None,
        links: LinkPairs | None = None,
        code_key: bytes = b"",
    ) -> Deidentified:
        """Stage 3: make the edits, run the leak guard and assemble the bytes.

        Without an ``origin`` there is no Provenance. ``links`` gets the link codes with their originals: the result
        itself never has an original. Records with one ``code_key`` have common link codes.

        Raises the error of the recognition, if it has one, and ``MessageError`` with LEAK if an identifier remains.
        """
        timings = plan.timings
        if not self._policy.changes_nothing:
            timings.add("recognize", recognition.seconds)
        if recognition.error is not None:
            raise recognition.error
        codes = LinkCodes(self._replacer.surrogates, plan.payload, code_key)
        marker, found = self._make_marker(origin), recognition.spans
        applier = Applier(
            self._policy,
            self._replacer,
            self._guard,
            found,
            codes,
            timings,
            tracer,
            self._shape,
            marker=marker,
            links=links,
        )
        with timings.measure("edit"):
            payload = applier.apply_plan(plan)
            if plan.record is not None:
                payload = plan.record.restore(payload)
            with timings.measure("surrogate"):
                key = self._sanitize_key(plan)
        remarks = summarize_changes(applier.counts)
        headers, provenance = self._select_headers(plan.headers), b"" if marker is None else marker.provenance()
        return Deidentified(payload, remarks, key, headers, timings.seconds_by_stage, plan.media, provenance)

    def _make_marker(self, origin: Origin | None) -> Marker | None:
        if self._marking.adds_nothing:
            return None
        return Marker(self._marking, self._policy, origin)

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
        Raises ``MessageError``: RESOURCE for a text that is too long, LANGUAGE for one in another language, UNSUPPORTED
        if the policy publishes paths only, LEAK if a fact remains that may not be written over.
        """
        request = TextRequest(text, document, patient, facts, names)
        (result,) = self._notes.deidentify([request], tracer)
        if isinstance(result, RefusedText):
            raise result.error
        return result

    def texts(self, requests: Iterable[TextRequest | str]) -> Iterator[DeidentifiedText | RefusedText]:
        """De-identify notes: a result or a refusal for each, in order, the same as for it alone.

        A request is a text, or a ``TextRequest`` with what is known of it.

        Up to ``MAX_GROUP`` notes are read together, which takes a third less CPU than one by one. Never raises for a
        note; ``TypeError`` for a request that is no text. Requests are taken as results are, one group ahead, so an
        endless iterable is possible.
        """
        if isinstance(requests, str):
            raise TypeError("texts takes several notes: use text for one, or write [note]")
        for group in group_requests(map(_as_request, requests)):
            yield from self._notes.deidentify(group)

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


def _as_request(given: TextRequest | str) -> TextRequest:
    """Raises ``TypeError`` for anything else, such as the NaN of an empty cell; the error does not show the value."""
    if isinstance(given, TextRequest) and isinstance(given.text, str):
        return given
    if isinstance(given, str):
        return TextRequest(given)
    kind = type(given.text if isinstance(given, TextRequest) else given).__name__
    raise TypeError(f"a note is a str or a TextRequest, not {kind}: leave out empty notes, or write an empty text")
