"""Runs the jobs of a worker through the stages of the de-identifier, with the key and the policy of their project."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import perf_counter, time
from typing import TYPE_CHECKING

from deid_agent.agent import (
    DEFAULT_PROJECT,
    MEDIA_HEADER,
    Coordinates,
    DocumentCounts,
    Job,
    NoteOption,
    Processed,
    Refused,
    Result,
    Suppressed,
    Task,
    result_from_error,
)
from deid_agent.app.document_counts import NOTE, DocumentCounter
from deid_agent.codec import Envelope
from deid_agent.config import SecretKey
from deid_agent.model import LeftOutError, MessageError, Origin, Reason, Remark, Timings
from deid_agent.pipeline import (
    DROP,
    Deidentified,
    DeidentifiedText,
    Deidentifier,
    LinkPairs,
    MessagePlan,
    NoteLine,
    OperationInput,
    PseudonymInput,
    Recognition,
    RefusedText,
    Validator,
    anonymize,
    check_line,
    check_payloads,
    check_xml_resource,
    read_note_line,
    read_operation,
    read_plain_note,
    read_pseudonymize,
    write_note_line,
)
from deid_agent.recognize import NameMemory

if TYPE_CHECKING:
    from deid_agent.agent import OutputMarks, PairSealer


@dataclass(frozen=True, slots=True)
class AuditDigester:
    """Makes keyed digests for the audit: without the key nobody can confirm a guess of a message."""

    key: SecretKey = field(repr=False)

    def digest(self, data: bytes) -> str:
        """BLAKE2b of ``data`` with a key of its own: 128 bits in hex."""
        secret = hashlib.blake2b(self.key.secret, person=b"deid-audit", digest_size=32).digest()
        return hashlib.blake2b(data, key=secret, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class JobRunner:
    """The job callable of a worker: runs records through the stages of the de-identifier, and the schemas.

    With ``unexamined`` it also counts the values that leave unread. With a ``memory`` it finds the names that earlier
    messages of a patient taught, so that a result also depends on them (docs/decisions/0017).
    """

    deidentifier: Deidentifier
    digester: AuditDigester
    max_bytes: int
    validator: Validator | None = None
    unexamined: bool = False
    memory: NameMemory | None = None
    envelopes: Mapping[str, Envelope] = field(default_factory=dict)
    reads_with: tuple[str, ...] = ()
    """Runners with an equal value find the same in a text, so the texts of their jobs are read together."""
    marks: "OutputMarks | None" = None
    """Gives a Provenance the id and the time of its output; None if there is none."""
    allows_digests: bool = False
    """True if callers of ``$pseudonymize`` may give a key for SHA-256."""
    smallest_group: int | None = None
    """The least persons of a group that ``$anonymize`` reports; None if the operation is not offered."""
    sealer: "PairSealer | None" = None
    """Seals the link codes of each record for the crosswalk of the project."""
    counter: DocumentCounter | None = None
    """Counts documents, if the project has a leak bound."""

    def __call__(self, job: Job) -> Result:
        """The result of one record. Every failure becomes a ``Refused``."""
        ((result, _),) = self.process_batch([job])
        return result

    def process_batch(self, jobs: Sequence[Job]) -> list[tuple[Result, float]]:
        """The result of each job, the same as for the job alone, and the seconds spent on it.

        The texts of all jobs are read together. A failure of one job does not affect the others.
        """
        runs = [_JobRun(job) for job in jobs]
        _process_runs([(self, run) for run in runs])
        return [(run.result, run.seconds) for run in runs]

    def _plan(self, run: "_JobRun") -> None:
        job = run.job
        run.input_digest = self.digester.digest(job.payload)
        if len(job.payload) > self.max_bytes:
            run.result = Refused(Reason.RESOURCE, where="payload", stage="size", input_digest=run.input_digest)
        elif job.tombstone:
            done = self.deidentifier.tombstone(key=job.key, headers=job.headers)
            run.result = self._make_result(run, done, Timings())
        elif run.task is Task.MESSAGE:
            envelope = self.envelopes.get(job.source)
            run.plan = self.deidentifier.plan(job.payload, key=job.key, headers=job.headers, envelope=envelope)
        elif run.task is Task.LINE:
            check_line(job.payload, job.task.partition(" ")[2])
            run.plan = self.deidentifier.plan(job.payload, key=job.key, headers=job.headers)
        elif run.task in {Task.OPERATION, Task.RESOURCE}:
            given = read_operation(job.payload, self.deidentifier.policy)
            run.operation = given if run.task is Task.OPERATION else given.on_one_line
            run.plan = self.deidentifier.plan(run.operation.resource, key=job.key, headers=job.headers)
        elif run.task is Task.XML_RESOURCE:
            check_xml_resource(job.payload)
            run.plan = self.deidentifier.plan(job.payload, key=job.key, headers=job.headers)
        elif run.task in {Task.PSEUDONYMIZE, Task.PSUEDONYMIZE}:
            run.operation = self._read_pseudonymize(run)
            run.plan = self.deidentifier.plan(run.operation.resource, key=job.key, headers=job.headers)
        elif run.task is Task.ANONYMIZE:
            run.result = self._make_result(run, Deidentified(self._anonymize(job), ()), Timings())
        elif run.task is Task.DOCUMENT:
            run.plan = self.deidentifier.plan_document(job.payload, job.task.partition(" ")[2])
        else:
            run.note = read_note_line(job.payload) if run.task is Task.NOTE else read_plain_note(job.payload)

    def _read_pseudonymize(self, run: "_JobRun") -> PseudonymInput:
        policy, name = self.deidentifier.policy, f"{run.task}dData"
        return read_pseudonymize(run.job.payload, policy, output=name, allows_digests=self.allows_digests)

    def _anonymize(self, job: Job) -> bytes:
        if self.smallest_group is None:
            raise MessageError(Reason.UNSUPPORTED, "project", "the project sets no anonymize_k")
        time_ms = None if job.position is None else job.position.timestamp_ms
        today = datetime.now(UTC) if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)
        return anonymize(job.payload, self.smallest_group, today.date())

    def _finish_notes(self, runs: Sequence["_JobRun"]) -> None:
        """Set the results of notes, which are read together."""
        notes = [run.note.request for run in runs if run.note is not None]
        begin = perf_counter()
        results = list(self.deidentifier.texts(notes))
        spent = perf_counter() - begin
        for run, done in zip(runs, results, strict=True):
            run.seconds += spent / len(runs)
            with run.measure_stage():
                if isinstance(done, RefusedText):
                    raise done.error
                made = self._make_result(run, Deidentified(run.write_note(done), done.remarks, headers=()), Timings())
                run.result = replace(made, document=self._count_note(run, done))

    def _apply(self, run: "_JobRun", plan: MessagePlan, recognition: Recognition) -> None:
        links: LinkPairs | None = None if self.sealer is None else {}
        done = self.deidentifier.apply(
            plan, recognition, origin=self._origin(run.job), links=links, code_key=run.job.code_key
        )
        timings = Timings()
        if self.validator is not None and run.task is not Task.DOCUMENT:
            with timings.measure("validate"):
                before = run.job.payload if run.operation is None else run.operation.resource
                envelope = self.envelopes.get(run.job.source)
                moved = self.deidentifier.is_shaped
                check_payloads(self.validator, envelope, before, done.payload, moved=moved)
        if run.operation is not None:
            done = replace(done, payload=run.operation.restore(done.payload))
        if done.media:
            done = replace(done, headers=(*done.headers, (MEDIA_HEADER, done.media.encode())))
        sealed = self.sealer.seal(links, time()) if self.sealer is not None and links else b""
        made = self._make_result(run, done, timings)
        document = self._count_message(run, plan, recognition)
        run.result = result = replace(made, patients=plan.listings, sealed=sealed, document=document)
        if self.unexamined:
            with suppress(MessageError):  # a count may fail, the message may not
                counts = self.deidentifier.count_unexamined_in(plan)
                run.result = replace(result, unexamined=tuple((*row, count) for row, count in counts.items()))

    def _count_message(self, run: "_JobRun", plan: MessagePlan, recognition: Recognition) -> DocumentCounts | None:
        if self.counter is None:
            return None
        with suppress(Exception):  # a count may fail, the message may not
            scope = plan.parts[0].scope if plan.parts else None
            patient = "" if scope is None else scope.patient or scope.document
            return self.counter.count_message(plan, recognition, run.job.source, self._hide(patient))
        return None

    def _count_note(self, run: "_JobRun", done: DeidentifiedText) -> DocumentCounts | None:
        if self.counter is None or run.note is None:
            return None
        with suppress(Exception):
            request = run.note.request
            patient = self._hide(request.patient or request.document)
            texts = [(request.text, done.spans)]
            return self.counter.count(texts, source=run.job.source, template=NOTE, patient=patient)
        return None

    def _hide(self, patient: str) -> str:
        """A keyed digest of a patient: each counts once in a window, and the agent gets no identifier."""
        return self.digester.digest(patient.encode("utf-8", "surrogatepass"))[:16] if patient else ""

    def _origin(self, job: Job) -> Origin | None:
        if self.marks is None or job.position is None:
            return None
        partition, offset, timestamp_ms, topic_id = job.position
        id_ = self.marks.id_of(Coordinates(job.source, partition, offset), topic_id)
        return Origin(id_, self.marks.time.coarsen(timestamp_ms))

    def _make_result(self, run: "_JobRun", done: Deidentified, timings: Timings) -> Processed:
        replaced: Counter[str] = Counter()
        for remark in done.remarks:
            if remark.method != DROP:
                replaced[remark.type] += remark.count
        return Processed(
            payload=done.payload,
            key=done.key,
            headers=done.headers,
            remarks=remarks_json(done.remarks),
            input_digest=run.input_digest,
            output_digest=hashlib.sha256(done.payload).hexdigest(),
            found=tuple(replaced.items()),
            timings=(*done.timings, *timings.seconds_by_stage),
            provenance=done.provenance,
        )


@dataclass(frozen=True, slots=True)
class ProjectRunner:
    """The job callable of a worker with projects: each job runs with the key and the policy of its project."""

    runners: Mapping[str, JobRunner]

    def __call__(self, job: Job) -> Result:
        """The result of one record. Every failure becomes a ``Refused``."""
        ((result, _),) = self.process_batch([job])
        return result

    def process_batch(self, jobs: Sequence[Job]) -> list[tuple[Result, float]]:
        """The result of each job, as ``JobRunner.process_batch``. A job of an unknown project is refused.

        The key of another project is never used in place of one that is missing.
        """
        runs = [_JobRun(job) for job in jobs]
        known = []
        for run in runs:
            if (runner := self.runners.get(run.job.project or DEFAULT_PROJECT)) is not None:
                known.append((runner, run))
            else:
                run.result = Refused(Reason.INTERNAL, fault="UnknownProject")
        _process_runs(known)
        return [(run.result, run.seconds) for run in runs]


def _process_runs(runs: Sequence[tuple[JobRunner, "_JobRun"]]) -> None:
    """Run jobs through the stages, each with its runner; texts are read together if their runners allow it."""
    groups: dict[tuple[str, ...], list[tuple[JobRunner, _JobRun, MessagePlan]]] = {}
    for runner, run in runs:
        with run.measure_stage():
            runner._plan(run)
        if run.plan is not None:
            groups.setdefault(runner.reads_with, []).append((runner, run, run.plan))
    for runner in {id(runner): runner for runner, _ in runs}.values():
        runner._finish_notes([run for each, run in runs if each is runner and run.note is not None])
    for planned in groups.values():
        first = planned[0][0]
        recognitions = first.deidentifier.recognize([plan for _, _, plan in planned], first.memory)
        for (runner, run, plan), recognition in zip(planned, recognitions, strict=True):
            run.seconds += recognition.seconds
            with run.measure_stage():
                runner._apply(run, plan, recognition)


@dataclass(slots=True)
class _JobRun:
    """The state of one job between the stages. ``plan`` is None if planning has ended the job."""

    job: Job
    plan: MessagePlan | None = None
    result: Result = field(default_factory=lambda: Refused(Reason.INTERNAL, fault="NoResult"))
    input_digest: str = ""
    seconds: float = 0.0
    note: NoteLine | None = None
    operation: OperationInput | PseudonymInput | None = None

    @property
    def task(self) -> Task:
        """The kind of the payload. Raises ``ValueError`` for an unknown task."""
        return Task(self.job.task.partition(" ")[0])

    def write_note(self, done: DeidentifiedText) -> bytes:
        """The output of a note in the form that its sender asked for."""
        if self.note is None or self.task is Task.PLAIN_NOTE:
            return done.text.encode()
        options = self.job.task.split(" ")
        return write_note_line(
            self.note.id,
            done,
            spans_only=NoteOption.SPANS_ONLY in options,
            original=self.note.request.text,
            utf16=NoteOption.UTF16 in options,
        )

    @contextmanager
    def measure_stage(self) -> Iterator[None]:
        """Count the seconds of a stage for this job, and make an exception its result."""
        begin = perf_counter()
        try:
            yield
        except LeftOutError:
            self.result = Suppressed(self.input_digest)
        except MessageError as problem:
            self.result = Refused(
                problem.reason, where=problem.where, stage="deidentify", input_digest=self.input_digest
            )
        except Exception as error:  # noqa: BLE001 - the boundary: a fault in one message must not affect the others
            self.result = result_from_error(error)
        finally:
            self.seconds += perf_counter() - begin


def remarks_json(remarks: Iterable[Remark]) -> bytes:
    """Remarks as a JSON array on one line."""
    return json.dumps([remark_dict(remark) for remark in remarks], separators=(",", ":")).encode()


def remark_dict(remark: Remark) -> dict[str, str | int]:
    """A remark in the form of ``message --remarks`` and of the audit."""
    return {
        "path": remark.path,
        "type": remark.type,
        "method": remark.method,
        "source": remark.source,
        "count": remark.count,
    }
