"""``deid-agent train``: models from annotated notes."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

import click
import orjson

from deid_agent.cli.common import Exit, echo_error, handle_errors, refuse_existing
from deid_agent.cli.train_options import Changes, adaptation, refuse_with_base
from deid_agent.cli.warm_start import WarmStart
from deid_agent.config import refuse_unknown_variables
from deid_agent.eval import (
    CorpusFormat,
    CorpusPart,
    EvaluationReport,
    Note,
    Pair,
    Scores,
    read_annotated,
    report_as_json,
    score_notes,
    score_table,
    select_part,
)
from deid_agent.model import ConfigurationError
from deid_agent.nlp import is_packaged
from deid_agent.recognize import Profile, Resolver
from deid_agent.rules import data_folder
from deid_agent.train import (
    PUBLISHED,
    RECIPES,
    SHIPPED,
    Augmenter,
    CandidateModels,
    CardFacts,
    ComponentKind,
    CrfSettings,
    Example,
    ExampleReader,
    NetworkAblation,
    NetworkSettings,
    Progress,
    Recipe,
    TrainedModel,
    TrainingExtra,
    draw_share,
    find_recipe,
    ignore_progress,
    model_card,
    open_store,
    require_extra,
    tag_with_component,
    train_component,
)

T = TypeVar("T")
_SEED = 20140
_GROUPS = {"all": SHIPPED, "published": PUBLISHED}
"""The names of several components."""


@click.command("train")
@click.argument("component", required=False)
@click.option(
    "--corpus", metavar="PATH", default="corpus", show_default=True, type=click.Path(path_type=Path), help="The notes."
)
@click.option(
    "--format", "format_name", type=click.Choice([f.value for f in CorpusFormat]), help="Format of the corpus."
)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder for the models (default: models).")
@click.option("--hold-out", metavar="LIST", help="Prefixes of notes that are scored and not trained on: dg,di.")
@click.option("--cross-validate", is_flag=True, help="Score each author's notes with a model of the others.")
@click.option("--per-type", is_flag=True, help="One model for each type in place of one for all.")
@click.option("--augment", metavar="N", type=click.IntRange(0), help="New notes made from each note.")
@click.option("--iterations", metavar="N", type=click.IntRange(1), help="Most iterations of the training.")
@click.option("--epochs", metavar="N", type=click.IntRange(1), help="Most epochs of a network's training.")
@click.option(
    "--fraction", metavar="SHARE", type=click.FloatRange(0, 1, min_open=True), help="Share of patients to learn from."
)
@click.option(
    "--without",
    type=click.Choice([w.value for w in NetworkAblation]),
    multiple=True,
    help="Leave out a part of the network.",
)
@click.option("--seed", metavar="N", type=int, help=f"Random seed.  [default: {_SEED}]")
@click.option(
    "--from",
    "base",
    metavar="MODELS",
    help="Go on from trained models with the notes of a site: shipped, or a folder of models.",
)
@click.option(
    "--rehearsal",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="With --from: the shipped corpus, which is read again.  [default: corpus, if it is there]",
)
@click.option(
    "--profile",
    type=click.Choice([p.value for p in Profile]),
    help=f"With --from: the profile under which the models are compared.  [default: {Profile.RECALL}]",
)
@click.option("--json", "json_file", metavar="FILE", help="Write the scores as JSON; - is standard output.")
@click.option("--rules", metavar="DIR", envvar="DEID_RULES", help="Rules folder in place of the packaged one.")
@click.option("--quiet", is_flag=True, help="No progress bar and no table.")
@handle_errors
def train(
    component: str | None,
    corpus: Path,
    format_name: str | None,
    out: Path | None,
    hold_out: str | None,
    cross_validate: bool,
    per_type: bool,
    augment: int | None,
    iterations: int | None,
    epochs: int | None,
    fraction: float | None,
    without: tuple[str, ...],
    seed: int | None,
    base: str | None,
    rehearsal: Path | None,
    profile: str | None,
    json_file: str | None,
    rules: str | None,
    quiet: bool,
) -> Exit:
    """Train models from annotated notes.

    COMPONENT is the name of a model, `all` for those of the default system, or `published` for those of the published
    systems. The corpus may be in any format that eval reads.
    The dev notes of the project's corpus are never used for training, only for the scores. With --hold-out a model is
    saved only if --out is given.

    With --from the trained models go on with the notes of a site. The result is compared with the models before, on
    patients of the site and on the dev notes of the shipped corpus. If it is worse on either, nothing is written, and
    the exit code is 1.
    """
    if hold_out and cross_validate:
        raise ConfigurationError("--hold-out and --cross-validate exclude each other")
    refuse_existing("--json", json_file)
    if component is None and base is None:
        raise ConfigurationError(f"name a component: {', '.join((*_GROUPS, *RECIPES))}")
    component = component or "all"
    names = _GROUPS.get(component, (component,))
    chosen_format = CorpusFormat(format_name) if format_name else None
    if base is not None:
        refuse_with_base(hold_out, cross_validate, per_type, without, augment, fraction)
        refuse_unknown_variables()
        settings = adaptation(iterations, epochs, seed)
        judged = Profile(profile or Profile.RECALL)
        return WarmStart(
            names, base, corpus, chosen_format, rehearsal, out, rules, judged, settings, json_file, quiet
        ).run()
    if rehearsal is not None or profile is not None:
        raise ConfigurationError("--rehearsal and --profile belong to --from")
    changes = Changes(augment, iterations, epochs, fraction, tuple(map(NetworkAblation, without)), seed)
    chosen = {name: changes.of(find_recipe(name)) for name in names}
    for needed in {
        TrainingExtra.NEURAL if one.kind is ComponentKind.NETWORK else TrainingExtra.TRAIN for one in chosen.values()
    }:
        require_extra(needed)
    refuse_unknown_variables()
    notes, tested, of = _divided(corpus, chosen_format, hold_out)
    chance = _SEED if seed is None else seed
    trainer = _Trainer(data_folder("rules", rules), chance, quiet, per_type)
    for name, one in chosen.items():
        if cross_validate:
            _show(score_notes(trainer.cross_validated(name, one, notes)), {"component": name}, json_file, quiet)
            continue
        keep = out is not None or not hold_out
        with open_store(out or Path("models")) if keep else nullcontext() as shelf:
            models, examples, candidates = trainer.trained(name, one, notes)
            scores = score_notes(trainer.tagged(models, one, tested, candidates)) if tested else None
            facts = CardFacts(one, notes, sum(e.copy > 0 for e in examples), chance, trainer.rules, of, scores)
            if shelf is not None:
                for path in shelf.save(models, model_card(facts)):
                    echo_error(f"{path}: written")
                if is_packaged(out or Path("models")):
                    echo_error("the packaged models changed: run python .ci/pin_models.py, or they are not loaded")
        if scores is not None:
            _show(scores, {"component": name, "of": of}, json_file, quiet)
    return Exit.DONE


def _divided(
    path: Path, corpus_format: CorpusFormat | None, hold_out: str | None
) -> tuple[list[Note], list[Note], str]:
    """The notes for training, the notes for scoring, and the name of the latter."""
    corpus = read_annotated(path, corpus_format)
    for remark in corpus.remarks:
        echo_error(remark)
    notes, dev = list(corpus.notes), []
    if corpus.format is CorpusFormat.MARKUP:
        notes, dev = select_part(notes, CorpusPart.TRAIN), select_part(notes, CorpusPart.DEV)
    if hold_out:
        held = {name.strip() for name in hold_out.split(",")}
        if unknown := held - {note.author for note in notes}:
            raise ConfigurationError(f"--hold-out {','.join(sorted(unknown))}: no note for training has this prefix")
        dev = [note for note in notes if note.author in held]
        notes = [note for note in notes if note.author not in held]
    if not notes:
        raise ConfigurationError(f"{path}: no note is left for training: give more notes, or hold out fewer")
    return notes, dev, f"the held-out notes of {hold_out}" if hold_out else "dev"


@dataclass(frozen=True, slots=True)
class _Trainer:
    rules: Path
    seed: int
    quiet: bool
    per_type: bool

    def trained(
        self, name: str, one: Recipe, notes: Sequence[Note]
    ) -> tuple[tuple[TrainedModel, ...], list[Example], CandidateModels | None]:
        """The models, their examples, and the models whose spans they see."""
        examples, candidates = self._with_candidates(one, self._read(one, notes, one.augment))
        return self._fitted(name, one, examples), examples, candidates

    def _with_candidates(self, one: Recipe, examples: list[Example]) -> tuple[list[Example], CandidateModels | None]:
        """``examples`` with the spans of the recipe's candidate models, and these models."""
        if not one.candidates:
            return examples, None
        reader = ExampleReader.load(self.rules, one.recognizers)
        candidates = CandidateModels.train(one.candidates, find_recipe(one.candidates), reader, examples)
        return candidates.add_spans(examples), candidates

    def tagged(
        self,
        models: Sequence[TrainedModel],
        one: Recipe,
        notes: Sequence[Note],
        candidates: CandidateModels | None = None,
    ) -> list[Pair]:
        reader = ExampleReader.load(self.rules, one.recognizers)
        with self._bar(notes, "scoring") as bar:
            examples = [reader.example(note) for note in bar]
        if candidates is not None:
            examples = candidates.add_spans(examples)
        return self._pairs(models, one, reader, examples)

    def cross_validated(self, name: str, one: Recipe, notes: Sequence[Note]) -> list[Pair]:
        """Every note, tagged by a model that was trained without its author."""
        examples, _ = self._with_candidates(one, self._read(one, notes, one.augment))
        reader = ExampleReader.load(self.rules, one.recognizers)
        authors = sorted({note.author for note in notes})
        if len(authors) < 2:
            raise ConfigurationError("--cross-validate: all notes have one prefix: give notes of several authors")

        def fold(author: str) -> list[Pair]:
            models = self._fitted(f"{name} without {author}", one, [e for e in examples if e.note.author != author])
            return self._pairs(models, one, reader, [e for e in examples if e.note.author == author and not e.copy])

        return list(chain.from_iterable(map(fold, authors)))

    def _read(self, one: Recipe, notes: Sequence[Note], times: int) -> list[Example]:
        notes = [note for note in notes if draw_share("learn", note.patient) < one.settings.fraction]
        reader = ExampleReader.load(self.rules, one.recognizers)
        augmenter = Augmenter(self.rules, self.seed, one.noise)
        with self._bar(notes, "reading") as bar:
            return list(reader.examples(bar, augmenter, times))

    def _pairs(
        self, models: Sequence[TrainedModel], one: Recipe, reader: ExampleReader, examples: Sequence[Example]
    ) -> list[Pair]:
        return tag_with_component(one, models, reader, examples, Resolver(Profile.BALANCED, reader.resolver.rules))

    def _fitted(self, name: str, one: Recipe, examples: Sequence[Example]) -> tuple[TrainedModel, ...]:
        with self._iterations(one, name) as progress:
            return train_component(name, one, examples, progress, per_type=self.per_type)

    @contextmanager
    def _bar(self, notes: Sequence[T], label: str) -> Iterator[Iterable[T]]:
        if self.quiet or not sys.stderr.isatty():
            yield notes
            return
        with click.progressbar(notes, label=label, file=sys.stderr) as bar:
            yield bar

    @contextmanager
    def _iterations(self, one: Recipe, label: str) -> Iterator[Progress]:
        if self.quiet:
            yield ignore_progress
            return
        if isinstance(one.settings, NetworkSettings):  # an epoch takes minutes: one line each, on any kind of output
            yield lambda done, total: echo_error(f"{label}: epoch {done} of {total}")
            return
        if not sys.stderr.isatty():
            yield ignore_progress
            return
        length = one.settings.iterations if isinstance(one.settings, CrfSettings) else 1
        with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
            yield lambda done, _total: bar.update(done - bar.pos)


def _show(scores: Scores, about: dict[str, object], json_file: str | None, quiet: bool) -> None:
    report = EvaluationReport(about, scores, authors=True)
    if json_file is not None:
        data = orjson.dumps(report_as_json(report), option=orjson.OPT_INDENT_2) + b"\n"
        if json_file == "-":
            sys.stdout.buffer.write(data)
        else:
            Path(json_file).write_bytes(data)
    if not quiet and json_file != "-":
        click.echo(score_table(report), nl=False)
