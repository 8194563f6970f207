"""De-identifies tables: rows in, sanitized rows out, with the key, policy and rules of the stream.

``Table`` (tables.py) is a compiled table file: the kind of each column. ``RowDeidentifier`` (rows.py) is a pure
function from rows to rows. ``BatchRun`` (running.py) applies it to the units of files in worker processes, and
``OpenManifest`` (manifest.py) makes the outputs of a folder durable and a run repeatable. The audit of the rows is
made by ``RowAuditor`` (audit_parts.py), the lines of the manifest are signed by ``ManifestTrail``, and
``verify_folder`` (verifying.py) finds changes. Rows are Arrow batches; pyarrow is imported when it is first used, and
is an extra. Delta and Iceberg tables are files with a log: ``Layout`` (layouts.py) is how a data file of one is read,
and ``OutputTable`` (output_tables.py) is the table to which outputs are added.

``BulkRun`` (bulk_running.py) does the same for the lines of a FHIR bulk export, without Arrow.

For engines there are ``Table.load`` and ``BatchDeidentifier`` (frames.py), which pipelines of Spark, Ray and Beam call
with their rows, and ``run_on_engine`` (engine_units.py), which has units of files done by Spark or Ray.
"""

from deid_agent.batch.audit_parts import Digests
from deid_agent.batch.bulk_export import BulkExport, SurveyedFile, list_export, survey_export
from deid_agent.batch.bulk_identities import IdentityWriter
from deid_agent.batch.bulk_lines import LineWorkerFactory
from deid_agent.batch.bulk_links import LinkCounts
from deid_agent.batch.bulk_running import BulkRun
from deid_agent.batch.delta_tables import DELTA_LOG
from deid_agent.batch.engine_units import UnitEngine, UnitWork, run_on_engine
from deid_agent.batch.frames import BatchDeidentifier
from deid_agent.batch.iceberg_tables import METADATA as ICEBERG_METADATA
from deid_agent.batch.identities import (
    Identities,
    PatientMatches,
    describe_malformed,
    match_patients,
    read_columns,
    read_identities,
)
from deid_agent.batch.jobs import RowWorkerFactory
from deid_agent.batch.layouts import Layout, is_same_place
from deid_agent.batch.manifest import (
    AUDIT,
    MANIFEST,
    Head,
    Manifest,
    ManifestError,
    OpenManifest,
    UnitEntry,
    read_manifest,
)
from deid_agent.batch.manifest_trail import OpenTrail, trail_folder
from deid_agent.batch.output_tables import OutputColumns, OutputTable, open_output_table
from deid_agent.batch.outputs import OutputFormat, check_format
from deid_agent.batch.pacing import PAUSE, Pace, RunProgress
from deid_agent.batch.ray_engine import RayUnits
from deid_agent.batch.report_page import report_page, review_page
from deid_agent.batch.reporting import BatchReport, bound_misses, describe_bound, make_report, make_study
from deid_agent.batch.rows import RowDeidentifier, Rows
from deid_agent.batch.running import BatchRun, UnitReport, describe_refusals
from deid_agent.batch.sampling import MOST_SAMPLED, RowSample, SampledCell, Sampler, SealedRow, read_sample
from deid_agent.batch.schema import check_bulk_policy, check_policy, check_schema, make_output_schema
from deid_agent.batch.scopes import PersonColumns, ScopeBuilder, check_columns, find_listing
from deid_agent.batch.source_lists import list_sources
from deid_agent.batch.sources import InputFile, Unit, count_rows, list_units, make_source, read_schema
from deid_agent.batch.spark_engine import SparkUnits
from deid_agent.batch.systems import DEFAULT_UNIT_MIB, EngineSystem, make_head
from deid_agent.batch.table_file import ColumnKind
from deid_agent.batch.tables import Table, list_tables, load_table
from deid_agent.batch.text_files import UnreadableError
from deid_agent.batch.verifying import FindingCode, FolderCheck, FolderFinding, verify_folder

__all__ = [
    "AUDIT",
    "DEFAULT_UNIT_MIB",
    "DELTA_LOG",
    "ICEBERG_METADATA",
    "MANIFEST",
    "MOST_SAMPLED",
    "PAUSE",
    "BatchDeidentifier",
    "BatchReport",
    "BatchRun",
    "BulkExport",
    "BulkRun",
    "ColumnKind",
    "Digests",
    "EngineSystem",
    "FindingCode",
    "FolderCheck",
    "FolderFinding",
    "Head",
    "Identities",
    "IdentityWriter",
    "InputFile",
    "Layout",
    "LineWorkerFactory",
    "LinkCounts",
    "Manifest",
    "ManifestError",
    "OpenManifest",
    "OpenTrail",
    "OutputColumns",
    "OutputFormat",
    "OutputTable",
    "Pace",
    "PatientMatches",
    "PersonColumns",
    "RayUnits",
    "RowDeidentifier",
    "RowSample",
    "RowWorkerFactory",
    "Rows",
    "RunProgress",
    "SampledCell",
    "Sampler",
    "ScopeBuilder",
    "SealedRow",
    "SparkUnits",
    "SurveyedFile",
    "Table",
    "Unit",
    "UnitEngine",
    "UnitEntry",
    "UnitReport",
    "UnitWork",
    "UnreadableError",
    "bound_misses",
    "check_bulk_policy",
    "check_columns",
    "check_format",
    "check_policy",
    "check_schema",
    "count_rows",
    "describe_bound",
    "describe_malformed",
    "describe_refusals",
    "find_listing",
    "is_same_place",
    "list_export",
    "list_sources",
    "list_tables",
    "list_units",
    "load_table",
    "make_head",
    "make_output_schema",
    "make_report",
    "make_source",
    "make_study",
    "match_patients",
    "open_output_table",
    "read_columns",
    "read_identities",
    "read_manifest",
    "read_sample",
    "read_schema",
    "report_page",
    "review_page",
    "run_on_engine",
    "survey_export",
    "trail_folder",
    "verify_folder",
]
