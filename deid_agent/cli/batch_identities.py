"""``deid-agent batch identities``: makes and checks scope tables."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from deid_agent.batch import PersonColumns, ScopeBuilder, check_columns, load_table, make_source, read_columns
from deid_agent.cli.common import Exit, echo_error, handle_errors, rules_option, worker_factory
from deid_agent.model import ConfigurationError, counted
from deid_agent.pipeline import (
    NumberSource,
    ScopeCipher,
    ScopeTableFile,
    TableHead,
    digest_rule,
    open_table,
    write_table,
)

_MERGE_COLUMNS = ("old", "new")


@click.group()
def identities() -> None:
    """Make the scope table: who is one patient, for batch and for the stream."""


@identities.command()
@click.argument("persons", nargs=-1, metavar="PERSONS...", type=click.Path(path_type=Path))
@click.option("--table", "table_name", metavar="NAME", required=True, help="The table file with [identities].")
@click.option("--out", required=True, metavar="FILE", type=click.Path(path_type=Path), help="The scope table.")
@click.option("--append", is_flag=True, help="Add to the table in --out.")
@click.option(
    "--merges",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Merged records: columns old, new and maybe assigner.",
)
@click.option("--policy", default="research", show_default=True, envvar="DEID_POLICY", help="Its [patient] applies.")
@click.option("--key-file", metavar="FILE", type=click.Path(path_type=Path), help="The secret key.")
@click.option("--demo-key", is_flag=True, help="Use the public demonstration key.")
@rules_option
@handle_errors
def build(
    persons: tuple[Path, ...],
    table_name: str,
    out: Path,
    append: bool,
    merges: tuple[Path, ...],
    policy: str,
    key_file: Path | None,
    demo_key: bool,
    rules: tuple[str, ...],
) -> Exit:
    """Make a scope table from identities, one row a person: CSV, NDJSON or Parquet.

    Nothing is written if a row cannot be read or would join two persons. The errors name places and no values.
    """
    if not persons and not (append and merges):
        raise ConfigurationError("name the files of PERSONS; only --append with --merges needs none")
    parts = worker_factory(
        policy_name=policy, profile="recall", system="none", key_file=key_file, demo_key=demo_key, rules=rules
    )
    if parts.policy.unlinked:
        raise ConfigurationError(
            f"policy {parts.policy.name} unlinks documents, so nobody is one patient: choose another"
        )
    columns = PersonColumns.of(load_table(table_name, parts.rules))
    cipher = ScopeCipher(parts.key.secret)
    builder = ScopeBuilder.of(columns, parts.policy.patient, cipher)
    with _lock(out):
        if append:
            ScopeTableFile.of(out, parts.key, parts.policy)
            builder.load(open_table(out, parts.key))
        elif os.path.lexists(out):
            raise ConfigurationError("--out exists: add to it with --append, or name a new file")
        for number, path in enumerate(persons, 1):
            _read(builder, path, f"file {number}, " if len(persons) > 1 else "")
        for number, path in enumerate(merges, 1):
            _merge(builder, path, f"merges {number}, " if len(merges) > 1 else "merges ")
        scopes = builder.finish()
        sources = [source.as_json() for source in columns.sources]
        rule = digest_rule(parts.policy.patient, cipher)
        head = TableHead(parts.key.id, rule, sources, builder.persons, builder.merges)
        identity = write_table(out, head, scopes, cipher)
    _echo(identity, builder.persons, len(scopes), builder.merges)
    if builder.unusable:
        echo_error(f"deid-agent: {counted(builder.unusable, 'number')} left out that name nobody, such as UNKNOWN")
    if builder.without_number:
        echo_error(f"deid-agent: {counted(builder.without_number, 'person', 'persons')} without a number")
    return Exit.DONE


@identities.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--key-file", metavar="FILE", type=click.Path(path_type=Path), help="The secret key.")
@click.option("--demo-key", is_flag=True, help="Use the public demonstration key.")
@handle_errors
def check(file: Path, key_file: Path | None, demo_key: bool) -> Exit:
    """Check every byte of a scope table, and show its sources."""
    key = worker_factory(
        policy_name="research", profile="recall", system="none", key_file=key_file, demo_key=demo_key, rules=()
    ).key
    table = open_table(file, key)
    _echo(table.identity, table.head.persons, table.aliases, table.head.merges)
    click.echo(f"key        {key.id}")
    for place, source in enumerate(map(NumberSource.of_json, table.head.sources)):
        names = ", ".join(source.assigners) or "any other assigner"
        alone = ", and numbers without an assigner" if place == 0 else ""
        click.echo(f"source     {names}{alone}; zeros {source.zeros or 'undeclared'}")
    return Exit.DONE


def _echo(identity: str, persons: int, aliases: int, merges: int) -> None:
    click.echo(f"scopes     {identity}")
    click.echo(f"persons    {persons}")
    click.echo(f"aliases    {aliases}")
    click.echo(f"merges     {merges}")


def _read(builder: ScopeBuilder, path: Path, prefix: str) -> None:
    wanted = builder.columns.wanted
    for number, (row, fault) in enumerate(read_columns(make_source(path), wanted), 1):
        place = f"{prefix}row {number}"
        if number == 1:
            check_columns(row, wanted, place)
        builder.add_row(row, fault, place)


def _merge(builder: ScopeBuilder, path: Path, prefix: str) -> None:
    for number, (row, fault) in enumerate(read_columns(make_source(path), {*_MERGE_COLUMNS, "assigner"}), 1):
        place = f"{prefix}row {number}"
        if number == 1:
            check_columns(row, _MERGE_COLUMNS, place)
        builder.merge(row, fault, place)


@contextmanager
def _lock(out: Path) -> Iterator[None]:
    """Keep other builds out of the folder: of two at once, one would lose the rows of the other."""
    try:
        folder = os.open(out.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as problem:
        raise ConfigurationError(f"--out: its folder cannot be opened ({type(problem).__name__})") from None
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError("--out: another build uses its folder: wait for its end") from None
        yield
    finally:
        os.close(folder)
