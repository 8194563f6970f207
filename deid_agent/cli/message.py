"""``deid-agent message``: HL7 or FHIR messages in, sanitized messages out."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import click
import orjson

from deid_agent.cli.common import Exit, guarded, say, shown, tagging_options, workshop
from deid_agent.deidentify import Deidentified, Deidentifier
from deid_agent.errors import ConfigurationError, MessageError, Reason
from deid_agent.transport.folders import Skipped, walk
from deid_agent.validation import Validator
from deid_agent.wiring import remark_dict


@dataclass(frozen=True, slots=True)
class _Input:
    """A message and the relative name under which its output goes; ``skipped`` says why it is none."""

    name: str
    path: Path | None = field(repr=False)
    skipped: str = ""

    def read(self) -> bytes:
        return sys.stdin.buffer.read() if self.path is None else self.path.read_bytes()


@click.command()
@click.argument("sources", nargs=-1, metavar="[FILE|DIR...|-]")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Write under the same relative names here.")
@click.option(
    "--remarks", metavar="FILE", type=click.Path(path_type=Path), help="One JSON line per message; - with --out."
)
@click.option("--json", "as_json", is_flag=True, help="Write the remarks lines to standard output; needs --out.")
@click.option("--validate", is_flag=True, help="Refuse outputs that hl7apy or fhir.resources find less valid.")
@tagging_options
@guarded
def message(
    sources: tuple[str, ...],
    out: Path | None,
    remarks: Path | None,
    as_json: bool,
    validate: bool,
    policy_name: str,
    profile: str,
    system: str,
    key_file: Path | None,
    demo_key: bool,
    rules: str | None,
) -> Exit:
    """De-identify HL7 v2 messages and FHIR resources; the kind is detected.

    A message that cannot be understood is named on standard error, gives no output and makes the exit code 1. So
    does what lies in a folder and is no file (folders that cannot be read, links that lead to no file, pipes);
    hidden files are passed over.
    """
    if remarks is not None and str(remarks) == "-":
        as_json, remarks = True, None
    if as_json and out is None:
        raise ConfigurationError("--json writes to standard output: send the messages elsewhere with --out DIR")
    inputs = list(_inputs(sources or ("-",)))
    if out is None and (count := sum(not item.skipped for item in inputs)) > 1:
        raise ConfigurationError(f"{count} messages for one standard output: name a folder with --out DIR")
    _check_names(inputs, out)
    parts = workshop(
        policy_name=policy_name, profile=profile, system=system, key_file=key_file, demo_key=demo_key, rules=rules
    )
    deidentifier = parts.deidentifier()
    validator = Validator() if validate else None
    code = Exit.DONE
    with _report(remarks, as_json) as report, _progress(inputs) as bar:
        if out is not None:
            _prepare(out, parts.key.demo)
        for item in bar:
            line = _one(item, out, deidentifier, validator, parts.max_bytes)
            if line["outcome"] != "published":
                code = Exit.REFUSED
            report.write(orjson.dumps(line) + b"\n")
            report.flush()  # a full disk shows here, and not first when all is done
    return code


def _inputs(sources: Iterable[str]) -> Iterator[_Input]:
    for source in sources:
        path = Path(source)
        try:
            if source == "-":
                yield _Input("-", None)
            elif path.is_dir():
                yield from _below(path)
            elif path.is_file():
                yield _Input(path.name, path)
            else:
                raise ConfigurationError(f"{shown(source)}: no such file or folder")
        except OSError as problem:
            raise ConfigurationError(f"{shown(source)}: cannot be read ({type(problem).__name__})") from None


def _below(folder: Path) -> list[_Input]:
    """Everything in a folder by name: files, links to files, and what is neither."""
    skipped: dict[bytes, Skipped] = {}
    found = {os.fsdecode(name): "" for name, _ in walk(folder, skipped.__setitem__)}
    for raw, why in skipped.items():
        name = os.fsdecode(raw)
        found[name] = "" if why is Skipped.LINK and (folder / name).is_file() else why.value
    return [_Input(name, folder / name, found[name]) for name in sorted(found, key=lambda n: Path(n).parts)]


def _check_names(inputs: Iterable[_Input], out: Path | None) -> None:
    """Two inputs of one name would overwrite each other's output, an input its own."""
    if out is None:
        return
    seen: set[str] = set()
    for item in inputs:
        if item.skipped:
            continue
        if item.name in seen:
            raise ConfigurationError(f"two inputs are named {shown(item.name)}: run them with two --out folders")
        seen.add(item.name)
        if item.path is not None and item.path.resolve() == (out / item.name).resolve():
            raise ConfigurationError(f"--out {out}: would overwrite its own input")


def _prepare(out: Path, demo: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if demo:
            (out / "DEMO-KEY.txt").write_text("Made with the public demonstration key: everyone can reverse it.\n")
    except OSError as problem:
        raise ConfigurationError(f"--out {out}: cannot be written ({type(problem).__name__})") from None


def _report(remarks: Path | None, as_json: bool) -> AbstractContextManager[BinaryIO]:
    """Where the remarks lines go: a file, standard output (left open), or nowhere."""
    if remarks is None:
        return nullcontext(sys.stdout.buffer) if as_json else Path(os.devnull).open("wb")
    try:
        return remarks.open("wb")
    except OSError as problem:
        raise ConfigurationError(f"--remarks {remarks}: cannot be written ({type(problem).__name__})") from None


def _progress(inputs: list[_Input]) -> "click._termui_impl.ProgressBar[_Input]":
    hidden = len(inputs) < 20 or not sys.stderr.isatty()
    return click.progressbar(inputs, label="messages", file=sys.stderr, hidden=hidden)


def _one(
    item: _Input, out: Path | None, deidentifier: Deidentifier, validator: Validator | None, max_bytes: int
) -> dict[str, object]:
    """One message through; what is said of it in the remarks file."""
    name = item.name.encode("utf-8", "backslashreplace").decode("utf-8")
    if item.skipped:
        say(f"{shown(item.name)}: skipped: {item.skipped}")
        return {"file": name, "outcome": "skipped", "reason": item.skipped, "remarks": []}
    try:
        payload = item.read()
        if len(payload) > max_bytes:
            raise MessageError(Reason.RESOURCE, "payload", f"over {max_bytes} bytes")
        done = deidentifier.message(payload)
        if validator is not None:
            validator.check(payload, done.payload)
        _write(done, item, out)
    except MessageError as problem:
        say(f"{shown(item.name)}: {problem}")
        return {"file": name, "outcome": "dead_lettered", "reason": problem.reason.value, "remarks": []}
    except OSError as problem:
        if out is None and item.path is None:
            raise
        say(f"{shown(item.name)}: cannot be read or written ({problem.strerror or type(problem).__name__})")
        return {"file": name, "outcome": "dead_lettered", "reason": Reason.RESOURCE.value, "remarks": []}
    return {"file": name, "outcome": "published", "remarks": [remark_dict(remark) for remark in done.remarks]}


def _write(done: Deidentified, item: _Input, out: Path | None) -> None:
    if out is None:
        sys.stdout.buffer.write(done.payload)
        sys.stdout.buffer.flush()
        return
    target = out / ("message" if item.path is None else item.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A reader of the folder never sees half a message.
    partial = target.with_name(f".{target.name}.part")
    try:
        partial.write_bytes(done.payload)
        partial.replace(target)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
