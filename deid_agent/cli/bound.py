"""``deid-agent bound``: from a reviewed random sample the lean for a budget of leaks, and its claim."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from deid_agent.app import (
    FEWEST_DOCUMENTS,
    BoundFile,
    BoundSystem,
    BudgetRow,
    DocumentCounter,
    DriftReference,
    check_lean,
)
from deid_agent.cli.common import Exit, echo_error, handle_errors, printable, refuse_existing, rules_option
from deid_agent.cli.projects import describe_policy
from deid_agent.config import refuse_unknown_variables
from deid_agent.eval import (
    CorpusFormat,
    EvaluatedSystem,
    LeanCurve,
    Note,
    Pair,
    count_altered,
    facts_from_profile,
    load_system,
    no_facts,
    read_annotated,
    run_system,
    share_leaks,
)
from deid_agent.model import ConfigurationError, counted
from deid_agent.pipeline import load_policy
from deid_agent.review import read_random_sample
from deid_agent.rules import data_folder, find_rules

LEANS = (1.0, 1.5, 2.2, 3.3, 4.8, 7.0, 10.0, 15.0, 22.0, 33.0, 50.0, 100.0)
"""The leans that are tried. They are fixed: leans that a sample suggests would be chosen with its losses."""
_SHORTEST_COPY = 100
"""Characters of a text from which two equal ones are copies."""


@click.command("bound")
@click.argument("sample", required=False, metavar="[SAMPLE]", type=click.Path(path_type=Path))
@click.option("--review", metavar="FOLDER", type=click.Path(path_type=Path), help="A review folder in place of SAMPLE.")
@click.option("--review-key", metavar="FILE", type=click.Path(path_type=Path), help="The key that opens its gold.")
@click.option(
    "--alpha",
    "alphas",
    metavar="SHARE",
    multiple=True,
    required=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="The budget: the share of identifiers that may be missed. Of several the first is used, the others are shown.",
)
@click.option(
    "--population", metavar="TEXT", required=True, help="The patients and notes: discharge letters of ward X."
)
@click.option("--random", "is_random", is_flag=True, help="State that the patients of SAMPLE were drawn at random.")
@click.option("--out", metavar="FILE", required=True, type=click.Path(path_type=Path), help="File of the bound.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice([f.value for f in CorpusFormat]),
    help="Format of SAMPLE, if not found.",
)
@click.option(
    "--context",
    type=click.Choice(["none", "profile"]),
    default="none",
    show_default=True,
    help="Facts known beforehand: none, or the patient's data in the sample, as in a message.",
)
@click.option("--system", default="default", show_default=True, envvar="DEID_SYSTEM", help="Which recognizers run.")
@click.option("--policy", default="pseudonymised", show_default=True, envvar="DEID_POLICY", help="For the record.")
@rules_option
@click.option("--models", metavar="DIR", envvar="DEID_MODELS", help="Models folder in place of the packaged one.")
@handle_errors
def bound(
    sample: Path | None,
    review: Path | None,
    review_key: Path | None,
    alphas: tuple[float, ...],
    population: str,
    is_random: bool,
    out: Path,
    format_name: str | None,
    context: str,
    system: str,
    policy: str,
    rules: tuple[str, ...],
    models: str | None,
) -> Exit:
    """Compute how far models must lean so that a budget of leaks may be claimed.

    SAMPLE is an annotated corpus in a format of `eval`, with the patient of each note. The patients are a random sample
    of those whose notes the agent will read, and nobody chose the system by them. The exit code is 1 if nothing may be
    claimed.
    """
    refuse_unknown_variables()
    refuse_existing("--out", out)
    if not out.parent.is_dir():
        raise ConfigurationError(f"--out {printable(out)}: no such folder; make it")
    _check_population(population)
    if not all(0 < alpha < 1 for alpha in alphas):
        raise ConfigurationError("--alpha: a share between 0 and 1, such as 0.05")
    check_lean(system)
    if (sample is None) == (review is None):
        raise ConfigurationError("give either SAMPLE, or --review and --review-key")
    if review is not None and context != "none":
        raise ConfigurationError("--context: a review has no data of its patients beside the notes; leave it out")
    notes = (
        list(read_random_sample(review, review_key))
        if review
        else _read_sample(sample, format_name, is_random=is_random)
    )
    _check_sample(notes)
    found, folder = find_rules(rules), data_folder("models", models)
    chosen = load_policy(policy, found.folder)
    made_with = BoundSystem.of(system, found.folder, found.sites, folder)
    loaded = load_system(found, folder, system, "recall")
    lookup = facts_from_profile if context == "profile" else no_facts
    runs = _run_leans(loaded, notes, lambda each, progress: run_system(each, progress, lookup).pairs)
    curve = LeanCurve.of({lean: share_leaks(pairs) for lean, pairs in runs.items()})
    _show_curve(curve, runs)
    rows = tuple(_make_row(curve, alpha) for alpha in dict.fromkeys(alphas))
    for row in rows:
        _show_row(curve, row, len(notes))
    first = rows[0]
    if first.lean is None:
        return Exit.REFUSED
    altered = count_altered(runs[first.lean])
    made = BoundFile(
        format=1,
        budgets=rows,
        notes=len(notes),
        patients=curve.patients,
        day=datetime.now(UTC).date(),
        population=population,
        context="profile" if context == "profile" else "none",
        policy=describe_policy(chosen),
        made_with=made_with,
        words=altered.words_per_thousand,
        numbers=altered.numbers_per_thousand,
        drift=make_reference(loaded.lean(first.lean), runs[first.lean]),
    )
    out.write_bytes(made.to_bytes())
    click.echo(made.sentence)
    return Exit.DONE


def make_reference(system: EvaluatedSystem, pairs: Sequence[Pair]) -> DriftReference:
    """The counts of one note of each patient, for the comparison of a feed. Raises ``ConfigurationError``."""
    counter, counts = DocumentCounter.of(system.tagger), {}
    for pair in pairs:
        note = pair.note
        texts = [(note.annotated.text, pair.found)]
        if note.patient not in counts and (found := counter.count(texts, template=note.kind)) is not None:
            counts[note.patient] = found
    if len(counts) < FEWEST_DOCUMENTS:
        raise ConfigurationError(
            f"{counted(len(counts), 'patient')} with a note of 20 words or more: the comparison with a feed needs "
            f"{FEWEST_DOCUMENTS}; draw more patients"
        )
    return DriftReference.of(list(counts.values()))


def _read_sample(given: Path | None, format_name: str | None, *, is_random: bool) -> list[Note]:
    path = given or Path()
    if not is_random:
        raise ConfigurationError(
            "a bound holds for random samples only: give --random if the patients were drawn at random, by a list "
            "and random numbers; notes that a person or a model chose allow no claim"
        )
    corpus = read_annotated(path, CorpusFormat(format_name) if format_name else None)
    for remark in corpus.remarks:
        echo_error(remark)
    if corpus.format is CorpusFormat.I2B2_2006:
        raise ConfigurationError(f"{path}: these labels are eight types of PHI; annotate with the 28 of the guidelines")
    if corpus.format is CorpusFormat.BRAT or all(note.patient == note.id for note in corpus.notes):
        echo_error(
            "the sample names no patients: each note counts as one; with two of one patient nothing may be claimed"
        )
    return list(corpus.notes)


def _check_sample(notes: Sequence[Note]) -> None:
    """Raise ``ConfigurationError`` for a sample that allows no claim. Names places: an id may be a record number."""
    if not notes:
        raise ConfigurationError("the sample has no note that was drawn at random")
    if empty := next((at for at, note in enumerate(notes, 1) if not note.annotated.text.strip()), 0):
        raise ConfigurationError(f"note {empty} of {len(notes)} has no text; a bound needs the text of each note")
    if not any(note.annotated.spans for note in notes):
        raise ConfigurationError("no note of the sample has an annotation: it is not reviewed")
    owners: dict[str, tuple[int, str]] = {}
    for at, note in enumerate(notes, 1):
        other, patient = owners.setdefault(note.annotated.text, (at, note.patient))
        if patient != note.patient and len(note.annotated.text) >= _SHORTEST_COPY:
            raise ConfigurationError(
                f"notes {other} and {at} of {len(notes)} are one text under two patients: remove the copy, or correct "
                "the patient"
            )
    everyone = {note.patient or note.id for note in notes}
    if bare := len(everyone - {note.patient or note.id for note in notes if note.annotated.spans}):
        echo_error(
            f"{counted(bare, 'patient')} of {len(everyone)} without any annotation: they count as patients without a "
            "miss and lower the bound; make sure that their notes were reviewed"
        )


def _check_population(population: str) -> None:
    if not population.strip() or len(population) > 300 or not population.isprintable():
        raise ConfigurationError("--population: one line of at most 300 characters that names the patients and notes")


def _run_leans(
    system: EvaluatedSystem, notes: Sequence[Note], run: Callable[[EvaluatedSystem, Iterable[Note]], list[Pair]]
) -> dict[float, list[Pair]]:
    if not sys.stderr.isatty():
        return {lean: run(system.lean(lean), notes) for lean in LEANS}
    with click.progressbar(LEANS, label="reading the sample", file=sys.stderr) as bar:
        return {lean: run(system.lean(lean), notes) for lean in bar}


def _show_curve(curve: LeanCurve, runs: Mapping[float, Sequence[Pair]]) -> None:
    click.echo("  lean   missed   bound   altered words and numbers of 1,000")
    for at, lean in enumerate(curve.leans):
        altered = count_altered(runs[lean])
        click.echo(
            f"{lean:6g}  {100 * curve.mean(at):5.2f} %  {100 * curve.bound(at):5.2f} %  "
            f"{altered.words_per_thousand:6.2f}  {altered.numbers_per_thousand:6.2f}"
        )


def _make_row(curve: LeanCurve, alpha: float) -> BudgetRow:
    at = curve.choose(alpha)
    shown = len(curve.leans) - 1 if at is None else at
    lean = None if at is None else curve.leans[at]
    return BudgetRow(alpha=alpha, lean=lean, bound=curve.bound(shown), mean=curve.mean(shown))


def _show_row(curve: LeanCurve, row: BudgetRow, notes: int) -> None:
    budget = f"budget of {100 * row.alpha:g} %"
    if row.lean is not None:
        click.echo(f"{budget}: lean {row.lean:g}, bound {100 * row.bound:.2f} %")
        return
    needed = curve.least_patients(row.alpha)
    why = (
        f"no number of notes allows it: {100 * row.mean:.2f} % are missed at every lean; adapt the rules first"
        if needed is None
        else f"it needs {needed} patients, about {-(-needed * notes // curve.patients)} notes"
    )
    drawn = f"{counted(notes, 'note')} of {counted(curve.patients, 'patient')} certify nothing under"
    click.echo(f"{budget}: no claim; {drawn} {100 * row.bound:.2f} %; {why}")
