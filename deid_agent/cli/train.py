"""``deid-agent train``: models from annotated notes."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

import click
import orjson

from deid_agent import resources
from deid_agent.cli.common import Exit, guarded, say
from deid_agent.config import refuse_unknown_variables
from deid_agent.crf.train import Progress, Settings, silent
from deid_agent.errors import ConfigurationError
from deid_agent.eval.markup import Note
from deid_agent.eval.readers import Form, read
from deid_agent.eval.report import Report, as_json, table
from deid_agent.eval.score import Pair, Scores, score
from deid_agent.eval.split import Part, part
from deid_agent.resolve import Profile, Resolver
from deid_agent.train import components, extra, store
from deid_agent.train.augment import Augmenter
from deid_agent.train.card import Told, card
from deid_agent.train.examples import Example, Reader
from deid_agent.train.extra import Extra
from deid_agent.train.recipes import SHIPPED, Kind, Recipe, recipe
from deid_agent.train.settings import NetworkSettings, Without
from deid_agent.train.store import Trained

T = TypeVar("T")
_SEED = 20140


@click.command("train")
@click.argument("component")
@click.option(
    "--corpus", metavar="PATH", default="corpus", show_default=True, type=click.Path(path_type=Path), help="The notes."
)
@click.option("--format", "form", type=click.Choice([f.value for f in Form]), help="Form of the corpus.")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Where models go; without: models.")
@click.option("--hold-out", metavar="LIST", help="Prefixes of notes that are not learned from but scored: dg,di.")
@click.option("--cross-validate", is_flag=True, help="Score each author's notes by a model of the others; saves none.")
@click.option("--per-type", is_flag=True, help="One model for each type in place of one for all.")
@click.option("--augment", metavar="N", type=click.IntRange(0), help="New notes made from each note.")
@click.option("--iterations", metavar="N", type=click.IntRange(1), help="Most iterations of the training.")
@click.option("--epochs", metavar="N", type=click.IntRange(1), help="Most epochs of a network's training.")
@click.option(
    "--fraction", metavar="SHARE", type=click.FloatRange(0, 1, min_open=True), help="Share of patients for a network."
)
@click.option(
    "--without",
    type=click.Choice([w.value for w in Without]),
    multiple=True,
    help="A part that a network goes without.",
)
@click.option("--seed", metavar="N", type=int, help=f"What chance starts from.  [default: {_SEED}]")
@click.option("--json", "json_file", metavar="FILE", help="Write the scores as JSON; - is standard output.")
@click.option("--rules", metavar="DIR", envvar="DEID_RULES", help="Rules folder in place of the packaged one.")
@click.option("--quiet", is_flag=True, help="No progress bar and no table.")
@guarded
def train(
    component: str,
    corpus: Path,
    form: str | None,
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
    json_file: str | None,
    rules: str | None,
    quiet: bool,
) -> Exit:
    """Train COMPONENT from annotated notes, or everything that is shipped (all).

    The corpus may have any form that eval reads. Of our own corpus dev notes are never learned from: they are what the
    model is scored on. With --hold-out a model is saved only where --out says so.
    """
    if hold_out and cross_validate:
        raise ConfigurationError("--hold-out and --cross-validate exclude each other")
    names = SHIPPED if component == "all" else (component,)
    changes = _Changes(augment, iterations, epochs, fraction, tuple(map(Without, without)), seed)
    chosen = {name: changes.of(recipe(name)) for name in names}
    for needed in {Extra.NEURAL if one.kind is Kind.NETWORK else Extra.TRAIN for one in chosen.values()}:
        extra.require(needed)
    refuse_unknown_variables()
    notes, tested, of = _divided(corpus, Form(form) if form else None, hold_out)
    chance = _SEED if seed is None else seed
    shop = _Shop(resources.folder("rules", rules), chance, quiet, per_type)
    for name, one in chosen.items():
        if cross_validate:
            _show(score(shop.cross_validated(name, one, notes)), {"component": name}, json_file, quiet)
            continue
        keep = out is not None or not hold_out
        with store.opened(out or Path("models")) if keep else nullcontext() as shelf:
            models, examples = shop.trained(name, one, notes)
            scores = score(shop.tagged(models, one, tested)) if tested else None
            told = Told(one, notes, sum(e.copy > 0 for e in examples), chance, shop.rules, of, scores)
            if shelf is not None:
                for path in shelf.save(models, card(told)):
                    say(f"{path}: written")
        if scores is not None:
            _show(scores, {"component": name, "of": of}, json_file, quiet)
    return Exit.DONE


@dataclass(frozen=True, slots=True)
class _Changes:
    """What the call says of a training; None: as the recipe has it."""

    augment: int | None
    iterations: int | None
    epochs: int | None
    fraction: float | None
    without: tuple[Without, ...]
    seed: int | None

    def of(self, one: Recipe) -> Recipe:
        if self.augment is not None:
            one = replace(one, augment=self.augment)
        match one.settings:
            case Settings() if self.iterations is not None:
                return replace(one, settings=replace(one.settings, iterations=self.iterations))
            case NetworkSettings():
                return replace(one, settings=self._network(one.settings))
        return one

    def _network(self, settings: NetworkSettings) -> NetworkSettings:
        if self.epochs is not None:
            settings = replace(settings, epochs=self.epochs)
        if self.fraction is not None:
            settings = replace(settings, fraction=self.fraction)
        if self.seed is not None:
            settings = replace(settings, seed=self.seed)
        for missing in self.without:
            settings = missing.of(settings)
        return settings


def _divided(path: Path, form: Form | None, hold_out: str | None) -> tuple[list[Note], list[Note], str]:
    """What is learned from, what is scored, and the name of that."""
    corpus = read(path, form)
    for remark in corpus.remarks:
        say(remark)
    notes, dev = list(corpus.notes), []
    if corpus.form is Form.MARKUP:
        notes, dev = part(notes, Part.TRAIN), part(notes, Part.DEV)
    if hold_out:
        held = {name.strip() for name in hold_out.split(",")}
        if unknown := held - {note.author for note in notes}:
            raise ConfigurationError(f"--hold-out {','.join(sorted(unknown))}: no note to learn from begins so")
        dev = [note for note in notes if note.author in held]
        notes = [note for note in notes if note.author not in held]
    if not notes:
        raise ConfigurationError(f"{path}: no note is left to learn from: give more notes, or hold out fewer")
    return notes, dev, f"the held-out notes of {hold_out}" if hold_out else "dev"


@dataclass(frozen=True, slots=True)
class _Shop:
    rules: Path
    seed: int
    quiet: bool
    per_type: bool

    def trained(self, name: str, one: Recipe, notes: Sequence[Note]) -> tuple[tuple[Trained, ...], list[Example]]:
        examples = self._read(one, notes, one.augment)
        return self._fitted(name, one, examples), examples

    def tagged(self, models: Sequence[Trained], one: Recipe, notes: Sequence[Note]) -> list[Pair]:
        reader = Reader.load(self.rules, one.recognizers)
        with self._bar(notes, "scoring") as bar:
            examples = [reader.example(note) for note in bar]
        return self._pairs(models, one, reader, examples)

    def cross_validated(self, name: str, one: Recipe, notes: Sequence[Note]) -> list[Pair]:
        """Every note tagged by a model that saw nothing of its author."""
        examples = self._read(one, notes, one.augment)
        reader = Reader.load(self.rules, one.recognizers)
        authors = sorted({note.author for note in notes})
        if len(authors) < 2:
            raise ConfigurationError("--cross-validate: all notes have one prefix: give notes of several authors")

        def fold(author: str) -> list[Pair]:
            models = self._fitted(f"{name} without {author}", one, [e for e in examples if e.note.author != author])
            return self._pairs(models, one, reader, [e for e in examples if e.note.author == author and not e.copy])

        return list(chain.from_iterable(map(fold, authors)))

    def _read(self, one: Recipe, notes: Sequence[Note], times: int) -> list[Example]:
        reader = Reader.load(self.rules, one.recognizers)
        augmenter = Augmenter(self.rules, self.seed, one.noise)
        with self._bar(notes, "reading") as bar:
            return list(reader.examples(bar, augmenter, times))

    def _pairs(self, models: Sequence[Trained], one: Recipe, reader: Reader, examples: Sequence[Example]) -> list[Pair]:
        return components.tagged(one, models, reader, examples, Resolver(Profile.BALANCED, reader.resolver.rules))

    def _fitted(self, name: str, one: Recipe, examples: Sequence[Example]) -> tuple[Trained, ...]:
        with self._iterations(one, name) as progress:
            return components.train(name, one, examples, progress, per_type=self.per_type)

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
            yield silent
            return
        if isinstance(one.settings, NetworkSettings):  # minutes an epoch: a line each, on any kind of output
            yield lambda done, total: say(f"{label}: epoch {done} of {total}")
            return
        if not sys.stderr.isatty():
            yield silent
            return
        length = one.settings.iterations if isinstance(one.settings, Settings) else 1
        with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
            yield lambda done, _total: bar.update(done - bar.pos)


def _show(scores: Scores, about: dict[str, object], json_file: str | None, quiet: bool) -> None:
    report = Report(about, scores, authors=True)
    if json_file is not None:
        data = orjson.dumps(as_json(report), option=orjson.OPT_INDENT_2) + b"\n"
        if json_file == "-":
            sys.stdout.buffer.write(data)
        else:
            Path(json_file).write_bytes(data)
    if not quiet and json_file != "-":
        click.echo(table(report), nl=False)
