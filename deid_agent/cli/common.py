"""Shared by the commands: options, exit codes, and the form of errors."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import NotRequired, ParamSpec, TypedDict, Unpack

import click

from deid_agent.app import BUDGET, WorkerFactory, make_factory
from deid_agent.config import DEMO_KEY, SecretKey, load_key, refuse_unknown_variables
from deid_agent.model import ConfigurationError, UnsafeError, leading_error
from deid_agent.pipeline import ShapeOptions

P = ParamSpec("P")


class Exit(IntEnum):
    """Exit codes; part of the interface."""

    DONE = 0
    REFUSED = 1  # some input was refused; each is named on standard error
    CONFIGURATION = 2  # the call or the configuration is wrong
    UNSAFE = 3  # the agent stopped because it was unsafe to continue


def echo_error(text: str) -> None:
    """Write one line to standard error."""
    click.echo(text, err=True)


def printable(name: str | Path) -> str:
    """A file name as one line of UTF-8; control characters and bytes that are not UTF-8 are escaped."""
    text = str(name).encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def fault_text(problem: OSError) -> str:
    """The fault in the words of the operating system; it never contains the name of the file."""
    return problem.strerror or type(problem).__name__


def refuse_existing(option: str, *files: Path | str | None) -> None:
    """Raise ``ConfigurationError`` if one of ``files`` is a file: the result of another run is not overwritten.

    ``-`` and devices are accepted. Call it before the work, because the file is written at its end.
    """
    for path in (Path(file) for file in files if file is not None and str(file) != "-"):
        if path.is_file():
            raise ConfigurationError(f"{option} {printable(path)}: exists; remove it, or name a new file")


def write_new(path: Path, text: str, mode: int) -> None:
    """Write a new file, never through a link, and readable by its owner alone if it has originals."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(file, "w", encoding="utf-8", errors="backslashreplace") as sink:  # noqa: PTH123 - a descriptor
        sink.write(text)


def warn_of_demo(key: SecretKey) -> None:
    """Write a warning if the key is the demonstration key."""
    if key.demo:
        echo_error("deid-agent: demonstration key: everyone can reverse this output; never use it on real data")


def handle_errors(command: Callable[P, Exit | None]) -> Callable[P, None]:
    """Turn errors into one line on standard error and an exit code, without a traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except ConfigurationError as problem:
            echo_error(f"deid-agent: {problem}")
            code = Exit.CONFIGURATION
        except UnsafeError as problem:
            echo_error(f"deid-agent: stopped: {problem}")
            code = Exit.UNSAFE
        except BrokenPipeError:
            # The reader closed the pipe (`| head`): not an error of ours, but the output is incomplete.
            sys.stderr.close()
            code = Exit.REFUSED
        except OSError as problem:
            name = printable(problem.filename) if isinstance(problem.filename, str) else "output"
            echo_error(f"deid-agent: stopped: {name}: {fault_text(problem)}")
            _discard_output()
            code = Exit.UNSAFE
        except Exception as problem:  # noqa: BLE001 - a traceback ends with a text that may quote a message
            echo_error(f"deid-agent: stopped: {leading_error(problem)}")
            code = Exit.UNSAFE
        sys.exit(code or Exit.DONE)

    return run


def _discard_output() -> None:
    """Discard output that standard output could not take, so that it is not written again at exit."""
    if sys.stdout is None:  # the caller closed it
        return
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            sys.stdout.close()


new_key_option = click.option(
    "--out",
    metavar="NAME",
    required=True,
    type=click.Path(path_type=Path),
    help="File of the private key; the public key goes to NAME.pub.",
)

scope_table_option = click.option(
    "--scope-table",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="DEID_SCOPE_TABLE",
    help="Who is one patient; made by batch identities build.",
)


class _Folder(click.types.StringParamType):
    """A folder. A variable holds one, whatever blanks its name has."""

    name = "DIR"

    def split_envvar_value(self, rv: str) -> list[str]:
        return [rv]


rules_option = click.option(
    "--rules",
    metavar="DIR",
    multiple=True,
    type=_Folder(),
    envvar="DEID_RULES",
    help="Rules folder in place of the packaged one (shipped); again for each site folder.",
)
"""``--rules DIR``, or ``--rules shipped --rules SITE``. The value is a tuple."""


PROFILES = ("precision", "balanced", "recall", BUDGET)

budget_option = click.option(
    "--budget",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="DEID_BUDGET",
    help="File of deid-agent bound, for --profile budget.",
)


class TaggingOptions(TypedDict):
    """The values of the options of ``add_tagging_options``, as a command gets them."""

    policy_name: str
    profile: str
    system: str
    key_file: Path | None
    demo_key: bool
    rules: tuple[str, ...]
    budget: NotRequired[Path | None]
    scope_table: NotRequired[Path | None]


def add_tagging_options(command: Callable[P, None], policy: str) -> Callable[P, None]:
    """Policy, profile, budget, system, key, rules and scope table.

    An option that is not given is read from the environment, as for ``run``; the variables of the key are read with it.
    ``policy`` is used if neither names one.
    """
    for option in (
        scope_table_option,
        rules_option,
        click.option("--demo-key", is_flag=True, help="Use the public demonstration key; output is marked."),
        click.option("--key-file", metavar="FILE", type=click.Path(path_type=Path), help="The secret key."),
        click.option(
            "--system", default="default", show_default=True, envvar="DEID_SYSTEM", help="Which recognizers run."
        ),
        click.option(
            "--profile",
            type=click.Choice(PROFILES),
            default="recall",
            show_default=True,
            envvar="DEID_PROFILE",
            help="Favours precision or recall; budget: as a leak bound needs.",
        ),
        budget_option,
        click.option(
            "--policy",
            "policy_name",
            default=policy,
            show_default=True,
            envvar="DEID_POLICY",
            help="Profile name or policy file.",
        ),
    ):
        command = option(command)
    return command


def tagging_options(command: Callable[P, None]) -> Callable[P, None]:
    """See ``add_tagging_options``, with the policy ``pseudonymised``."""
    return add_tagging_options(command, "pseudonymised")


def worker_factory(*, shape: ShapeOptions | None = None, **options: Unpack[TaggingOptions]) -> WorkerFactory:
    """The factory of the options. Warns if the demonstration key is used.

    Raises ``ConfigurationError``, also for an unknown ``DEID_`` variable: a mistyped policy would leak.
    """
    refuse_unknown_variables()
    if options["demo_key"] and options["key_file"]:
        raise ConfigurationError("--demo-key and --key-file exclude each other")
    key = DEMO_KEY if options["demo_key"] else load_key(options["key_file"])
    factory = make_factory(
        key,
        policy=options["policy_name"],
        profile=options["profile"],
        system=options["system"],
        rules=options["rules"],
        scope_table=options.get("scope_table"),
        budget=options.get("budget"),
        shape=shape,
    )
    warn_of_demo(key)
    return factory
