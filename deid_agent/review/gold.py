"""The gold of a folder: the notes on which reviewers agree, as notes of an annotated corpus."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deid_agent.config import SecretKey
from deid_agent.eval import Note
from deid_agent.model import Annotated, ConfigurationError, Span, counted
from deid_agent.review.folder import ReviewFolder, load_review_key
from deid_agent.review.records import RANDOM, Agreement, Draw, NoteDecisions, ReviewNote, compare


def read_gold(folder: Path, key: SecretKey, *, random_only: bool = False, single: bool = False) -> tuple[Note, ...]:
    """The notes on which two reviewers agree, or that are adjudicated, in the order of the queue.

    ``single`` adds notes that one reviewer alone has finished. With ``random_only`` they are of the random sample, so
    that an estimate over them holds for the notes from which it was drawn.

    Raises ``ConfigurationError`` if the folder cannot be opened, or has no such note.
    """
    found = tuple(note for note, _ in list_gold(ReviewFolder.open(folder, key), random_only, single))
    if not found:
        kind = "note of the random sample" if random_only else "note"
        raise ConfigurationError(
            f"review folder {folder}: no {kind} is agreed: finish some, or see: deid-agent review status"
        )
    return found


def read_random_sample(folder: Path, key_file: Path | None) -> tuple[Note, ...]:
    """The notes of the random sample with their gold, for an estimate.

    Raises ``ConfigurationError`` without a key file, and if notes of the sample have no gold yet.
    """
    if key_file is None:
        raise ConfigurationError("--review needs --review-key: the gold is sealed")
    key = load_review_key(key_file)
    notes = read_gold(folder, key, random_only=True)
    if left := read_status(ReviewFolder.open(folder, key)).random_open:
        # The notes that reviewers finish first are the easy ones.
        raise ConfigurationError(
            f"--review: {counted(left, 'note')} of the random sample without gold: finish all, because those that are "
            "finished first are no random sample"
        )
    return notes


def list_gold(folder: ReviewFolder, random_only: bool = False, single: bool = False) -> Iterator[tuple[Note, str]]:
    """Each note with its gold, and the name of its source."""
    for entry in folder.read_index().entries:
        if random_only and RANDOM not in entry.reasons:
            continue
        spans = folder.read_decisions(entry.note).gold(single=single)
        if spans is not None:
            note = folder.read_note(entry.note)
            yield make_note(note, spans), note.name


def make_note(note: ReviewNote, spans: tuple[Span, ...]) -> Note:
    """The note of an annotated corpus."""
    return Note(note.id, note.kind, note.date, note.patient, Annotated(note.text, spans), {})


@dataclass(frozen=True, slots=True)
class ReviewStatus:
    """Counts of a folder. ``random_open`` notes of the random sample have no gold yet: an estimate misses them."""

    notes: int
    patients: int
    drafts: int
    finished: int
    """Notes that at least one reviewer has finished."""
    disputed: int
    agreed: int
    random: int
    random_agreed: int
    by_reviewer: dict[str, int]
    draws: tuple[Draw, ...]

    @property
    def random_open(self) -> int:
        """Notes of the random sample without gold."""
        return self.random - self.random_agreed


def read_status(folder: ReviewFolder) -> ReviewStatus:
    """The counts. Raises ``ConfigurationError`` for a damaged file."""
    index = folder.read_index()
    decided = [(entry, folder.read_decisions(entry.note)) for entry in index.entries]
    chosen = [RANDOM in entry.reasons for entry, _ in decided]
    gold = [each.gold() is not None for _, each in decided]
    return ReviewStatus(
        notes=len(decided),
        patients=len({folder.read_note(entry.note).patient for entry, _ in decided}),
        drafts=sum(any(not each.finished for each in one.own.values()) for _, one in decided),
        finished=sum(bool(each.finished) for _, each in decided),
        disputed=sum(each.is_disputed for _, each in decided),
        agreed=sum(gold),
        random=sum(chosen),
        random_agreed=sum(a and b for a, b in zip(chosen, gold, strict=True)),
        by_reviewer={name: sum(name in dict(each.finished) for _, each in decided) for name in folder.reviewers()},
        draws=index.draws,
    )


def compare_pair(text: str, decisions: NoteDecisions) -> Agreement | None:
    """The agreement of the two reviewers of a note; None if two have not finished it."""
    pair = decisions.finished
    return compare(text, pair[0][1].spans, pair[1][1].spans) if len(pair) > 1 else None


def read_agreement(folder: ReviewFolder) -> tuple[int, Agreement]:
    """The number of notes that two have finished, and the agreement over them."""
    count, total = 0, Agreement()
    for entry in folder.read_index().entries:
        decisions = folder.read_decisions(entry.note)
        if len(decisions.finished) > 1:
            one = compare_pair(folder.read_note(entry.note).text, decisions)
            count, total = count + 1, total + (one or Agreement())
    return count, total
