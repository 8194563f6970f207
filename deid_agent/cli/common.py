"""What the commands share: options, exit codes, and how an error reaches a person."""

import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import click

from deid_agent import key as keys
from deid_agent import policy as policies
from deid_agent import resources
from deid_agent.agent.faults import leading
from deid_agent.config import refuse_unknown_variables
from deid_agent.errors import ConfigurationError, UnsafeError
from deid_agent.wiring import Workshop

P = ParamSpec("P")


class Exit(IntEnum):
    """Exit codes; part of the interface."""

    DONE = 0
    REFUSED = 1  # some input was refused; each is named on standard error
    CONFIGURATION = 2  # the call or the configuration is wrong
    UNSAFE = 3  # the agent stopped because going on was unsafe


def say(text: str) -> None:
    """One line for a person, on standard error."""
    click.echo(text, err=True)


def shown(name: str | Path) -> str:
    """A file name on one line of UTF-8: control characters and bytes that are no text are written as escapes."""
    text = str(name).encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def warn_of_demo(key: keys.Key) -> None:
    """One line where the demonstration key is used."""
    if key.demo:
        say("deid-agent: demonstration key: everyone can reverse this output; never use it on real data")


def guarded(command: Callable[P, Exit | None]) -> Callable[P, None]:
    """Turn our errors into one line and an exit code; no traceback for what an operator can mend."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except ConfigurationError as problem:
            say(f"deid-agent: {problem}")
            code = Exit.CONFIGURATION
        except UnsafeError as problem:
            say(f"deid-agent: stopped: {problem}")
            code = Exit.UNSAFE
        except BrokenPipeError:
            # The reader went away (`| head`): not our fault, and not a success to rely on.
            sys.stderr.close()
            code = Exit.REFUSED
        except OSError as problem:
            where = shown(problem.filename) if isinstance(problem.filename, str) else "output"
            say(f"deid-agent: stopped: {where}: {problem.strerror or type(problem).__name__}")
            _give_up_output()
            code = Exit.UNSAFE
        except Exception as problem:  # noqa: BLE001 - a traceback would end with a text that may quote a message
            say(f"deid-agent: stopped: {leading(problem)}")
            code = Exit.UNSAFE
        sys.exit(code or Exit.DONE)

    return run


def _give_up_output() -> None:
    """What standard output could not take is not tried again at the end of the process."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            sys.stdout.close()


def tagging_options(command: Callable[P, None]) -> Callable[P, None]:
    """``--policy``, ``--profile``, ``--system``, ``--key-file``, ``--demo-key``, ``--rules``.

    Without an option the environment says, as it does for ``run``; the key's own variables are read with the key.
    """
    for option in (
        click.option("--rules", metavar="DIR", envvar="DEID_RULES", help="Rules folder in place of the packaged one."),
        click.option("--demo-key", is_flag=True, help="Use the public demonstration key; output is marked."),
        click.option("--key-file", metavar="FILE", type=click.Path(path_type=Path), help="The secret key."),
        click.option(
            "--system", default="default", show_default=True, envvar="DEID_SYSTEM", help="Which recognizers run."
        ),
        click.option(
            "--profile",
            type=click.Choice(["precision", "balanced", "recall"]),
            default="recall",
            show_default=True,
            envvar="DEID_PROFILE",
            help="How findings are weighed.",
        ),
        click.option(
            "--policy",
            "policy_name",
            default="pseudonymised",
            show_default=True,
            envvar="DEID_POLICY",
            help="Profile name or policy file.",
        ),
    ):
        command = option(command)
    return command


def workshop(
    *, policy_name: str, profile: str, system: str, key_file: Path | None, demo_key: bool, rules: str | None
) -> Workshop:
    """The parts that the options ask for; says so where the demonstration key is used.

    Raises ``ConfigurationError``, also for a ``DEID_`` variable that nobody knows: a mistyped policy would leak.
    """
    refuse_unknown_variables()
    folder = resources.folder("rules", rules)
    policy = policies.load(policy_name, folder)
    if demo_key and key_file:
        raise ConfigurationError("--demo-key and --key-file exclude each other")
    key = keys.DEMO if demo_key else keys.load(key_file)
    warn_of_demo(key)
    return Workshop(rules=folder, key=key, policy=policy, system=system, profile=profile)
