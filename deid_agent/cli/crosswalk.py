"""``deid-agent crosswalk``: keys of custodians, opening in two steps, verifying, the list of openings."""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import click
import orjson

from deid_agent import __version__
from deid_agent.agent import KeyUse, PrivateKey, generate_keys, load_private_key
from deid_agent.audit import (
    AuditTrail,
    LineKind,
    OpeningEntry,
    Signer,
    TrailEntry,
    TrailSettings,
    compare_with_audit,
    digest_codes,
    opening_event,
    read_entries,
)
from deid_agent.cli.audit import VerifyOptions, verify_folder, verify_options
from deid_agent.cli.common import Exit, echo_error, handle_errors, new_key_option, printable, refuse_existing
from deid_agent.cli.crosswalk_steps import MOST_SHOWN, Trust, open_first, open_second
from deid_agent.model import ConfigurationError, counted, format_time
from deid_agent.telemetry import Telemetry

_LONGEST_REASON: Final = 500
_CODE: Final = re.compile(r"[0-9A-V]{20}")
_MOST_BYTES: Final = 1 << 26
"""The longest file of codes. A million codes have 20 MB."""


@click.group()
def crosswalk() -> None:
    """Open the crosswalk of a project, by its two custodians."""


@crosswalk.command()
@new_key_option
@handle_errors
def keygen(out: Path) -> Exit:
    """Make the pair of keys of one custodian.

    Each custodian makes a pair on a machine of their own and hands over the .pub file only.
    """
    public = generate_keys(out, KeyUse.CROSSWALK)
    click.echo(f"key {public.id}: {printable(out)}.pub for the agent, {printable(out)} stays with its custodian")
    return Exit.DONE


@crosswalk.command(name="open")
@click.argument(
    "sources", metavar="FOLDER...|HALF-OPENED", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True)
)
@click.option(
    "--private-key",
    "key_path",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="The private key of this custodian.",
)
@click.option(
    "--codes",
    "codes_file",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="The codes to open, one a line.",
)
@click.option("--reason", metavar="TEXT", required=True, help="Why, for the trail of openings; no PHI.")
@click.option("--out", metavar="NEW", required=True, type=click.Path(path_type=Path), help="New file, mode 0600.")
@click.option(
    "--trail",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="The custodian's trail of openings. The default is the name of the private key with .openings.",
)
@click.option("--public-key", "public", metavar="HEX", multiple=True, help="Trusted key of the crosswalk's trail.")
@click.option("--unverified", is_flag=True, help="Open also if the crosswalk does not verify. The trail states it.")
@handle_errors
def open_(
    sources: tuple[Path, ...],
    key_path: Path,
    codes_file: Path,
    reason: str,
    out: Path,
    trail: Path | None,
    public: tuple[str, ...],
    unverified: bool,
) -> Exit:
    """Open the identifiers behind link codes, in two steps by two persons.

    The first custodian opens FOLDER, the crosswalk of the agent, into a half-opened file. The second custodian opens
    that file into the originals. Each gives a key, the codes, and a reason, which goes to a trail of their own before
    NEW is written. Codes that are not found are counted; only the last file names them. The exit code is 1 if a code
    was not found or a record could not be opened.
    """
    refuse_existing("--out", out)
    key = load_private_key(key_path, KeyUse.CROSSWALK)
    folder = trail or _default_trail(key_path)
    codes = _read_codes(codes_file)
    asked = OpeningEntry(1, 1, key.id, _check_reason(reason), digest_codes(codes), len(codes), 0, 0, verified=False)
    if sources[0].is_file():
        step = open_second(sources, key, codes, asked)
    else:
        step = open_first(sources, key, codes, asked, Trust(public, unverified))
    entry = replace(step.entry, output=hashlib.sha256(step.data).hexdigest() if step.data else "")
    if step.data:
        _write(out, step.data, lambda: asyncio.run(_record(folder, key, entry)))
    else:
        asyncio.run(_record(folder, key, entry))
    for problem in step.problems[:MOST_SHOWN]:
        echo_error(f"deid-agent: {printable(problem)}")
    if len(step.problems) > MOST_SHOWN:
        echo_error(f"deid-agent: and {counted(len(step.problems) - MOST_SHOWN, 'more problem')}")
    absent = len(codes) - entry.found
    if absent:
        echo_error(f"deid-agent: {absent} of {counted(len(codes), 'code')} not found")
    if not step.data:
        echo_error(f"deid-agent: nothing was opened; the attempt is in {printable(folder)}")
        return Exit.REFUSED
    last = entry.step == entry.of
    shown = f"{counted(entry.found, 'code')} in {counted(entry.records, 'record')}"
    click.echo(f"step {entry.step} of {entry.of}: {shown}, {'opened' if last else 'half-opened'}")
    click.echo(f"sha256 {entry.output} {printable(out)}")
    if last:
        echo_error(f"deid-agent: originals in the clear, with PHI: {printable(out)}")
    return Exit.REFUSED if absent or step.problems else Exit.DONE


async def _record(folder: Path, key: PrivateKey, entry: OpeningEntry) -> None:
    """Write the line of an opening. Raises ``UnsafeError`` if it cannot be written."""
    settings = TrailSettings(agent=key.id, return_lines=False, kind=LineKind.OPENING)
    trail = AuditTrail(folder, {"version": __version__}, Signer(key.signing_seed), Telemetry(), settings)
    try:
        await trail.append([entry])
    finally:
        await trail.close()


def _check_reason(text: str) -> str:
    words = " ".join(text.split())
    if not words or len(words) > _LONGEST_REASON or not words.isprintable():
        raise ConfigurationError(f"--reason: 1 to {_LONGEST_REASON} printable characters, without PHI")
    return words


def _default_trail(key: Path) -> Path:
    if not key.is_file():  # a pipe from a program that decrypts the key
        raise ConfigurationError("--private-key is no regular file: name the folder of your openings with --trail")
    real = key.resolve()  # a link elsewhere must not begin another trail
    return real.with_name(f"{real.name}.openings")


def _read_codes(path: Path) -> tuple[str, ...]:
    """The codes of a file, each once. Raises ``ConfigurationError`` without a code in it."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    try:
        codes = tuple(dict.fromkeys(line.strip() for line in data.decode("utf-8-sig").splitlines() if line.strip()))
    except UnicodeDecodeError:
        raise ConfigurationError(f"--codes {printable(path)}: is not UTF-8") from None
    if len(data) > _MOST_BYTES or not codes:
        raise ConfigurationError(f"--codes {printable(path)}: write one code a line, at most {_MOST_BYTES >> 20} MiB")
    # A list of identifiers by mistake would stay in the half-opened file, and its digest in the trail.
    if foreign := sum(_CODE.fullmatch(code) is None for code in codes):
        raise ConfigurationError(
            f"--codes {printable(path)}: {counted(foreign, 'line')} not of the form of a link code, 20 of 0-9 and A-V"
        )
    return codes


def _write(out: Path, data: bytes, record: Callable[[], None]) -> None:
    """Write a new file for its owner alone; nothing is left of it if that fails.

    ``record`` is called before its first byte is written: no crash leaves an original without a line in the trail, and
    a file that cannot be created leaves no line.
    """
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(file, "wb") as sink:  # noqa: PTH123 - a descriptor
            record()
            sink.write(data)
            sink.flush()
            os.fsync(file)
    except BaseException:
        out.unlink(missing_ok=True)
        raise


@crosswalk.command()
@verify_options
@click.option(
    "--audit",
    "audits",
    metavar="FOLDER",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="An agent's audit trail: each published record with link codes must have a line.",
)
@handle_errors
def verify(given: VerifyOptions, audits: tuple[Path, ...]) -> Exit:
    """Find every line of a crosswalk that was changed, dropped, moved or cut off. It opens nothing.

    The keys and the exit codes are those of `audit verify`. With --audit the exit code is also 1 if a published record
    has no line.
    """
    code = verify_folder(given, LineKind.CROSSWALK)
    if not audits:
        return code
    coverage = compare_with_audit(given.folder, audits)
    if given.as_json:
        click.echo(orjson.dumps(asdict(coverage)))
    else:
        for at in coverage.missing[:MOST_SHOWN]:
            click.echo(printable(f"{at}: published with link codes, but the crosswalk has no line"))
        click.echo(
            f"{counted(coverage.covered, 'published record')} with link codes in the crosswalk, "
            f"{coverage.before} older than it, {len(coverage.missing)} missing"
        )
    return Exit.REFUSED if coverage.missing else code


@crosswalk.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--form", type=click.Choice(["text", "jsonl", "fhir", "fhir-r4"]), default="text", show_default=True)
@click.option("--out", metavar="FILE", default="-", help="New file; - is standard output.")
@handle_errors
def openings(folder: Path, form: str, out: str) -> None:
    """List the openings in a custodian's trail, without verifying it: `audit verify` does that.

    The forms fhir and fhir-r4 give AuditEvents of FHIR R5 and R4 in NDJSON.
    """
    refuse_existing("--out", out)
    with click.open_file(out, "wb") as sink:
        for item in read_entries(folder, kind=LineKind.OPENING):
            if form == "text":
                sink.write(f"{printable(_line(item))}\n".encode())
            else:
                line = dict(item) if form == "jsonl" else opening_event(item, r4=form == "fhir-r4")
                sink.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def _line(item: TrailEntry) -> str:
    when = format_time(float(str(item["time"])))
    projects = item.get("projects")
    names = ",".join(map(str, projects)) if isinstance(projects, list) and projects else "-"
    return (
        f"{when} key {item.get('key')} step {item.get('step')} of {item.get('of')} {names}: {item.get('found')} of "
        f"{item.get('codes')} codes, {item.get('records')} records: {item.get('reason')}"
    )
