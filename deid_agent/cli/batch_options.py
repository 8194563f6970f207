"""The options that ``batch plan`` and ``batch run`` share."""

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import click

from deid_agent.batch import DEFAULT_UNIT_MIB, OutputFormat
from deid_agent.cli.common import scope_table_option

P = ParamSpec("P")


def run_options(command: Callable[P, None]) -> Callable[P, None]:
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
