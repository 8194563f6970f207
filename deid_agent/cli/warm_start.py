"""``deid-agent train --from``: shipped models go on with the notes of a site."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import orjson

from deid_agent.cli.common import Exit, echo_error, printable
from deid_agent.eval import CorpusFormat, Pair
from deid_agent.model import ConfigurationError
from deid_agent.nlp import is_packaged
from deid_agent.recognize import Profile
from deid_agent.rules import data_folder
from deid_agent.train import (
    SHARES,
    SHIPPED,
    Adaptation,
    Base,
    Example,
    ExampleReader,
    Models,
    Progress,
    Rehearsal,
    SiteNotes,
    TrainingExtra,
    Verdict,
    adapt_models,
    blend_models,
    convert_disk_errors,
    describe_change,
    find_recipe,
    judge,
    load_default,
    plan_folds,
    read_rehearsal,
    read_site_notes,
    record_checks,
    refuse_missing_types,
    require_extra,
    tag_notes,
    write_models,
)

SHIPPED_BASE = "shipped"


@dataclass(frozen=True, slots=True)
class WarmStart:
    """The options of a warm start."""

    names: tuple[str, ...]
    base: str
    corpus: Path
    corpus_format: CorpusFormat | None
    rehearsal: Path | None
    out: Path | None
    rules: str | None
    profile: Profile
    settings: Adaptation
    json_file: str | None
    quiet: bool

    def run(self) -> Exit:
        """Adapt, judge, and write the models unless they are worse."""
        for name in self.names:
            find_recipe(name)
            if name not in SHIPPED:
                raise ConfigurationError(
                    f"--from: {name} cannot go on from trained weights; {', '.join(SHIPPED)} and all can"
                )
        for extra in TrainingExtra if "network" in self.names else (TrainingExtra.TRAIN,):
            require_extra(extra)
        out = self._free_folder()
        base = Base.load(self._base_folder(), data_folder("rules", self.rules))
        site = read_site_notes(self.corpus, self.corpus_format, base.labels)
        rehearsal = read_rehearsal(self.rehearsal, site)
        for remark in site.remarks:
            echo_error(remark)
        with _partial_folder(out) as staging:
            verdicts = self._adapt(base, site, rehearsal, staging)
            faults = [fault for verdict in verdicts for fault in verdict.faults]
            self._report(verdicts, faults)
            if faults:
                for fault in faults:
                    echo_error(f"refused: {fault}")
                echo_error("no model was written: more notes may help, or the lists of the site alone")
                return Exit.REFUSED
            record_checks(staging / "whole", verdicts)
            with convert_disk_errors(out):
                (staging / "whole").replace(out)
        for name in self.names:
            echo_error(f"{out / name}.json: written")
        return Exit.DONE

    def _free_folder(self) -> Path:
        if self.out is None:
            raise ConfigurationError("--from needs --out DIR, a new folder for the models")
        if is_packaged(self.out) or (self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir()))):
            raise ConfigurationError(f"--out {printable(self.out)}: exists; name a new folder")
        return self.out

    def _base_folder(self) -> Path:
        if self.base == SHIPPED_BASE:
            return data_folder("models", environ={})
        if not Path(self.base).is_dir():
            raise ConfigurationError(f"--from {printable(self.base)}: give shipped, or a folder of models")
        return Path(self.base)

    def _adapt(self, base: Base, site: SiteNotes, rehearsal: Rehearsal, staging: Path) -> list[Verdict]:
        """The whole result in the folder ``whole`` of ``staging``, and how it compares."""
        before = load_default(base.rules, base.folder, self.profile)
        refuse_missing_types(site, tag_notes(before, site.notes))
        work = _Work.prepare(self, base, site, rehearsal)
        folds = plan_folds(work.examples)
        held_out = len(folds) == 1
        models = work.adapt(folds[0].learned if held_out else work.examples)
        before_dev = tag_notes(before, rehearsal.judged)
        for share in SHARES:
            whole = work.write(staging / "whole", models, share)
            after = load_default(base.rules, whole, self.profile)
            dev = judge("dev notes of the corpus", before_dev, tag_notes(after, rehearsal.judged))
            if not dev.faults:
                break
        old: list[Pair] = []
        new: list[Pair] = []
        for number, fold in enumerate(folds, 1):
            notes = [example.note for example in fold.judged]
            if not held_out:
                models = work.adapt(fold.learned, f", fold {number} of {len(folds)}")
                after = load_default(base.rules, work.write(staging / "fold", models, share), self.profile)
            old += tag_notes(before, notes)
            new += tag_notes(after, notes)
        of = "held-out patients of the site" if held_out else "patients of the site, cross-validated"
        return [judge(of, old, new), dev]

    def _report(self, verdicts: Sequence[Verdict], faults: Sequence[str]) -> None:
        if self.json_file is not None:
            data = {"written": not faults, "faults": list(faults), "comparisons": [v.as_json() for v in verdicts]}
            encoded = orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n"
            if self.json_file == "-":
                sys.stdout.buffer.write(encoded)
            else:
                Path(self.json_file).write_bytes(encoded)
        if self.quiet or self.json_file == "-":
            return
        for verdict in verdicts:
            one = verdict.comparison
            click.echo(f"{verdict.of} ({one.notes} notes of {one.patients} patients, profile {self.profile})")
            click.echo(f"  strict F1     {describe_change(one.strict)}")
            click.echo(f"  leaked        {describe_change(one.leaked, percent=True)}")
            click.echo(f"  false alarms  {one.alarms[0]} to {one.alarms[1]}")


@dataclass(frozen=True, slots=True)
class _Work:
    """The examples of the notes, which every training of this run reads."""

    start: WarmStart
    base: Base
    examples: list[Example]
    rehearsed: list[Example]

    @staticmethod
    def prepare(start: WarmStart, base: Base, site: SiteNotes, rehearsal: Rehearsal) -> "_Work":
        (recognizers,) = {find_recipe(name).recognizers for name in SHIPPED}
        reader = ExampleReader.load(base.rules, recognizers)
        return _Work(
            start, base, *([reader.example(note) for note in part] for part in (site.notes, rehearsal.learned))
        )

    def adapt(self, site: Sequence[Example], label: str = "") -> "_Adapted":
        """The models after they went on with ``site``."""
        quiet = self.start.quiet

        def progress(name: str) -> Progress:
            def show(done: int, total: int) -> None:
                if done in {1, total} and not quiet:
                    echo_error(f"{name}{label}: iteration {done} of {total}")

            return show

        models = adapt_models(self.base, self.start.names, site, self.rehearsed, self.start.settings, progress)
        return _Adapted(models, site)

    def write(self, folder: Path, adapted: "_Adapted", share: float) -> Path:
        """Write the models at ``share`` of the way to the adapted ones, in place of those of ``folder``."""
        models = blend_models(self.base, adapted.models, share)
        with convert_disk_errors(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        write_models(folder, self.base, models, share, adapted.site, self.rehearsed, self.start.settings)
        return folder


@dataclass(frozen=True, slots=True)
class _Adapted:
    models: Models
    site: Sequence[Example]


@contextmanager
def _partial_folder(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` for unfinished models, readable by the owner only. It is removed at the end."""
    with convert_disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
