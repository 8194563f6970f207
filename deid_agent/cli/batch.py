"""``deid-agent batch``: tables in, sanitized tables out."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

import click

from deid_agent.app import WorkerFactory
from deid_agent.batch import (
    MANIFEST,
    BatchRun,
    ColumnKind,
    Digests,
    Head,
    Identities,
    InputFile,
    OpenManifest,
    OutputFormat,
    RowWorkerFactory,
    Table,
    Unit,
    UnitReport,
    UnreadableError,
    check_format,
    check_policy,
    check_schema,
    count_rows,
    describe_malformed,
    describe_refusals,
    find_listing,
    list_sources,
    list_units,
    load_table,
    make_output_schema,
    make_source,
    read_identities,
    read_manifest,
    read_schema,
)
from deid_agent.cli.batch_fhir import make_head, plan_export, read_bulk, run_export
from deid_agent.cli.batch_identities import identities as identities_commands
from deid_agent.cli.common import Exit, echo_error, handle_errors, scope_table_option, worker_factory
from deid_agent.model import ConfigurationError, Listing, counted

P = ParamSpec("P")
_MIB = 1 << 20


@click.group()
def batch() -> None:
    """De-identify tables: Parquet, CSV and NDJSON files."""


batch.add_command(identities_commands)


def _run_options(command: Callable[P, None]) -> Callable[P, None]:
    """The options that ``plan`` and ``run`` share."""
    for option in (
        click.option("--rules", metavar="DIR", envvar="DEID_RULES", help="Rules folder in place of the packaged one."),
        click.option("--demo-key", is_flag=True, help="Use the public demonstration key; output is marked."),
        click.option("--key-file", metavar="FILE", type=click.Path(path_type=Path), help="The secret key."),
        click.option("--system", default="default", show_default=True, envvar="DEID_SYSTEM", help="Recognizers."),
        click.option(
            "--profile",
            type=click.Choice(["precision", "balanced", "recall"]),
            default="recall",
            show_default=True,
            envvar="DEID_PROFILE",
            help="Favours precision or recall.",
        ),
        click.option(
            "--policy",
            "policy_name",
            default="research",
            show_default=True,
            envvar="DEID_POLICY",
            help="Profile name or policy file.",
        ),
        click.option(
            "--unit-mib",
            metavar="MIB",
            type=click.IntRange(1, 4096),
            default=32,
            show_default=True,
            help="Row groups of Parquet up to this compressed size become one output file.",
        ),
        click.option(
            "--format",
            "output_format",
            type=click.Choice([each.value for each in OutputFormat]),
            default=OutputFormat.PARQUET.value,
            show_default=True,
            help="Format of the outputs.",
        ),
        click.option(
            "--identities", metavar="FILE", type=click.Path(path_type=Path), help="Known persons, one row each."
        ),
        scope_table_option,
        click.option(
            "--table", "table_name", metavar="NAME", required=True, help="A shipped table, a table file, or fhir."
        ),
    ):
        command = option(command)
    return command


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


def _make_plan(
    paths: tuple[Path, ...],
    *,
    table_name: str,
    identities: Path | None,
    scope_table: Path | None,
    output_format: str,
    unit_mib: int,
    policy_name: str,
    profile: str,
    system: str,
    key_file: Path | None,
    demo_key: bool,
    rules: str | None,
) -> _Plan:
    """Check the inputs. Raises ``ConfigurationError`` for the first that does not fit the table file."""
    parts = worker_factory(
        policy_name=policy_name,
        profile=profile,
        system=system,
        key_file=key_file,
        demo_key=demo_key,
        rules=rules,
        scope_table=scope_table,
    )
    table = load_table(table_name, parts.rules)
    check_policy(table, parts.policy)
    format_ = OutputFormat(output_format)
    sources, others = list_sources(paths)
    units: list[Unit] = []
    unreadable: list[str] = []
    for source in sources:
        try:
            schema = read_schema(source, table)
            check_schema(table, schema)
            check_format(format_, make_output_schema(table, schema))
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
    head = make_head(table, parts, format_, unit_mib)
    return _Plan(table, parts, format_, head, sources, units, others, unreadable, known, digest)


@batch.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(path_type=Path))
@_run_options
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
@_run_options
@click.option("--workers", metavar="N", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes.")
@click.option("--again", is_flag=True, help="Replace the outputs of inputs that have changed since.")
@handle_errors
def run(paths: tuple[Path, ...], out: Path, workers: int, again: bool, **options: Any) -> Exit:
    """De-identify the inputs into the folder OUT. Run it again to go on after an interruption."""
    if (bulk := read_bulk(paths, options)) is not None:
        _check_folder(paths, out)
        return run_export(bulk, out, workers, again=again)
    made = _make_plan(paths, **options)
    _check_folder(paths, out)
    work = BatchRun(
        table=made.table,
        build=made.head.build,
        folder=out,
        format=made.format,
        digests=Digests(made.parts.key),
        identities=made.identities,
        identities_digest=made.identities_digest,
        again=again,
    )
    for each in made.unreadable:
        echo_error(f"deid-agent: {each}")
    if made.identities.malformed:
        echo_error(f"deid-agent: identities: {describe_malformed(made.identities)}: texts of these persons are refused")
    ends: list[UnitReport] = []

    def report(end: UnitReport) -> None:
        ends.append(end)
        _echo_unit(end)

    factory = RowWorkerFactory(made.parts, made.table, made.head.build)
    with OpenManifest(out, made.head) as manifest:
        if made.parts.key.demo:
            (out / "_DEMO-KEY.txt").write_text("Made with the public demonstration key: everyone can reverse it.\n")
        work.run(made.units, manifest, factory, workers, report)
    older = sum(bool(end.skipped and end.entry and end.entry.identities != made.identities_digest) for end in ends)
    if older:
        echo_error(f"deid-agent: {counted(older, 'unit')} had been made with other identities: use another folder")
    refused = any(end.fault or (end.entry and end.entry.refused) for end in ends)
    return Exit.REFUSED if refused or made.unreadable else Exit.DONE


def _check_folder(paths: tuple[Path, ...], out: Path) -> None:
    folder = out.resolve()
    if out.exists() and not out.is_dir():
        raise ConfigurationError("OUT is a file: name a folder")
    for path in (each.resolve() for each in paths):
        if path == folder or path in folder.parents or folder in path.parents:
            raise ConfigurationError("OUT is an input, or one is inside the other: name another folder")


def _echo_unit(end: UnitReport) -> None:
    if end.entry is None:
        echo_error(f"deid-agent: {end.unit.shown}: refused: {end.fault}")
        return
    entry = end.entry
    state = "was done" if end.skipped else "done"
    click.echo(
        f"{state:<8}  {end.unit.shown}: {entry.file}: {entry.rows} rows, refused {describe_refusals(entry.refused)}"
    )


@batch.command()
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path, file_okay=False))
@handle_errors
def status(out: Path) -> Exit:
    """Show the finished units of an output folder."""
    manifest = read_manifest(out)
    if manifest is None:
        raise ConfigurationError(f"no {MANIFEST} in the folder: name the OUT of a run")
    head = manifest.head
    units = [entry for entry in manifest.units.values() if entry.file]
    refused: Counter[str] = Counter()
    for entry in units:
        refused.update(entry.refused)
    click.echo(f"build      {head.build} (table {head.table}, policy {head.policy}, key {head.key}, {head.version})")
    click.echo(f"units      {len(units)}")
    click.echo(f"rows       {sum(entry.rows for entry in units)}")
    click.echo(f"refused    {describe_refusals(refused)}")
    types: Counter[str] = Counter()
    for entry in units:
        types.update(entry.types)
    if types:
        click.echo(f"resources  {', '.join(f'{count} {name}' for name, count in sorted(types.items()))}")
    click.echo(f"no patient {sum(entry.no_patient for entry in units)}")
    for name in ("unlisted", "conflicting"):
        if count := sum(getattr(entry, name) for entry in units):
            click.echo(f"{name:<10} {counted(count, 'row')}")
    missing = [entry for entry in units if not entry.is_in(out)]
    if missing:
        click.echo(f"missing    {counted(len(missing), 'output file')}; run makes them again")
    return Exit.REFUSED if missing else Exit.DONE
