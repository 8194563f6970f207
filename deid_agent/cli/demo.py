"""``deid-agent demo``: the sample messages through the directory transport, before and after on the terminal."""

import shutil
from collections import Counter
from collections.abc import Mapping
from importlib import resources as packaged
from pathlib import Path
from threading import Event, Thread

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
_FED = 10_000


@click.command()
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Where everything goes; an earlier demo's folder is replaced.",
)
@click.option("--serve", "serving", is_flag=True, help="Go on with more messages, and show the console, until ^C.")
@click.option("--port", type=click.IntRange(0, 65_535), default=9464, show_default=True, help="Of the console.")
@guarded
def demo(out: Path, serving: bool, port: int) -> Exit:
    """Show the whole path on sample messages: a folder in, sanitized messages, dead letters and an audit out."""
    _make_room(out)
    settings = _settings(out)
    samples = _samples()
    for name, data in samples.items():
        (out / "input" / name).write_bytes(data)
    serve(settings, keys.DEMO)
    _show(out)
    if serving:
        _serve(out, settings, samples, port)
    return Exit.DONE


def _samples() -> dict[str, bytes]:
    folder = packaged.files("deid_agent") / "samples"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith((".hl7", ".json")))
    return {name: (folder / name).read_bytes() for name in names}


def _serve(out: Path, settings: Settings, samples: Mapping[str, bytes], port: int) -> None:
    """The agent on the same folder, watched; the samples come again and again under new names, as a feed would."""
    settings = settings.model_copy(
        update={
            "directory": settings.directory.model_copy(update={"watch": True, "interval_s": 0.5, "settle_s": 0.0})
            if settings.directory
            else None,
            "http": HttpSettings(console=True, port=port),
            "dead_letters": settings.dead_letters.model_copy(update={"ratio": 1.0, "run": 1_000_000}),
        }
    )
    click.echo(f"\nconsole: http://127.0.0.1:{port}/console/  (^C ends it)")
    ended = Event()
    feeding = Thread(target=_feed, args=(out / "input", samples, ended), daemon=True)
    feeding.start()
    try:
        serve(settings, keys.DEMO)
    finally:
        ended.set()
        feeding.join()


def _feed(folder: Path, samples: Mapping[str, bytes], ended: Event) -> None:
    """A message every half second or so; of those that nobody can read every sixth round brings one."""
    good, bad = [name for name in samples if "cut-off" not in name], [name for name in samples if "cut-off" in name]
    for number in range(_FED):
        name = good[number % len(good)] if number % 30 else bad[0]
        hidden = folder / f".{number}.part"
        hidden.write_bytes(samples[name])
        hidden.rename(folder / f"feed-{number:05}-{name}")
        if ended.wait(0.3 + 0.4 * (number % 20 < 10)):
            return


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
