"""All sections as one frozen ``Settings``, and the rules between sections."""

from collections.abc import Mapping
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from deid_agent.config.envelopes import EnvelopeSettings
from deid_agent.config.environment import PREFIX
from deid_agent.config.http_service import ServiceSettings
from deid_agent.config.key_sources import KeySettings
from deid_agent.config.projects import (
    DEFAULT,
    HTTP,
    KAFKA,
    CrosswalkSettings,
    Feed,
    MarkingChoice,
    Name,
    OnRestrictedZip,
    ProjectSettings,
    RouteSettings,
    Shape,
    SmallestGroup,
    Topic,
    check_crosswalks,
    check_markings,
    check_shapes,
    choose_markings,
    http_topic,
    merge_routes,
)
from deid_agent.config.registry import RegistrySettings
from deid_agent.config.service import AgentSettings, AuditSettings, DeadLetterSettings, DriftSettings, HttpSettings
from deid_agent.config.service_jobs import JobSettings
from deid_agent.config.transports import DirectorySettings, KafkaSettings, MllpOutSettings, MllpSettings
from deid_agent.model import ProvenanceMode


class TransportKind(StrEnum):
    """Sources of messages and destinations of outputs."""

    KAFKA = "kafka"
    DIRECTORY = "directory"
    MLLP = "mllp"
    HTTP = "http"

    @property
    def section(self) -> str:
        """The section of its settings. ``[http]`` is that of the operator's pages."""
        return "service" if self is TransportKind.HTTP else self.value


class Settings(BaseSettings):
    """All settings of an operator. Only this class and the key loader read the environment."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    transport: TransportKind = Field(description="source of messages: kafka, directory, mllp or http")
    output: TransportKind | None = Field(
        default=None,
        description="destination of outputs if it differs from transport: kafka to mllp, mllp to kafka or directory",
    )
    policy: str = Field(default="pseudonymised", description="a shipped profile or a policy file")
    profile: str = Field(default="recall", description="precision, balanced, recall or budget")
    budget: Path | None = Field(
        default=None, description="file of `deid-agent bound`, for profile = budget (docs/leak-bound.md)"
    )
    system: str = Field(default="default", description="which recognizers run")
    key_file: Path | None = Field(default=None, description="the secret key, at least 32 bytes, mode 0600")
    routes: tuple[RouteSettings, ...] = Field(
        default=(), description="list of routes: from = kafka:TOPIC, mllp, directory or http; project; to = kafka:TOPIC"
    )
    keys: dict[Name, KeySettings] = Field(default={}, description="keys of projects that come from another place")
    projects: dict[Name, ProjectSettings] = Field(
        default={}, description="projects with a policy and a key of their own"
    )
    crosswalks: dict[Name, CrosswalkSettings] = Field(
        default={}, description="crosswalks of projects: the way back from link codes, for two custodians"
    )
    allow_rekey: bool = Field(
        default=False,
        description="with projects: start although the audit shows that an output of default had another key before",
    )
    labels: bool = Field(default=False, description="security labels in FHIR JSON outputs (docs/projects.md)")
    provenance: ProvenanceMode = Field(
        default=ProvenanceMode.NONE, description="where a FHIR Provenance goes: none, bundle or topic"
    )
    provenance_topic: Topic | None = Field(default=None, description="Kafka topic for provenance = topic")
    sha256_pseudonyms: bool = Field(
        default=False, description="let callers of $pseudonymize give a key of at least 32 bytes for SHA256"
    )
    anonymize_k: SmallestGroup | None = Field(
        default=None, description="least persons of a group that $anonymize reports; None refuses the operation"
    )
    allow_demo_key: bool = Field(default=False, description="let Kafka, MLLP and HTTP run with the demo key")
    shape: Shape | None = Field(
        default=None,
        description="form of FHIR outputs: dapl; None or none is that of the message (docs/conformance.md)",
    )
    on_restricted_zip: OnRestrictedZip | None = Field(
        default=None, description="with a shape: drop leaves patients of ZIP areas of few people out; None is mask"
    )
    age_date: date | None = Field(
        default=None, description="with a shape: the day of all ages; None is the day of each message"
    )
    rules: Annotated[Path | Annotated[tuple[Path, ...], Field(min_length=1)] | None, NoDecode] = Field(
        default=None,
        description='rules folder in place of the packaged one, or ["shipped", site folders] (docs/site.md)',
    )
    models: Path | None = Field(default=None, description="models folder in place of the packaged one")
    scope_table: Path | None = Field(
        default=None, description="who is one patient; made by: batch identities build (docs/backfill.md)"
    )
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$", description="least severe log line")
    agent: AgentSettings = AgentSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    kafka: KafkaSettings | None = None
    directory: DirectorySettings | None = None
    mllp: MllpSettings | None = None
    mllp_out: MllpOutSettings | None = None
    service: ServiceSettings | None = None
    jobs: JobSettings | None = None
    envelopes: dict[str, EnvelopeSettings] = Field(
        default={}, description='input topic (or "files") = envelope of its records'
    )
    registry: RegistrySettings | None = None
    drift: DriftSettings = DriftSettings()
    audit: AuditSettings
    http: HttpSettings = HttpSettings()

    @property
    def destination(self) -> TransportKind:
        """The destination of outputs: ``output``, else ``transport``."""
        return self.output or self.transport

    @property
    def has_projects(self) -> bool:
        """True if there are projects or routes; else the agent has one feed, as ``default``, and names no project."""
        return bool(self.projects or self.routes)

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The way of the records of each source; none for topics by a pattern, which all belong to ``default``."""
        owners = {route.topic: route.project for route in self.routes}
        match self.transport:
            case TransportKind.KAFKA:
                outputs = dict(self.kafka.routes) if self.kafka else {}
            case TransportKind.MLLP:
                outputs = {"mllp": self.kafka.routes.get("mllp", "") if self.kafka else ""}
            case TransportKind.HTTP:
                # The outputs of a project are the answers that its clients have.
                projects = [route.project for route in self.routes] or [DEFAULT]
                return tuple(Feed(http_topic(each), each, f"{HTTP}:{each}") for each in projects)
            case _:
                outputs = {"files": ""}
        return tuple(
            Feed(topic, owners.get(topic, DEFAULT), f"{KAFKA}{output}" if output else self._place)
            for topic, output in outputs.items()
        )

    @property
    def _place(self) -> str:
        """The receiver or the folder of outputs that go to no topic."""
        match self.transport, self.destination:
            case _, TransportKind.MLLP:
                return f"mllp:{self.mllp_out.address}" if self.mllp_out else "mllp:"
            case TransportKind.MLLP, _:
                return f"directory:{self.mllp.output}" if self.mllp else "directory:"
            case _:
                return f"directory:{self.directory.output}" if self.directory else "directory:"

    @property
    def markings(self) -> Mapping[str, MarkingChoice]:
        """Labels and Provenance of each project."""
        return choose_markings(self, self.projects)

    @model_validator(mode="before")
    @classmethod
    def _merge_routes(cls, data: object) -> object:
        return merge_routes(data) if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _check_projects(self) -> Self:
        if DEFAULT in self.projects:
            raise ValueError(f"projects.{DEFAULT}: this project is the top level of the settings; choose another name")
        for name, project in self.projects.items():
            if project.key is not None and project.key not in self.keys:
                raise ValueError(f"projects.{name}.key: there is no key {project.key!r}; add [keys.{project.key}]")
        check_crosswalks(self.crosswalks, self.projects, self.audit.path)
        sources = {
            TransportKind.KAFKA: KAFKA,
            TransportKind.MLLP: "mllp",
            TransportKind.DIRECTORY: "directory",
            TransportKind.HTTP: HTTP,
        }
        for at, route in enumerate(self.routes):
            if route.project != DEFAULT and route.project not in self.projects:
                raise ValueError(
                    f"routes.{at}.project: there is no project {route.project!r}; add [projects.{route.project}]"
                )
            if not route.source.startswith(sources[self.transport]):
                raise ValueError(f"routes.{at}.from: {route.source} is not a source of transport {self.transport}")
            if self.destination is TransportKind.KAFKA:
                fits, wanted = route.to is not None and route.to.startswith(KAFKA), "write kafka:TOPIC"
            else:
                fits, wanted = route.to in {None, self.destination.value}, "leave it out"
            if not fits:
                raise ValueError(f"routes.{at}.to: outputs go to {self.destination}: {wanted}")
        return self

    @model_validator(mode="after")
    def _check_budgets(self) -> Self:
        users = (self.profile, *(each.profile for each in self.projects.values() if each.budget is None))
        if self.budget is not None and "budget" not in users:
            raise ValueError('budget: it is used with profile = "budget"; set that, or remove it')
        return self

    @model_validator(mode="after")
    def _check_jobs(self) -> Self:
        if self.jobs is not None and self.transport is not TransportKind.HTTP:
            raise ValueError("jobs: they are part of the HTTP interface: remove the section, or set transport to http")
        for name, project in self.projects.items():
            if self.jobs is None and project.has_jobs:
                raise ValueError(f"projects.{name}: it has settings of jobs; add [jobs] with the folder of the outputs")
        return self

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        check_shapes((self.shape, *(each.shape for each in self.projects.values())), {self.transport, self.destination})
        return self

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        owners: dict[str, Feed] = {}
        for feed in self.feeds:
            other = owners.setdefault(feed.target, feed)
            if other.project != feed.project:
                raise ValueError(
                    f"routes: {feed.target} is the output of {other.topic} for {other.project} and of {feed.topic} for "
                    f"{feed.project}: records under two keys in one place do not join"
                )
        return self

    @model_validator(mode="after")
    def _check_permissions(self) -> Self:
        served = {feed.project for feed in self.feeds}
        ours = self.service if self.transport is TransportKind.HTTP else None
        for client, each in ours.permissions.items() if ours else ():
            if unknown := sorted(set(each.projects) - served):
                raise ValueError(
                    f"service.permissions.{client}.projects: {unknown[0]} has no route from http; the projects that "
                    f"have one: {', '.join(sorted(served))}"
                )
        return self

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        kind = self.transport
        if getattr(self, kind.section) is None:
            raise ValueError(f"transport is {kind.value!r} but there is no [{kind.section}] section")
        return self

    @model_validator(mode="after")
    def _check_envelopes(self) -> Self:
        known = {TransportKind.DIRECTORY: {"files"}, TransportKind.MLLP: set[str](), TransportKind.HTTP: set[str]()}
        inputs = known.get(self.transport, set(self.kafka.routes) if self.kafka else set())
        if self.transport is TransportKind.KAFKA and self.kafka is not None and self.kafka.topics_pattern is not None:
            inputs = {topic for topic in self.envelopes if self.kafka.route(topic) is not None}
        if unknown := sorted(set(self.envelopes) - inputs):
            names = ", ".join(map(repr, sorted(inputs))) or "none"
            raise ValueError(f"envelopes: {unknown[0]!r} is not an input; the inputs with envelopes may be: {names}")
        return self

    @model_validator(mode="after")
    def _check_registry(self) -> Self:
        if self.registry is None and any(each.schema_registry for each in self.envelopes.values()):
            raise ValueError("envelopes: schema_registry = true needs a [registry] section with the url")
        return self

    @model_validator(mode="after")
    def _check_audit_topic(self) -> Self:
        topic, kafka = self.audit.topic, self.kafka
        if topic is None:
            return self
        if self.transport is not TransportKind.KAFKA or kafka is None:
            raise ValueError("audit.topic is a topic of Kafka: remove it, or set the transport to kafka")
        if topic in {*kafka.routes, *kafka.routes.values(), *map(kafka.dead_letter_topic, kafka.routes)}:
            raise ValueError("audit.topic: kafka.routes use this topic for messages; name another one")
        if kafka.topics_pattern is not None and kafka.route(topic) is not None:
            raise ValueError("audit.topic: kafka.topics_pattern matches this topic, so it would be read; name another")
        return self

    @model_validator(mode="after")
    def _check_markings(self) -> Self:
        to_kafka = self.transport is self.destination is TransportKind.KAFKA
        check_markings(self.markings, self.kafka if to_kafka else None, self.audit.topic)
        return self

    @model_validator(mode="after")
    def _check_destination(self) -> Self:
        match self.transport, self.destination:
            case (TransportKind.MLLP, _) | (_, TransportKind.MLLP) if self.kafka and self.kafka.topics_pattern:
                raise ValueError("kafka.topics_pattern is for outputs to Kafka topics; write kafka.routes for MLLP")
            case TransportKind.KAFKA | TransportKind.MLLP, TransportKind.MLLP:
                if self.mllp_out is None:
                    raise ValueError("outputs go to mllp but there is no [mllp_out] section: name the receiver there")
                if self.kafka is not None and any(self.kafka.routes.values()):
                    raise ValueError('kafka.routes: outputs go to mllp: write "input topic" = "" for each')
            case TransportKind.MLLP, TransportKind.KAFKA:
                if self.kafka is None or set(self.kafka.routes) != {"mllp"} or not self.kafka.routes["mllp"]:
                    raise ValueError('kafka.routes: write "mllp" = "output topic", for the messages from MLLP')
            case TransportKind.MLLP, TransportKind.DIRECTORY:
                if self.mllp is None or self.mllp.output is None:
                    raise ValueError("outputs go to a folder: name it in mllp.output")
            case source, target if source is not target:
                raise ValueError(f"output: from {source.value} to {target.value} is not supported")
            case TransportKind.KAFKA, _ if self.kafka is not None and not all(self.kafka.routes.values()):
                raise ValueError("kafka.routes: name the output topic of each input topic")
        return self

    @model_validator(mode="after")
    def _check_dead_letters(self) -> Self:
        dead_letters = self.dead_letters
        if self.transport is TransportKind.HTTP:
            return self  # a refusal is answered, and nothing is kept
        if dead_letters.plain == (dead_letters.public_key is not None):
            raise ValueError(
                "dead_letters: set exactly one of public_key (make a pair with: deid-agent dead-letters keygen --out "
                "dead-letters.key; name dead-letters.key.pub) and plain = true (dead letters hold PHI, in the clear)"
            )
        return self
