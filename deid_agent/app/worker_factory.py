"""Builds a de-identifier, or the job callable of a worker, from settings.

``WorkerFactory`` is small and picklable. Each worker process receives it and calls it once, so rules and models load
once for each worker.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deid_agent import pause_gc
from deid_agent.agent import DEFAULT_PROJECT, Process
from deid_agent.app.bound_file import BoundFile, choose_bound, parse_profile
from deid_agent.app.document_counts import DocumentCounter
from deid_agent.app.job_runner import AuditDigester, JobRunner, ProjectRunner
from deid_agent.codec import Codec, Envelope
from deid_agent.config import SecretKey
from deid_agent.model import Marking, ProvenanceMode
from deid_agent.pipeline import (
    NO_SHAPE,
    Deidentifier,
    LeakGuard,
    OutputShape,
    Policy,
    RestrictedZip,
    ScopeTableFile,
    ShapeName,
    ShapeOptions,
    Validator,
    add_registry,
    load_policy,
)
from deid_agent.recognize import KnownRecognizer, NameLexicons, NameMemory, Tagger, load_rules, load_tagger
from deid_agent.rules import RulesGiven, data_folder, find_rules
from deid_agent.surrogate import RESTRICTED_ZIP3, Surrogates

if TYPE_CHECKING:
    from deid_agent.agent import OutputMarks, PairSealer
    from deid_agent.codec.fhir import FhirCodec
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
    marking: Marking = field(default_factory=Marking)
    allows_digests: bool = False
    smallest_group: int | None = None
    shape: ShapeOptions = NO_SHAPE
    bound: BoundFile | None = field(default=None, repr=False)
    """The leak bound of the profile ``budget``."""

    @property
    def reads_with(self) -> tuple[str, ...]:
        """Projects with an equal value find the same in a text."""
        return (self.system, self.profile, *(() if self.bound is None else (repr(self.bound.lean),)))


@dataclass(frozen=True, slots=True)
class WorkerFactory:
    """Everything that a worker needs to build its job callable.

    Key, policy, system, profile and marking are those of the project ``default``; ``projects`` are the others.
    ``crosswalks`` are the sealers of the projects that have a crosswalk.
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
    marking: Marking = field(default_factory=Marking)
    allows_digests: bool = False
    smallest_group: int | None = None
    crosswalks: "tuple[tuple[str, PairSealer], ...]" = ()
    shape: ShapeOptions = NO_SHAPE
    sites: tuple[Path, ...] = ()
    bound: BoundFile | None = field(default=None, repr=False)

    @property
    def default(self) -> ProjectParts:
        """The parts of the project ``default``."""
        return ProjectParts(
            DEFAULT_PROJECT,
            self.key,
            self.policy,
            self.system,
            self.profile,
            marking=self.marking,
            allows_digests=self.allows_digests,
            smallest_group=self.smallest_group,
            shape=self.shape,
            bound=self.bound,
        )

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
            loaded = load_rules(self.rules, self.sites)
            models = self.models or data_folder("models")
            known = KnownRecognizer(NameLexicons.of(loaded), exact=True)
            guard = LeakGuard(known.recognize, known.proves_absence)
            taggers: dict[tuple[str, ...], Tagger] = {}
            for each in projects:
                if each.reads_with not in taggers:
                    tagger = load_tagger(loaded, models, each.system, parse_profile(each.profile))
                    taggers[each.reads_with] = wrap_tagger(
                        tagger if each.bound is None else each.bound.lean_tagger(tagger)
                    )
            return [
                Deidentifier(
                    codecs=codecs.messages,
                    attachment_codecs=codecs.attachments,
                    tagger=taggers[each.reads_with],
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
                    marking=each.marking,
                    shape=codecs.make_shape(each.shape),
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
        projects, sealers = (self.default, *self.projects), dict(self.crosswalks)
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
                (each.name,) if self.remembered_patients else each.reads_with,
                marks=_make_marks(each),
                allows_digests=each.allows_digests,
                smallest_group=each.smallest_group,
                sealer=sealers.get(each.name),
                counter=None if each.bound is None else DocumentCounter.of(made.tagger),
            )
            for each, made in zip(projects, self._load(projects), strict=True)
        }
        first = runners[DEFAULT_PROJECT]
        runner = ProjectRunner(runners) if self.projects else first
        return runner if any(each.deidentifier.prefers_batches for each in runners.values()) else runner.__call__

    def _memory(self, project: ProjectParts) -> NameMemory | None:
        return NameMemory(project.key.secret, self.remembered_patients) if self.remembered_patients else None


def _make_marks(project: ProjectParts) -> "OutputMarks | None":
    """The ids and times of outputs, if a Provenance needs them."""
    if project.marking.provenance is ProvenanceMode.NONE:
        return None
    from deid_agent.agent import OutputMarks  # noqa: PLC0415 - it loads the metrics

    return OutputMarks(project.key.secret, project.policy.record_time)


def make_factory(
    key: SecretKey,
    *,
    policy: str,
    profile: str,
    system: str,
    rules: RulesGiven = None,
    models: str | Path | None = None,
    scope_table: str | Path | None = None,
    shape: ShapeOptions | None = None,
    budget: str | Path | None = None,
) -> WorkerFactory:
    """The factory of these names and paths, as commands and programs give them. None is what is packaged.

    ``budget`` is the file of the leak bound, for the profile ``budget``.

    Raises ``ConfigurationError`` for a policy or a file that is missing or invalid.
    """
    found = find_rules(rules)
    chosen = load_policy(policy, found.folder)
    folder = None if models is None else data_folder("models", str(models))
    bound = choose_bound(profile, None if budget is None else Path(budget), system, found.folder, found.sites, folder)
    return WorkerFactory(
        rules=found.folder,
        sites=found.sites,
        key=key,
        policy=chosen,
        system=system,
        profile=profile,
        models=folder,
        scopes=None if scope_table is None else ScopeTableFile.of(Path(scope_table), key, chosen),
        shape=(shape or NO_SHAPE).check(chosen),
        bound=bound,
    )


@dataclass(frozen=True, slots=True)
class _MessageCodecs:
    """The codecs of messages and attachments; ``fhir`` is the one of FHIR in JSON."""

    messages: tuple[Codec, ...] = ()
    attachments: tuple[Codec, ...] = ()
    fhir: "FhirCodec | None" = None

    @property
    def fhir_types(self) -> frozenset[str]:
        """The resource types of FHIR."""
        return frozenset() if self.fhir is None else self.fhir.resources

    def make_shape(self, options: ShapeOptions) -> OutputShape | None:
        """The shape of outputs; None if they keep the one of their messages."""
        if options.name is ShapeName.NONE or self.fhir is None:
            return None
        from deid_agent.codec.fhir import DaplOptions  # noqa: PLC0415 - most agents have no shape

        drops = options.on_restricted_zip is RestrictedZip.DROP
        return OutputShape(self.fhir.make_dapl_form(DaplOptions(RESTRICTED_ZIP3, drops)), options.age_date)


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
        fhir,
    )
