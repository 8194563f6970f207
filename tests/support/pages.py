"""Runs the commands of a documentation page from top to bottom in one shell, and compares their output with the page.

A ``console`` block holds commands (``$ ``) and their output, both streams together. An HTML comment on the line before
a block changes this:

``<!-- file: NAME -->``       the block is the content of that file
``<!-- broker -->``           needs Kafka: tests/system/broker/test_pages.py runs it after the preceding commands
``<!-- not run: REASON -->``  the block cannot be run in a test

``python tests/support/pages.py PAGE...`` (from the project's root) replaces outputs on a page that differ from the
current ones; blocks that need a broker are left unchanged.

Ids, digests, times and ports differ from run to run and are compared by kind only; a line ``...`` matches any
lines.
"""

import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.kafka_broker import free_port

ROOT = Path(__file__).resolve().parents[2]
PORT, SERVICE_PORT, BROKER = "9464", "9466", "localhost:9092"
PATIENCE_S = 120.0
_BLOCK = re.compile(r"(?:^<!-- ([^\n]*?) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"), "TIME"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{8}(?:[0-9a-f]{8})*\b"), "DIGEST"),
    (re.compile(r"(?<=\bkey )[0-9a-f]{8}\b"), "DIGEST"),  # one of letters alone too
    (re.compile(r"\d+(?= lines| checkpoints)"), "N"),
    (re.compile(r"(?m)(?<=^ok   core          ).+$"), "CORE"),
)
_LINKS = ("deploy", "docs", "deid_agent", "corpus", "rules", "models", "tests")


class Kind(StrEnum):
    """How a block is used."""

    HERE = "here"
    BROKER = "broker"
    NOT_RUN = "not run"
    FILE = "file"


@dataclass(frozen=True)
class Step:
    """A command with its output, a file with its content, or a block with the reason why it is not run."""

    kind: Kind
    text: str
    shown: str = ""


def steps(page: Path) -> Iterator[Step]:
    """The steps of a page. Raises ``ValueError`` for an unknown annotation and for a block of another shell."""
    for note, language, body in _BLOCK.findall(page.read_text("utf-8")):
        name, _, rest = note.partition(": ")
        if name == "file":
            yield Step(Kind.FILE, rest, body)
        elif name == "not run":
            yield Step(Kind.NOT_RUN, body, rest)
        elif name not in {"", "broker"}:
            raise ValueError(f"{page.name}: {note}")
        elif language in {"sh", "bash", "shell"}:
            raise ValueError(
                f"{page.name}: a block of shell commands must be a console block with $ before each command"
            )
        elif language == "console":
            kind = Kind.BROKER if name else Kind.HERE
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, shown = split_command(part)
                yield Step(kind, command, shown)


def split_command(part: str) -> tuple[str, str]:
    """The command and the output in the text after a ``$ ``.

    A command continues after a line that ends with a backslash, and until the end of its here-document.
    """
    lines = part.splitlines(keepends=True)
    taken = 1
    if mark := re.search(r"<<\s*'?(\w+)'?", lines[0]):
        taken = next(i for i, line in enumerate(lines) if i and line.strip() == mark[1]) + 1
    while lines[taken - 1].endswith("\\\n"):
        taken += 1
    return "".join(lines[:taken]).rstrip("\n"), "".join(lines[taken:])


class Shell:
    """One bash for all commands of a page, so that variables and background jobs persist.

    The addresses on the pages are replaced by free ones in commands, and back in their output.
    """

    def __init__(self, folder: Path, broker: str = "") -> None:
        port, service = str(free_port()), str(free_port())
        self._replacements = {PORT: port, SERVICE_PORT: service} | ({BROKER: broker} if broker else {})
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("DEID_", "PYTHON"))}
        clean["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
        clean |= {"PYTHONPATH": str(ROOT), "DEID_HTTP__PORT": port, "DEID_SERVICE__PORT": service}
        for name in _LINKS:
            (folder / name).symlink_to(ROOT / name)
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, command: str) -> tuple[int, str]:
        """Run a command; returns its exit code and both streams."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        end = f"end-of-{time.monotonic_ns()}"
        for shown, used in self._replacements.items():
            command = command.replace(shown, used)
        stdin.write(f"{command}\nprintf '\\n%s %s\\n' {end} $?\n".encode())
        stdin.flush()
        output, deadline = b"", time.monotonic() + PATIENCE_S
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while not (done := re.search(rf"\n{end} (\d+)\n".encode(), output)):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(f"{command}: no end after {PATIENCE_S:.0f} s: {output.decode()[-500:]}")
                piece = os.read(stdout.fileno(), 1 << 16)
                assert piece, f"{command}: the shell ended: {output.decode()[-500:]}"
                output += piece
        text = output[: done.start()].decode()
        for shown, used in self._replacements.items():
            text = text.replace(used, shown)
        return int(done[1]), text

    def close(self) -> None:
        """End the shell and its background processes."""
        process_group = os.getpgid(self._process.pid)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            os.killpg(process_group, 15)
            self._process.wait(30)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(10)


def is_alike(printed: str, shown: str) -> bool:
    """True if a command printed the output on its page."""
    pattern = "".join("(?:.*\n)*?" if line == "...\n" else re.escape(line) for line in _without_variation(shown))
    return re.fullmatch(pattern, "".join(_without_variation(printed))) is not None


def _without_variation(text: str) -> list[str]:
    for varying, kind in _VARYING:
        text = varying.sub(kind, text)
    return [f"{line.rstrip()}\n" for line in text.splitlines()]


def walk(page: Path, shell: Shell, folder: Path, *, broker: bool) -> Iterator[tuple[Step, int, str]]:
    """Execute the steps of a page; yields every command with its exit code and its output."""
    for step in steps(page):
        if step.kind is Kind.FILE:
            target = folder / step.text
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(step.shown, "utf-8")
        elif step.kind is Kind.HERE or (step.kind is Kind.BROKER and broker):
            code, printed = shell.run(step.text)
            yield step, code, printed


def refresh(page: Path) -> None:
    """Write the current output of its commands into a page."""
    with tempfile.TemporaryDirectory() as name:
        shell = Shell(Path(name))
        try:
            for step, _, printed in walk(page, shell, Path(name), broker=False):
                if not is_alike(printed, step.shown):
                    before, after = f"$ {step.text}\n{step.shown}", f"$ {step.text}\n{printed}"
                    text = page.read_text("utf-8")
                    page.write_text(text.replace(before, after.rstrip("\n") + "\n", 1), "utf-8")
        finally:
            shell.close()


if __name__ == "__main__":
    for given in sys.argv[1:]:
        refresh(Path(given).resolve())
