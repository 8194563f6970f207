"""The card of a trained model, as data in its manifest and as a Markdown page, and the folder that models are saved in.

A model is written beside its final place first and then renamed, so the folder never holds half a model.
"""

import hashlib
import json
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from deid_agent import __version__
from deid_agent.eval import Criterion, Figure, Note, Prf, Scores
from deid_agent.model import UnsafeError
from deid_agent.nlp import (
    VECTORS_NAME,
    CrfModel,
    NetworkModel,
    SvmModel,
    is_packaged,
    save_crf,
    save_network,
    save_svm,
    trust_manifest,
)
from deid_agent.rules import data_folder, digest_features
from deid_agent.train.recipes import ComponentKind, NetworkSettings, Recipe

Json = dict[str, object]
TrainedModel = CrfModel | SvmModel | NetworkModel
_CRITERIA = (Criterion.STRICT, Criterion.TOKEN, Criterion.BINARY_TOKEN, Criterion.BINARY_HIPAA_TOKEN)
_LIBRARIES = ("python-crfsuite", "scikit-learn", "numpy")
_NETWORK_LIBRARIES = ("jax", "optax", "numpy")
_STORED_KEYS = {
    "feature": "column",
    "features": "columns",
    "published_vectors": "frozen",
    "held_out": "held",
    "unknown_share": "unknown",
    "least_word": "word",
    "least_value": "value",
    "ocr": "seen",
    "line_breaks": "moved",
    "missing_blanks": "glued",
}
"""The keys in manifests of the settings of networks and of noise whose field has another name."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """How a model was trained and scored. ``tested`` describes the notes that ``scores`` belong to."""

    recipe: Recipe
    notes: Sequence[Note] = field(repr=False)
    new_notes: int
    seed: int
    rules: Path
    tested: str = ""
    scores: Scores | None = field(default=None, repr=False)


def model_card(facts: CardFacts) -> Json:
    """The card as plain JSON values. The same training gives the same card."""
    recipe = facts.recipe
    is_network = isinstance(recipe.settings, NetworkSettings)
    return {
        "about": recipe.description,
        "kind": recipe.kind.value,
        "families": list(recipe.families),
        "recognizers": recipe.recognizers,
        "types": [kind.value for kind in recipe.types],
        "settings": _stored(asdict(recipe.settings)) if is_network else asdict(recipe.settings),
        "augment": {"times": recipe.augment, **_stored(asdict(recipe.noise))},
        "seed": recipe.settings.seed if isinstance(recipe.settings, NetworkSettings) else facts.seed,
        "corpus": {
            "sha256": digest_notes(facts.notes),
            "notes": len(facts.notes),
            "patients": len({note.patient for note in facts.notes}),
            "new_notes": facts.new_notes,
            "annotations": sum(len(note.annotated.spans) for note in facts.notes),
        },
        "rules": digest_features(facts.rules),
        "versions": {
            "deid-agent": __version__,
            "python": platform.python_version(),
            **{
                name: version(name)
                for name in (_NETWORK_LIBRARIES if recipe.kind is ComponentKind.NETWORK else _LIBRARIES)
            },
        },
        "scores": _scores(facts.tested, facts.scores) if facts.scores is not None else None,
    }


def digest_notes(notes: Iterable[Note]) -> str:
    """SHA-256 (hex) of the ids, patients, texts and annotations: identifies the notes that a model learned from."""
    total = hashlib.sha256()
    for note in notes:
        spans = ",".join(f"{s.start}-{s.end}-{s.type}" for s in note.annotated.spans)
        for part in (note.id, note.patient, note.annotated.text, spans):
            data = part.encode("utf-8", "surrogatepass")
            total.update(b"%d:" % len(data) + data)
    return total.hexdigest()


def _stored(settings: Mapping[str, object]) -> Json:
    """``settings`` with the keys of manifests, nested settings too."""
    return {
        _STORED_KEYS.get(key, key): _stored(value) if isinstance(value, dict) else value
        for key, value in settings.items()
    }


def _scores(tested: str, scores: Scores) -> Json:
    notes = [pair.note for pair in scores.pairs]
    return {
        "of": tested,
        "notes": len(notes),
        "patients": len({note.patient for note in notes}),
        "sha256": digest_notes(notes),
        **{criterion.value: _prf(scores.prf(criterion)) for criterion in _CRITERIA},
        "leaked": _figure(scores.leaked()),
        "types": {
            kind.value: {"gold": one.gold, **_prf(one.strict)} for kind, one in scores.by_type().items() if one.gold
        },
    }


def _prf(one: Prf) -> Json:
    return {"precision": _figure(one.precision), "recall": _figure(one.recall), "f": _figure(one.f)}


def _figure(one: Figure) -> list[float]:
    """The figure and the ends of its 95 % interval."""
    return [round(one.value, 4), round(one.low, 4), round(one.high, 4)]


def render_card(manifest: Mapping[str, object]) -> str:
    """A manifest as a Markdown page."""
    corpus, settings, versions = (_mapping(manifest, name) for name in ("corpus", "settings", "versions"))
    labels, templates = manifest.get("labels"), manifest.get("templates")
    lines = [
        f"# {manifest.get('name')}",
        "",
        f"{manifest.get('about')}. Written by `deid-agent train`; the `.json` file contains the same numbers.",
        "",
        "| Name | Value |",
        "|---|---|",
        *(
            [
                f"| Schema | {manifest.get('schema')}, {len(labels)} labels |",
                f"| Features | {len(templates)} templates of {', '.join(map(str, _list(manifest, 'families')))} |",
            ]
            if isinstance(labels, list) and isinstance(templates, list)
            else []
        ),
        *_network_rows(manifest),
        f"| First pass | {manifest.get('recognizers') or 'none: the model sees the text only'} |",
        f"| Training data | {corpus.get('notes')} notes of {corpus.get('patients')} patients with "
        f"{corpus.get('annotations')} annotations, and {corpus.get('new_notes')} synthetic copies |",
        f"| Corpus | SHA-256 `{corpus.get('sha256')}` |",
        *_adaptation_rows(manifest),
        f"| Rules | SHA-256 `{manifest.get('rules')}` |",
        f"| Settings | {_plain(settings)}, seed {manifest.get('seed')} |",
        f"| Versions | {', '.join(f'{k} {v}' for k, v in versions.items())} |",
        f"| Arrays | SHA-256 `{manifest.get('sha256')}` |",
        "",
    ]
    scores = _mapping(manifest, "scores")
    if not scores:
        return "\n".join([*lines, "Not scored: no note was held out.", ""])
    lines += [
        f"The model alone, without the spans of the rules, on {scores.get('of')}: {scores.get('notes')} notes of "
        f"{scores.get('patients')} patients. The 95 % interval in brackets comes from resampling patients.",
        "",
        "| Criterion | Precision | Recall | F1 |",
        "|---|---|---|---|",
        *(_row(criterion.value, _mapping(scores, criterion.value)) for criterion in _CRITERIA),
        "",
        f"Leaked (a word of the annotation is not covered): {_interval(scores.get('leaked'))} of the annotations.",
        "",
        "| Type | Precision | Recall | F1 |",
        "|---|---|---|---|",
        *(_row(name, _mapping(_mapping(scores, "types"), name)) for name in _mapping(scores, "types")),
        "",
    ]
    return "\n".join(lines)


def _plain(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{k} {v}" for k, v in settings.items() if not isinstance(v, list | dict) and k != "seed")


def _network_rows(manifest: Mapping[str, object]) -> list[str]:
    """The layers of a network and its training; nothing for other models."""
    dimensions, epochs = _mapping(manifest, "dimensions"), _list(manifest, "epochs")
    if not dimensions:
        return []
    names = {stored: name for name, stored in _STORED_KEYS.items()}
    widths = ", ".join(f"{names.get(key, key)} {width}" for key, width in dimensions.items())
    features = ", ".join(map(str, _list(manifest, "columns"))) or "none: words and characters only"
    best = max((float(one["held_out_f1"]) for one in epochs if isinstance(one, dict)), default=0.0)
    rows = [f"| Layers | {widths} |", f"| Features | {features} |"]
    if not epochs:  # an adapted network has a fixed number of epochs
        return rows
    return [
        *rows,
        f"| Stopped by | the score on {manifest.get('held_out_notes')} training notes of held-out patients: "
        f"F1 {best:.3f} of tokens with a label, after {len(epochs)} epochs |",
    ]


def _adaptation_rows(manifest: Mapping[str, object]) -> list[str]:
    """The model before and the notes of the adaptation; nothing for a model that began with random weights."""
    adapted = _mapping(manifest, "adapted")
    if not adapted:
        return []
    site, rehearsal = _mapping(adapted, "site"), _mapping(adapted, "rehearsal")
    return [
        f"| Started from | model with arrays of SHA-256 `{adapted.get('base')}` |",
        f"| Went on with | {site.get('notes')} notes of {site.get('patients')} patients with "
        f"{site.get('annotations')} annotations, and {rehearsal.get('notes')} notes of the corpus again |",
        f"| Adaptation | share {adapted.get('share')} of the way; {_plain(_mapping(adapted, 'settings'))} |",
        *(
            f"| Compared on {one.get('of')} | {one.get('notes')} notes of {one.get('patients')} patients: "
            f"strict F1 {_before_after(one, 'strict')}, leaked {_before_after(one, 'leaked')} |"
            for one in _list(adapted, "checks")
            if isinstance(one, dict)
        ),
    ]


def _before_after(check: Mapping[str, object], name: str) -> str:
    change = _mapping(check, name)
    return f"{change.get('before')} before, {change.get('after')} after"


def _row(name: str, figures: Mapping[str, object]) -> str:
    return f"| {name} | " + " | ".join(_interval(figures.get(part)) for part in ("precision", "recall", "f")) + " |"


def _interval(figure: object) -> str:
    if not isinstance(figure, list) or len(figure) != 3:
        return "-"
    value, low, high = (float(part) for part in figure)
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _mapping(parent: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _list(parent: Mapping[str, object], name: str) -> list[object]:
    found = parent.get(name)
    return found if isinstance(found, list) else []


class ModelStore:
    """A folder of models. Files are written to the temporary folder ``staging`` and then renamed."""

    def __init__(self, folder: Path, staging: Path) -> None:
        self._folder, self._staging = folder, staging

    def save(self, models: Sequence[TrainedModel], card: Mapping[str, object]) -> list[Path]:
        """Write ``.npz``, ``.json`` and ``.md`` of each model. Returns the paths of the manifests.

        The word vectors of a network are copied too. The array file is replaced first: a reader in between finds a
        digest that does not match, never half a model. Raises ``UnsafeError`` if the disk is full; no model of the
        folder has changed then.
        """
        with convert_disk_errors(self._folder):
            for model in models:
                write_model(model, card, self._staging)
            needs_vectors = any(isinstance(m, NetworkModel) and m.network.encoder.vectors is not None for m in models)
            names = [f"{model.name}.{ending}" for model in models for ending in ("npz", "json", "md")]
            for name in (*(self._copy_vectors() if needs_vectors else ()), *names):
                (self._staging / name).replace(self._folder / name)
            for model in models if is_packaged(self._folder) else ():
                trust_manifest(self._folder, model.name)  # its pin is still that of the earlier model
        return [self._folder / f"{model.name}.json" for model in models]

    def _copy_vectors(self) -> list[str]:
        """Copy the word vectors from the packaged models, unless this is their folder. Returns the file names."""
        packaged = data_folder("models")
        if packaged.resolve() == self._folder.resolve():
            return []
        names = [f"{VECTORS_NAME}.{ending}" for ending in ("npz", "json")]
        for name in names:
            shutil.copyfile(packaged / name, self._staging / name)
        return names


@contextmanager
def open_store(folder: Path) -> Iterator[ModelStore]:
    """The store of ``folder``, which is created if it is missing.

    Raises ``UnsafeError`` if the folder is not writable, so open the store before a training and not after it.
    """
    with convert_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".train-", dir=folder))
    try:
        yield ModelStore(folder, staging)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_model(model: TrainedModel, card: Mapping[str, object], folder: Path) -> None:
    """Write ``.npz``, ``.json`` and ``.md`` of ``model``. Raises ``OSError`` if a file cannot be written."""
    match model:
        case CrfModel():
            save_crf(replace(model, card=card), folder)
        case SvmModel():
            save_svm(replace(model, card={**model.card, **card}), folder)
        case NetworkModel():
            save_network(replace(model, card={**model.card, **card}), folder)
    manifest = json.loads((folder / f"{model.name}.json").read_text("utf-8"))
    (folder / f"{model.name}.md").write_text(render_card(manifest), "utf-8")


@contextmanager
def convert_disk_errors(folder: Path) -> Iterator[None]:
    """Raise ``UnsafeError`` with the reason and the remedy instead of ``OSError``."""
    try:
        yield
    except OSError as fault:
        reason = fault.strerror or type(fault).__name__
        raise UnsafeError(
            f"{folder}: {reason}: no model was changed; free space, or name another folder with --out"
        ) from None
