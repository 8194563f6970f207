"""An agent on folders with a crosswalk, whose rules load once: each run is a fork of a server that has them."""

import asyncio
import os
import sys
from pathlib import Path

from support.marks import MARKS
from support.projects import adt
from support.transport_contract import folder_settings

from deid_agent.agent import InlineExecutor, KeyUse, PairSealer, PrivateKey, Runner, RunnerSettings
from deid_agent.app import WorkerFactory
from deid_agent.audit import (
    CROSSWALK_BUILD,
    CROSSWALKS_BUILD,
    AuditTrail,
    CrosswalkTrail,
    LineKind,
    Signer,
    TrailSettings,
)
from deid_agent.config import SecretKey
from deid_agent.pipeline import load_policy
from deid_agent.rules import data_folder
from deid_agent.telemetry import Telemetry
from deid_agent.transport.folder import FolderTransport

SECRET = SecretKey(MARKS.secret)
SIGNER = Signer(bytes(32))
CUSTODIANS = tuple(PrivateKey(bytes([number]) * 32, KeyUse.CROSSWALK) for number in (1, 2))
_RULES = data_folder("rules")
_SEALER = PairSealer(tuple(key.public for key in CUSTODIANS))
_PROCESS = WorkerFactory(
    _RULES, SECRET, load_policy("safe-harbor", _RULES), "none", crosswalks=(("default", _SEALER),)
)()


def fill(root: Path, first: int, count: int) -> None:
    """More files for the agent."""
    (root / "in").mkdir(exist_ok=True)
    for number in range(first, first + count):
        (root / "in" / f"{number:04}.hl7").write_bytes(adt(number))


def run(root: str) -> None:
    """One run over the folders below ``root``, until they are empty or the process is killed."""
    # The server's streams are those of the test runner.
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    asyncio.run(_run(Path(root)))


async def _run(root: Path) -> None:
    telemetry = Telemetry()
    build = {CROSSWALK_BUILD: {"project": "default", "generation": 0, "seal_to": list(_SEALER.ids)}}
    named = {CROSSWALKS_BUILD: {"default": list(_SEALER.ids)}}
    audit = AuditTrail(root / "audit", named, SIGNER, telemetry, TrailSettings(segment_bytes=20_000))
    limits = TrailSettings(segment_bytes=9000, return_lines=False, kind=LineKind.CROSSWALK)
    crosswalk = CrosswalkTrail(AuditTrail(root / "crosswalk", build, SIGNER, telemetry, limits), "default", 0)
    runner = Runner(
        FolderTransport(folder_settings(root)),
        InlineExecutor(lambda: _PROCESS),
        audit,
        RunnerSettings(poll_limit=4, max_in_flight=8, batch_records=3, linger_s=0),
        marks=MARKS,
        telemetry=telemetry,
        crosswalks={"default": crosswalk},
    )
    await runner.run()
    await crosswalk.close()
    await audit.close()
