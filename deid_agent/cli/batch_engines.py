"""The engines of ``batch run``: which options they take, and the work that they send."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deid_agent.app import WorkerFactory
from deid_agent.batch import BatchRun, EngineSystem, Head, RayUnits, SparkUnits, UnitEngine, UnitWork
from deid_agent.model import ConfigurationError

ENGINES: Mapping[str, Callable[[], UnitEngine]] = {"spark": SparkUnits, "ray": RayUnits}


def refuse_options(engine: str, **given: object) -> None:
    """Raise ``ConfigurationError`` for an option of a run on this machine."""
    if wrong := [name for name, value in given.items() if value is not None]:
        why = "decides how many tasks run" if wrong[0] == "workers" else "runs units in no order"
        raise ConfigurationError(f"--{wrong[0]}: {engine} {why}; leave it out")


def make_unit_work(run: BatchRun, parts: WorkerFactory, head: Head, options: Mapping[str, Any]) -> UnitWork:
    """The work of the tasks of an engine, with absolute paths and without the key."""
    identities, key_file = options["identities"], options["key_file"] or os.environ.get("DEID_KEY_FILE")
    scope_table = options["scope_table"]
    system = EngineSystem(
        key_file=None if key_file is None or parts.key.demo else str(key_file),
        demo_key=parts.key.demo,
        policy=options["policy_name"],
        profile=parts.profile,
        budget=None if options["budget"] is None else str(options["budget"]),
        system=parts.system,
        rules=options["rules"] or None,
        models=os.environ.get("DEID_MODELS"),
        scope_table=None if scope_table is None else str(scope_table),
    )
    return UnitWork(
        table=run.table,
        system=system.resolve(Path.cwd()),
        build=head.build,
        folder=str(run.folder.absolute()),
        format=run.format,
        unit_mib=options["unit_mib"],
        identities=None if identities is None else str(identities.absolute()),
        identities_digest=run.identities_digest,
    )
