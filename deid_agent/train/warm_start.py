"""Warm start: trained models go on with the notes of a site, and are kept only if they are not worse.

The CRF moves its weights under a prior at the trained ones (``crf_adapter``), the network reads further epochs
(``network_adapter``). Both read notes of the shipped corpus again. The default system with the result is compared with
the default system before, on patients of the site that it did not learn from and on the dev notes of the corpus.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from deid_agent.eval import Comparison, Note, Pair, RatioChange, compare_pairs
from deid_agent.model import ConfigurationError, Document
from deid_agent.nlp import (
    VECTORS_NAME,
    CrfModel,
    Floats,
    Network,
    NetworkModel,
    load_crf,
    load_network,
    select_templates,
)
from deid_agent.recognize import Profile, Tagger, load_rules, load_tagger
from deid_agent.rules import digest_features
from deid_agent.train.card import Json, convert_disk_errors, digest_notes, render_card, write_model
from deid_agent.train.crf_adapter import CrfAdaptation, adapt_crf, blend_crf
from deid_agent.train.crf_trainer import Progress, ignore_progress
from deid_agent.train.examples import Example
from deid_agent.train.recipes import SHIPPED, ComponentKind, NetworkAdaptation, NetworkSettings, find_recipe

_MARGIN_OF_LEAKS, _MARGIN_OF_STRICT = 0.002, 0.005
SHARES = (1.0, 0.5, 0.25)
"""How far adapted models go from the trained ones: the first share that does no harm on the dev notes."""
_SURE = 0.9  # the share of the resamples that shows a loss
_KEPT = ("about", "kind", "families", "recognizers", "types", "settings", "augment", "seed", "corpus", "rules")
_SYSTEM = "default"
Models = Mapping[str, CrfModel | NetworkModel]
"""The models of the default system by name."""


@dataclass(frozen=True, slots=True)
class Base:
    """The models to start from: those of the default system in ``folder``."""

    folder: Path
    rules: Path
    models: Models = field(repr=False)

    @staticmethod
    def load(folder: Path, rules: Path) -> "Base":
        """Raises ``ConfigurationError`` if a model is missing or was trained with other rules or features."""
        models: dict[str, CrfModel | NetworkModel] = {}
        for name in SHIPPED:
            if not (folder / f"{name}.json").is_file():
                raise ConfigurationError(f"--from {folder}: has no model {name}: give shipped, or a folder of models")
            is_network = find_recipe(name).kind is ComponentKind.NETWORK
            model = load_network(folder, name) if is_network else load_crf(folder, name)
            known = (model.card.get("rules"), model.schema, _features(model))
            if known != (digest_features(rules), find_recipe(name).schema, _wanted_features(name)):
                raise ConfigurationError(
                    f"--from {folder}: {name} was trained with the features of another version: start from the models "
                    "of this version (--from shipped), and adapt them with your notes again"
                )
            models[name] = model
        return Base(folder, rules, models)

    @property
    def labels(self) -> frozenset[str]:
        """The labels that all models have."""
        return frozenset.intersection(*(frozenset(labels_of(model)) for model in self.models.values()))


def labels_of(model: CrfModel | NetworkModel) -> tuple[str, ...]:
    """The labels of a model."""
    return (model.crf if isinstance(model, CrfModel) else model.network.crf).labels


def _features(model: CrfModel | NetworkModel) -> tuple[str, ...]:
    return model.extractor.templates if isinstance(model, CrfModel) else tuple(model.network.encoder.features)


def _wanted_features(name: str) -> tuple[str, ...]:
    recipe = find_recipe(name)
    if isinstance(recipe.settings, NetworkSettings):
        return recipe.settings.features
    return (*select_templates(recipe.families), *recipe.templates)


@dataclass(frozen=True, slots=True)
class Adaptation:
    """How far each component may move."""

    crf: CrfAdaptation = field(default_factory=CrfAdaptation)
    network: NetworkAdaptation = field(default_factory=NetworkAdaptation)


def adapt_models(
    base: Base,
    names: Sequence[str],
    site: Sequence[Example],
    rehearsal: Sequence[Example],
    settings: Adaptation,
    progress: Callable[[str], Progress] = lambda _name: ignore_progress,
) -> Models:
    """The models of ``base``, those of ``names`` after they went on with the examples."""
    found = dict(base.models)
    for name in names:
        model = base.models[name]
        if isinstance(model, CrfModel):
            found[name] = adapt_crf(model, site, rehearsal, settings.crf, progress(name))
        else:
            from deid_agent.train.network_adapter import adapt_network  # noqa: PLC0415 - imports JAX

            found[name] = adapt_network(model, site, rehearsal, settings.network, progress(name))
    return found


def blend_models(base: Base, adapted: Models, share: float) -> Models:
    """The models at ``share`` (0 to 1) of the way from those of ``base`` to the adapted ones (Wortsman et al. 2022)."""
    found = dict(adapted)
    for name, model in adapted.items():
        known = base.models[name]
        if model is known:
            continue
        if isinstance(model, NetworkModel) and isinstance(known, NetworkModel):
            one = model.network
            weights = {key: _between(known.network.weights[key], new, share) for key, new in one.weights.items()}
            found[name] = replace(
                model, network=Network.from_weights(one.dimensions, one.encoder, weights, one.crf.labels)
            )
        elif isinstance(model, CrfModel) and isinstance(known, CrfModel):
            found[name] = blend_crf(known, model, share)
    return found


def _between(old: Floats, new: Floats, share: float) -> Floats:
    return old + np.float32(share) * (new - old)


def write_models(
    folder: Path,
    base: Base,
    models: Models,
    share: float,
    site: Sequence[Example],
    rehearsal: Sequence[Example],
    settings: Adaptation,
) -> None:
    """Write a folder that the default system loads: adapted models with their cards, and copies of the others.

    A card has digests and counts, no text. Raises ``UnsafeError`` if the disk is full.
    """
    with convert_disk_errors(folder):
        for ending in ("npz", "json"):
            shutil.copyfile(base.folder / f"{VECTORS_NAME}.{ending}", folder / f"{VECTORS_NAME}.{ending}")
        for name, model in models.items():
            if model is base.models[name]:
                for path in base.folder.glob(f"{name}.*"):
                    shutil.copyfile(path, folder / path.name)
                continue
            known = base.models[name]
            own = settings.crf if isinstance(model, CrfModel) else settings.network
            card: Json = {key: known.card[key] for key in _KEPT if key in known.card}
            card["adapted"] = {
                "base": known.digest,
                "earlier": known.card.get("adapted"),
                "site": _count(site),
                "rehearsal": _count(rehearsal),
                "share": share,
                "settings": asdict(own),
            }
            write_model(model, card, folder)


def _count(examples: Sequence[Example]) -> Json:
    notes = [example.note for example in examples]
    return {
        "sha256": digest_notes(notes),
        "notes": len(notes),
        "patients": len({note.patient for note in notes}),
        "annotations": sum(len(note.annotated.spans) for note in notes),
    }


def record_checks(folder: Path, verdicts: Sequence["Verdict"]) -> None:
    """Add the figures of ``verdicts`` to the cards of the adapted models in ``folder``."""
    with convert_disk_errors(folder):
        for name in SHIPPED:
            path = folder / f"{name}.json"
            manifest = json.loads(path.read_text("utf-8"))
            if isinstance(manifest.get("adapted"), dict) and "checks" not in manifest["adapted"]:
                manifest["adapted"]["checks"] = [verdict.as_json() for verdict in verdicts]
                path.write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", "utf-8")
                path.with_suffix(".md").write_text(render_card(manifest), "utf-8")


def tag_notes(tagger: Tagger, notes: Sequence[Note]) -> list[Pair]:
    """The findings of the default system, without facts about the patients."""
    found = tagger.find_all([Document(note.annotated.text) for note in notes])
    return [Pair(note, tuple(spans)) for note, spans in zip(notes, found, strict=True)]


def load_default(rules: Path, models: Path, profile: Profile) -> Tagger:
    """The default system with the models of ``models``."""
    return load_tagger(load_rules(rules), models, _SYSTEM, profile)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison on some notes, which ``of`` names."""

    of: str
    comparison: Comparison

    @property
    def faults(self) -> list[str]:
        """The losses of the new models, with figures; empty if they may replace the old ones."""
        found = []
        strict, leaked = self.comparison.strict, self.comparison.leaked
        if _is_worse(leaked, leaked.value, _MARGIN_OF_LEAKS):
            found.append(f"{self.of}: more leaks: {describe_change(leaked, percent=True)}")
        if _is_worse(strict, -strict.value, _MARGIN_OF_STRICT):
            found.append(f"{self.of}: lower strict F1: {describe_change(strict)}")
        return found

    def as_json(self) -> Json:
        """The figures as plain JSON values."""
        one = self.comparison
        return {
            "of": self.of,
            "notes": one.notes,
            "patients": one.patients,
            "strict": _rounded(one.strict),
            "leaked": _rounded(one.leaked),
            "alarms": list(one.alarms),
        }


def _is_worse(change: RatioChange, loss: float, margin: float) -> bool:
    """A loss above the margin is refused however uncertain it is, a smaller one if most resamples have it too."""
    return loss > margin or (loss > 0 and change.worse >= _SURE)


def describe_change(change: RatioChange, *, percent: bool = False) -> str:
    """A change with its interval, in one line."""
    scale, sign, digits = (100, " %", 2) if percent else (1, "", 4)
    before, after, low, high = (scale * part for part in (change.before, change.after, change.low, change.high))
    return (
        f"{before:.{digits}f}{sign} to {after:.{digits}f}{sign}, a change of {after - before:+.{digits}f} "
        f"({low:+.{digits}f} to {high:+.{digits}f})"
    )


def _rounded(change: RatioChange) -> Json:
    return {key: round(value, 5) for key, value in asdict(change).items()}


def judge(of: str, before: Sequence[Pair], after: Sequence[Pair]) -> Verdict:
    """Compare the findings of two systems in the same notes."""
    return Verdict(of, compare_pairs(before, after))
