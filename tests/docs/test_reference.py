"""docs/reference.md lists every command, reason, option, metric and setting."""

import re

import click
import pytest
from support.reference import PAGE, page

from deid_agent.cli import main
from deid_agent.cli.evaluate import evaluate
from deid_agent.cli.train import train
from deid_agent.model.errors import Reason
from deid_agent.telemetry.metrics import METRICS
from deid_agent.train.recipes import RECIPES


def test_the_settings_table_is_current() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "run: python tests/support/reference.py"


def test_every_command_and_reason_is_listed() -> None:
    text = PAGE.read_text("utf-8")
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        names = [f"{name} {sub}" for sub in command.commands] if isinstance(command, click.Group) else [name]
        for each in names:
            assert f"`{each}" in text
    for reason in Reason:
        assert f"| `{reason}` |" in text


@pytest.mark.parametrize("command", [evaluate, train], ids=["eval", "train"])
def test_every_option_of_eval_and_train_is_listed(command: click.Command) -> None:
    text = PAGE.read_text("utf-8")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert f"`{parameter.opts[0]}" in text, parameter.opts


def test_every_component_of_train_is_listed() -> None:
    text = PAGE.read_text("utf-8")
    assert all(f"`{name}`" in text for name in RECIPES)


def test_exactly_the_existing_metrics_are_listed() -> None:
    listed = re.findall(r"^\| `(deid_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    wanted = [(m.name, m.kind, ", ".join(f"`{label}`" for label in m.labels) or "-", m.help) for m in METRICS]
    assert listed == wanted
