"""Policies: which method applies to which PHI type at which path. A policy is one TOML file.

``PolicyFile`` defines the keys of the file: a ``default`` method, ``types`` (PHI type to method), ``paths`` (path to
method), and the treatment of dates, attachments, record keys and headers. The longest path that matches wins over the
type. ``*.id`` matches any path with the last part ``id`` that no other key of ``paths`` matches.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, ValidationError

from deid_agent.model import (
    CATEGORY,
    PATIENT_TYPES,
    PLACEHOLDERS,
    ConfigurationError,
    PatientChoice,
    PhiCategory,
    PhiType,
    PublishedPaths,
    RecordTime,
    normalize_identifier,
)
from deid_agent.pipeline.language import Languages, NarrativeLanguages, OtherLanguage
from deid_agent.pipeline.policy_dates import DateBounds, DatesSection, Risk, Technical, bound_dates
from deid_agent.rules import describe_validation
from deid_agent.surrogate import DateShifts, pin_names


class Method(StrEnum):
    """How a value is replaced."""

    SURROGATE = "surrogate"  # a realistic value, consistent within the scope
    LINK = "link"
    """A code for an identifier: the same within one record, different in every other record.

    It applies to identifiers only. For other types at its path, the method of the type applies. In text it masks.
    """
    REDACT = "redact"  # removed
    MASK = "mask"  # replaced by the name of its type
    GENERALIZE = "generalize"  # made less precise: a year, the first digits of a postal code
    KEEP = "keep"


class PlaceScope(StrEnum):
    """The scope in which the same place, phone or profession gets the same surrogate."""

    FEED = "feed"
    PATIENT = "patient"


class IdentifierScope(StrEnum):
    """The scope in which surrogates agree at all: identifiers, names, dates and everything else."""

    FEED = "feed"  # each kind of value in its own scope
    DOCUMENT = "document"  # nothing joins two documents


class Unreadable(StrEnum):
    """The treatment of an attachment that cannot be read (scans, images, encrypted files)."""

    REMOVE = "remove"  # a notice replaces it
    REFUSE = "refuse"  # the message is refused


class Pdf(StrEnum):
    """The treatment of a PDF with a text layer. A PDF without one is unreadable."""

    TEXT = "text"  # the sanitized text replaces the PDF
    REMOVE = "remove"
    REFUSE = "refuse"


class AttachmentUrl(StrEnum):
    """The treatment of the URL of an external attachment. A reference to a resource is always an identifier."""

    KEEP = "keep"
    REDACT = "redact"


class KeyMode(StrEnum):
    """The treatment of a record key."""

    IDENTIFIER = "identifier"
    """The whole key is mapped as one identifier, by the key alone, so that order per key and compaction are kept."""
    TEXT = "text"  # the PHI inside it is replaced (file names)
    KEEP = "keep"
    DROP = "drop"  # the record is published without a key


_TRACES = frozenset({"traceparent", "tracestate", "baggage", "b3", "x-b3-traceid", "x-request-id", "x-correlation-id"})


def _require_scalar(value: object) -> str:
    if isinstance(value, Mapping):
        raise ValueError("must be a string")
    return str(value)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class PlacesSection(_Section):
    """``[places]``."""

    scope: PlaceScope = PlaceScope.FEED


class SurrogatesSection(_Section):
    """``[surrogates]``: the names that surrogates are drawn from; without it the frozen lists of Faker's names."""

    locales: list[StrictStr] = []
    """Faker locales, such as ``es_MX``."""
    providers: list[StrictStr] = []
    """Classes of names in the form of a Faker provider, as ``package.module:Class``."""
    digest: StrictStr = ""
    """The begin of the digest of their names: others, of another Faker release, are refused."""


class IdentifiersSection(_Section):
    """``[identifiers]``."""

    scope: IdentifierScope = IdentifierScope.FEED


class PatientSection(_Section):
    """``[patient]``: the identifier that is the scope of a patient; see ``PatientChoice``."""

    types: list[StrictStr] = list(PATIENT_TYPES)
    """Codes of HL7 table 0203 for numbers of a person, the best first; "" is an identifier without a code."""
    assigners: list[list[StrictStr]] = []
    """Names, OIDs and URIs of each assigner, the best first."""
    placeholders: list[StrictStr] = list(PLACEHOLDERS)
    """Values that name nobody."""

    def choice(self) -> PatientChoice:
        """The rules in compiled form."""
        return PatientChoice(
            tuple(code.strip().upper() for code in self.types),
            tuple(tuple(group) for group in self.assigners if group),
            frozenset(map(normalize_identifier, self.placeholders)),
        )


class NarrativeSection(_Section):
    """``[narrative]``: the languages that recognition may read."""

    languages: list[StrictStr] = ["en"]
    """Language codes of ``rules/languages.toml``. With an empty list no narrative is judged."""
    other: OtherLanguage = OtherLanguage.REFUSE


class AttachmentsSection(_Section):
    """``[attachments]``."""

    unreadable: Unreadable = Unreadable.REMOVE
    pdf: Pdf = Pdf.TEXT
    url: AttachmentUrl = AttachmentUrl.REDACT


class RecordSection(_Section):
    """``[record]``."""

    key: KeyMode = KeyMode.IDENTIFIER
    headers: list[StrictStr] = []
    """Names of the record headers that are published, in any case."""
    timestamp: RecordTime = RecordTime.DAY
    """The time of an output: of its record on Kafka, of its file in a folder."""


_PATH = re.compile(
    r"[A-Z][A-Z0-9]{2}(?:\([A-Z]{2,3}\))?-[0-9]{1,3}(?:\.[0-9]{1,3}){0,2}|"  # HL7 v2
    r"[A-Z][A-Za-z]+(?:\.[A-Za-z][A-Za-z0-9]*)+"  # FHIR
)


def _require_path(path: str) -> str:
    if not _PATH.fullmatch(path):
        raise ValueError("no path: write it as PID-8, OBX(NM)-5, OBX-3.1 or Observation.valueQuantity")
    return path


class PublishSection(_Section):
    """``[publish]``: the only paths that are published. Without it, everything is."""

    paths: Annotated[list[Annotated[StrictStr, AfterValidator(_require_path)]], Field(min_length=1)]


class PolicyFile(_Section):
    """The keys of a policy file."""

    name: Annotated[str, BeforeValidator(_require_scalar)]
    why: Annotated[str, BeforeValidator(_require_scalar)] = ""
    """The purpose of the policy, for its readers."""
    default: Method
    types: dict[PhiType, Method] = {}
    paths: dict[str, Method] = {}
    dates: DatesSection = Field(default_factory=DatesSection)
    places: PlacesSection = Field(default_factory=PlacesSection)
    surrogates: SurrogatesSection = Field(default_factory=SurrogatesSection)
    identifiers: IdentifiersSection = Field(default_factory=IdentifiersSection)
    patient: PatientSection = Field(default_factory=PatientSection)
    narrative: NarrativeSection = Field(default_factory=NarrativeSection)
    attachments: AttachmentsSection = Field(default_factory=AttachmentsSection)
    record: RecordSection = Field(default_factory=RecordSection)
    publish: PublishSection | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A compiled policy. ``digest`` (SHA-256, hex) identifies its content in the audit."""

    name: str
    digest: str
    default: Method
    types: Mapping[PhiType, Method] = field(default_factory=dict)
    paths: Mapping[str, Method] = field(default_factory=dict)
    dates: DateShifts = field(default_factory=DateShifts)
    technical: Technical = Technical.SHIFT
    acknowledged: frozenset[Risk] = frozenset()
    place_scope: PlaceScope = PlaceScope.FEED
    locales: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    names_digest: str = ""
    identifiers: IdentifierScope = IdentifierScope.FEED
    unreadable: Unreadable = Unreadable.REMOVE
    pdf: Pdf = Pdf.TEXT
    attachment_url: AttachmentUrl = AttachmentUrl.REDACT
    record_key: KeyMode = KeyMode.IDENTIFIER
    headers: frozenset[str] = frozenset()
    patient: PatientChoice = field(default_factory=PatientChoice)
    record_time: RecordTime = RecordTime.DAY
    published: PublishedPaths | None = None
    narrative: NarrativeSection = field(default_factory=NarrativeSection)
    languages: NarrativeLanguages = field(default=NarrativeLanguages(Languages({})), repr=False)

    def method(self, type_: PhiType, path: str) -> Method:
        """The method for a value of ``type_`` at ``path``: by the longest matching path, type or default."""
        found = self._method_at(strip_numbers(path)) if self.paths else None
        if found is None or (found is Method.LINK and CATEGORY[type_] is not PhiCategory.ID):
            return self.types.get(type_, self.default)
        return found

    def _method_at(self, path: str) -> Method | None:
        last = f"*{path[path.rfind('.') :]}" if "." in path else ""
        while path:
            if path in self.paths:
                return self.paths[path]
            path = path[: max(path.rfind("."), path.rfind("-"), 0)]
        return self.paths.get(last)

    def with_key(self, mode: KeyMode) -> "Policy":
        """The same policy with another treatment of record keys (file names in the folder transport)."""
        return replace(self, record_key=mode)

    @property
    def date_bounds(self) -> DateBounds:
        """What the readers of a feed can learn about its dates."""
        shifted = self.types.get(PhiType.DATE, self.default) is Method.SURROGATE
        return bound_dates(self.dates, self.technical, shifted=shifted, joined=self.joins_documents)

    @property
    def joins_documents(self) -> bool:
        """True if some name or identifier, or the record key, has the same surrogate in several documents."""
        stable = {Method.KEEP} if self.unlinked else {Method.SURROGATE, Method.KEEP}
        kinds = {PhiCategory.ID, PhiCategory.NAME}
        by_type = any(self.types.get(t, self.default) in stable for t in PhiType if CATEGORY[t] in kinds)
        by_path = bool(stable & {*self.paths.values()})
        return by_type or by_path or self.record_key in {KeyMode.IDENTIFIER, KeyMode.KEEP}

    @property
    def has_link_codes(self) -> bool:
        """True if identifiers at some path become codes that join within one record."""
        return Method.LINK in {self.default, *self.types.values(), *self.paths.values()}

    @property
    def unlinked(self) -> bool:
        """True if no surrogate of one document is one of another document."""
        return self.identifiers is IdentifierScope.DOCUMENT

    def find_contradictions(self) -> list[str]:
        """The settings that void a promise of this policy, each with its remedy. Dates are in ``date_bounds``."""
        if not self.unlinked:
            return []
        found = []
        if self.record_key is not KeyMode.DROP:
            found.append(f'record.key = "{self.record_key}" joins the documents of a key: use "drop"')
        if traces := sorted(self.headers & _TRACES):
            found.append(f"record.headers has {', '.join(traces)}, which joins the documents of a trace: remove it")
        named = {PhiCategory.ID, PhiCategory.NAME, PhiCategory.CONTACT}
        kept = sorted(
            str(t) for t in PhiType if CATEGORY[t] in named and self.types.get(t, self.default) is Method.KEEP
        )
        kept += sorted(path for path, method in self.paths.items() if method is Method.KEEP)
        if kept:
            found.append(f"{kept[0]} is kept and joins documents: use surrogate, link, mask or redact")
        return found

    @property
    def changes_nothing(self) -> bool:
        """True if every method is KEEP and all paths are published: messages are parsed and written back."""
        methods = {self.default, *self.types.values(), *self.paths.values()}
        return methods == {Method.KEEP} and self.published is None


@lru_cache(maxsize=4096)
def strip_numbers(path: str) -> str:
    """``path`` without repetition and occurrence numbers: ``OBX(2)-5[1].1`` gives ``OBX-5.1``."""
    return re.sub(r"\[\d+\]|\(\d+\)", "", path)


def load_policy(name_or_file: str, rules: Path) -> Policy:
    """The shipped policy of that name, else the policy file at that path.

    Raises ``ConfigurationError`` with the file, the key and advice.
    """
    shipped = rules / "policies" / f"{name_or_file}.toml"
    path = shipped if shipped.is_file() else Path(name_or_file)
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in (rules / "policies").glob("*.toml")))
        raise ConfigurationError(
            f"policy {name_or_file!r}: no such profile or file; give the path of a file or a shipped profile: {names}"
        )
    try:
        policy = compile_policy(tomllib.loads(path.read_text("utf-8")), str(path))
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{path}: cannot be read ({type(problem).__name__})") from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigurationError(f"{path}: is not TOML: {problem}") from None
    try:
        return replace(
            policy,
            names_digest=pin_names(rules, policy.locales, policy.providers, policy.names_digest),
            languages=NarrativeLanguages.load(rules, policy.narrative.languages, policy.narrative.other),
        )
    except ConfigurationError as problem:
        raise ConfigurationError(f"{path}: {problem}") from None


def compile_policy(data: Mapping[str, object], origin: str) -> Policy:
    """The policy of parsed TOML. Raises ``ConfigurationError`` with ``origin``, the key and advice."""
    if "names" in data:
        raise ConfigurationError(
            f"{origin}: [names] scope was removed: names of patients agree within the patient, names of staff within "
            "the person; remove the section, or write [places] scope for places, phones and professions"
        )
    try:
        file = PolicyFile.model_validate(data)
    except ValidationError as problem:
        advice = describe_validation(problem).replace(".[key]", "")  # pydantic marks a bad key of a table so
        raise ConfigurationError(f"{origin}: {advice}") from None
    policy = Policy(
        name=file.name,
        digest=hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest(),
        default=file.default,
        types=file.types,
        paths={strip_numbers(path): method for path, method in file.paths.items()},
        dates=file.dates.shifts(),
        technical=file.dates.technical,
        acknowledged=frozenset(file.dates.acknowledge),
        place_scope=file.places.scope,
        locales=tuple(file.surrogates.locales),
        providers=tuple(file.surrogates.providers),
        names_digest=file.surrogates.digest,
        identifiers=file.identifiers.scope,
        unreadable=file.attachments.unreadable,
        pdf=file.attachments.pdf,
        attachment_url=file.attachments.url,
        record_key=file.record.key,
        headers=frozenset(name.lower() for name in file.record.headers),
        patient=file.patient.choice(),
        record_time=file.record.timestamp,
        published=None if file.publish is None else PublishedPaths(file.publish.paths),
        narrative=file.narrative,
    )
    if contradictions := policy.find_contradictions():
        raise ConfigurationError(f'{origin}: identifiers.scope is "document", but {contradictions[0]}')
    policy.date_bounds.require(policy.acknowledged, origin)
    return policy
