"""The parts of an agent that its settings describe, with the checks that ``check`` makes too."""

import hashlib
from collections.abc import Mapping, Sequence

from deid_agent import __version__
from deid_agent.agent import (
    DEFAULT_PROJECT,
    DeadLetterSealer,
    DeadLetterStore,
    KeyUse,
    PairSealer,
    load_public_key,
)
from deid_agent.app import WorkerFactory
from deid_agent.cli.projects import (
    ProjectDeadLetters,
    choose_profile_bound,
    describe_bound,
    describe_policy,
    describe_shape,
    make_projects,
    make_shape,
    read_policy,
)
from deid_agent.cli.service_mllp import check_mllp_folders, listener_section
from deid_agent.cli.unexamined_file import UnexaminedFile
from deid_agent.config import SecretKey, Settings, TransportKind
from deid_agent.model import ConfigurationError
from deid_agent.pipeline import Policy, ScopeTableFile, make_envelope, make_registry_options
from deid_agent.rules import data_folder, digest_folder, digest_sites, find_rules
from deid_agent.telemetry import Telemetry
from deid_agent.transport.folder import FolderDeadLetters, check_audit_folder, check_transport_folders
from deid_agent.transport.mllp import MllpDeadLetters

_LATER = (
    "routes",
    "keys",
    "projects",
    "crosswalks",
    "allow_rekey",
    "labels",
    "provenance",
    "provenance_topic",
    "sha256_pseudonyms",
    "anonymize_k",
    "jobs",
    "shape",
    "on_restricted_zip",
    "age_date",
    "budget",
    "drift",
)
"""Settings that did not exist in the first trails."""


def make_worker_factory(settings: Settings, key: SecretKey) -> WorkerFactory:
    """The factory of the workers.

    Raises ``ConfigurationError`` if a setting contradicts a policy, or if the key of a project cannot be loaded.
    """
    found = find_rules(settings.rules)
    policy = read_policy(settings, settings.policy, found.folder)
    projects = make_projects(settings, key, found.folder)
    for each in (policy, *(project.policy for project in projects)):
        check_memory(settings, each)
    return WorkerFactory(
        rules=found.folder,
        sites=found.sites,
        key=key,
        policy=policy,
        system=settings.system,
        models=settings.models,
        profile=settings.profile,
        bound=choose_profile_bound(settings),
        max_bytes=settings.agent.max_message_bytes,
        validate=settings.agent.validate_output,
        unexamined=settings.audit.unexamined is not None,
        remembered_patients=settings.agent.remembered_patients,
        envelopes=tuple((topic, make_envelope(each)) for topic, each in settings.envelopes.items()),
        registry=None if settings.registry is None else make_registry_options(settings.registry),
        projects=projects,
        marking=settings.markings[DEFAULT_PROJECT].marking,
        allows_digests=settings.sha256_pseudonyms,
        smallest_group=settings.anonymize_k,
        crosswalks=make_sealers(settings, {DEFAULT_PROJECT: policy, **{each.name: each.policy for each in projects}}),
        shape=make_shape(settings).check(policy),
        scopes=None if settings.scope_table is None else ScopeTableFile.of(settings.scope_table, key, policy),
    )


def check_memory(settings: Settings, policy: Policy) -> str:
    """A description of the memory of names.

    Raises ``ConfigurationError`` if the policy unlinks documents: the output of a document may depend on no other.
    """
    patients, workers = settings.agent.remembered_patients, max(1, settings.agent.workers)
    if patients and policy.unlinked:
        raise ConfigurationError(
            f"agent.remembered_patients: set 0, because the policy {policy.name} unlinks documents and none may depend "
            "on another"
        )
    held = "each of the workers" if workers > 1 else "the worker"
    return f"names of {patients} patients in {held}; outputs depend on earlier messages"


def check_key(settings: Settings, key: SecretKey) -> SecretKey:
    """``key``. Raises ``ConfigurationError`` if it is the demonstration key and the transport must not run with it."""
    if key.demo and settings.transport is not TransportKind.DIRECTORY and not settings.allow_demo_key:
        raise ConfigurationError("the demonstration key is for demonstrations: set key_file, or set allow_demo_key")
    return key


def make_sealer(settings: Settings, build: Mapping[str, str]) -> DeadLetterSealer:
    """The sealer of dead letters, with the build for their headers. An invalid key is a ``ConfigurationError``."""
    path = settings.dead_letters.public_key
    return DeadLetterSealer(None if path is None else load_public_key(path), tuple(build.items()))


def make_sealers(settings: Settings, policies: Mapping[str, Policy]) -> tuple[tuple[str, PairSealer], ...]:
    """The sealer of each crosswalk, by project. Raises ``ConfigurationError`` for keys that make it useless."""
    dead_letters = make_sealer(settings, {}).public if settings.crosswalks else None
    found = []
    for name, crosswalk in settings.crosswalks.items():
        setting = f"crosswalks.{name}.seal_to"
        keys = tuple(load_public_key(path, setting, KeyUse.CROSSWALK) for path in crosswalk.seal_to)
        if len({key.owner for key in keys}) < len(keys):
            raise ConfigurationError(f"{setting}: both keys are {keys[0].id}; two persons need a key each")
        if dead_letters is not None and dead_letters.owner in {key.owner for key in keys}:
            raise ConfigurationError(
                f"{setting}: a key is that of the dead letters; make another one for the crosswalk"
            )
        policy = policies[name]
        if not policy.has_link_codes:
            raise ConfigurationError(
                f"crosswalks.{name}: the policy {policy.name} has no link codes, so the crosswalk would stay empty; "
                "remove it, or use a policy with link"
            )
        found.append((name, PairSealer(keys)))
    return tuple(found)


def open_dead_letters(settings: Settings, topics: Sequence[str]) -> ProjectDeadLetters:
    """The dead letters of these input topics, or of all if ``topics`` is empty. Raises ``ConfigurationError``."""
    return ProjectDeadLetters(
        _open_dead_letters(settings, topics), {each.topic: each.project for each in settings.feeds}
    )


def _open_dead_letters(settings: Settings, topics: Sequence[str]) -> DeadLetterStore:
    if settings.transport is TransportKind.HTTP:
        raise ConfigurationError("transport http keeps no dead letters: its clients are informed of a refusal")
    if settings.transport is TransportKind.MLLP:
        return MllpDeadLetters(listener_section(settings), max_file_bytes(settings))
    ours = settings.directory
    if settings.transport is TransportKind.KAFKA or ours is None:
        from deid_agent.transport.kafka import KafkaDeadLetters, kafka_options  # noqa: PLC0415 - only with Kafka

        return KafkaDeadLetters(kafka_options(settings), topics)
    return FolderDeadLetters(ours.input, ours.dead_letters, max_file_bytes(settings))


def check_folders(settings: Settings) -> None:
    """Raise ``ConfigurationError`` if a folder or file of the settings cannot be used. Writes nothing."""
    ours = settings.directory if settings.transport is TransportKind.DIRECTORY else None
    if ours is not None:
        check_transport_folders(ours.input, ours.output, ours.dead_letters, ours.state)
    if settings.transport is TransportKind.MLLP and settings.mllp is not None:
        check_mllp_folders(settings.mllp)
    check_audit_folder(settings.audit.path, None if ours is None else ours.input)
    for name, crosswalk in settings.crosswalks.items():
        setting = f"crosswalks.{name}.path"
        output = ours.output if ours is not None else settings.mllp.output if settings.mllp is not None else None
        if output is not None and crosswalk.path.resolve().is_relative_to(output.resolve()):
            raise ConfigurationError(f"{setting}: {crosswalk.path} is in the output folder, with its readers; move it")
        check_audit_folder(crosswalk.path, None if ours is None else ours.input, setting)
    if settings.audit.unexamined is not None:
        UnexaminedFile(settings.audit.unexamined, Telemetry())


def max_file_bytes(settings: Settings) -> int:
    """The largest file that is read. A file above the limit for messages is read and refused, not skipped."""
    return 4 * settings.agent.max_message_bytes


def describe_build(settings: Settings, parts: WorkerFactory) -> dict[str, str]:
    """Versions and digests of the program and its configuration, for the audit."""
    # Secrets are masked in the JSON, so the digest reveals nothing about them.
    # An agent that sets none of them has the digest of the release before there were any.
    unset = {name for name in _LATER if getattr(settings, name) == type(settings).model_fields[name].default}
    configuration = hashlib.sha256(settings.model_dump_json(exclude=unset).encode()).hexdigest()
    models = data_folder("models", None if settings.models is None else str(settings.models))
    return {
        "version": __version__,
        "rules": digest_folder(parts.rules)[:16],
        **({"site": digest_sites(parts.sites)[:16]} if parts.sites else {}),
        "models": digest_folder(models)[:16],
        "policy": describe_policy(parts.policy),
        "configuration": configuration[:16],
        "key": parts.key.id,
        **describe_shape(parts.shape),
        **describe_bound(parts.bound),
        **({} if parts.scopes is None else {"scopes": parts.scopes.identity}),
    }
