"""Builds the projects of an agent from its settings, and compares their keys with those that its audit shows."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deid_agent.agent import (
    DEFAULT_PROJECT,
    DamagedDeadLetter,
    DeadLetterStore,
    FoundDeadLetter,
    OutputMarks,
    Record,
    ReplayChooser,
    ReplayReport,
)
from deid_agent.app import BUDGET, BoundFile, ProjectParts, WorkerFactory, choose_bound
from deid_agent.audit import read_target_keys
from deid_agent.config import ProjectSettings, SecretKey, Settings, TransportKind, load_project_keys
from deid_agent.model import ConfigurationError, ProvenanceMode
from deid_agent.pipeline import KeyMode, Policy, RestrictedZip, ShapeName, ShapeOptions, load_policy
from deid_agent.rules import find_rules


def read_policy(settings: Settings, name: str, rules: Path) -> Policy:
    """The policy ``name``. Raises ``ConfigurationError``.

    The record keys of a folder are file names: they are read as text, unless the policy keeps keys.
    """
    policy = load_policy(name, rules)
    if settings.transport is TransportKind.DIRECTORY and policy.record_key in {KeyMode.IDENTIFIER, KeyMode.DROP}:
        return policy.with_key(KeyMode.TEXT)
    return policy


def make_projects(settings: Settings, key: SecretKey, rules: Path) -> tuple[ProjectParts, ...]:
    """The parts of each project except ``default``. Asks the sources of their keys. Raises ``ConfigurationError``."""
    if not settings.projects:
        return ()
    keys = load_project_keys(settings.projects, settings.keys, key)
    return tuple(
        ProjectParts(
            name,
            keys[name],
            policy := read_policy(settings, each.policy or settings.policy, rules),
            each.system or settings.system,
            each.profile or settings.profile,
            each.generation,
            marking=settings.markings[name].marking,
            allows_digests=settings.sha256_pseudonyms if each.sha256_pseudonyms is None else each.sha256_pseudonyms,
            smallest_group=each.anonymize_k or settings.anonymize_k,
            shape=make_shape(settings, each).check(policy),
            bound=choose_profile_bound(settings, each),
        )
        for name, each in settings.projects.items()
    )


def choose_profile_bound(settings: Settings, project: ProjectSettings | None = None) -> BoundFile | None:
    """The leak bound of a project, or of ``default``. The file above counts for a project without one of its own.

    Raises ``ConfigurationError`` for a file that is missing, malformed, or of another system.
    """
    found, own = find_rules(settings.rules), project or settings
    profile = own.profile or settings.profile
    budget = (None if project is None else project.budget) or (settings.budget if profile == BUDGET else None)
    return choose_bound(profile, budget, own.system or settings.system, found.folder, found.sites, settings.models)


def make_shape(settings: Settings, project: ProjectSettings | None = None) -> ShapeOptions:
    """The shape of the outputs of a project, or of ``default``."""
    own = project or settings
    return ShapeOptions(
        ShapeName(own.shape or settings.shape or ShapeName.NONE),
        RestrictedZip(own.on_restricted_zip or settings.on_restricted_zip or RestrictedZip.MASK),
        own.age_date or settings.age_date,
    )


def project_parts(parts: WorkerFactory) -> Mapping[str, ProjectParts]:
    """The parts of each project by name, ``default`` first."""
    return {each.name: each for each in (parts.default, *parts.projects)}


def output_marks(settings: Settings, parts: WorkerFactory) -> tuple[OutputMarks, dict[str, OutputMarks]]:
    """The marks of ``default``, and those of each topic of another project."""
    default = DEFAULT_PROJECT if settings.has_projects else ""
    made = {each.name: OutputMarks(each.key.secret, each.policy.record_time, each.name) for each in parts.projects}
    others = {feed.topic: made[feed.project] for feed in settings.feeds if feed.project != DEFAULT_PROJECT}
    return OutputMarks(parts.key.secret, parts.policy.record_time, default), others


def describe_markings(settings: Settings) -> str:
    """What the FHIR outputs of each project get in addition; empty if there is no such project."""
    shown = []
    for name, choice in settings.markings.items():
        where = {ProvenanceMode.BUNDLE: "Provenance in Bundles", ProvenanceMode.TOPIC: f"Provenance in {choice.topic}"}
        parts = ("labels" if choice.marking.labels else "", where.get(choice.marking.provenance, ""))
        if added := ", ".join(filter(None, parts)):
            shown.append(f"{name}: {added}")
    return "; ".join(shown)


def describe_projects(settings: Settings, parts: WorkerFactory) -> dict[str, object]:
    """The member ``projects`` of the build in the audit; empty for an agent without projects."""
    if not settings.has_projects:
        return {}
    return {
        "projects": {
            name: {
                "policy": describe_policy(each.policy),
                "key": each.key.id,
                "generation": each.generation,
                **describe_shape(each.shape),
                **describe_bound(each.bound),
                "routes": {feed.topic: feed.target for feed in settings.feeds if feed.project == name},
            }
            for name, each in project_parts(parts).items()
        }
    }


def describe_shape(shape: ShapeOptions) -> dict[str, str]:
    """The member ``shape`` of the build in the audit; empty without one."""
    if shape.name is ShapeName.NONE:
        return {}
    return {"shape": f"{shape.name}:{shape.on_restricted_zip}:{shape.age_date or 'message'}"}


def describe_bound(bound: BoundFile | None) -> dict[str, str]:
    """The member ``bound`` of the build in the audit, a digest; empty without a leak bound."""
    return {} if bound is None else {"bound": bound.digest}


def describe_policy(policy: Policy) -> str:
    """Name and digest of a policy, as the build has them."""
    return f"{policy.name}:{policy.digest[:16]}"


def dead_letter_builds(settings: Settings, parts: WorkerFactory) -> dict[str, tuple[tuple[str, str], ...]]:
    """For each topic of a project the members of the build that differ from those of ``default``."""
    made = project_parts(parts)
    return {
        feed.topic: (
            ("project", feed.project),
            ("policy", describe_policy(made[feed.project].policy)),
            ("key", made[feed.project].key.id),
        )
        for feed in settings.feeds
        if feed.project != DEFAULT_PROJECT
    }


@dataclass(frozen=True, slots=True)
class ProjectDeadLetters:
    """Implements ``DeadLetterStore``. It puts no record back whose input belongs to another project by now.

    The record would get the key and the policy of that project, and leave with its feed. ``owners`` names the project
    of each input topic; the others belong to ``default``.
    """

    store: DeadLetterStore
    owners: Mapping[str, str]

    def dead_letters(self) -> AsyncIterator[FoundDeadLetter | DamagedDeadLetter]:
        """See ``DeadLetterStore.dead_letters``."""
        return self.store.dead_letters()

    async def replay(self, choose: ReplayChooser, report: ReplayReport) -> None:
        """See ``DeadLetterStore.replay``."""
        await self.store.replay(self.guarded(choose, report), report)

    def guarded(self, choose: ReplayChooser, report: ReplayReport) -> ReplayChooser:
        """``choose`` without the records of another project, which are reported."""

        def chosen(found: FoundDeadLetter | DamagedDeadLetter) -> Record | None:
            record = choose(found)
            if record is None or isinstance(found, DamagedDeadLetter):
                return record
            before = dict(found.head.build).get("project", DEFAULT_PROJECT)
            now = self.owners.get(found.head.at.topic, DEFAULT_PROJECT)
            if before == now:
                return record
            report(
                found, f"it is of project {before}, and its input belongs to {now} now; restore the route to replay it"
            )
            return None

        return chosen


def check_rekey(settings: Settings, parts: WorkerFactory) -> None:
    """Raise ``ConfigurationError`` if the audit shows that an output had records under another key.

    Records under two keys do not join, and nothing in the output would show where the second key began. A trail from
    before there were projects names no outputs: there the source of a record counts. An agent without projects is
    checked only in its first start after one with them.
    """
    made = project_parts(parts)
    known = read_target_keys(settings.audit.path, [feed.topic for feed in settings.feeds if settings.has_projects])
    if not settings.has_projects and not known.named:
        return
    for feed in settings.feeds:
        key = made[feed.project].key.id
        # Both count: the newest records of a source may be from a start without projects, whose build has no outputs.
        seen = (
            (known.of_target(feed.target), feed.target),
            (known.sources.get(feed.topic), f"records of {feed.topic}"),
        )
        before, place = next((each for each in seen if each[0] not in {None, key}), (None, ""))
        if before is None:
            continue
        if feed.project == DEFAULT_PROJECT:
            allowed, setting = settings.allow_rekey, "allow_rekey"
        else:
            allowed, setting = settings.projects[feed.project].allow_rekey, f"projects.{feed.project}.allow_rekey"
        if not allowed:
            other = "project" if settings.transport is TransportKind.HTTP else "output"
            raise ConfigurationError(
                f"project {feed.project}: the audit shows {place} under the key {before}, and its key is now {key}: "
                f"records of the two do not join; restore that key, name another {other}, or set {setting} = true"
            )
