"""The settings ``routes``, ``[projects.NAME]`` and ``[crosswalks.NAME]``: feeds under policies and keys of their own.

A route takes the records of one source to one target, for one project. The project ``default`` is the top level of the
settings with the bytes of its key file; ``[kafka.routes]`` is the short form of its routes.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol, Self

from pydantic import Field, field_validator, model_validator

from deid_agent.config.service import Section
from deid_agent.config.service_jobs import ProjectJobSettings
from deid_agent.config.transports import KafkaSettings
from deid_agent.model import Marking, ProvenanceMode

DEFAULT: Final = "default"
KAFKA: Final = "kafka:"
_NAME: Final = r"^[a-z0-9][a-z0-9_-]{0,62}$"
_TOPIC: Final = re.compile(r"kafka:[A-Za-z0-9._-]{1,249}")
_PLACES: Final = {"mllp": "mllp", "directory": "files"}
"""Sources that are no topics, with the topic in the coordinates of their records."""
HTTP: Final = "http"
"""The HTTP interface. It is a source of each project that a route names: its clients name the project."""
Name = Annotated[str, Field(pattern=_NAME)]
SmallestGroup = Annotated[int, Field(ge=5, le=1_000_000)]
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
Shape = Literal["none", "dapl"]
OnRestrictedZip = Literal["mask", "drop"]


class ProjectSettings(ProjectJobSettings):
    """One project. What it does not set is that of the top level, except the settings of its jobs."""

    policy: str | None = Field(default=None, description="a shipped profile or a policy file; None is that above")
    profile: str | None = Field(default=None, description="precision, balanced, recall or budget; None is that above")
    budget: Path | None = Field(default=None, description="file of `deid-agent bound`; None is that above")
    system: str | None = Field(default=None, description="which recognizers run; None is that above")
    key: Name | None = Field(
        default=None,
        description="name in `keys` of the key that this project's key is derived from; None is the agent's",
    )
    domain: Name | None = Field(
        default=None, description="projects of one key, domain and generation have one key; None is the project's name"
    )
    generation: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="number of the project's key; the next one is another key, and begins another feed"
    )
    allow_rekey: bool = Field(
        default=False, description="start although the audit shows that the output had another key before"
    )
    labels: bool | None = Field(default=None, description="security labels in FHIR JSON; None is that above")
    provenance: ProvenanceMode | None = Field(
        default=None, description="where a FHIR Provenance goes: none, bundle or topic; None is that above"
    )
    provenance_topic: Topic | None = Field(
        default=None, description="Kafka topic for provenance = topic, of this project alone"
    )
    sha256_pseudonyms: bool | None = Field(
        default=None, description="let callers of $pseudonymize give a key for SHA256; None is that above"
    )
    anonymize_k: SmallestGroup | None = Field(
        default=None, description="least persons of a group that $anonymize reports; None is that above"
    )
    shape: Shape | None = Field(
        default=None, description="form of FHIR outputs: dapl, or none for that of the message; None is that above"
    )
    on_restricted_zip: OnRestrictedZip | None = Field(
        default=None, description="mask or drop, with a shape; None is that above"
    )
    age_date: date | None = Field(default=None, description="day of the ages, with a shape; None is that above")


class CrosswalkSettings(Section):
    """The crosswalk of one project, or of ``default``: sealed pairs of an original identifier and its link code."""

    path: Path = Field(description="folder of the crosswalk: chained lines in segments, synced before the audit")
    seal_to: tuple[Path, ...] = Field(
        description="the public keys of its two custodians, in the order in which they open it; .pub files of "
        "`deid-agent crosswalk keygen`"
    )
    single_custodian: bool = Field(default=False, description="let one person alone open it: one key in seal_to")

    @model_validator(mode="after")
    def _check_custodians(self) -> Self:
        if len(self.seal_to) != (1 if self.single_custodian else 2):
            raise ValueError(
                "seal_to: name the public keys of two custodians; for one alone set single_custodian = true"
                if not self.single_custodian
                else "seal_to: name one public key, or remove single_custodian"
            )
        return self


class RouteSettings(Section):
    """The way of the records of one source."""

    source: str = Field(alias="from", description="kafka:TOPIC, mllp, directory or http")
    project: Name = Field(default=DEFAULT, description="a project, or default")
    to: str | None = Field(default=None, description="kafka:TOPIC; None is the receiver or folder of the settings")

    @field_validator("source", "to")
    @classmethod
    def _check_place(cls, value: str | None) -> str | None:
        if value is None or value in {*_PLACES, HTTP} or _TOPIC.fullmatch(value):
            return value
        raise ValueError('write "kafka:TOPIC", "mllp", "directory" or "http"')

    @property
    def topic(self) -> str:
        """The topic of the records from this source, as coordinates name it."""
        return http_topic(self.project) if self.source == HTTP else topic_of(self.source)

    def __str__(self) -> str:
        return f"{self.source} to {self.to or 'the output'} for {self.project}"


def check_crosswalks(
    crosswalks: Mapping[str, CrosswalkSettings], projects: Mapping[str, ProjectSettings], audit: Path
) -> None:
    """Raise ``ValueError`` for a crosswalk without a project, or in a folder with another trail."""
    owners = {audit.resolve(): "audit.path"}
    for name, crosswalk in crosswalks.items():
        if name != DEFAULT and name not in projects:
            raise ValueError(f"crosswalks.{name}: there is no project {name!r}; add [projects.{name}]")
        owner = owners.setdefault(crosswalk.path.resolve(), f"crosswalks.{name}.path")
        if owner != f"crosswalks.{name}.path":
            raise ValueError(f"crosswalks.{name}.path: is the folder of {owner} too; choose another one")


def topic_of(source: str) -> str:
    """The topic in the coordinates of the records of a source, except ``http``."""
    return _PLACES.get(source, source.removeprefix(KAFKA))


def http_topic(project: str) -> str:
    """The topic in the coordinates of the requests of a project over HTTP."""
    return f"{HTTP}-{project}"


@dataclass(frozen=True, slots=True)
class Feed:
    """The records of one source: the ``topic`` of their coordinates, their project, and where their outputs go."""

    topic: str
    project: str
    target: str


def merge_routes(settings: Mapping[str, object]) -> Mapping[str, object]:
    """Raw settings whose ``[kafka.routes]`` also hold the routes that name a topic, so that all rules apply to both.

    Raises ``ValueError`` with the place of a route that contradicts another one. Whatever has a wrong type is left to
    the validation of its section.
    """
    routes, kafka = settings.get("routes"), settings.get("kafka")
    if not isinstance(routes, list | tuple):
        return settings
    section = kafka if isinstance(kafka, Mapping) else {}
    short = section.get("routes") or {}
    if not isinstance(short, Mapping):
        return settings
    found = [each if isinstance(each, Mapping) else {} for each in routes]
    places = [(_name_source(each), str(each.get("to") or "")) for each in found]
    _check_places(places, short)
    named = {topic_of(a): b.removeprefix(KAFKA) for a, b in places if a.startswith(KAFKA) or b.startswith(KAFKA)}
    if not named or not section:
        return settings
    if section.get("topics_pattern") is not None:
        raise ValueError("routes, kafka.topics_pattern: set one of them")
    return {**settings, "kafka": {**section, "routes": {**short, **named}}}


def _name_source(route: Mapping[object, object]) -> str:
    source = str(route.get("from"))
    return f"{HTTP} for {route.get('project', DEFAULT)}" if source == HTTP else source


def check_shapes(shapes: Iterable[Shape | None], kinds: Collection[str]) -> None:
    """Raise ``ValueError`` if outputs have a shape and messages come from or go to MLLP: these are HL7 v2."""
    if "mllp" in kinds and any(shape not in {None, "none"} for shape in shapes):
        raise ValueError("shape: messages over MLLP are HL7 v2, which has no such shape; remove it")


def _check_places(places: Sequence[tuple[str, str]], short: Mapping[object, object]) -> None:
    """Raise ``ValueError`` for a source of two routes, and for an output that is an input."""
    sources = {f"{KAFKA}{topic}": f"kafka.routes.{topic}" for topic in short}
    if "mllp" in short:  # the listener, or a topic of this name
        sources["mllp"] = "kafka.routes.mllp"
    for at, (source, _) in enumerate(places):
        if source in sources:
            raise ValueError(f"routes.{at}.from: {source} is the source of {sources[source]} too; it has one route")
        sources[source] = f"routes.{at}"
    for at, (_, target) in enumerate(places):
        if target.startswith(KAFKA) and target in sources:
            raise ValueError(f"routes.{at}.to: {target} is the source of {sources[target]}: it would loop forever")


@dataclass(frozen=True, slots=True)
class MarkingChoice:
    """What the outputs of a project get in addition, and the topic of its Provenance."""

    marking: Marking
    topic: str | None


class MarkedSection(Protocol):
    """Settings with labels and provenance, of a project or of the top level."""

    @property
    def labels(self) -> bool | None:
        """True for security labels; None is that above."""

    @property
    def provenance(self) -> ProvenanceMode | None:
        """Where a Provenance goes; None is that above."""

    @property
    def provenance_topic(self) -> str | None:
        """The topic of ``ProvenanceMode.TOPIC``; never that above."""


def choose_markings(top: MarkedSection, projects: Mapping[str, MarkedSection]) -> dict[str, MarkingChoice]:
    """The choice of each project, ``default`` first."""
    return {
        name: MarkingChoice(
            Marking(
                bool(top.labels if each.labels is None else each.labels),
                each.provenance or top.provenance or ProvenanceMode.NONE,
            ),
            each.provenance_topic,
        )
        for name, each in {DEFAULT: top, **projects}.items()
    }


def check_markings(choices: Mapping[str, MarkingChoice], kafka: KafkaSettings | None, audit: str | None) -> None:
    """Raise ``ValueError`` with the setting that cannot be used.

    ``kafka`` is None unless records go from topics to topics; ``audit`` is the topic of the audit.
    """
    owners = {} if audit is None else {audit: "audit.topic"}
    for name, choice in choices.items():
        place = "" if name == DEFAULT else f"projects.{name}."
        if choice.marking.provenance is not ProvenanceMode.TOPIC:
            if choice.topic is not None:
                raise ValueError(
                    f'{place}provenance_topic: it is used with provenance = "topic"; set that or remove it'
                )
            continue
        if kafka is None:
            raise ValueError(f'{place}provenance: "topic" needs transport and output kafka; write "bundle" or "none"')
        if choice.topic is None:
            raise ValueError(f"{place}provenance_topic: name a topic for the Provenance of this project alone")
        if owner := owners.get(choice.topic) or _use_of(choice.topic, kafka):
            raise ValueError(f"{place}provenance_topic: {choice.topic} is {owner}; name another topic")
        owners[choice.topic] = f"{place}provenance_topic"


def _use_of(topic: str, kafka: KafkaSettings) -> str:
    """The use of a topic by the routes; empty if there is none."""
    if topic in kafka.routes:
        return "an input"
    if topic in kafka.routes.values():
        return "an output"
    if topic in map(kafka.dead_letter_topic, kafka.routes):
        return "for dead letters"
    matched = kafka.topics_pattern is not None and kafka.route(topic) is not None
    return "matched by kafka.topics_pattern" if matched else ""
