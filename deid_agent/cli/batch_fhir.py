"""``deid-agent batch`` for ``--table fhir``: a FHIR bulk export in, a sanitized one out."""

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from deid_agent.agent import PublicKey
from deid_agent.app import WorkerFactory
from deid_agent.audit import first_public_key
from deid_agent.batch import (
    BulkExport,
    BulkRun,
    Digests,
    Head,
    IdentityWriter,
    LineWorkerFactory,
    LinkCounts,
    OpenManifest,
    OpenTrail,
    OutputFormat,
    Pace,
    Sampler,
    SurveyedFile,
    Table,
    check_bulk_policy,
    list_export,
    make_head,
    survey_export,
    trail_folder,
)
from deid_agent.cli.batch_results import RunOutput
from deid_agent.cli.common import Exit, TaggingOptions, echo_error, worker_factory
from deid_agent.model import ConfigurationError, counted

FHIR = "fhir"
"""The name of the table that is no table."""


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """The needs of ``plan`` and ``run``: a folder, the parts of the workers, the build, the size of a unit."""

    folder: Path
    parts: WorkerFactory
    head: Head
    unit_bytes: int


def read_bulk(paths: tuple[Path, ...], options: dict[str, Any], limit: int | None = None) -> BulkOptions | None:
    """The options of a FHIR bulk export; None for a table."""
    if options["table_name"] != FHIR:
        return None
    parts = worker_factory(**{name: options[name] for name in TaggingOptions.__annotations__})
    _check_options(paths, options["identities"], options["output_format"], parts)
    refuse_row_options(to=options["to"], table_version=options["table_version"])
    head = make_head(Table(FHIR, FHIR, {}), parts, "ndjson", options["unit_mib"], limit)
    return BulkOptions(paths[0], parts, head, options["unit_mib"] * (1 << 20))


def refuse_row_options(**given: object) -> None:
    """Raises ``ConfigurationError`` for an option that only runs over tables have."""
    if wrong := [name.replace("_", "-") for name, value in given.items() if value is not None]:
        raise ConfigurationError(f"--{wrong[0]}: is for tables, not for a FHIR bulk export: leave it out")


def refuse_engine(engine: str) -> None:
    """Raises ``ConfigurationError`` for an engine: its tasks would need the persons of all files."""
    if engine != "local":
        raise ConfigurationError(
            "--engine: a FHIR bulk export is read on this machine, since each line needs the persons of all files: "
            "leave it out and use --workers"
        )


def _check_options(paths: tuple[Path, ...], identities: Path | None, output_format: str, parts: WorkerFactory) -> None:
    """Raises ``ConfigurationError`` for options that an export does not have."""
    check_bulk_policy(parts.policy)
    if len(paths) != 1:
        raise ConfigurationError("a FHIR bulk export is one folder of NDJSON files: name the folder")
    if identities is not None:
        raise ConfigurationError(
            "the Patient and Practitioner files of the export are the identities: leave out --identities"
        )
    if output_format != OutputFormat.PARQUET:
        raise ConfigurationError("the outputs of an export are NDJSON: leave out --format")


def plan_export(options: BulkOptions) -> Exit:
    """Show files, lines, units and persons."""
    export = list_export(options.folder)
    with tempfile.TemporaryDirectory() as folder, IdentityWriter(Path(folder)) as identities:
        files = list(survey_export(export.files, options.unit_bytes, Digests(options.parts.key), identities))
        torn = identities.finish().torn
        persons, links = identities.persons, identities.links
    head = options.head
    click.echo(f"build      {head.build} (table {head.table}, policy {head.policy}, key {head.key})")
    units, lines = sum(len(file.parts) for file in files), sum(file.lines for file in files)
    inputs = counted(len(files), "file"), counted(units, "unit"), counted(lines, "line")
    click.echo(f"inputs     {', '.join(inputs)}")
    roles = Counter(export.role(file.source) for file in files)
    click.echo(f"roles      {', '.join(f'{count} {role}' for role, count in sorted(roles.items()))}")
    click.echo(f"identities {counted(persons, 'person')}")
    if links.links:
        click.echo(f"links      {_describe_links(links)}")
    faults = [file for file in files if file.fault]
    for file in faults:
        click.echo(f"unreadable {file.source.shown}: {file.fault}")
    if export.others:
        click.echo(f"left out   {counted(export.others, 'file')} of other formats")
    _warn(export, torn=torn)
    return Exit.REFUSED if faults or export.missing or torn else Exit.DONE


def _describe_links(links: LinkCounts) -> str:
    """The links between records of one person."""
    parts = [
        counted(links.links, "link"),
        f"{counted(links.patients, 'Patient')} of {counted(links.groups, 'person')}",
        *([f"{links.absent} to a record that the export does not have"] if links.absent else []),
        *([f"{counted(links.left, 'Patient')} in groups that are too large to be one person"] if links.left else []),
    ]
    return ", ".join(parts)


def _warn(export: BulkExport, *, torn: bool, others: bool = False) -> None:
    if others and export.others:
        echo_error(f"deid-agent: left out {counted(export.others, 'file')} of other formats")
    if export.missing:
        echo_error(f"deid-agent: {counted(export.missing, 'file')} of the manifest not found in the folder: get them")
    if torn:
        echo_error(
            "deid-agent: a Patient cannot be read, or a line that may be one: "
            "lines of patients that the export does not have are refused"
        )


def run_export(
    options: BulkOptions,
    out: Path,
    workers: int,
    shown: RunOutput,
    pace: Pace,
    *,
    again: bool,
    sample: tuple[int, PublicKey] | None = None,
) -> Exit:
    """De-identify the export into the folder ``out``. ``sample`` is the number of lines to seal, and to whom."""
    export = list_export(options.folder)
    digests = Digests(options.parts.key)
    sampler = None if sample is None else Sampler(out, *sample, digests)
    trail = OpenTrail(options.parts.key)
    with OpenManifest(out, options.head, trail) as manifest, IdentityWriter(out) as identities:
        if options.parts.key.demo:
            (out / "_DEMO-KEY.txt").write_text("Made with the public demonstration key: everyone can reverse it.\n")
        files: list[SurveyedFile] = list(survey_export(export.files, options.unit_bytes, digests, identities))
        store = identities.finish()
        _warn(export, torn=store.torn, others=True)
        if identities.links.links:
            echo_error(f"deid-agent: links: {_describe_links(identities.links)}")
        known = identities.digest(digests)
        time = options.parts.policy.record_time
        work = BulkRun(export, options.head.build, out, digests, known, time, again, pace, sampler)
        work.run(files, manifest, LineWorkerFactory(options.parts, store), workers, shown.show_unit)
        written = len(manifest.manifest.lines)
    shown.show_end(first_public_key(trail_folder(out)), written)
    entries = [end.entry for end in shown.ends if end.entry is not None]
    if older := sum(entry.identities != known for entry in entries):
        echo_error(f"deid-agent: {counted(older, 'unit')} had been made with other identities: use another folder")
    if unknown := sum(entry.no_patient for entry in entries):
        echo_error(
            f"deid-agent: {counted(unknown, 'line')} of patients that the export does not have: "
            "read without their names, with dates that may not join"
        )
    refused = any(end.fault or (end.entry and end.entry.refused) for end in shown.ends)
    return Exit.REFUSED if refused or export.missing else Exit.DONE
