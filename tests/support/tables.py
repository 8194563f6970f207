"""De-identifiers of rows, and tables with made-up people, for the tests of ``batch``."""

from functools import lru_cache

from support.keys import KEY

from deid_agent.app import WorkerFactory
from deid_agent.batch.rows import RowDeidentifier
from deid_agent.batch.table_file import TableFile
from deid_agent.batch.tables import Table, compile_table, load_table
from deid_agent.config import SecretKey
from deid_agent.pipeline import Deidentifier, load_policy
from deid_agent.rules import data_folder

RULES = data_folder("rules")
BUILD = "0123456789abcdef"


def parts(key: SecretKey | None = None) -> WorkerFactory:
    """The policy for tables, and the rules without the models."""
    policy = load_policy("research", RULES)
    return WorkerFactory(rules=RULES, key=key or SecretKey(KEY), policy=policy, system="rules")


@lru_cache
def deidentifier() -> Deidentifier:
    """The de-identifier of ``parts`` for notes."""
    return parts().deidentifier(notes_only=True)


def shipped(name: str) -> RowDeidentifier:
    """The de-identifier of a shipped table."""
    return RowDeidentifier.of(load_table(name, RULES), deidentifier(), BUILD)


def table(**keys: object) -> Table:
    """The table of a file with these keys."""
    return compile_table(TableFile.model_validate(keys), "own", "own.toml")


def rows_of(**keys: object) -> RowDeidentifier:
    """The de-identifier of a table file with these keys."""
    return RowDeidentifier.of(table(**keys), deidentifier(), BUILD)
