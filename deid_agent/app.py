"""The composition root: builds a de-identifier, or the job callable of a worker, from settings.

``WorkerFactory`` is small and picklable. Each worker process receives it and calls it once, so rules and models load
once for each worker.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from deid_agent import pause_gc
from deid_agent.agent import DEFAULT_PROJECT, Job, Process, Processed, Refused, Result, result_from_error
from deid_agent.codec import Codec, Envelope
from deid_agent.config import SecretKey
from deid_agent.model import ConfigurationError, MessageError, Reason, Remark, Timings
from deid_agent.pipeline import (
    DROP,
    Deidentified,
    Deidentifier,
    LeakGuard,
    MessagePlan,
    Policy,
    Recognition,
    ScopeTableFile,
    Validator,
    add_registry,
    check_payloads,
)
from deid_agent.recognize import KnownRecognizer, NameLexicons, NameMemory, Profile, Tagger, load_rules, load_tagger
from deid_agent.rules import data_folder
from deid_agent.surrogate import Surrogates

if TYPE_CHECKING:
    from deid_agent.schemas import RegistryOptions

_SCHEMA_PATIENCE_S = 0.5


@dataclass(frozen=True, slots=True)
class ProjectParts:
    """What a project does not share with the others. ``generation`` is that of its key, 0 for the key file itself."""

    name: str
    key: SecretKey = field(repr=False)
    policy: Policy
    system: str = "default"
    profile: str = "recall"
    generation: int = 0


@dataclass(frozen=True, slots=True)
class WorkerFactory:
    """Everything that a worker needs to build its job callable.

    Key, policy, system and profile are those of the project ``default``; ``projects`` are the others.
    """

    rules: Path
    key: SecretKey = field(repr=False)
    policy: Policy
    system: str = "default"
    profile: str = "recall"
    max_bytes: int = 64 * 1024 * 1024
    validate: bool = False
    models: Path | None = None
    unexamined: bool = False
    remembered_patients: int = 0
    envelopes: tuple[tuple[str, Envelope], ...] = ()
    registry: "RegistryOptions | None" = None
    scopes: ScopeTableFile | None = None
    projects: tuple[ProjectParts, ...] = ()

    @property
    def default(self) -> ProjectParts:
        """The parts of the project ``default``."""
        return ProjectParts(DEFAULT_PROJECT, self.key, self.policy, self.system, self.profile)

    def deidentifier(
        self, wrap_tagger: Callable[[Tagger], Tagger] = lambda tagger: tagger, *, notes_only: bool = False
    ) -> Deidentifier:
        """Load rules, tables and models. ``wrap_tagger`` may put an observer around the tagger.

        With ``notes_only`` the de-identifier takes texts but no messages, and loads faster. Raises
        ``ConfigurationError`` if a file is missing or invalid.
        """
        (made,) = self._load((self.default,), wrap_tagger, notes_only=notes_only)
        return made

    def _load(
        self,
        projects: Sequence[ProjectParts],
        wrap_tagger: Callable[[Tagger], Tagger] = lambda tagger: tagger,
        *,
        notes_only: bool = False,
    ) -> list[Deidentifier]:
        """A de-identifier for each project. All share codecs and leak guard; equal systems and profiles the tagger."""
        with pause_gc():
            codecs = _MessageCodecs() if notes_only else _load_codecs(self.rules)
            loaded = load_rules(self.rules)
            models = self.models or data_folder("models")
            known = KnownRecognizer(NameLexicons.of(loaded), exact=True)
            guard = LeakGuard(known.recognize, known.proves_absence)
            taggers = {
                (system, profile): wrap_tagger(load_tagger(loaded, models, system, _parse_profile(profile)))
                for system, profile in dict.fromkeys((each.system, each.profile) for each in projects)
            }
            return [
                Deidentifier(
                    codecs=codecs.messages,
                    attachment_codecs=codecs.attachments,
                    tagger=taggers[each.system, each.profile],
                    surrogates=Surrogates(
                        each.key.secret,
                        dates=each.policy.dates,
                        place_scope=each.policy.place_scope.value,
                        locales=each.policy.locales,
                        providers=each.policy.providers,
                        rules=self.rules,
                    ),
                    policy=self._scoped(each),
                    guard=guard,
                    fhir_types=codecs.fhir_types,
                )
                for each in projects
            ]

    def _scoped(self, project: ProjectParts) -> Policy:
        """The policy of a project. The scope table is bound to the key of ``default``, so only that one reads it."""
        policy = project.policy
        if self.scopes is None or project.name != DEFAULT_PROJECT:
            return policy
        return replace(policy, patient=self.scopes.add_to(policy, project.key))

    def __call__(self) -> Process:
        """The loaded job callable. It is a ``BatchProcess`` if batches cost less than single jobs."""
        validator = Validator() if self.validate else None
        # A worker waits only this long for a schema: its other jobs have deadlines, and the record is tried again.
        envelopes = add_registry(self.envelopes, self.registry, _SCHEMA_PATIENCE_S)
        projects = (self.default, *self.projects)
        runners = {
            each.name: JobRunner(
                made,
                AuditDigester(each.key),
                self.max_bytes,
                validator,
                self.unexamined,
                self._memory(each),
                envelopes,
                # With a memory of names the findings in a text depend on the project.
                (each.name,) if self.remembered_patients else (each.system, each.profile),
            )
            for each, made in zip(projects, self._load(projects), strict=True)
        }
        first = runners[DEFAULT_PROJECT]
        runner = ProjectRunner(runners) if self.projects else first
        return runner if any(each.deidentifier.prefers_batches for each in runners.values()) else runner.__call__

    def _memory(self, project: ProjectParts) -> NameMemory | None:
        return NameMemory(project.key.secret, self.remembered_patients) if self.remembered_patients else None


@dataclass(frozen=True, slots=True)
class _MessageCodecs:
    """The codecs of messages and attachments, and the resource types of FHIR."""

    messages: tuple[Codec, ...] = ()
    attachments: tuple[Codec, ...] = ()
    fhir_types: frozenset[str] = frozenset()


def _load_codecs(rules: Path) -> _MessageCodecs:
    # Imported here: a command that reads notes needs none of them.
    from deid_agent.codec import HtmlCodec, TableCodec  # noqa: PLC0415
    from deid_agent.codec.cda import CdaCodec  # noqa: PLC0415
    from deid_agent.codec.fhir import FhirCodec, FhirXmlCodec, FhirXmlTypes  # noqa: PLC0415
    from deid_agent.codec.hl7v2 import Hl7Codec, Hl7XmlCodec  # noqa: PLC0415
    from deid_agent.codec.rtf import RtfCodec  # noqa: PLC0415

    hl7, fhir = Hl7Codec(rules), FhirCodec(rules)
    return _MessageCodecs(
        (hl7, fhir, CdaCodec(rules), FhirXmlCodec(fhir, FhirXmlTypes(rules)), Hl7XmlCodec(hl7)),
        (RtfCodec(), HtmlCodec(rules), TableCodec(rules)),
        frozenset(fhir.resources),
    )


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
        else:
            envelope = self.envelopes.get(job.source)
            run.plan = self.deidentifier.plan(job.payload, key=job.key, headers=job.headers, envelope=envelope)

    def _apply(self, run: "_JobRun", plan: MessagePlan, recognition: Recognition) -> None:
        done = self.deidentifier.apply(plan, recognition)
        timings = Timings()
        if self.validator is not None:
            with timings.measure("validate"):
                check_payloads(self.validator, self.envelopes.get(run.job.source), run.job.payload, done.payload)
        run.result = result = replace(self._make_result(run, done, timings), patients=plan.listings)
        if self.unexamined:
            with suppress(MessageError):  # a count may fail, the message may not
                counts = self.deidentifier.count_unexamined_in(plan)
                run.result = replace(result, unexamined=tuple((*row, count) for row, count in counts.items()))

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

    @contextmanager
    def measure_stage(self) -> Iterator[None]:
        """Count the seconds of a stage for this job, and make an exception its result."""
        begin = perf_counter()
        try:
            yield
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


def _parse_profile(name: str) -> Profile:
    try:
        return Profile(name)
    except ValueError:
        raise ConfigurationError(f"profile {name!r}: not one of {', '.join(Profile)}") from None
