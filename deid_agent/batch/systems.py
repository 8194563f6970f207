"""How a process of an engine loads its de-identifier: by names and paths, never with the key.

Spark, Ray and Beam write objects that they send to logs and disks, and show their configuration. So nothing that they
get holds the key: each process reads it from a file that is mounted there.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from deid_agent import __version__
from deid_agent.app import WorkerFactory, make_factory
from deid_agent.batch.manifest import Head
from deid_agent.batch.schema import check_policy
from deid_agent.batch.tables import Table
from deid_agent.config import DEMO_KEY, limit_blas_threads, limit_loaded_blas, load_key
from deid_agent.model import ConfigurationError
from deid_agent.rules import SHIPPED, RulesGiven, data_folder, digest_folder, digest_sites

DEFAULT_UNIT_MIB = 32
_SECRET_NAME = re.compile(r"(?:^|[^A-Z0-9_])DEID_KEY$", re.IGNORECASE)
_SECRET_INSIDE = re.compile(r"DEID_KEY[\"']*\s*[=:]", re.IGNORECASE)
"""In a value with options: ``-DDEID_KEY=...``, ``{"DEID_KEY": ...}``."""
_ADVICE = "an engine writes its configuration into its logs: make a new key, and mount it as a file (key_file)"


@dataclass(frozen=True, slots=True)
class EngineSystem:
    """The system of a run on an engine. Without ``key_file`` a process takes the file of its ``$DEID_KEY_FILE``."""

    _: KW_ONLY
    key_file: str | None = None
    demo_key: bool = False
    policy: str = "research"
    profile: str = "recall"
    system: str = "default"
    rules: str | tuple[str, ...] | None = None
    models: str | None = None
    scope_table: str | None = None
    budget: str | None = None

    def make_parts(self, environ: Mapping[str, str] = os.environ) -> WorkerFactory:
        """The factory of the de-identifier, with the key of this machine. BLAS has one thread from now on.

        Raises ``ConfigurationError`` for a key in the environment, and for a file that is missing here.
        """
        limit_blas_threads()
        limit_loaded_blas()
        refuse_key(environ.items(), "the environment")
        if self.demo_key and self.key_file is not None:
            raise ConfigurationError("demo_key and key_file exclude each other")
        path = None if self.key_file is None else Path(self.key_file)
        return make_factory(
            DEMO_KEY if self.demo_key else load_key(path, environ),
            policy=self.policy,
            profile=self.profile,
            system=self.system,
            rules=self.rules,
            models=self.models,
            scope_table=self.scope_table,
            budget=self.budget,
        )

    def resolve(self, folder: Path) -> "EngineSystem":
        """The same with absolute paths: the processes of an engine run in other folders."""

        def absolute(path: str | None) -> str | None:
            return None if path is None else str(folder / path)

        rules: str | tuple[str, ...] | None = None
        if self.rules is not None:
            given = (self.rules,) if isinstance(self.rules, str) else self.rules
            rules = tuple(each if each == SHIPPED else str(folder / each) for each in given)
            rules = rules[0] if isinstance(self.rules, str) else rules
        policy = absolute(self.policy) if (folder / self.policy).is_file() else self.policy
        return replace(
            self,
            key_file=absolute(self.key_file),
            policy=policy or self.policy,
            rules=rules,
            models=absolute(self.models),
            scope_table=absolute(self.scope_table),
            budget=absolute(self.budget),
        )


def plain_rules(given: RulesGiven) -> str | tuple[str, ...] | None:
    """The rules that a caller gives, as text that may be compared and sent."""
    return None if given is None else str(given) if isinstance(given, str | Path) else tuple(map(str, given))


def make_head(
    table: Table,
    parts: WorkerFactory,
    format_: str,
    unit_mib: int = DEFAULT_UNIT_MIB,
    limit: int | None = None,
) -> Head:
    """The build: the id of everything that decides the outputs, besides the inputs and the identities.

    Raises ``ConfigurationError`` if the policy is not one for the table.
    """
    check_policy(table, parts.policy)
    content = {
        "version": __version__,
        "rules": digest_folder(parts.rules),
        **({"site": digest_sites(parts.sites)} if parts.sites else {}),
        "models": digest_folder(parts.models or data_folder("models")),
        "policy": parts.policy.digest,
        "key": parts.key.id,
        "system": parts.system,
        "profile": parts.profile,
        **({} if parts.bound is None else {"bound": parts.bound.digest}),
        "table": table.digest,
        "format": format_,
        "unit": unit_mib,
        # A part of a unit must never pass for the whole.
        **({} if limit is None else {"limit": limit}),
        **({} if parts.scopes is None else {"scopes": parts.scopes.identity}),
    }
    build = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return Head(build, __version__, parts.key.id, parts.policy.name, table.name, str(format_))


def refuse_key(settings: Iterable[tuple[str, object]], where: str) -> None:
    """Raise ``ConfigurationError`` if one of the settings is ``DEID_KEY``, or gives that variable a value."""
    for name, value in settings:
        if (_SECRET_NAME.search(str(name)) and str(value)) or _SECRET_INSIDE.search(str(value)):
            raise ConfigurationError(f"DEID_KEY is in {where}: {_ADVICE}")


def require_build(expected: str, found: str) -> None:
    """Raise ``ConfigurationError`` if this process would make other outputs than those of ``expected``."""
    if found != expected:
        raise ConfigurationError(
            f"this process has build {found}, and the run has build {expected}: the version, rules, models, policy, "
            "key or scope table of this machine differ from those of the driver"
        )
