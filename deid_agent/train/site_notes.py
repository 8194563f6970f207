"""The notes that a warm start needs, and their faults: those of the site, and those of the rehearsal.

Errors have counts, types and places, never text of a note.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.eval import CorpusFormat, CorpusPart, Note, Pair, parse_label, read_annotated, select_part
from deid_agent.model import ConfigurationError, PhiType
from deid_agent.train.examples import Example, draw_share

LEAST_PATIENTS = 8
"""Fewer patients show nothing: the interval of any figure would hold every change."""
_MANY_PATIENTS = 40  # from here a quarter is held out, below notes are scored by cross-validation
_HELD_OUT = 0.25
_FOLDS = 3
_REHEARSED, _FEWEST_REHEARSED, _MOST_REHEARSED = 3, 150, 600  # notes for each note of the site, and bounds
_LEAST_FOUND = 10  # findings of a type that nobody annotated, before its absence is an error
_LABELS = {
    CorpusFormat.MARKUP: re.compile(r"\[\[([^\[\]|\n]{1,60})\|"),
    CorpusFormat.BRAT: re.compile(r"^T\w*\t(\S{1,60}) ", re.MULTILINE),
    CorpusFormat.JSONL: re.compile(r'"type"\s*:\s*"([^"\n]{1,60})"'),
    CorpusFormat.I2B2_2014: re.compile(r'\bTYPE="([^"\n]{1,60})"'),
    CorpusFormat.I2B2_2006: re.compile(r'\bTYPE="([^"\n]{1,60})"'),
}
_SUFFIXES = {CorpusFormat.MARKUP: ".txt", CorpusFormat.BRAT: ".ann", CorpusFormat.JSONL: ".jsonl"}
_COMMON_LABELS = frozenset(
    (
        *("ADDRESS", "CARDINAL", "CONTACT", "DATETIME", "DATE_TIME", "EMAIL_ADDRESS", "EVENT", "FAC"),
        *("FACILITY", "FIRST_NAME", "GEO", "GPE", "HCP", "HOSP", "ID_NUM", "LAST_NAME", "LOC"),
        *("MEDICAL_RECORD", "MISC", "MONEY", "MRN", "NAME", "NAME_DOCTOR", "NAME_PATIENT", "NORP", "NUMBER"),
        *("OCCUPATION", "ORDINAL", "ORG", "PER", "PERSON", "PERCENT", "PHI", "PHONE_NUMBER", "PHYSICIAN"),
        *("PRODUCT", "PROVIDER", "QUANTITY", "STAFF", "SURNAME", "TEL", "TIME", "US_SSN", "WARD", "WEB"),
        *("WORK_OF_ART", "ZIPCODE", "ZIP_CODE"),
    )
)
"""Labels of other label sets. Any other unknown label is counted and not shown: it could be text in a wrong column."""


@dataclass(frozen=True, slots=True)
class SiteNotes:
    """Annotated notes of a site. ``remarks`` are warnings for the user."""

    notes: tuple[Note, ...] = field(repr=False)
    remarks: tuple[str, ...] = ()

    @property
    def patients(self) -> tuple[str, ...]:
        """The patients, in order."""
        return tuple(sorted({note.patient for note in self.notes}))


def read_site_notes(path: Path, corpus_format: CorpusFormat | None, labels: Collection[str]) -> SiteNotes:
    """The notes at ``path``, which must have the types of ``labels`` (``I-DATE``), the labels of the models.

    Raises ``ConfigurationError`` if there is no note, if an annotation has an unknown label, or if there are too few
    patients or annotations.
    """
    try:
        corpus = read_annotated(path, corpus_format)
    except ConfigurationError as problem:
        if unknown := _unknown_labels(path, corpus_format):
            raise ConfigurationError(f"{problem}; {path} has another label set: {unknown}") from None
        raise
    notes = tuple(note for note in corpus.notes if note.annotated.text)
    if any(note.annotated.spans for note in corpus.notes if not note.annotated.text):
        raise ConfigurationError(f"{path}: annotations of a note without text: a model learns from the text")
    if corpus.format is CorpusFormat.I2B2_2006:
        raise ConfigurationError(
            f"{path}: has the eight types of 2006, where the models have {len(PhiType)}: annotate with those of the "
            "guidelines"
        )
    known = {label.partition("-")[2] for label in labels}
    kinds = Counter(span.type for note in notes for span in note.annotated.spans)
    if strange := sorted(kind.value for kind in kinds if kind.value not in known):
        raise ConfigurationError(f"{path}: types that the models to start from do not have: {', '.join(strange)}")
    if not kinds:
        raise ConfigurationError(f"{path}: no note has an annotation to learn from: use an annotated corpus")
    found = SiteNotes(notes, corpus.remarks)
    if len(found.patients) < LEAST_PATIENTS:
        raise ConfigurationError(
            f"{path}: notes of {len(found.patients)} patients; a warm start needs {LEAST_PATIENTS} or more, because "
            "it is judged on patients that it did not learn from"
        )
    if len(found.patients) == len(notes):
        remark = f"{path}: each note has a patient of its own; if that is not so, give patient_id: names that two "
        return SiteNotes(notes, (*corpus.remarks, remark + "parts of the notes share make the figures too good"))
    return found


def _unknown_labels(path: Path, corpus_format: CorpusFormat | None) -> str:
    """The unknown labels of the files with their counts, or ``""``."""
    counts: Counter[str] = Counter()
    for chosen in (corpus_format,) if corpus_format else _LABELS:
        suffix = _SUFFIXES.get(chosen, ".xml")
        files = sorted(path.glob(f"*{suffix}")) if path.is_dir() else [path] if path.suffix == suffix else []
        for file in filter(Path.is_file, files):
            text = file.read_bytes().decode("utf-8", "replace")
            counts.update(label for label in _LABELS[chosen].findall(text) if parse_label(label) is None)
    shown = {label: n for label, n in counts.items() if label.upper() in _COMMON_LABELS}
    parts = [f"{label} ({n})" for label, n in sorted(shown.items())]
    if others := len(counts) - len(shown):
        parts.append(f"{others} that are not shown, as they may be text")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Notes of the corpus that the models learned from: ``learned`` are read again, ``judged`` were never learned."""

    learned: tuple[Note, ...] = field(repr=False)
    judged: tuple[Note, ...] = field(repr=False)


def read_rehearsal(path: Path | None, site: SiteNotes) -> Rehearsal:
    """The rehearsal from the corpus at ``path``, by default ``corpus`` or the one beside the package.

    Raises ``ConfigurationError`` if there is no such corpus, if it lacks notes for training or dev, or if it has
    notes of the site too.
    """
    places = (path,) if path else (Path("corpus"), Path(__file__).resolve().parents[2] / "corpus")
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise ConfigurationError(
            f"{path or 'corpus'}: no such folder: a warm start reads the shipped corpus again, so that nothing is "
            "forgotten, and is judged on its dev notes. The wheel does not have it: unpack the source archive of this "
            "version, or clone the repository, and give --rehearsal PATH/corpus"
        )
    notes = read_annotated(folder, CorpusFormat.MARKUP).notes
    learned, judged = (select_part(notes, part) for part in (CorpusPart.TRAIN, CorpusPart.DEV))
    if not learned or not judged:
        raise ConfigurationError(f"{folder}: has no notes for training or no dev notes: give the corpus of the project")
    texts = {note.annotated.text for note in (*learned, *judged)}
    if same := sum(note.annotated.text in texts for note in site.notes):
        raise ConfigurationError(f"--corpus: {same} of its notes are in {folder} too: give notes of your site only")
    size = min(_MOST_REHEARSED, max(_FEWEST_REHEARSED, _REHEARSED * len(site.notes)))
    chosen = sorted(learned, key=lambda note: draw_share("rehearse", note.id))[:size]
    return Rehearsal(tuple(chosen), tuple(judged))


def refuse_missing_types(site: SiteNotes, found: Iterable[Pair]) -> None:
    """Raise ``ConfigurationError`` if ``found``, the findings of the models, has types that nobody annotated.

    The model would learn that such values are no PHI.
    """
    kinds = {span.type for note in site.notes for span in note.annotated.spans}
    counts = Counter(span.type for pair in found for span in pair.found if span.type not in kinds)
    least = max(_LEAST_FOUND, len(site.notes) // 2)
    if missing := [f"{kind} ({n} found)" for kind, n in sorted(counts.items()) if n >= least]:
        raise ConfigurationError(
            f"--corpus: no annotation of {', '.join(missing)}: a model would learn that such values are no PHI; "
            "annotate every type of the guidelines"
        )


@dataclass(frozen=True, slots=True)
class Fold:
    """Notes to learn from, and notes of other patients to judge by."""

    learned: tuple[Example, ...] = field(repr=False)
    judged: tuple[Example, ...] = field(repr=False)


def plan_folds(site: Sequence[Example]) -> tuple[Fold, ...]:
    """One fold that holds out a quarter of the patients if there are many, else the folds of a cross-validation."""
    patients = {example.note.patient for example in site}
    drawn = sorted(patients, key=lambda patient: draw_share("judge", patient))
    if len(drawn) >= _MANY_PATIENTS:
        return (_fold(site, set(drawn[: round(_HELD_OUT * len(drawn))])),)
    return tuple(_fold(site, set(drawn[at::_FOLDS])) for at in range(_FOLDS))


def _fold(site: Sequence[Example], held: Collection[str]) -> Fold:
    parts: Mapping[bool, list[Example]] = {True: [], False: []}
    for example in site:
        parts[example.note.patient in held].append(example)
    return Fold(tuple(parts[False]), tuple(parts[True]))
