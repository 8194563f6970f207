"""Builds the parts of a running agent's audit from its settings."""

import asyncio
import re
import socket
from contextlib import suppress

from deid_agent.agent import Health
from deid_agent.audit import TrailSettings, Witness, WitnessFile, WitnessPlace, WitnessServer
from deid_agent.config import AuditSettings
from deid_agent.telemetry import AuditWitnessed, AuditWitnessFailed, Telemetry


def trail_settings(audit: AuditSettings) -> TrailSettings:
    """The settings of the trail. An agent without a name has that of its host."""
    agent = audit.agent or re.sub(r"[^A-Za-z0-9_.:-]", "-", socket.gethostname())[:64]
    return TrailSettings(audit.checkpoint_s, audit.segment_bytes, audit.epoch_s, agent, audit.topic is not None)


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
