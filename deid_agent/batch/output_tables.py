"""The table of a run: its columns, and the commits of its outputs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from deid_agent.batch.delta_tables import DeltaOutput
from deid_agent.batch.iceberg_tables import IcebergOutput
from deid_agent.batch.manifest import UnitEntry
from deid_agent.batch.outputs import OutputFormat, check_format, written_schema
from deid_agent.model import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa


class OutputTable(Protocol):
    """A Delta or Iceberg table to which a run adds its outputs."""

    def commit(self, entry: UnitEntry) -> None:
        """Add the output of a unit, durably. A unit that was added before is not added again.

        Raises ``ConfigurationError`` if it was added with another output, ``UnsafeError`` if the table takes no commit.
        """
        ...


@dataclass(slots=True)
class OutputColumns:
    """The columns of all outputs of a run: a table has one set of them."""

    format: OutputFormat
    schema: "pa.Schema | None" = None

    def add(self, schema: "pa.Schema") -> None:
        """Note those of an input. Raises ``ConfigurationError`` if they do not fit the format or those before."""
        check_format(self.format, schema)
        columns = written_schema(self.format, schema)
        if self.format.is_table and self.schema not in {None, columns}:
            raise ConfigurationError("has other columns than the inputs before, and a table has one set of columns")
        self.schema = columns


def open_output_table(columns: OutputColumns, to: str | None, folder: Path, build: str) -> OutputTable | None:
    """The table for outputs with these columns; None for files alone, or without columns.

    Raises ``ConfigurationError`` for a table that the run does not write.
    """
    format_, schema = columns.format, columns.schema
    if schema is None:
        return None
    if format_ is OutputFormat.DELTA:
        return DeltaOutput.open(folder, build, schema)
    if format_ is OutputFormat.ICEBERG:
        if to is None:
            raise ConfigurationError("--format iceberg needs the table to write: --to CATALOG.NAMESPACE.TABLE")
        return IcebergOutput.open(to, folder, build, schema)
    return None
