"""Takes decisions that were made elsewhere into a folder: those of one reviewer, finished."""

import re
import tomllib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from pathlib import Path

from deid_agent.eval import CorpusFormat, LeftOut, Note, ParseLabel, parse_label, read_annotated
from deid_agent.http import DeskError
from deid_agent.model import ConfigurationError, PhiType, Span, counted
from deid_agent.review.annotation_tools import MOST_BYTES, read_file, read_inception, read_label_studio
from deid_agent.review.desk import decide
from deid_agent.review.folder import ReviewFolder
from deid_agent.review.queue import SourceNote, identify
from deid_agent.review.records import (
    IMPORTED,
    BadSpansError,
    Decision,
    NoteDecisions,
    QueueEntry,
    ReviewIndex,
    ReviewNote,
    SpanFault,
    check_spans,
)

_SHOWN_LABELS = 20
_LINE_END = re.compile(r"\r\n|\r|\n")
_LABEL = re.compile(r"[\w .:/-]{1,40}")
_FAULTS = {
    SpanFault.OVERLAP: "with spans that share text: make them disjoint",
    SpanFault.EMPTY: "with spans of white space: delete them",
    SpanFault.OUTSIDE: "with spans outside of their text: correct the offsets",
    SpanFault.TYPE: "with spans of an unknown type",
}


class ImportForm(StrEnum):
    """The formats of decisions, by their names on the command line."""

    BRAT = "brat"
    I2B2_2014 = "i2b2-2014"
    JSONL = "jsonl"
    LABEL_STUDIO = "label-studio"
    INCEPTION = "inception-xmi"


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """How decisions are read. ``new`` takes notes that are not in the folder."""

    form: ImportForm
    labels: Path | None = None
    annotator: str = ""
    feature: str = ""
    new: bool = False


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Counts of notes. ``kept`` had a finished decision, which was not changed; ``strange`` are not in the folder."""

    decided: int
    new: int = 0
    kept: int = 0
    strange: int = 0


@dataclass(slots=True)
class _Labels:
    """Reads labels by a map, and counts the unknown ones."""

    known: dict[str, PhiType | LeftOut]
    unknown: Counter[str] = field(default_factory=Counter)

    def __call__(self, label: str) -> PhiType | LeftOut | None:
        found = self.known.get(label.strip()) or parse_label(label)
        if found is None:
            self.unknown[label if _LABEL.fullmatch(label) else "(not a label)"] += 1
            return LeftOut.LEFT_OUT  # read on, so that the error lists all of them
        return found


def load_label_map(path: Path) -> dict[str, PhiType | LeftOut]:
    """The types of the labels in a TOML file: ``PER = "PATIENT"``; an empty type leaves spans out.

    Raises ``ConfigurationError`` for an invalid file.
    """
    try:
        found = tomllib.loads(read_file(path).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise ConfigurationError(f'{path}: not TOML: write lines such as PER = "PATIENT"') from None
    known = dict[str, PhiType | LeftOut]()
    for label, name in found.items():
        kind = LeftOut.LEFT_OUT if name == "" else parse_label(name) if isinstance(name, str) else None
        if kind is None:
            raise ConfigurationError(f"{path}: {label}: is given no type of the annotation guidelines")
        known[label] = kind
    return known


def read_decisions(path: Path, settings: ImportSettings) -> list[Note]:
    """The notes of a file or folder.

    Raises ``ConfigurationError`` for a bad file, and with all labels of another label set.
    """
    if not path.exists():
        raise ConfigurationError(f"{path}: no such file or folder")
    if any(each.stat().st_size > MOST_BYTES for each in ((path,) if path.is_file() else path.rglob("*"))):
        raise ConfigurationError(f"{path}: has a file of more than {MOST_BYTES >> 20} MB: divide it")
    labels = _Labels(load_label_map(settings.labels) if settings.labels is not None else {})
    notes = _read(path, settings, labels)
    if labels.unknown:
        shown = ", ".join(f"{label} ({count})" for label, count in labels.unknown.most_common(_SHOWN_LABELS))
        more = len(labels.unknown) - _SHOWN_LABELS
        rest = f" and {more} more" if more > 0 else ""
        raise ConfigurationError(f"{path}: unknown labels: {shown}{rest}: give their types with --map FILE")
    if not notes:
        raise ConfigurationError(f"{path}: has no annotated note in the format {settings.form}")
    return notes


def _read(path: Path, settings: ImportSettings, parse: ParseLabel) -> list[Note]:
    match settings.form:
        case ImportForm.LABEL_STUDIO:
            return read_label_studio(path, parse, settings.annotator)
        case ImportForm.INCEPTION:
            return read_inception(path, parse, settings.feature)
        case form:
            corpus = read_annotated(path, CorpusFormat(form.value), parse)
            if corpus.remarks:  # for ``eval`` a warning is enough, but a finished decision never changes
                more = f" (and {len(corpus.remarks) - 1} more)" if len(corpus.remarks) > 1 else ""
                raise ConfigurationError(f"{corpus.remarks[0]}{more}; nothing was imported")
            return list(corpus.notes)


def import_decisions(folder: ReviewFolder, path: Path, reviewer: str, settings: ImportSettings) -> ImportResult:
    """Save the decisions of a file or folder as finished ones of a reviewer: all of them, or none if one is invalid.

    A note is found by its id in the folder, its text, or the name of its source. Raises ``ConfigurationError``.
    """
    if reviewer not in folder.reviewers():
        raise ConfigurationError(f"--reviewer: the folder has no such reviewer; it has {', '.join(folder.reviewers())}")
    notes = read_decisions(path, settings)
    with folder.locked():
        index = folder.read_index()
        folder.check_names(index)
        present = [folder.read_note(entry.note) for entry in index.entries]
        known = _KnownNotes(present, by_id_alone=settings.form is ImportForm.JSONL)
        changes, added, strange = dict[str, tuple[Span, ...]](), dict[str, ReviewNote](), 0
        faults = Counter[str]()
        for note in notes:
            try:
                found = known.find(note)
                if not found and not (settings.new and note.annotated.text.strip()):
                    strange += 1
                    continue
                new = () if found else (_make_note(folder, note),)
                added |= {each.id: each for each in new}
                for each in (*found, *new):
                    spans = check_spans(_fit(note, each.text), each.text)
                    if changes.setdefault(each.id, spans) != spans:
                        faults["that come twice with different spans: import one of them"] += 1
            except BadSpansError as problem:
                faults[_FAULTS[problem.fault]] += 1
            except _OtherTextError:
                faults["whose text differs from that in the folder, so that the offsets do not fit"] += 1
        if faults:
            reasons = "; ".join(f"{counted(count, 'note')} {why}" for why, count in sorted(faults.items()))
            raise ConfigurationError(f"{path}: {reasons}; nothing was imported")
        decided, kept = _decide_all(folder, reviewer, changes)
        # As in ``add``: the index comes last, so that a decision about a note without an entry is never read.
        for each in added.values():
            folder.write_note(each)
        if added:
            entries = tuple(QueueEntry(each.id, (IMPORTED,), len(each.text)) for each in added.values())
            folder.write_index(ReviewIndex((*index.entries, *entries), index.draws))
        for id_, decisions in decided.items():
            folder.write_decisions(id_, decisions)
    return ImportResult(len(decided), len(added), kept, strange)


def _decide_all(
    folder: ReviewFolder, reviewer: str, changes: dict[str, tuple[Span, ...]]
) -> tuple[dict[str, NoteDecisions], int]:
    decided, kept, count = dict[str, NoteDecisions](), 0, len(folder.reviewers())
    for id_, spans in changes.items():
        before = folder.read_decisions(id_)
        own = before.own.get(reviewer)
        # An import adjudicates nothing: its annotator has not seen the two decisions.
        if before.is_disputed or (own is not None and own.finished):
            kept += 1
            continue
        try:
            decided[id_] = decide(before, reviewer, Decision(spans, finished=True), count)
        except DeskError:
            kept += 1
    return decided, kept


class _OtherTextError(Exception):
    """A note of the folder has the same id and another text."""


class _KnownNotes:
    """Finds the notes of a folder that another file means.

    Only with ``by_id_alone`` may a note have no text: in another format an empty text is an export that was cut off,
    and its missing spans would be a decision.
    """

    def __init__(self, notes: Sequence[ReviewNote], *, by_id_alone: bool) -> None:
        self._by_id_alone = by_id_alone
        self._by_id = {note.id: note for note in notes}
        self._by_text = dict[str, list[ReviewNote]]()
        self._by_name = dict[str, list[ReviewNote]]()
        for note in notes:
            self._by_text.setdefault(_with_one_line_end(note.text), []).append(note)
            self._by_name.setdefault(note.name, []).append(note)

    def find(self, note: Note) -> list[ReviewNote]:
        """The notes; none if there is none. Raises ``_OtherTextError``."""
        text = note.annotated.text
        if not (text or self._by_id_alone):
            return []
        named = self._by_id.get(note.id) or self._by_id.get(note.id.rpartition("-")[2])  # i2b2: PATIENT-NOTE
        if named is not None:
            if text and _with_one_line_end(text) != _with_one_line_end(named.text):
                raise _OtherTextError
            return [named]
        if text:
            return self._by_text.get(_with_one_line_end(text), [])
        found = self._by_name.get(note.id, [])
        if len({each.text for each in found}) > 1:
            raise _OtherTextError
        return found


def _with_one_line_end(text: str) -> str:
    return _LINE_END.sub("\n", text)


def _fit(note: Note, text: str) -> Iterator[tuple[int, int, str]]:
    """The spans of a note at their places in ``text``, which is equal except for line ends: tools change them."""
    given = note.annotated.text
    if not given or given == text:
        yield from ((span.start, span.end, span.type) for span in note.annotated.spans)
        return
    before, after = _line_ends(given), _line_ends(text)
    for span in note.annotated.spans:
        yield _move(span.start, before, after), _move(span.end, before, after), span.type


def _line_ends(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in _LINE_END.finditer(text)]


def _move(at: int, before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> int:
    """The place ``at`` in a text with the line ends ``before``, in one with the line ends ``after``."""
    passed = bisect_right(before, at, key=itemgetter(1))
    inside = passed < len(before) and before[passed][0] < at
    if inside:
        return after[passed][0]
    return at + (after[passed - 1][1] - before[passed - 1][1] if passed else 0)


def _make_note(folder: ReviewFolder, note: Note) -> ReviewNote:
    patient = note.patient if note.patient != note.id else ""  # the readers put the id for an unknown patient
    id_, opaque = identify(folder, SourceNote(note.id, note.annotated.text, patient))
    return ReviewNote(id_, opaque, note.id, note.annotated.text, note.kind, note.date)
