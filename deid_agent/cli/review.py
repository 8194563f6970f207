"""``deid-agent review``: a folder of notes that people review, from its queue to its gold."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
import orjson

from deid_agent.app import make_factory
from deid_agent.cli.common import Exit, echo_error, handle_errors, printable, rules_option
from deid_agent.cli.review_exchange import export_notes, import_notes
from deid_agent.cli.review_inputs import NoteSources
from deid_agent.config import refuse_unknown_variables
from deid_agent.model import ConfigurationError, counted
from deid_agent.recognize import Tagger
from deid_agent.review import (
    DrawSettings,
    ReviewFolder,
    TaggerReader,
    add_notes,
    check_new,
    load_review_key,
    make_key_file,
    read_agreement,
    read_status,
)

_MOST_NOTES = 100_000


@click.group()
def review() -> None:
    """Have people review notes: a queue, their decisions, the gold."""


review.add_command(export_notes)
review.add_command(import_notes)

_FOLDER = click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
_KEY = click.option(
    "--key-file", metavar="KEY", required=True, type=click.Path(path_type=Path), help="The key of the folder."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@review.command()
@_FOLDER
@_KEY
@click.option("--reviewers", metavar="LIST", required=True, help="Names of the reviewers: anna,ben.")
@handle_errors
def make(folder: Path, key_file: Path, reviewers: str) -> Exit:
    """Make a folder of reviewed notes, and a token for each reviewer.

    KEY is a file of 32 random bytes; a missing one is made. Keep it outside of the folder, and a copy of it elsewhere:
    without it nobody reads the notes. The tokens are shown once.
    """
    if folder.absolute() in key_file.absolute().parents:
        raise ConfigurationError(
            f"--key-file {printable(key_file)}: a key in the folder that it seals: keep it elsewhere"
        )
    names = _split(reviewers)
    check_new(folder, names)
    if not key_file.exists():
        make_key_file(key_file)
        echo_error(f"{printable(key_file)}: a new key; keep a copy of it")
    _, tokens = ReviewFolder.make(folder, load_review_key(key_file), names)
    for name, token in tokens.items():
        click.echo(f"{name}  {token}")
    return Exit.DONE


@review.command()
@_FOLDER
@click.argument("reviewer")
@_KEY
@handle_errors
def token(folder: Path, reviewer: str, key_file: Path) -> Exit:
    """Make a new token in place of a reviewer's old one, or for a new reviewer."""
    click.echo(f"{reviewer}  {ReviewFolder.open(folder, load_review_key(key_file)).new_token(reviewer)}")
    return Exit.DONE


@review.command()
@_FOLDER
@click.argument("notes", metavar="NOTES...", nargs=-1, required=True)
@_KEY
@click.option("--random", metavar="N", type=click.IntRange(0, _MOST_NOTES), default=0, help="A random sample.")
@click.option(
    "--chosen", metavar="M", type=click.IntRange(0, _MOST_NOTES), default=0, help="Notes that teach the most."
)
@click.option(
    "--unit",
    type=click.Choice(["note", "patient"]),
    default="note",
    show_default=True,
    help="Draw notes, or patients with one note each, at random.",
)
@click.option(
    "--per-patient",
    metavar="N",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Most chosen notes of a patient.",
)
@click.option(
    "--candidates",
    metavar="N",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Notes that are read to choose among them.",
)
@click.option("--system", default="default", show_default=True, envvar="DEID_SYSTEM", help="Which recognizers run.")
@click.option(
    "--profile",
    type=click.Choice(["precision", "balanced", "recall"]),
    default="recall",
    show_default=True,
    envvar="DEID_PROFILE",
    help="Favours precision or recall.",
)
@rules_option
@click.option("--models", metavar="DIR", envvar="DEID_MODELS", help="Models folder in place of the packaged one.")
@click.option("--seed", metavar="TEXT", default="", help="Repeats a draw, also in another folder.")
@handle_errors
def add(
    folder: Path,
    notes: tuple[str, ...],
    key_file: Path,
    random: int,
    chosen: int,
    unit: str,
    per_patient: int,
    candidates: int,
    system: str,
    profile: str,
    rules: tuple[str, ...],
    models: str | None,
    seed: str,
) -> Exit:
    """Draw notes into the queue, with the proposals of the tagger in each.

    NOTES are text files, JSON lines, messages (HL7 v2, FHIR, C-CDA), and folders of these. Notes of the random sample
    are for estimates; the chosen ones are those about which the components of the tagger disagree most.
    """
    if not random + chosen:
        raise ConfigurationError("nothing to draw: give --random N for estimates, --chosen M for training, or both")
    refuse_unknown_variables()
    key = load_review_key(key_file)
    opened = ReviewFolder.open(folder, key)
    taggers: list[Tagger] = []

    def keep(tagger: Tagger) -> Tagger:
        taggers.append(tagger)
        return tagger

    factory = make_factory(key, policy="pseudonymised", profile=profile, system=system, rules=rules, models=models)
    sources = NoteSources(factory.deidentifier(keep))
    found = sources.read(notes)
    for fault in sources.faults:
        echo_error(fault)
    if not found:
        raise ConfigurationError("the sample is empty: NOTES have no text to review")
    settings = DrawSettings(
        random,
        chosen,
        unit == "patient",
        per_patient,
        candidates,
        seed,
        system,
        profile,
        datetime.now(UTC).date().isoformat(),
    )
    drawn = add_notes(opened, found, TaggerReader(taggers[0]).read, settings)
    click.echo(
        f"{counted(drawn.notes, 'note')} of {counted(drawn.patients, 'patient')}: {drawn.random} random, "
        f"{drawn.chosen} chosen"
    )
    for count, label in (
        (drawn.known, "in the folder before"),
        (drawn.repeated, "given twice"),
        (sources.short, "texts of a message left out as too short"),
        (len(sources.faults), "refused"),
    ):
        if count:
            click.echo(f"{count} {label}")
    if drawn.random < random or drawn.chosen < chosen:
        echo_error(
            "fewer notes than asked for: the others are in the folder, certain, or of patients with enough notes"
        )
    if drawn.pools > 1 and drawn.random:
        echo_error(
            f"the random sample comes from {drawn.pools} different sets of notes, or units: an estimate over all of it "
            "holds for none of them; use a folder for each"
        )
    return Exit.REFUSED if sources.faults else Exit.DONE


@review.command()
@_FOLDER
@_KEY
@_JSON
@handle_errors
def status(folder: Path, key_file: Path, as_json: bool) -> Exit:
    """Count the notes of a folder: open, finished, disputed, agreed. Reads and checks every file."""
    opened = ReviewFolder.open(folder, load_review_key(key_file))
    found = read_status(opened)
    if as_json:
        click.echo(orjson.dumps({**asdict(found), "random_open": found.random_open}))
        return Exit.DONE
    click.echo(f"{counted(found.notes, 'note')} of {counted(found.patients, 'patient')}")
    click.echo(f"agreed    {found.agreed}")
    click.echo(f"disputed  {found.disputed}")
    click.echo(f"finished  {found.finished} by one reviewer or more")
    click.echo(f"drafts    {found.drafts}")
    click.echo(f"random    {found.random}, {found.random_agreed} agreed, {found.random_open} open")
    for name, count in found.by_reviewer.items():
        click.echo(f"{name} has finished {count}")
    if found.random_open and found.random_agreed:
        click.echo("an estimate needs the whole random sample: open notes may be the hard ones")
    return Exit.DONE


@review.command()
@_FOLDER
@_KEY
@_JSON
@handle_errors
def figures(folder: Path, key_file: Path, as_json: bool) -> Exit:
    """Show how far reviewers agree, over the notes that two have finished."""
    notes, total = read_agreement(ReviewFolder.open(folder, load_review_key(key_file)))
    if as_json:
        values = {"strict_f1": total.strict_f1, "kappa": total.kappa} if notes else {"strict_f1": None, "kappa": None}
        click.echo(orjson.dumps({"notes": notes, **values}))
    elif notes:
        click.echo(
            f"{counted(notes, 'note')} by two reviewers: strict F1 {total.strict_f1:.3f}, kappa {total.kappa:.3f}"
        )
    else:
        click.echo("no note is finished by two reviewers")
    return Exit.DONE


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]
