"""The printed lines of a run of ``deid-agent batch``, and its results: ``status``, ``verify`` and ``report``."""

import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import orjson

from deid_agent.agent import load_private_key
from deid_agent.batch import (
    AUDIT,
    MANIFEST,
    BatchReport,
    FolderFinding,
    Manifest,
    RunProgress,
    UnitReport,
    describe_bound,
    describe_refusals,
    make_report,
    read_manifest,
    read_sample,
    report_page,
    review_page,
    verify_folder,
)
from deid_agent.cli.common import Exit, echo_error, handle_errors, printable, refuse_existing, write_new
from deid_agent.cli.trusted_keys import find_trusted
from deid_agent.model import ConfigurationError, DeadLetterError, counted

_FOLDER = click.argument("out", metavar="OUT", type=click.Path(path_type=Path, file_okay=False))
_SHOWN_RULES = 20
_TERMINAL_S = 0.5
_JSON_S = 5.0


def _is_terminal() -> bool:
    return sys.stderr.isatty()  # that of the moment: a test has its own


@dataclass(slots=True)
class RunOutput:
    """Prints the units of a run as they end, and its progress: as JSON lines, or for a terminal."""

    as_json: bool
    ends: list[UnitReport] = field(default_factory=list)
    _terminal: bool = field(default_factory=_is_terminal)
    _shown_at: float = 0.0
    _paused: bool = False
    _progress: RunProgress = field(default_factory=RunProgress)

    def show_unit(self, end: UnitReport) -> None:
        """Print the end of a unit."""
        self.ends.append(end)
        if end.left_out and not self.as_json:
            return  # their number comes at the end
        self._clear()
        entry = end.entry
        refused = entry.refused if entry is not None else {}
        if self.as_json:
            state = "left out" if end.left_out else "refused" if entry is None else "done"
            line = {"event": "unit", "unit": end.unit.shown, "state": state, "skipped": end.skipped}
            known = {} if entry is None else {"file": entry.file, "rows": entry.rows, "refused": refused}
            if entry is not None and entry.types:
                known["resources"] = entry.types
            _echo_json(line | known | ({"fault": end.fault} if end.fault else {}))
        elif entry is None:
            echo_error(f"deid-agent: {end.unit.shown}: refused: {end.fault}")
        else:
            state = "was done" if end.skipped else "done"
            rows = _list_types(entry.types) if entry.types else f"{entry.rows} rows"
            click.echo(f"{state:<8}  {end.unit.shown}: {entry.file}: {rows}, refused {describe_refusals(refused)}")

    def show_progress(self, progress: RunProgress) -> None:
        """Print the progress, not too often."""
        self._progress = progress
        now = time.monotonic()
        changed, self._paused = progress.paused != self._paused, progress.paused
        if changed and progress.paused and not (self.as_json or self._terminal):
            echo_error("deid-agent: paused: remove the file pause in OUT to go on")
        if not changed and now - self._shown_at < (_JSON_S if self.as_json else _TERMINAL_S):
            return
        self._shown_at = now
        if self.as_json:
            _echo_json({"event": "progress", **_describe_progress(progress)})
        elif self._terminal:
            click.echo(f"\r\x1b[K{_show_progress(progress)}", nl=False, err=True)

    def show_end(self, first_key: str, lines: int) -> None:
        """Print the units that a limit left out, and the first key of the audit."""
        self._clear()
        left_out = sum(end.left_out for end in self.ends)
        if self.as_json:
            end = {"event": "end", **_describe_progress(self._progress), "left_out": left_out}
            _echo_json(end | {"lines": lines, "first_key": first_key})
            return
        if left_out:
            echo_error(f"deid-agent: limit reached: {counted(left_out, 'unit')} left out")
        click.echo(f"audit     {counted(lines, 'line')}, first key {first_key}")

    def _clear(self) -> None:
        if self._terminal and not self.as_json:
            click.echo("\r\x1b[K", nl=False, err=True)


def _list_types(types: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(types.items()))


def _describe_progress(progress: RunProgress) -> dict[str, object]:
    left = progress.seconds_left
    return {
        "units": progress.units,
        "units_done": progress.units_done,
        "rows": progress.rows,
        "refused": progress.refused,
        "share": round(progress.share, 4),
        "seconds": round(progress.seconds, 1),
        "seconds_left": None if left is None else round(left, 1),
        "paused": progress.paused,
    }


def _show_progress(progress: RunProgress) -> str:
    left = progress.seconds_left
    minutes, seconds = divmod(round(left or 0), 60)
    rest = (
        "paused" if progress.paused else "" if left is None else f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left"
    )
    shown = f"{progress.units_done} of {counted(progress.units, 'unit')}, {progress.rows:,} rows"
    return f"{shown}, {progress.refused} refused, {progress.share:.0%} of bytes {rest}".rstrip()


def _echo_json(found: Mapping[str, object]) -> None:
    click.echo(orjson.dumps(found).decode())


def _read_existing(out: Path) -> Manifest:
    manifest = read_manifest(out)
    if manifest is None:
        raise ConfigurationError(f"no {MANIFEST} in the folder: name the OUT of a run")
    return manifest


@click.command()
@_FOLDER
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@handle_errors
def status(out: Path, as_json: bool) -> Exit:
    """Show the finished units of an output folder."""
    manifest = _read_existing(out)
    head, units = manifest.head, manifest.finished
    refused, types = Counter[str](), Counter[str]()
    for entry in units:
        refused.update(entry.refused)
        types.update(entry.types)
    versions = sorted({entry.pinned for entry in units if entry.pinned})
    missing = sum(not entry.is_in(out) for entry in units)
    rows, no_patient = sum(entry.rows for entry in units), sum(entry.no_patient for entry in units)
    listings = {name: sum(getattr(entry, name) for entry in units) for name in ("unlisted", "conflicting")}
    if as_json:
        names = ("build", "table", "policy", "key", "version")
        figures = {"units": len(units), "rows": rows, "refused": dict(refused), "no_patient": no_patient} | listings
        figures |= {"resources": dict(types)} if types else {}
        figures |= {"versions": versions} if versions else {}
        lines = {"missing": missing, "lines": len(manifest.lines)}
        _echo_json({name: getattr(head, name) for name in names} | figures | lines)
        return Exit.REFUSED if missing else Exit.DONE
    click.echo(f"build      {head.build} (table {head.table}, policy {head.policy}, key {head.key}, {head.version})")
    click.echo(f"units      {len(units)}")
    for pinned in versions:
        click.echo(f"version    {pinned}")
    click.echo(f"rows       {rows}")
    click.echo(f"refused    {describe_refusals(refused)}")
    if types:
        click.echo(f"resources  {_list_types(types)}")
    click.echo(f"no patient {no_patient}")
    for name, count in listings.items():
        if count:
            click.echo(f"{name:<10} {counted(count, 'row')}")
    if missing:
        click.echo(f"missing    files of {counted(missing, 'unit')}; run makes them again")
    return Exit.REFUSED if missing else Exit.DONE


@click.command()
@_FOLDER
@click.option(
    "--public-key", "public", metavar="HEX", multiple=True, help="The first key of the audit, kept elsewhere."
)
@click.option(
    "--head",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"A copy of {AUDIT}/trail/head.json, kept elsewhere.",
)
@click.option("--to", metavar="CATALOG.NAMESPACE.TABLE", help="The Iceberg table of the outputs.")
@click.option("--lines", metavar="N", type=click.IntRange(0), default=0, help="Lines that the manifest had before.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per finding, and a summary line at the end.")
@handle_errors
def verify(out: Path, public: tuple[str, ...], head: Path | None, to: str | None, lines: int, as_json: bool) -> Exit:
    """Find every file and line of an output folder that was changed, added, dropped or put back.

    Needs no secret key and no models. The exit code is 1 if something is found, and 2 if the call is wrong. Only with
    the first key of the audit (`run` prints it) does it show that nobody wrote the whole folder anew.
    """
    trusted = find_trusted(public, None)
    if not out.is_dir():
        raise ConfigurationError(f"{printable(out)}: no such folder")
    found = verify_folder(out, trusted, head, lines, to)
    sound = not found.findings
    if as_json:
        for each in found.findings:
            _echo_json({"code": each.code, "place": printable(each.place), "detail": each.detail})
        figures = {"units": found.units, "rows": found.rows, "lines": found.lines, "first_key": found.first_key}
        _echo_json({"sound": sound, "key_given": trusted is not None, "anchored": found.anchored, **figures})
        return Exit.DONE if sound else Exit.REFUSED
    for each in found.findings:
        click.echo(_show_finding(each))
    figures_text = f"{counted(found.units, 'unit')}, {counted(found.rows, 'row')}, {counted(found.lines, 'line')}"
    click.echo(f"{'sound' if sound else 'NOT SOUND'}: {figures_text}, first key {found.first_key or 'none'}")
    if trusted is None:
        echo_error("deid-agent: warning: no key was given: somebody could have written the whole folder anew")
    elif not found.anchored and sound:
        echo_error("deid-agent: warning: trusted by the secret key: give the first key of the audit")
    return Exit.DONE if sound else Exit.REFUSED


def _show_finding(found: FolderFinding) -> str:
    return printable(f"{found.place}: {found.code}: {found.detail}")


@click.command()
@_FOLDER
@click.option("--html", metavar="PAGE", type=click.Path(path_type=Path), help="New file: the report without values.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--sample", metavar="N", type=click.IntRange(1), help="Open at most N rows of the sample.")
@click.option("--reader-key", metavar="FILE", type=click.Path(path_type=Path), help="The private key of the readers.")
@click.option("--review", metavar="PAGE", type=click.Path(path_type=Path), help="New file: the sample in the clear.")
@handle_errors
def report(
    out: Path, html: Path | None, as_json: bool, sample: int | None, reader_key: Path | None, review: Path | None
) -> Exit:
    """Show counts by type, column and rule, refused rows, and units that differ from the others.

    With --review and --reader-key it also opens the sample. It does not verify the folder: `batch verify` does.
    """
    if (review is None) != (reader_key is None) or (sample is not None and review is None):
        raise ConfigurationError("--review and --reader-key come together, --sample only with both")
    refuse_existing("--html", html)
    refuse_existing("--review", review)
    manifest = _read_existing(out)
    made = make_report(manifest)
    found = read_sample(out)
    sampled = None if found is None else len(found.rows)
    if as_json:
        _echo_json(_report_json(made, sampled))
    else:
        _echo_report(made, sampled)
    if html is not None:
        write_new(html, report_page(made, sampled), 0o644)
    if review is None or reader_key is None:
        return Exit.DONE
    if found is None:
        raise ConfigurationError("the folder has no sample: use `run` with --sample and --seal-to")
    key = load_private_key(reader_key)
    rows, code = [], Exit.DONE
    for row in found.rows[:sample]:
        try:
            rows.append((row, row.open(key)))
        except DeadLetterError as problem:
            echo_error(f"deid-agent: {AUDIT}/sample.jsonl: a row cannot be opened: {problem}")
            code = Exit.REFUSED
    files = {entry.unit: entry.file for entry in manifest.finished}
    write_new(review, review_page(rows, files), 0o600)
    echo_error(f"deid-agent: originals in the clear, with all PHI: {printable(review)}")
    return code


def _report_json(made: BatchReport, sampled: int | None) -> dict[str, object]:
    unusual = [
        {
            "file": each.file,
            "words": each.words,
            "replacements": each.replacements,
            "per_1000_words": round(each.rate, 2),
        }
        for each in made.unusual
    ]
    names = ["units", "rows", "refused", "no_patient", "no_identity", "unmatched", "words", "replacements"]
    names += ["types", "columns", "rules"]
    figures: dict[str, object] = {name: getattr(made, name) for name in names}
    middle = None if made.median is None else round(made.median, 2)
    return {
        "build": made.head.build,
        **figures,
        "median_per_1000_words": middle,
        "unusual": unusual,
        "sampled": sampled,
    }


def describe_matches(unmatched: int, no_identity: int) -> str:
    """How identities and rows fit, in one line."""
    return f"{counted(unmatched, 'person')} without a row, {counted(no_identity, 'row')} of patients without identity"


def _echo_report(made: BatchReport, sampled: int | None) -> None:
    head = made.head
    click.echo(f"build      {head.build} (table {head.table}, policy {head.policy}, key {head.key}, {head.version})")
    click.echo(f"rows       {made.rows} in {counted(made.units, 'unit')}, {made.no_patient} without a patient")
    click.echo(f"refused    {describe_refusals(made.refused)}")
    if made.no_identity or made.unmatched:
        click.echo(f"identities {describe_matches(made.unmatched, made.no_identity)}")
    for name, counts in (("type", made.types), ("column", made.columns), ("rule", made.rules)):
        for each, count in list(counts.items())[:_SHOWN_RULES]:
            click.echo(printable(f"{name:<10} {each:<32} {count:>10}"))
        if len(counts) > _SHOWN_RULES:
            click.echo(f"{name:<10} and {len(counts) - _SHOWN_RULES} more: --json or --html shows all")
    if made.median is not None:
        click.echo(f"median     {made.median:.1f} replacements per 1,000 words of text")
    for unit in made.unusual:
        click.echo(f"unusual    {unit.file}: {unit.rate:.1f} per 1,000 of {unit.words} words")
    if sampled is not None:
        click.echo(f"sample     {describe_bound(sampled)}{', if readers find nothing' if sampled else ''}")
