"""Builds the parts of a running agent's audit, and its crosswalks, from its settings."""

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from deid_agent import __version__
from deid_agent.agent import Health
from deid_agent.app import WorkerFactory
from deid_agent.audit import (
    CROSSWALK_BUILD,
    CROSSWALKS_BUILD,
    AuditTrail,
    CrosswalkTrail,
    LineKind,
    Signer,
    TrailSettings,
    Witness,
    WitnessFile,
    WitnessPlace,
    WitnessServer,
)
from deid_agent.cli.projects import describe_policy, project_parts
from deid_agent.config import AuditSettings, SecretKey, Settings
from deid_agent.telemetry import AuditWitnessed, AuditWitnessFailed, Telemetry


def trail_settings(audit: AuditSettings) -> TrailSettings:
    """The settings of the trail. An agent without a name has that of its host."""
    agent = audit.agent or re.sub(r"[^A-Za-z0-9_.:-]", "-", socket.gethostname())[:64]
    return TrailSettings(audit.checkpoint_s, audit.segment_bytes, audit.epoch_s, agent, audit.topic is not None)


def describe_crosswalks(parts: WorkerFactory) -> dict[str, object]:
    """The member ``crosswalks`` of the build in the audit: who can open them. Empty for an agent without any."""
    if not parts.crosswalks:
        return {}
    return {CROSSWALKS_BUILD: {name: list(sealer.ids) for name, sealer in parts.crosswalks}}


def open_crosswalks(
    settings: Settings, parts: WorkerFactory, key: SecretKey, telemetry: Telemetry
) -> Iterator[tuple[str, CrosswalkTrail]]:
    """Open the crosswalk of each project that has one. The caller closes them, also those before one that fails.

    Raises ``ConfigurationError`` if a folder cannot be used or does not verify.
    """
    limits = replace(trail_settings(settings.audit), return_lines=False, kind=LineKind.CROSSWALK)
    made = project_parts(parts)
    for name, sealer in parts.crosswalks:
        own = made[name]
        build = {
            "version": __version__,
            "policy": describe_policy(own.policy),
            "key": own.key.id,
            CROSSWALK_BUILD: {"project": name, "generation": own.generation, "seal_to": list(sealer.ids)},
        }
        trail = AuditTrail(settings.crosswalks[name].path, build, Signer(key.audit_seed), telemetry, limits)
        yield name, CrosswalkTrail(trail, name, own.generation)


def open_witness(
    audit: AuditSettings, telemetry: Telemetry, health: Health, loop: asyncio.AbstractEventLoop
) -> Witness | None:
    """The witness of the trail, if one is configured. It reports changes of its state to telemetry and health."""
    places: list[WitnessPlace] = []
    if audit.witness_file is not None:
        places.append(WitnessFile(audit.witness_file))
    if audit.witness_url is not None:
        places.append(WitnessServer(audit.witness_url))
    if not places:
        return None
    states: dict[str, str] = {}

    def note(place: str, problem: str) -> None:
        if states.get(place) == problem:
            return
        states[place] = problem
        health.note(f"audit witness {place}", problem)
        telemetry.emit(AuditWitnessFailed(place, problem) if problem else AuditWitnessed(place))

    def report(place: str, problem: str) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(note, place, problem)

    return Witness(places, audit.witness_s, report)
