"""``deid-agent eval``: scores of a system over an annotated corpus, or of existing findings."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
import orjson

from deid_agent.app import choose_bound, parse_profile
from deid_agent.cli.common import (
    PROFILES,
    Exit,
    budget_option,
    echo_error,
    handle_errors,
    printable,
    refuse_existing,
    rules_option,
)
from deid_agent.config import refuse_unknown_variables
from deid_agent.eval import (
    ABLATED_LIST_PREFIX,
    Convention,
    Corpus,
    CorpusFormat,
    CorpusPart,
    EvaluatedSystem,
    EvaluationReport,
    FactLookup,
    FalseAlarms,
    Note,
    Pair,
    TaggingRun,
    apply_convention,
    bound_leaks,
    count_altered,
    count_false_alarms,
    facts_from_profile,
    gather_patients,
    load_convention,
    load_system,
    map_to_2006_types,
    no_facts,
    read_annotated,
    read_json_lines,
    render_page,
    report_as_json,
    run_system,
    score_notes,
    score_table,
    select_part,
)
from deid_agent.model import Annotated, ConfigurationError
from deid_agent.recognize import NameMemory
from deid_agent.rules import data_folder, find_rules


@click.command("eval")
@click.argument("corpus", required=False, metavar="[CORPUS]", type=click.Path(path_type=Path))
@click.option(
    "--gold", metavar="FILE", type=click.Path(path_type=Path), help="Annotations to compare with; no tagger runs."
)
@click.option("--pred", metavar="FILE", type=click.Path(path_type=Path), help="Findings as JSON lines, by id.")
@click.option(
    "--format", "format_name", type=click.Choice([f.value for f in CorpusFormat]), help="Format of CORPUS or of --gold."
)
@click.option("--system", default="default", show_default=True, envvar="DEID_SYSTEM", help="Which recognizers run.")
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="recall",
    show_default=True,
    envvar="DEID_PROFILE",
    help="Favours precision or recall; budget: as a leak bound needs.",
)
@budget_option
@click.option(
    "--split",
    type=click.Choice([p.value for p in CorpusPart]),
    default="all",
    show_default=True,
    help="Part of the project's corpus.",
)
@click.option("--authors", metavar="LIST", help="Only these prefixes: dd,dk.")
@click.option(
    "--context",
    type=click.Choice(["none", "profile"]),
    default="none",
    show_default=True,
    help="Facts known beforehand: none, or the corpus's profile of the patient, as in a message.",
)
@click.option("--by-patient", is_flag=True, help="Notes of one patient share facts and names; tags twice.")
@click.option(
    "--benign", "clean", metavar="DIR", type=click.Path(path_type=Path), help="Text without PHI, to count false alarms."
)
@click.option(
    "--convention",
    "convention_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also score by the convention of another corpus: titles, labels, sites, years.",
)
@click.option(
    "--bound",
    "alpha",
    metavar="ALPHA",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Whether at most this share of a further note's annotations leaks, on average. Exit code 1 if not.",
)
@click.option("--ablate", is_flag=True, help="Score the system without each of its recognizers.")
@click.option("--json", "json_file", metavar="FILE", help="Write everything as JSON; - is standard output.")
@click.option(
    "--html", "html_file", metavar="FILE", help="Write a page with every mistake in its context. It holds text."
)
@rules_option
@click.option("--models", metavar="DIR", envvar="DEID_MODELS", help="Models folder in place of the packaged one.")
@handle_errors
def evaluate(
    corpus: Path | None,
    gold: Path | None,
    pred: Path | None,
    format_name: str | None,
    system: str,
    profile: str,
    budget: Path | None,
    split: str,
    authors: str | None,
    context: str,
    by_patient: bool,
    clean: Path | None,
    convention_file: Path | None,
    alpha: float | None,
    ablate: bool,
    json_file: str | None,
    html_file: str | None,
    rules: tuple[str, ...],
    models: str | None,
) -> Exit:
    """Score a system over an annotated corpus.

    CORPUS is a folder in the project's markup, of i2b2 2014 XML or of brat, or a file of i2b2 2006 XML or
    JSON lines. With --gold and --pred no tagger runs: both may be JSON lines {"id", "text"?, "spans"}, and --gold any
    corpus.
    """
    if (corpus is None) == (gold is None) or (gold is None) != (pred is None):
        raise ConfigurationError("give either CORPUS, or --gold and --pred")
    refuse_existing("--json", json_file)
    refuse_existing("--html", html_file)
    chosen = CorpusFormat(format_name) if format_name else None
    about: dict[str, object] = {"split": split, "authors": authors}
    convention = load_convention(convention_file) if convention_file else None
    if gold is not None and pred is not None:
        if clean or ablate or by_patient or context != "none":
            raise ConfigurationError("--benign, --ablate, --by-patient and --context run a tagger: give CORPUS")
        notes = _notes(gold, chosen, split, authors)
        pairs, complete = _paired(notes, pred)
        about |= {"gold": str(gold), "pred": str(pred), "form": notes.format.value}
        matched = _match_types(pairs, notes.format)
        report = EvaluationReport(about, score_notes(matched), authors=notes.format is CorpusFormat.MARKUP)
        return _finish(report, matched, convention, alpha, json_file, html_file, complete=complete)
    refuse_unknown_variables()
    found, folder = find_rules(rules), data_folder("models", models)
    chosen_bound = choose_bound(profile, budget, system, found.folder, found.sites, folder)
    tagger = load_system(found, folder, system, parse_profile(profile))
    if chosen_bound is not None:
        if ablate:
            raise ConfigurationError("--ablate: its figures are for the shipped profiles; use --profile recall")
        tagger = tagger.lean(chosen_bound.lean)
    notes = _notes(corpus or Path(), chosen, split, authors)
    alarms = _benign(clean, tagger) if clean else None
    done = _run(notes, tagger, context, by_patient, ablate)
    about |= {"corpus": str(corpus), "form": notes.format.value, "system": system, "profile": profile}
    about |= {
        "context": context,
        "by_patient": by_patient,
        "parts": [part for part in tagger.without if not part.startswith(ABLATED_LIST_PREFIX)],
    }
    matched = _match_types(done.pairs, notes.format)
    report = EvaluationReport(
        about,
        score_notes(matched),
        {name: score_notes(_match_types(pairs, notes.format)) for name, pairs in done.without.items()},
        alarms,
        authors=notes.format is CorpusFormat.MARKUP,
    )
    return _finish(report, matched, convention, alpha, json_file, html_file, complete=True)


def _finish(
    report: EvaluationReport,
    pairs: Sequence[Pair],
    convention: Convention | None,
    alpha: float | None,
    json_file: str | None,
    html_file: str | None,
    *,
    complete: bool,
) -> Exit:
    """Write the report with its claims, and the scores by another convention."""
    bound = bound_leaks(pairs, alpha) if alpha is not None else None
    if report.scores.with_text:
        report = replace(report, altered=count_altered(pairs), bound=bound)
    elif bound is not None:
        raise ConfigurationError("--bound needs the text of the notes")
    _write(report, json_file, html_file)
    if convention is not None:
        click.echo("\nby the convention of the file:")
        click.echo(score_table(EvaluationReport({}, score_notes(apply_convention(pairs, convention)))), nl=False)
    return Exit.REFUSED if not complete or (bound is not None and not bound.holds) else Exit.DONE


def _notes(path: Path, corpus_format: CorpusFormat | None, split: str, authors: str | None) -> Corpus:
    """The selected notes. Raises ``ConfigurationError`` if there is none."""
    corpus = read_annotated(path, corpus_format)
    for remark in corpus.remarks:
        echo_error(remark)
    if (split != CorpusPart.ALL or authors) and corpus.format is not CorpusFormat.MARKUP:
        raise ConfigurationError(
            f"--split and --authors need a corpus in the project's markup; {path} is {corpus.format}"
        )
    notes = select_part(corpus.notes, CorpusPart(split))
    wanted = {name.strip() for name in authors.split(",")} if authors else set()
    if unknown := wanted - {note.author for note in corpus.notes}:
        raise ConfigurationError(f"--authors {','.join(sorted(unknown))}: {path} has no such prefix")
    notes = [note for note in notes if not wanted or note.author in wanted]
    if not notes:
        raise ConfigurationError(f"no note of {path} is of these authors and in {split}")
    return replace(corpus, notes=tuple(notes))


def _run(corpus: Corpus, tagger: EvaluatedSystem, context: str, by_patient: bool, ablate: bool) -> TaggingRun:
    lookup: FactLookup = facts_from_profile if context == "profile" else no_facts
    memory: NameMemory | None = None
    if by_patient:
        with _progress(corpus.notes, "reading") as notes:
            lookup, memory = gather_patients(tagger, corpus.notes, notes, lookup)
    with _progress(corpus.notes, "tagging") as notes:
        return run_system(tagger, notes, lookup, memory=memory, ablate=ablate)


def _benign(path: Path, tagger: EvaluatedSystem) -> FalseAlarms:
    """Count false alarms in the texts of a folder (plain text, JSON lines) or file; spans in the lines are ignored."""
    if not path.exists():
        raise ConfigurationError(f"--benign {path}: no such file or folder")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    clean: list[Note] = []
    for file in files:
        if file.suffix in {".jsonl", ".ndjson"}:
            clean += read_json_lines(file, check_bounds=False, annotated=False)
        elif file.suffix == ".txt":
            clean.append(Note(file.stem, "", "", file.stem, Annotated(_decoded(file), ()), {}))
    if not clean:
        raise ConfigurationError(f"--benign {path}: holds no *.txt and no *.jsonl")
    with _progress(clean, "text without PHI") as notes:
        return count_false_alarms(run_system(tagger, notes, no_facts).pairs)


def _decoded(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as problem:
        raise ConfigurationError(f"{path}: byte {problem.start}: not UTF-8; convert it first") from None


def _paired(gold: Corpus, pred: Path) -> tuple[list[Pair], bool]:
    """Gold notes with the findings of the same id; False if one side lacks a note of the other, which is reported."""
    found = {note.id: note.annotated.spans for note in read_json_lines(pred, check_bounds=False)}
    for note in gold.notes:
        end = max((span.end for span in found.get(note.id, ())), default=0)
        if note.annotated.text and end > len(note.annotated.text):
            raise ConfigurationError(f"{pred}: {printable(note.id)}: a span ends at {end}, after the gold text's end")
    ids = {note.id for note in gold.notes}
    for missing in sorted(ids - set(found)):
        echo_error(f"{pred}: {printable(missing)}: missing; counted as no findings")
    for strange in sorted(set(found) - ids):
        echo_error(f"{pred}: {printable(strange)}: not among the gold notes; not counted")
    return [Pair(note, found.get(note.id, ())) for note in gold.notes], ids == set(found)


def _match_types(pairs: Iterable[Pair], corpus_format: CorpusFormat) -> list[Pair]:
    """Return the findings under the types of the annotations: a corpus of 2006 has eight."""
    if corpus_format is not CorpusFormat.I2B2_2006:
        return list(pairs)
    return [Pair(pair.note, map_to_2006_types(pair.found)) for pair in pairs]


@contextmanager
def _progress(notes: Sequence[Note], label: str) -> Iterator[Iterable[Note]]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield notes
        return
    with click.progressbar(notes, label=label, file=sys.stderr) as bar:
        yield bar


def _write(report: EvaluationReport, json_file: str | None, html_file: str | None) -> None:
    if json_file is not None:
        data = orjson.dumps(report_as_json(report), option=orjson.OPT_INDENT_2) + b"\n"
        if json_file == "-":
            sys.stdout.buffer.write(data)
        else:
            Path(json_file).write_bytes(data)
    if html_file is not None:
        Path(html_file).write_text(render_page(report), "utf-8")
    if json_file != "-":
        click.echo(score_table(report), nl=False)
