"""``deid-agent batch``: tables in, sanitized tables out."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import click

from deid_agent.agent import load_public_key
from deid_agent.app import WorkerFactory
from deid_agent.audit import first_public_key
from deid_agent.batch import (
    MOST_SAMPLED,
    BatchRun,
    ColumnKind,
    Digests,
    Head,
    Identities,
    InputFile,
    OpenManifest,
    OpenTrail,
    OutputColumns,
    OutputFormat,
    Pace,
    PatientMatches,
    RowWorkerFactory,
    Sampler,
    Table,
    Unit,
    UnreadableError,
    check_policy,
    check_schema,
    count_rows,
    describe_malformed,
    find_listing,
    list_sources,
    list_units,
    load_table,
    make_head,
    make_output_schema,
    make_source,
    match_patients,
    open_output_table,
    read_identities,
    read_schema,
    run_on_engine,
    trail_folder,
)
from deid_agent.cli.batch_engines import ENGINES, make_unit_work, refuse_options
from deid_agent.cli.batch_fhir import FHIR, plan_export, read_bulk, refuse_engine, run_export
from deid_agent.cli.batch_folders import check_folder, check_table_folder
from deid_agent.cli.batch_identities import identities as identities_commands
from deid_agent.cli.batch_options import run_options
from deid_agent.cli.batch_results import RunOutput, describe_matches, report, status, verify
from deid_agent.cli.common import Exit, TaggingOptions, echo_error, handle_errors, worker_factory
from deid_agent.model import ConfigurationError, Listing, counted

_MIB = 1 << 20


@click.group()
def batch() -> None:
    """De-identify tables: Parquet, CSV and NDJSON files, Delta and Iceberg tables."""


batch.add_command(identities_commands)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything that a run does, checked."""

    table: Table
    parts: WorkerFactory
    format: OutputFormat
    head: Head
    sources: list[InputFile]
    units: list[Unit]
    others: int
    unreadable: list[str]
    identities: Identities
    identities_digest: str
    columns: OutputColumns
    matches: PatientMatches


def _make_plan(
    paths: tuple[Path, ...],
    *,
    table_name: str,
    identities: Path | None,
    output_format: str,
    unit_mib: int,
    to: str | None,
    table_version: int | None,
    limit: int | None = None,
    **tagging: Unpack[TaggingOptions],
) -> _Plan:
    """Check the inputs. Raises ``ConfigurationError`` for the first that does not fit the table file."""
    parts = worker_factory(**tagging)
    table = load_table(table_name, parts.rules)
    check_policy(table, parts.policy)
    format_ = OutputFormat(output_format)
    if (to is not None) != (format_ is OutputFormat.ICEBERG):
        raise ConfigurationError("--format iceberg and --to come together: --to names the table to write")
    sources, others = list_sources(paths, table_version)
    units: list[Unit] = []
    unreadable: list[str] = []
    columns = OutputColumns(format_)
    for source in sources:
        try:
            schema = read_schema(source, table)
            check_schema(table, schema)
            columns.add(make_output_schema(table, schema))
            units += list_units(source, unit_mib * _MIB)
        except UnreadableError as problem:
            unreadable.append(f"{source.shown}: {problem}")
        except ConfigurationError as problem:
            raise ConfigurationError(f"{source.shown}: {problem}") from None
    known, digest = Identities(), ""
    if identities is not None:
        if table.person is None:
            raise ConfigurationError(f"table {table.name} has no [identities]: leave out --identities, or add them")
        source = make_source(identities)
        known = read_identities(source, table.person)
        digest = Digests(parts.key).digest_file(source.path)
    head = make_head(table, parts, format_, unit_mib, limit)
    matches = match_patients(units, table, known)
    return _Plan(table, parts, format_, head, sources, units, others, unreadable, known, digest, columns, matches)


@batch.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(path_type=Path))
@run_options
@handle_errors
def plan(paths: tuple[Path, ...], **options: Any) -> Exit:
    """Show the columns with their kinds, the units, and the problems of a run."""
    if (bulk := read_bulk(paths, options)) is not None:
        return plan_export(bulk)
    made = _make_plan(paths, **options)
    head = made.head
    click.echo(f"build      {head.build} (table {head.table}, policy {head.policy}, key {head.key})")
    rows = [count_rows(source) for source in made.sources if source.number in {u.source.number for u in made.units}]
    known = [count for count in rows if count is not None]
    counts = [f"{sum(known)} rows"] if known else []
    counts += [f"rows of {counted(len(rows) - len(known), 'file')} not counted"] if len(known) < len(rows) else []
    files, units = counted(len(made.sources), "file"), counted(len(made.units), "unit")
    click.echo(f"inputs     {', '.join([files, units, *counts])}")
    for pinned in dict.fromkeys(source.layout.pinned for source in made.sources if source.layout is not None):
        click.echo(f"version    {pinned}")
    for name, kind in _list_kinds(made):
        click.echo(f"column     {name:<32} {kind}")
    for each in made.unreadable:
        click.echo(f"unreadable {each}")
    if made.others:
        click.echo(f"left out   {counted(made.others, 'file')} of other formats")
    _echo_identities(made)
    _echo_scopes(made)
    return Exit.REFUSED if made.unreadable or made.identities.malformed else Exit.DONE


def _list_kinds(made: _Plan) -> list[tuple[str, str]]:
    """The columns that occur in the inputs, in the order of the table file, with their kinds."""
    seen: set[str] = set()
    for source in {unit.source.number: unit.source for unit in made.units}.values():
        seen |= {column.name.lower() for column in read_schema(source, made.table)}
    found = []
    for name, column in made.table.columns.items():
        if name in seen:
            kind = column.type.value if column.kind is ColumnKind.VALUE else column.kind.value
            when = made.table.when.get(name)
            also = f" ({when.treatment.kind} if {when.column} is {', '.join(sorted(when.values))})" if when else ""
            found.append((name, kind + also))
    return found


def _echo_identities(made: _Plan) -> None:
    if made.identities.contexts:
        persons = counted(len(made.identities.contexts), "person")
        click.echo(f"identities {persons}, {describe_malformed(made.identities)}")
        if made.table.patient is not None:
            click.echo(f"matches    {describe_matches(made.matches.unmatched, made.matches.no_identity)}")
    elif made.table.patient is not None:
        click.echo("identities none: texts are not searched for the names of their patients; give --identities")


def _echo_scopes(made: _Plan) -> None:
    """The scope table, and how many of the identities it does not list."""
    if made.parts.scopes is None or made.table.patient is None:
        return
    choice = made.parts.scopes.add_to(made.parts.policy, made.parts.key)
    found = Counter(find_listing(choice, made.table, key, json.loads(c)) for key, c in made.identities.contexts.items())
    shown = f", lists {found[Listing.LISTED]} of them" if made.identities.contexts else ""
    odd = f", {found[Listing.CONFLICTING]} as several persons" if found[Listing.CONFLICTING] else ""
    click.echo(f"scopes     {made.parts.scopes.identity}{shown}{odd}")


@batch.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(path_type=Path))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@run_options
@click.option("--workers", metavar="N", type=click.IntRange(1, 256), help="Processes; 1 if not given.")
@click.option(
    "--engine",
    type=click.Choice(["local", *ENGINES]),
    default="local",
    show_default=True,
    help="Who runs the units: this machine, or the tasks of a cluster.",
)
@click.option("--again", is_flag=True, help="Replace the outputs of inputs that have changed since.")
@click.option("--limit", metavar="ROWS", type=click.IntRange(1), help="Only the first rows; a build of its own.")
@click.option("--rate", metavar="ROWS/S", type=click.FloatRange(0, min_open=True), help="Rows a second at most.")
@click.option("--sample", metavar="N", type=click.IntRange(1, MOST_SAMPLED), help="Seal N rows for readers.")
@click.option("--seal-to", metavar="KEY.pub", type=click.Path(path_type=Path), help="The public key of the readers.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per unit, for the progress, and at the end.")
@handle_errors
def run(
    paths: tuple[Path, ...],
    out: Path,
    workers: int | None,
    engine: str,
    again: bool,
    limit: int | None,
    rate: float | None,
    sample: int | None,
    seal_to: Path | None,
    as_json: bool,
    **options: Any,
) -> Exit:
    """De-identify the inputs into the folder OUT. Run it again to go on after an interruption.

    A file named pause in OUT pauses the run. `dead-letters keygen` makes the keys for --seal-to.
    """
    if options["table_name"] == FHIR:
        refuse_engine(engine)
    if engine != "local":
        refuse_options(engine, workers=workers, limit=limit, rate=rate, sample=sample)
    if (sample is None) != (seal_to is None):
        raise ConfigurationError("--sample and --seal-to come together: rows leave the run sealed only")
    shown = RunOutput(as_json)
    pace = Pace(out, rate, limit, shown.show_progress)
    readers = None if seal_to is None else load_public_key(seal_to, "--seal-to")
    if (bulk := read_bulk(paths, options, limit)) is not None:
        check_folder(paths, out)
        sealed = None if readers is None or sample is None else (sample, readers)
        return run_export(bulk, out, workers or 1, shown, pace, again=again, sample=sealed)
    made = _make_plan(paths, limit=limit, **options)
    check_table_folder(paths, made.sources, out, made.format)
    digests = Digests(made.parts.key)
    work = BatchRun(
        table=made.table,
        build=made.head.build,
        folder=out,
        format=made.format,
        digests=digests,
        identities=made.identities,
        identities_digest=made.identities_digest,
        unmatched=made.matches.unmatched,
        again=again,
        sampler=None if readers is None or sample is None else Sampler(out, sample, readers, digests, made.table),
        pace=pace,
    )
    chosen = None if engine == "local" else ENGINES[engine]()
    for each in made.unreadable:
        echo_error(f"deid-agent: {each}")
    if made.others:
        echo_error(f"deid-agent: left out {counted(made.others, 'file')} of other formats")
    _warn_identities(made)
    with OpenManifest(out, made.head, OpenTrail(made.parts.key)) as manifest:
        if made.parts.key.demo:
            (out / "_DEMO-KEY.txt").write_text("Made with the public demonstration key: everyone can reverse it.\n")
        work = replace(work, output=open_output_table(made.columns, options["to"], out, made.head.build))
        if chosen is None:
            factory = RowWorkerFactory(made.parts, made.table, made.head.build)
            work.run(made.units, manifest, factory, workers or 1, shown.show_unit)
        else:
            try:
                unit_work = make_unit_work(work, made.parts, made.head, options)
                run_on_engine(work, made.units, manifest, chosen, unit_work, shown.show_unit)
            finally:
                chosen.close()
        lines = len(manifest.manifest.lines)
    shown.show_end(first_public_key(trail_folder(out)), lines)
    older = sum(
        bool(end.skipped and end.entry and end.entry.identities != made.identities_digest) for end in shown.ends
    )
    if older:
        echo_error(f"deid-agent: {counted(older, 'unit')} had been made with other identities: use another folder")
    refused = any(end.fault or (end.entry and end.entry.refused) for end in shown.ends)
    return Exit.REFUSED if refused or made.unreadable else Exit.DONE


def _warn_identities(made: _Plan) -> None:
    if made.identities.malformed:
        refused_of = "these persons" + (" and of patients without a row" if made.identities.torn else "")
        echo_error(f"deid-agent: identities: {describe_malformed(made.identities)}: texts of {refused_of} are refused")
    if made.matches != PatientMatches():
        echo_error(f"deid-agent: identities: {describe_matches(made.matches.unmatched, made.matches.no_identity)}")


for each in (status, verify, report):
    batch.add_command(each)
