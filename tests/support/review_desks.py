"""A desk in memory: notes, two or three reviewers, agreement and adjudication, and faults that a test asks for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from deid_agent.http.review_desk import DeskError, DeskFigures, DeskItem, DeskNote, DeskSpan, NoteState

ANNA, BEN, CARA = "anna", "ben", "cara"
REVIEWERS = {"token-of-anna-000000000000": ANNA, "token-of-ben-0000000000000": BEN, "token-of-cara-000000000000": CARA}
TOKEN_OF = {name: token for token, name in REVIEWERS.items()}
TEXT = (
    "Seen by Dr. Ines Castellano on 03/04/2019.\nMr. Okafor lives in Zanesville and works as a welder.\n"
    "MRN: 4471902. Foley catheter removed.\n"
)


def span(text: str, value: str, kind: str, source: str = "", *, uncertain: bool = False) -> DeskSpan:
    """The first occurrence of a value."""
    begin = text.index(value)
    return DeskSpan(begin, begin + len(value), kind, source, uncertain)


def proposals(text: str = TEXT) -> tuple[DeskSpan, ...]:
    return (
        span(text, "Ines Castellano", "DOCTOR", "crf:token"),
        span(text, "03/04/2019", "DATE", "rule:date"),
        span(text, "Okafor", "PATIENT", "crf:token", uncertain=True),
        span(text, "Foley", "DOCTOR", "network", uncertain=True),
    )


@dataclass
class MemoryDesk:
    """``texts`` are notes with their proposals. ``fault`` is raised by the next call."""

    texts: dict[str, tuple[str, tuple[DeskSpan, ...]]]
    reviewers: tuple[str, ...] = (ANNA, BEN, CARA)
    decided: dict[tuple[str, str], tuple[tuple[DeskSpan, ...], bool]] = field(default_factory=dict)
    gold: dict[str, tuple[DeskSpan, ...]] = field(default_factory=dict)
    fault: Exception | None = None

    def _fail(self) -> None:
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault

    def reviewer_of(self, token: str) -> str | None:
        self._fail()
        return REVIEWERS.get(token)

    def queue(self, reviewer: str) -> Sequence[DeskItem]:
        self._fail()
        items = [
            DeskItem(note, self._state(reviewer, note), ("random",) if number % 2 == 0 else ("uncertain",), len(text))
            for number, (note, (text, _)) in enumerate(self.texts.items())
        ]
        return sorted(items, key=lambda item: item.state in {NoteState.FINISHED, NoteState.AGREED})

    def open(self, reviewer: str, note: str) -> DeskNote:
        self._fail()
        if note not in self.texts:
            raise DeskError("unknown-note", "there is no such note: open it from the queue")
        text, proposed = self.texts[note]
        mine = self.decided.get((reviewer, note))
        state = self._state(reviewer, note)
        others: tuple[tuple[str, tuple[DeskSpan, ...]], ...] = ()
        if note not in self.gold and len(self._finished(note)) == 2 and reviewer not in self._finished(note):
            others = tuple((name, self.decided[name, note][0]) for name in self._finished(note))
        return DeskNote(note, state, text, self.gold.get(note) or (mine[0] if mine else proposed), others)

    def save(
        self, reviewer: str, note: str, spans: Sequence[DeskSpan], *, finished: bool, adjudicates: bool = False
    ) -> NoteState:
        self._fail()
        if any(one.end > len(self.texts[note][0]) for one in spans):
            raise DeskError("offset", "a span ends past the end of the note: load the note again")
        state = self._state(reviewer, note)
        if note in self.gold or reviewer in self._finished(note):
            raise DeskError("finished", "this note is finished: its decisions cannot change")
        if adjudicates != (len(self._finished(note)) == 2):
            raise DeskError("disputed", "two others have finished this note and differ: open it again to see both")
        self.decided[reviewer, note] = (tuple(spans), finished and not adjudicates)
        if finished and adjudicates:
            self.gold[note] = tuple(spans)
        elif finished and len(self._finished(note)) == 2:
            first, second = (
                {(s.begin, s.end, s.type) for s in self.decided[name, note][0]} for name in self._finished(note)
            )
            if first == second:
                self.gold[note] = tuple(spans)
        state = self._state(reviewer, note)
        return state

    def figures(self) -> DeskFigures:
        self._fail()
        finished = [note for note in self.texts if len(self._finished(note)) == 2]
        return DeskFigures(
            len(self.texts),
            len(finished),
            len([note for note in finished if note not in self.gold]),
            len(self.gold),
            len(self.gold),
            0.875 if finished else None,
            None,
        )

    def _finished(self, note: str) -> list[str]:
        return [name for name in self.reviewers if self.decided.get((name, note), ((), False))[1]]

    def _state(self, reviewer: str, note: str) -> NoteState:
        if note in self.gold:
            return NoteState.AGREED
        if len(self._finished(note)) == 2:
            mine = self.decided.get((reviewer, note))
            return NoteState.DRAFT if mine is not None and not mine[1] else NoteState.DISPUTED
        mine = self.decided.get((reviewer, note))
        if mine is None:
            return NoteState.OPEN
        return NoteState.FINISHED if mine[1] else NoteState.DRAFT
