"""The queue: a uniform random sample of notes, and the notes from which reviewers teach the most.

Every note has a rank, a digest of the seed and the note. The random sample are the notes of the lowest ranks, whatever
else is in the queue, so a later draw from the same notes makes the sample larger and keeps it uniform. The others are
chosen among the notes of the next ranks by their score:

    points = uncertain spans + missed places / 2 + min(unexamined values, 8) / 8
    score  = 1000 * points / (characters + 500)

A long note has more points and costs more time: the score is points for the time of reading. A patient has at most a
few of these notes, because the second note of a patient repeats the names of the first.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import orjson

from deid_agent.model import Document, Fact
from deid_agent.review.folder import ReviewFolder
from deid_agent.review.reading import NoteReading
from deid_agent.review.records import RANDOM, Draw, QueueEntry, ReviewIndex, ReviewNote

UNCERTAIN, DISAGREEMENT, UNEXAMINED = "uncertain", "disagreement", "unexamined"
"""Reasons of chosen notes."""
COPIED = 100
"""Characters of a text from which two equal ones are one note."""
_MOST_UNEXAMINED = 8
_SHORT = 500

ReadNote = Callable[[Document], NoteReading]


@dataclass(frozen=True, slots=True)
class SourceNote:
    """A note that may come into a folder. Without a ``patient`` it counts as a patient of its own."""

    name: str = field(repr=False)
    text: str = field(repr=False)
    patient: str = field(default="", repr=False)
    kind: str = ""
    date: str = field(default="", repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    unexamined: int = 0


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """How many notes to take. With ``patients`` the random sample are patients, each with one note of its own.

    ``candidates`` are read to choose among them; ``seed`` repeats a draw, also in another folder.
    """

    random: int = 0
    chosen: int = 0
    patients: bool = False
    per_patient: int = 2
    candidates: int = 1000
    seed: str = ""
    system: str = "default"
    profile: str = "recall"
    date: str = ""


@dataclass(frozen=True, slots=True)
class DrawResult:
    """Counts of a draw. ``known`` notes were in the folder, ``repeated`` ones came twice in the input.

    ``pools`` are the different sets of notes from which the random sample was drawn so far.
    """

    notes: int
    patients: int
    random: int
    chosen: int
    known: int
    repeated: int
    pools: int = 0


def identify(folder: ReviewFolder, note: SourceNote) -> tuple[str, str]:
    """The id of a note and of its patient in this folder: digests with its key."""
    id_ = folder.cipher.digest("note", note.text, note.patient)
    return id_, folder.cipher.digest("patient", note.patient or id_)


def score_note(reading: NoteReading, unexamined: int, characters: int) -> float:
    """The score of the module's documentation."""
    points = reading.uncertain + reading.missed / 2 + min(unexamined, _MOST_UNEXAMINED) / _MOST_UNEXAMINED
    return 1000 * points / (characters + _SHORT)


def list_reasons(reading: NoteReading, unexamined: int) -> tuple[str, ...]:
    """Why a note has a score; empty if it has none."""
    found = ((reading.uncertain, UNCERTAIN), (reading.missed, DISAGREEMENT), (unexamined, UNEXAMINED))
    return tuple(reason for count, reason in found if count)


def choose(
    scored: Iterable[tuple[float, str, str]], most: int, per_patient: int, taken: Mapping[str, int]
) -> list[str]:
    """The ids of the ``most`` highest scores above 0, of triples of score, id and patient.

    A patient has at most ``per_patient`` of them, those already ``taken`` included.
    """
    count = Counter(taken)
    found = list[str]()
    for score, id_, patient in sorted(scored, key=lambda each: (-each[0], each[1])):
        if score > 0 and len(found) < most and count[patient] < per_patient:
            count[patient] += 1
            found.append(id_)
    return found


def add_notes(folder: ReviewFolder, notes: Iterable[SourceNote], read: ReadNote, settings: DrawSettings) -> DrawResult:
    """Draw notes into the queue of a folder: all of the draw, or nothing if it fails.

    Raises ``ConfigurationError`` for a damaged file, ``FolderBusyError``, and ``OSError``.
    """
    before = {entry.note: entry for entry in folder.read_index().entries}
    stored = {id_: folder.read_note(id_) for id_ in before}
    pool, repeated = _collect(folder, notes, stored.values())
    seed = settings.seed or secrets.token_hex(16)
    ranked = sorted(pool, key=lambda id_: _rank(seed, pool[id_][0]))
    sampled = {id_ for id_, entry in before.items() if RANDOM in entry.reasons}
    if settings.patients:
        seen = {stored[id_].patient for id_ in sampled}
        fresh = [id_ for id_ in _one_of_each(seed, ranked, pool) if pool[id_][1] not in seen]
    else:
        fresh = [id_ for id_ in ranked if id_ not in sampled]
    random = fresh[: settings.random]
    drawn = {*random, *before}
    rest = [id_ for id_ in ranked if id_ not in drawn]
    candidates = rest[: settings.candidates] if settings.chosen else []
    made: dict[str, tuple[ReviewNote, QueueEntry]] = {
        id_: _make(id_, *pool[id_], read) for id_ in (*random, *candidates) if id_ not in before
    }
    scored = [(made[id_][1].score, id_, made[id_][0].patient) for id_ in candidates]
    taken = Counter(stored[id_].patient for id_ in before if id_ not in sampled)
    chosen = choose(scored, settings.chosen, settings.per_patient, taken)
    with folder.locked():
        index = folder.read_index()
        folder.check_names(index)
        now = {entry.note: entry for entry in index.entries}
        lucky = set(random)
        kept = [_promote(entry) if entry.note in lucky else entry for entry in index.entries]
        new = [
            _promote(made[id_][1]) if id_ in lucky else made[id_][1] for id_ in _mix(random, chosen) if id_ not in now
        ]
        for id_ in sorted(entry.note for entry in new):  # the times of the files must not show the order of the queue
            folder.write_note(made[id_][0])
        patients = len({patient for _, patient in pool.values()})
        draw = Draw(
            settings.date,
            len(pool),
            patients,
            len(random),
            len(chosen),
            settings.system,
            settings.profile,
            folder.cipher.digest("pool", "patient" if settings.patients else "note", *sorted(pool)),
        )
        changed = ReviewIndex((*kept, *new), (*index.draws, draw))
        folder.write_index(changed)
    known = sum(id_ in before for id_ in pool)
    return DrawResult(len(pool), patients, len(random), len(chosen), known, repeated, changed.pools)


def _collect(
    folder: ReviewFolder, notes: Iterable[SourceNote], stored: Iterable[ReviewNote]
) -> tuple[dict[str, tuple[SourceNote, str]], int]:
    """The notes by id, each with its patient; and how many were left out because they came before.

    A long text that comes again under another patient is a copy from another source, which has other identifiers.
    """
    long = {note.text: (note.id, note.patient) for note in stored if len(note.text) >= COPIED}
    pool, repeated = dict[str, tuple[SourceNote, str]](), 0
    for note in sorted(notes, key=lambda each: (each.text, not each.patient, each.patient)):
        found = identify(folder, note)
        id_, patient = long.setdefault(note.text, found) if len(note.text) >= COPIED else found
        repeated += id_ in pool
        pool.setdefault(id_, (note, patient))
    return pool, repeated


def _one_of_each(seed: str, ranked: Iterable[str], pool: Mapping[str, tuple[SourceNote, str]]) -> list[str]:
    """The first note of each patient by its rank, in the order of the ranks of the patients."""
    first = dict[str, str]()
    for id_ in ranked:
        first.setdefault(pool[id_][1], id_)

    def rank(id_: str) -> bytes:
        note = pool[id_][0]
        return _rank(seed, SourceNote("", f"patient: {note.patient or note.text}"))

    return sorted(first.values(), key=rank)


def _rank(seed: str, note: SourceNote) -> bytes:
    """The rank of a note under a seed: the same in each folder, whatever its key."""
    patient = "" if len(note.text) >= COPIED else note.patient
    data = orjson.dumps([seed, patient, note.text.encode("utf-8", "surrogatepass").hex()])
    return hashlib.sha256(data).digest()


def _make(id_: str, source: SourceNote, patient: str, read: ReadNote) -> tuple[ReviewNote, QueueEntry]:
    reading = read(Document(source.text, source.facts))
    note = ReviewNote(id_, patient, source.name, source.text, source.kind, source.date, reading.proposals)
    score = score_note(reading, source.unexamined, len(source.text))
    reasons = list_reasons(reading, source.unexamined)
    return note, QueueEntry(id_, reasons, len(source.text), round(score, 3))


def _promote(entry: QueueEntry) -> QueueEntry:
    """The entry of a note that is in the random sample too."""
    return entry if RANDOM in entry.reasons else replace(entry, reasons=(RANDOM, *entry.reasons))


def _mix(random: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Both in one order, each evenly spread: a reviewer who stops early has read some of both.

    The random notes remain in the order of their ranks, so that those read so far are a random sample themselves.
    """
    if not random or not chosen:
        return [*random, *chosen]
    longer, shorter = sorted((random, chosen), key=len, reverse=True)
    step = len(longer) / len(shorter)
    groups = [longer[round(at * step) : round((at + 1) * step)] for at in range(len(shorter))]
    return [id_ for one, group in zip_longest(shorter, groups, fillvalue="") for id_ in (one, *group) if id_]
