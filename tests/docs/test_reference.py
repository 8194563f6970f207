"""deploy/reference.md names every command, reason and setting as they are."""

import click
from support.reference import PAGE, page

from deid_agent.cli import main
from deid_agent.cli.evaluate import evaluate
from deid_agent.errors import Reason


def test_the_settings_table_is_current() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "run: python tests/support/reference.py"


def test_every_command_and_reason_is_there() -> None:
    text = PAGE.read_text("utf-8")
    for name, command in main.commands.items():
        names = [f"{name} {sub}" for sub in command.commands] if isinstance(command, click.Group) else [name]
        for each in names:
            assert f"`{each}" in text
    for reason in Reason:
        assert f"| `{reason}` |" in text


def test_every_option_of_eval_is_there() -> None:
    text = PAGE.read_text("utf-8")
    for parameter in evaluate.params:
        if isinstance(parameter, click.Option):
            assert f"`{parameter.opts[0]}" in text, parameter.opts
