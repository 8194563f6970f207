"""The commands; the only place that wires, prints and exits."""

import click

from deid_agent import __version__
from deid_agent.cli.audit import audit
from deid_agent.cli.check import check
from deid_agent.cli.console import console
from deid_agent.cli.demo import demo
from deid_agent.cli.evaluate import evaluate
from deid_agent.cli.letters import letters
from deid_agent.cli.message import message
from deid_agent.cli.replay import replay
from deid_agent.cli.rules import rules
from deid_agent.cli.run import run
from deid_agent.cli.text import text
from deid_agent.cli.train import train


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done, 1 some input was refused, 2 the call or the configuration is wrong, "
    "3 the agent stopped because going on was unsafe.",
)
@click.version_option(__version__, prog_name="deid-agent")
def main() -> None:
    """Take the identity out of HL7 v2 messages and FHIR resources while they flow."""


for _command in (run, demo, text, message, check, console, audit, letters, replay, rules, evaluate, train):
    main.add_command(_command)
