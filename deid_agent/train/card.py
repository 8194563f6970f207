"""What is told of a trained model: as data in its manifest, and as a page for people beside it."""

import hashlib
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from deid_agent import __version__, resources
from deid_agent.eval.counts import Criterion
from deid_agent.eval.markup import Note
from deid_agent.eval.score import Figure, Prf, Scores
from deid_agent.train.recipes import Kind, Recipe
from deid_agent.train.settings import NetworkSettings

Json = dict[str, object]
_TOLD = (Criterion.STRICT, Criterion.TOKEN, Criterion.BINARY_TOKEN, Criterion.BINARY_HIPAA_TOKEN)
_LIBRARIES = ("python-crfsuite", "scikit-learn", "numpy")
_NEURAL = ("jax", "optax", "numpy")


@dataclass(frozen=True, slots=True)
class Told:
    """Where a model comes from. ``tested`` says in words which notes ``scores`` are of."""

    recipe: Recipe
    notes: Sequence[Note] = field(repr=False)
    new_notes: int
    seed: int
    rules: Path
    tested: str = ""
    scores: Scores | None = field(default=None, repr=False)


def digest(notes: Iterable[Note]) -> str:
    """SHA-256 (hex) over ids, texts and annotations: one number that names what was learned from."""
    total = hashlib.sha256()
    for note in notes:
        spans = ",".join(f"{s.start}-{s.end}-{s.type}" for s in note.annotated.spans)
        for part in (note.id, note.patient, note.annotated.text, spans):
            data = part.encode("utf-8", "surrogatepass")
            total.update(b"%d:" % len(data) + data)
    return total.hexdigest()


def card(told: Told) -> Json:
    """The card as plain values; the same training gives the same."""
    recipe = told.recipe
    return {
        "about": recipe.says,
        "kind": recipe.kind.value,
        "families": list(recipe.families),
        "recognizers": recipe.recognizers,
        "types": [kind.value for kind in recipe.types],
        "settings": asdict(recipe.settings),
        "augment": {"times": recipe.augment, **asdict(recipe.noise)},
        "seed": recipe.settings.seed if isinstance(recipe.settings, NetworkSettings) else told.seed,
        "corpus": {
            "sha256": digest(told.notes),
            "notes": len(told.notes),
            "patients": len({note.patient for note in told.notes}),
            "new_notes": told.new_notes,
            "annotations": sum(len(note.annotated.spans) for note in told.notes),
        },
        "rules": resources.digest(told.rules),
        "versions": {
            "deid-agent": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in (_NEURAL if recipe.kind is Kind.NETWORK else _LIBRARIES)},
        },
        "scores": _scores(told.tested, told.scores) if told.scores is not None else None,
    }


def _scores(tested: str, scores: Scores) -> Json:
    notes = [pair.note for pair in scores.pairs]
    return {
        "of": tested,
        "notes": len(notes),
        "patients": len({note.patient for note in notes}),
        "sha256": digest(notes),
        **{criterion.value: _prf(scores.prf(criterion)) for criterion in _TOLD},
        "leaked": _figure(scores.leaked()),
        "types": {
            kind.value: {"gold": one.gold, **_prf(one.strict)} for kind, one in scores.by_type().items() if one.gold
        },
    }


def _prf(one: Prf) -> Json:
    return {"precision": _figure(one.precision), "recall": _figure(one.recall), "f": _figure(one.f)}


def _figure(one: Figure) -> list[float]:
    """The figure and the two ends of what holds it with 95 %."""
    return [round(one.value, 4), round(one.low, 4), round(one.high, 4)]


def page(manifest: Mapping[str, object]) -> str:
    """A manifest for people, in Markdown."""
    corpus, settings, versions = (_part(manifest, name) for name in ("corpus", "settings", "versions"))
    labels, templates = manifest.get("labels"), manifest.get("templates")
    lines = [
        f"# {manifest.get('name')}",
        "",
        f"{manifest.get('about')}. Written by `deid-agent train`; the numbers below stand in the `.json` too.",
        "",
        "| | |",
        "|---|---|",
        *(
            [
                f"| schema | {manifest.get('schema')}, {len(labels)} labels |",
                f"| features | {len(templates)} templates of {', '.join(map(str, _list(manifest, 'families')))} |",
            ]
            if isinstance(labels, list) and isinstance(templates, list)
            else []
        ),
        *_layers(manifest),
        f"| sees findings of | {manifest.get('recognizers') or 'nothing: the text alone'} |",
        f"| trained on | {corpus.get('notes')} notes of {corpus.get('patients')} patients with "
        f"{corpus.get('annotations')} annotations, and {corpus.get('new_notes')} notes made from them |",
        f"| corpus | SHA-256 `{corpus.get('sha256')}` |",
        f"| rules | SHA-256 `{manifest.get('rules')}` |",
        f"| settings | {_plain(settings)}, seed {manifest.get('seed')} |",
        f"| made with | {', '.join(f'{k} {v}' for k, v in versions.items())} |",
        f"| arrays | SHA-256 `{manifest.get('sha256')}` |",
        "",
    ]
    scores = _part(manifest, "scores")
    if not scores:
        return "\n".join([*lines, "Not scored: no note was held out.", ""])
    lines += [
        f"The model alone, without the rules' own findings, on {scores.get('of')}: {scores.get('notes')} notes of "
        f"{scores.get('patients')} patients. In brackets what holds the figure with 95 % (patients drawn again).",
        "",
        "| criterion | precision | recall | F1 |",
        "|---|---|---|---|",
        *(_row(criterion.value, _part(scores, criterion.value)) for criterion in _TOLD),
        "",
        f"Leaked (a word of the annotation is uncovered): {_shown(scores.get('leaked'))} of the annotations.",
        "",
        "| type | precision | recall | F1 |",
        "|---|---|---|---|",
        *(_row(name, _part(_part(scores, "types"), name)) for name in _part(scores, "types")),
        "",
    ]
    return "\n".join(lines)


def _plain(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{k} {v}" for k, v in settings.items() if not isinstance(v, list | dict) and k != "seed")


def _layers(manifest: Mapping[str, object]) -> list[str]:
    """What a network is made of, and how it came about."""
    dimensions, epochs = _part(manifest, "dimensions"), _list(manifest, "epochs")
    if not dimensions:
        return []
    best = max((float(one["held_out_f1"]) for one in epochs if isinstance(one, dict)), default=0.0)
    return [
        f"| layers | {', '.join(f'{k} {v}' for k, v in dimensions.items())} |",
        f"| columns | {', '.join(map(str, _list(manifest, 'columns'))) or 'none: words and characters alone'} |",
        f"| stopped by | {manifest.get('held_out_notes')} notes of other patients of the same part: "
        f"F1 {best:.3f} of tokens with a label, after {len(epochs)} epochs |",
    ]


def _row(name: str, figures: Mapping[str, object]) -> str:
    return f"| {name} | " + " | ".join(_shown(figures.get(part)) for part in ("precision", "recall", "f")) + " |"


def _shown(figure: object) -> str:
    if not isinstance(figure, list) or len(figure) != 3:
        return "-"
    value, low, high = (float(part) for part in figure)
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _part(of: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _list(of: Mapping[str, object], name: str) -> list[object]:
    found = of.get(name)
    return found if isinstance(found, list) else []
