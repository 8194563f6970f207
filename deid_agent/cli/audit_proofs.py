"""``deid-agent audit prove`` and ``check-proof``: one entry, or the growth of a trail, shown to somebody else."""

import hashlib
from pathlib import Path

import click
import orjson

from deid_agent.audit import EntryFilter, ProofError, check_proof, prove_entry, prove_growth, read_proof
from deid_agent.cli.common import Exit, handle_errors, printable, refuse_existing
from deid_agent.cli.trusted_keys import require_trusted
from deid_agent.model import ConfigurationError, format_time


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--id", "deid_id", metavar="HEX", help="The deid-id header of the output.")
@click.option("--topic")
@click.option("--partition", type=int)
@click.option("--offset", type=int)
@click.option("--head", metavar="FILE", type=click.Path(path_type=Path), help="Prove it under the newest head in here.")
@click.option(
    "--since", metavar="FILE", type=click.Path(path_type=Path), help="Prove that the trail grew from its head."
)
@click.option("--out", metavar="FILE", default="-", help="New file; - is standard output.")
@handle_errors
def prove(
    folder: Path,
    deid_id: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    head: Path | None,
    since: Path | None,
    out: str,
) -> None:
    """Write the proof, as JSON, that an entry is in the trail.

    If several entries match, it is that of the last one. With --since it is the proof that the trail, up to its newest
    head, begins with the one that an older head signs. The trail itself is not verified.
    """
    refuse_existing("--out", out)
    choice = EntryFilter(topic, partition, offset, deid_id=deid_id)
    if (since is not None) != (choice == EntryFilter()):
        raise ConfigurationError("give --since, or at least one of --id, --topic, --partition and --offset")
    proof = (
        prove_entry(folder, choice, _read(head) if head else None)
        if since is None
        else prove_growth(folder, _read(since))
    )
    with click.open_file(out, "wb") as sink:
        sink.write(orjson.dumps(proof, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


@click.command("check-proof")
@click.argument("proof", metavar="PROOF", type=click.Path(path_type=Path))
@click.option("--public-key", "public", metavar="HEX", multiple=True, help="The trail's first key; see `audit key`.")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="The output that the entry is about.")
@handle_errors
def check(proof: Path, public: tuple[str, ...], output: Path | None) -> Exit:
    """Check a proof of `audit prove` without the trail. The exit code is 1 if it does not hold."""
    trusted = require_trusted(public, None)
    try:
        found = check_proof(read_proof(_read(proof)), trusted)
        if output is not None and found.entry.get("output_sha256") != hashlib.sha256(_read(output)).hexdigest():
            raise ProofError("the entry is about another output")
    except ProofError as problem:
        click.echo(printable(f"NOT PROVEN: {problem}"))
        return Exit.REFUSED
    head, entry = found.head, found.entry
    signed = format_time(float(str(head["time"])))
    click.echo(printable(f"trail {head['trail']} of {head['agent'] or 'an unnamed agent'}, signed {signed}"))
    if entry:
        coordinates = f"{entry.get('topic')}/{entry.get('partition')}/{entry.get('offset')}"
        click.echo(printable(f"proven: {coordinates} {entry.get('outcome')}, one of {head['size']} entries"))
    else:
        click.echo(f"proven: the trail of {head['size']} entries begins with the older one")
    return Exit.DONE


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{printable(path)}: {error.strerror}") from None
