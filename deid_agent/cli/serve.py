"""The commands that start an agent or its console: ``run``, ``console``, and ``demo`` with sample messages."""

import asyncio
import logging
import shutil
import signal
from collections import Counter
from collections.abc import Mapping
from importlib import resources as packaged
from pathlib import Path
from threading import Event, Thread

import click

from deid_agent.agent import ResumeFrom
from deid_agent.audit import read_entries, value_counts
from deid_agent.cli.common import Exit, echo_error, fault_text, handle_errors, printable, warn_of_demo
from deid_agent.cli.service import FolderResult, serve, show_console
from deid_agent.cli.service_parts import check_key
from deid_agent.config import (
    DEMO_KEY,
    AgentSettings,
    AuditSettings,
    DeadLetterSettings,
    DirectorySettings,
    HttpSettings,
    SecretKey,
    Settings,
    TransportKind,
    load_key,
    load_settings,
)
from deid_agent.http import ReviewDesk
from deid_agent.model import ConfigurationError, counted


@click.command()
@click.option(
    "--config", "file", metavar="FILE", required=True, type=click.Path(path_type=Path), help="The settings, in TOML."
)
@click.option("--policy", help="Profile name or policy file; overrides the file and the environment.")
@click.option("--workers", type=click.IntRange(0, 256), help="Worker processes; overrides agent.workers.")
@click.option(
    "--resume-from",
    type=click.Choice(["audit", "earliest", "latest"]),
    help="Where to start in partitions whose Kafka position is gone; others continue at theirs.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Least severe log line.")
@click.option(
    "--demo-key", is_flag=True, help="Use the public demonstration key; refused on Kafka, MLLP and HTTP unless allowed."
)
@handle_errors
def run(
    file: Path, policy: str | None, workers: int | None, resume_from: str | None, log_level: str | None, demo_key: bool
) -> Exit:
    """Run the agent: read messages and publish them sanitized.

    The agent runs until SIGTERM or ^C, or until a folder without watch is empty; the exit code is then 1 if a file was
    refused or skipped. Settings, key, rules and policy are checked before the first message. Logs are JSON lines on
    standard error; they name messages by coordinates only.
    """
    overrides: dict[str, object] = {"policy": policy, "log_level": log_level}
    if workers is not None:
        overrides["agent"] = {"workers": workers}
    settings = load_settings(file, overrides)
    key = DEMO_KEY if demo_key else load_key(settings.key_file)
    check_key(settings, key)
    warn_of_demo(key)
    if resume_from is not None and settings.transport is not TransportKind.KAFKA:
        raise ConfigurationError("--resume-from: only topics of Kafka have positions")
    left = serve(settings, key, None if resume_from is None else ResumeFrom(resume_from))
    if left == FolderResult() or settings.directory is None:
        return Exit.DONE
    echo_error(
        f"deid-agent: {counted(left.refused, 'file')} refused, {left.unreadable} unreadable, {left.skipped} skipped "
        f"(folders, links and others); their names are in {printable(settings.directory.dead_letters)}"
    )
    return Exit.REFUSED


@click.command()
@click.option(
    "--config", "file", metavar="FILE", required=True, type=click.Path(path_type=Path), help="The agent's settings."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=9465, show_default=True, help="Port of the console.")
@click.option("--demo-key", is_flag=True, help="Use the public demonstration key.")
@click.option(
    "--review",
    "review_folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Also serve the review of the notes of this folder; reviewers log in with their own tokens.",
)
@click.option(
    "--review-key", metavar="FILE", type=click.Path(path_type=Path), help="The key file of the folder of --review."
)
@handle_errors
def console(file: Path, port: int, demo_key: bool, review_folder: Path | None, review_key: Path | None) -> Exit:
    """Serve the console on this machine, without an agent.

    It shows dead letters, audit, rules and the playground until ^C. It takes no message, and it writes nothing unless
    http.console_write and a token allow it to put dead letters back, or reviewers decide on notes (--review).
    """
    if (review_folder is None) != (review_key is None):
        raise ConfigurationError("--review and --review-key: give both or neither")
    # The Kafka client logs errors that we report ourselves; without a handler Python would print them.
    logging.getLogger().addHandler(logging.NullHandler())
    settings = load_settings(file)
    key = DEMO_KEY if demo_key else load_key(settings.key_file)
    check_key(settings, key)
    warn_of_demo(key)
    desk = None if review_folder is None or review_key is None else _open_desk(review_folder, review_key)
    asyncio.run(_serve(settings, key, port, desk))
    return Exit.DONE


def _open_desk(folder: Path, key_file: Path) -> ReviewDesk:
    """The desk of a folder of reviewed notes. Raises ``ConfigurationError`` if folder or key cannot be used."""
    from deid_agent.review import open_desk  # noqa: PLC0415 - only for the review, never for an agent

    return open_desk(folder, key_file)


async def _serve(settings: Settings, key: SecretKey, port: int, desk: ReviewDesk | None) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with show_console(settings, key, port, desk) as listening:
        click.echo(f"console: http://127.0.0.1:{listening}/console/  (^C ends it)")
        await ended.wait()


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
    help="Folder for all files; the folder of an earlier demo is replaced.",
)
@click.option("--serve", "serving", is_flag=True, help="Continue with more messages and serve the console, until ^C.")
@click.option("--port", type=click.IntRange(0, 65_535), default=9464, show_default=True, help="Port of the console.")
@handle_errors
def demo(out: Path, serving: bool, port: int) -> Exit:
    """De-identify sample messages and show the result.

    The samples go through the directory transport. The folder then holds sanitized messages, dead letters and an audit.
    """
    _make_room(out)
    settings = _settings(out)
    samples = _samples()
    for name, data in samples.items():
        (out / "input" / name).write_bytes(data)
    serve(settings, DEMO_KEY)
    _show(out)
    if serving:
        _serve_demo(out, settings, samples, port)
    return Exit.DONE


def _samples() -> dict[str, bytes]:
    folder = packaged.files("deid_agent") / "samples"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith((".hl7", ".json")))
    return {name: (folder / name).read_bytes() for name in names}


def _serve_demo(out: Path, settings: Settings, samples: Mapping[str, bytes], port: int) -> None:
    """Run the agent on the same folder with watch, and feed it the samples under new names."""
    settings = settings.model_copy(
        update={
            "directory": settings.directory.model_copy(update={"watch": True, "interval_s": 0.5, "stable_s": 0.0})
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
        serve(settings, DEMO_KEY)
    finally:
        ended.set()
        feeding.join()


def _feed(folder: Path, samples: Mapping[str, bytes], ended: Event) -> None:
    """Write about two messages each second; one in thirty is malformed."""
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
            raise ConfigurationError(f"--out {out}: exists and is not the folder of an earlier demo; choose another")
        shutil.rmtree(out)
    try:
        (out / "input").mkdir(parents=True)
        (out / _MARKER).write_text("Made with the public demonstration key: everyone can reverse it.\n")
    except OSError as problem:
        raise ConfigurationError(f"--out {out}: cannot be written ({fault_text(problem)})") from None


def _settings(out: Path) -> Settings:
    return Settings(
        transport=TransportKind.DIRECTORY,
        log_level="error",
        agent=AgentSettings(workers=1),
        dead_letters=DeadLetterSettings(plain=True),
        directory=DirectorySettings(
            input=out / "input", output=out / "messages", dead_letters=out / "dead-letters", state=out / "state"
        ),
        audit=AuditSettings(path=out / "audit", agent="demo"),
        http=HttpSettings(enabled=False),
    )


def _show(out: Path) -> None:
    before = _report(out / "input" / _SHOWN)
    after = _report(out / "messages" / _SHOWN)
    click.echo(f"{_SHOWN}, the report in its OBX segments\n\nbefore")
    click.echo("".join(f"  {line}\n" for line in before))
    click.echo("after")
    click.echo("".join(f"  {line}\n" for line in after))
    entries = list(read_entries(out / "audit"))
    names = sorted(path.name for path in (out / "input").iterdir())
    click.echo(f"{'message':28}{'outcome':16}{'replaced':>9}  most of them")
    for name, entry in zip(names, entries, strict=True):
        found: Counter[str] = Counter()
        for kind, count in value_counts(entry):
            found[kind] += count
        most = ", ".join(f"{kind} {count}" for kind, count in sorted(found.items(), key=lambda x: (-x[1], x[0]))[:4])
        outcome = str(entry["outcome"]).replace("_", " ")
        click.echo(f"{name:28}{outcome:16}{found.total():>9}  {most or entry.get('reason', '')}")
    click.echo(f"\n{out}/messages: sanitized; {out}/dead-letters: refused; {out}/audit: the audit trail")
    warn_of_demo(DEMO_KEY)


def _report(path: Path) -> list[str]:
    """The lines of the report: the OBX-5 fields of an HL7 message."""
    segments = path.read_bytes().decode("utf-8").split("\r")
    return [segment.split("|")[5] for segment in segments if segment.startswith("OBX|")]
