"""The options that ``batch plan`` and ``batch run`` share."""

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import click

from deid_agent.batch import DEFAULT_UNIT_MIB, OutputFormat
from deid_agent.cli.common import add_tagging_options

P = ParamSpec("P")


def run_options(command: Callable[P, None]) -> Callable[P, None]:
    """The options that ``plan`` and ``run`` share."""
    for option in (
        click.option(
            "--unit-mib",
            metavar="MIB",
            type=click.IntRange(1, 4096),
            default=DEFAULT_UNIT_MIB,
            show_default=True,
            help="Row groups of Parquet up to this compressed size become one output file.",
        ),
        click.option(
            "--format",
            "output_format",
            type=click.Choice([each.value for each in OutputFormat]),
            default=OutputFormat.PARQUET.value,
            show_default=True,
            help="Format of the outputs; delta makes OUT a Delta table, iceberg needs --to.",
        ),
        click.option(
            "--to", metavar="CATALOG.NAMESPACE.TABLE", help="The Iceberg table to write; its data files are in OUT."
        ),
        click.option(
            "--table-version",
            metavar="N",
            type=click.IntRange(0, (1 << 63) - 1),
            help="Version of a Delta table, or snapshot of an Iceberg table, to read; the last one if not given.",
        ),
        click.option(
            "--identities", metavar="FILE", type=click.Path(path_type=Path), help="Known persons, one row each."
        ),
        click.option(
            "--table", "table_name", metavar="NAME", required=True, help="A shipped table, a table file, or fhir."
        ),
    ):
        command = option(command)
    return add_tagging_options(command, "research")
