"""De-identifies tables: rows in, sanitized rows out, with the key, policy and rules of the stream.

``Table`` (tables.py) is a compiled table file: the kind of each column. ``RowDeidentifier`` (rows.py) is a pure
function from rows to rows. ``BatchRun`` (running.py) applies it to the units of files in worker processes, and
``OpenManifest`` (manifest.py) makes the outputs of a folder durable and a run repeatable. Rows are Arrow batches;
pyarrow is imported when it is first used, and is an extra. ``BulkRun`` (bulk_running.py) does the same for the lines of
a FHIR bulk export, without Arrow.
"""

from deid_agent.batch.bulk_export import BulkExport, SurveyedFile, list_export, survey_export
from deid_agent.batch.bulk_identities import IdentityWriter
from deid_agent.batch.bulk_lines import LineWorkerFactory
from deid_agent.batch.bulk_running import BulkRun
from deid_agent.batch.identities import Identities, describe_malformed, read_columns, read_identities
from deid_agent.batch.manifest import MANIFEST, Head, Manifest, OpenManifest, UnitEntry, read_manifest
from deid_agent.batch.outputs import OutputFormat, check_format
from deid_agent.batch.rows import RowDeidentifier, Rows
from deid_agent.batch.running import BatchRun, Digests, RowWorkerFactory, UnitReport, describe_refusals
from deid_agent.batch.schema import check_bulk_policy, check_policy, check_schema, make_output_schema
from deid_agent.batch.scopes import PersonColumns, ScopeBuilder, check_columns, find_listing
from deid_agent.batch.sources import InputFile, Unit, count_rows, list_sources, list_units, make_source, read_schema
from deid_agent.batch.tables import ColumnKind, Table, list_tables, load_table
from deid_agent.batch.text_files import UnreadableError

__all__ = [
    "MANIFEST",
    "BatchRun",
    "BulkExport",
    "BulkRun",
    "ColumnKind",
    "Digests",
    "Head",
    "Identities",
    "IdentityWriter",
    "InputFile",
    "LineWorkerFactory",
    "Manifest",
    "OpenManifest",
    "OutputFormat",
    "PersonColumns",
    "RowDeidentifier",
    "RowWorkerFactory",
    "Rows",
    "ScopeBuilder",
    "SurveyedFile",
    "Table",
    "Unit",
    "UnitEntry",
    "UnitReport",
    "UnreadableError",
    "check_bulk_policy",
    "check_columns",
    "check_format",
    "check_policy",
    "check_schema",
    "count_rows",
    "describe_malformed",
    "describe_refusals",
    "find_listing",
    "list_export",
    "list_sources",
    "list_tables",
    "list_units",
    "load_table",
    "make_output_schema",
    "make_source",
    "read_columns",
    "read_identities",
    "read_manifest",
    "read_schema",
    "survey_export",
]
