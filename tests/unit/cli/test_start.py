"""Commands import only the modules they need; the lines of ``--help``, renamed commands, ^C and shell completion."""

import gc
import json
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deid_agent import PAUSES_TO_A_COLLECTION, pause_gc
from deid_agent.cli import COMMANDS, RENAMED, main
from deid_agent.model import counted

ROOT = Path(__file__).resolve().parents[3]
IMPORTED = """
import json, os, sys
from deid_agent.cli import main
try:
    main(sys.argv[1:], prog_name="deid-agent")
except SystemExit:
    pass
threads = {name: os.environ.get(name) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
print(json.dumps([sorted(sys.modules), threads]), file=sys.stderr)
"""


def call(program: str, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), **environ},
        input="Seen on 3/4/2019.",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def imported(*arguments: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    return set(json.loads(call(IMPORTED, *arguments).stderr.splitlines()[-1])[0])


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("letters", "list")])
def test_version_and_help_import_no_library_but_click(arguments: tuple[str, ...]) -> None:
    modules = imported(*arguments)
    assert not modules & {"pydantic", "numpy", "aiokafka", "aiohttp", "orjson", "asyncio"}
    assert {name for name in modules if name.startswith("deid_agent")} == {"deid_agent", "deid_agent.cli"}


def test_a_note_needs_no_service() -> None:
    modules = imported("text", "--demo-key")
    assert not modules & {"pydantic_settings", "aiokafka", "aiohttp", "pypdf", "nacl", "multiprocessing", "sklearn"}
    assert not modules & {
        "faker",
        "fhir",
        "hl7apy",
        "nicknames",
        "prometheus_client",
        "asyncio",
        "deid_agent.codec.html",
    }
    assert not {name for name in modules if name.startswith(("deid_agent.eval", "deid_agent.train", "deid_agent.http"))}


def test_the_collector_walks_no_loaded_tables() -> None:
    program = """
import gc, runpy, sys
sys.argv = ["deid-agent", "text", "--demo-key"]
try:
    runpy.run_module("deid_agent", run_name="__main__")
except SystemExit:
    print(gc.isenabled(), gc.get_freeze_count() > 10 * len(gc.get_objects()), file=sys.stderr)
"""
    assert call(program).stderr.splitlines()[-1] == "True True"


def test_the_collector_is_as_before_after_a_pause() -> None:
    try:
        for enabled in (True, False):
            (gc.enable if enabled else gc.disable)()
            with pause_gc():
                assert not gc.isenabled()
            assert gc.isenabled() is enabled
            with pytest.raises(KeyError), pause_gc():
                raise KeyError
            assert gc.isenabled() is enabled
    finally:
        gc.enable()
        gc.unfreeze()


def test_an_unused_load_can_be_collected_after_the_next() -> None:
    class Cycle:
        pass

    try:
        with pause_gc():
            one = Cycle()
            one.__dict__["self"] = one
            gone = weakref.ref(one)
        del one
        gc.collect()
        assert gone() is not None
        with pause_gc():
            pass
        gc.unfreeze()
        gc.collect()
        assert gone() is None
    finally:
        gc.unfreeze()


def test_unused_loads_are_collected_after_some_more() -> None:
    class Cycle:
        pass

    try:
        with pause_gc():
            one = Cycle()
            one.__dict__["self"] = one
            gone = weakref.ref(one)
        del one
        for _ in range(PAUSES_TO_A_COLLECTION):
            with pause_gc():
                pass
        assert gone() is None
    finally:
        gc.unfreeze()


def test_the_service_imports_no_training() -> None:
    modules = imported("run", "--help")
    assert not {name for name in modules if name.startswith(("deid_agent.train", "deid_agent.eval"))}
    assert not modules & {"sklearn", "jax", "pycrfsuite"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_in_help_matches_the_command(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None and command.name == name
    assert command.get_short_help_str(limit=200).rstrip(".") == COMMANDS[name].help.rstrip(".")


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_the_old_name_of_a_command_names_the_new_one(old: str, new: str) -> None:
    assert new in COMMANDS and old not in COMMANDS
    for arguments in ([old], [old, "list", "--config", "x"]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 2
        assert f"the command '{old}' is renamed; write '{new}'" in done.stderr


def test_completion_of_the_shell_knows_the_commands() -> None:
    script = call(IMPORTED, _DEID_AGENT_COMPLETE="bash_source").stdout
    assert "_deid_agent_completion" in script and "complete" in script
    words = call(IMPORTED, _DEID_AGENT_COMPLETE="bash_complete", COMP_WORDS="deid-agent dead", COMP_CWORD="1")
    assert words.stdout.splitlines() == ["plain,dead-letters"]


def test_an_interrupt_exits_with_130_and_one_line() -> None:
    command = [sys.executable, "-m", "deid_agent", "text", "--jsonl", "--demo-key"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        # An interrupt during an import can be raised in a callback, and Python drops it there.
        process.stdin.write('{"id": "a", "text": "Seen on 3/4/2019."}\n')
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read().endswith("deid-agent: interrupted\n")


def test_a_note_is_read_with_one_thread_unless_the_user_sets_a_number() -> None:
    def threads(**environ: str) -> object:
        return json.loads(call(IMPORTED, "text", "--demo-key", **environ).stderr.splitlines()[-1])[1]

    assert threads() == {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    assert threads(OMP_NUM_THREADS="3") == {"OPENBLAS_NUM_THREADS": None, "OMP_NUM_THREADS": "3"}


def test_numbers_have_the_right_form_of_the_noun() -> None:
    assert [counted(number, "message") for number in (0, 1, 2)] == ["0 messages", "1 message", "2 messages"]
    assert counted(3, "entry", "entries") == "3 entries"


def test_a_review_needs_its_folder_and_its_key(tmp_path: Path) -> None:
    for given in (["--review", str(tmp_path)], ["--review-key", str(tmp_path / "key")]):
        done = CliRunner().invoke(main, ["console", "--config", str(tmp_path / "agent.toml"), *given])
        assert done.exit_code == 2 and "--review and --review-key: give both or neither" in done.stderr
