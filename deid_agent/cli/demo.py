"""``deid-agent demo``: the sample messages through the directory transport, before and after on the terminal."""

import shutil
from collections import Counter
from importlib import resources as packaged
from pathlib import Path

import click

from deid_agent import key as keys
from deid_agent.audit.entries import counts, read
from deid_agent.cli.common import Exit, guarded, warn_of_demo
from deid_agent.cli.wire import serve
from deid_agent.config import (
    AgentSettings,
    AuditSettings,
    DeadLetterSettings,
    DirectorySettings,
    HttpSettings,
    Settings,
    TransportKind,
)
from deid_agent.errors import ConfigurationError

_MARKER = "DEMO-KEY.txt"
_SHOWN = "02-oru-discharge.hl7"


@click.command()
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Where everything goes; an earlier demo's folder is replaced.",
)
@guarded
def demo(out: Path) -> Exit:
    """Show the whole path on sample messages: a folder in, sanitized messages, dead letters and an audit out."""
    _make_room(out)
    settings = _settings(out)
    samples = packaged.files("deid_agent") / "samples"
    for sample in sorted(samples.iterdir(), key=lambda item: item.name):
        if sample.name.endswith((".hl7", ".json")):
            (out / "input" / sample.name).write_bytes(sample.read_bytes())
    serve(settings, keys.DEMO)
    _show(out)
    return Exit.DONE


def _make_room(out: Path) -> None:
    if out.exists():
        if not (out / _MARKER).is_file():
            raise ConfigurationError(f"--out {out}: exists and is no earlier demo's folder; choose another")
        shutil.rmtree(out)
    try:
        (out / "input").mkdir(parents=True)
        (out / _MARKER).write_text("Made with the public demonstration key: everyone can reverse it.\n")
    except OSError as problem:
        raise ConfigurationError(f"--out {out}: cannot be written ({type(problem).__name__})") from None


def _settings(out: Path) -> Settings:
    return Settings(
        transport=TransportKind.DIRECTORY,
        log_level="error",
        agent=AgentSettings(workers=1),
        dead_letters=DeadLetterSettings(plain=True),
        directory=DirectorySettings(
            input=out / "input", output=out / "messages", dead_letters=out / "dead-letters", state=out / "state"
        ),
        audit=AuditSettings(path=out / "audit"),
        http=HttpSettings(enabled=False),
    )


def _show(out: Path) -> None:
    before = _report(out / "input" / _SHOWN)
    after = _report(out / "messages" / _SHOWN)
    click.echo(f"{_SHOWN}, the report in its OBX segments\n\nbefore")
    click.echo("".join(f"  {line}\n" for line in before))
    click.echo("after")
    click.echo("".join(f"  {line}\n" for line in after))
    entries = list(read(out / "audit"))
    names = sorted(path.name for path in (out / "input").iterdir())
    click.echo(f"{'message':28}{'outcome':16}{'replaced':>9}  most of them")
    for name, entry in zip(names, entries, strict=True):
        found: Counter[str] = Counter()
        for kind, count in counts(entry):
            found[kind] += count
        most = ", ".join(f"{kind} {count}" for kind, count in sorted(found.items(), key=lambda x: (-x[1], x[0]))[:4])
        outcome = str(entry["outcome"]).replace("_", " ")
        click.echo(f"{name:28}{outcome:16}{found.total():>9}  {most or entry.get('reason', '')}")
    click.echo(f"\n{out}/messages: sanitized; {out}/dead-letters: refused; {out}/audit: what was done")
    warn_of_demo(keys.DEMO)


def _report(path: Path) -> list[str]:
    """The lines of the report: OBX-5 of an HL7 message."""
    segments = path.read_bytes().decode("utf-8").split("\r")
    return [segment.split("|")[5] for segment in segments if segment.startswith("OBX|")]
