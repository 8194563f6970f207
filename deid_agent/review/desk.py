"""The review pages of the console over a folder: the port ``ReviewDesk``.

A reviewer never sees the decisions of another one before both have finished: their agreement would say nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path

from deid_agent.http import DeskError, DeskFigures, DeskItem, DeskNote, DeskSpan, NoteState, ReviewDesk
from deid_agent.model import ConfigurationError, Span
from deid_agent.review.folder import ReviewFolder, load_review_key
from deid_agent.review.gold import compare_pair
from deid_agent.review.records import (
    RANDOM,
    Agreement,
    BadSpansError,
    Decision,
    NoteDecisions,
    Proposal,
    QueueEntry,
    SpanFault,
    check_spans,
)
from deid_agent.review.sealing import FolderBusyError

_ADVICE: Mapping[SpanFault, str] = {
    SpanFault.OUTSIDE: "a span ends outside of the note: load the note again",
    SpanFault.EMPTY: "a span has no text: delete it",
    SpanFault.OVERLAP: "two spans share text: delete or shorten one",
    SpanFault.TYPE: "a span has an unknown type: choose another one",
}


def open_desk(folder: Path, key_file: Path) -> ReviewDesk:
    """The desk over a folder. Raises ``ConfigurationError`` if the folder or its key cannot be used."""
    return FolderDesk(ReviewFolder.open(folder, load_review_key(key_file)))


@contextmanager
def _as_desk_errors() -> Iterator[None]:
    try:
        yield
    except FolderBusyError:
        raise DeskError("busy", "another program is writing the folder: try again in a minute") from None
    except ConfigurationError:
        raise DeskError(
            "damaged", "a file of the folder is damaged: run deid-agent review status, restore it"
        ) from None


@dataclass(frozen=True, slots=True)
class FolderDesk:
    """The desk over an open folder. Threads and processes may use the same folder at once."""

    folder: ReviewFolder
    _agreements: dict[str, Agreement] = field(default_factory=dict, repr=False)
    """Counts of notes that two have finished. They never change, since a finished decision does not."""

    def reviewer_of(self, token: str) -> str | None:
        """See ``ReviewDesk``."""
        with _as_desk_errors():
            return self.folder.reviewer_of(token.strip())

    def queue(self, reviewer: str) -> Sequence[DeskItem]:
        """See ``ReviewDesk``."""
        with _as_desk_errors():
            count = self._require(reviewer)
            decided = [(each, self.folder.read_decisions(each.note)) for each in self.folder.read_index().entries]
        waiting, rest = list[DeskItem](), list[DeskItem]()
        for entry, decisions in decided:
            state = find_state(decisions, reviewer)
            item = DeskItem(entry.note, state, entry.reasons, entry.characters)
            (waiting if _is_waiting(state, decisions, reviewer, count) else rest).append(item)
        return [*waiting, *rest]

    def open(self, reviewer: str, note: str) -> DeskNote:
        """See ``ReviewDesk``. An agreed note has its gold."""
        with _as_desk_errors():
            count = self._require(reviewer)
            self._find(note)
            found, decisions = self.folder.read_note(note), self.folder.read_decisions(note)
        may = decisions.may_adjudicate(reviewer, count)
        known = {_key(each.span): each for each in found.proposals}
        mine = decisions.gold()
        if mine is None:
            own = (decisions.third if may else {}).get(reviewer) or decisions.own.get(reviewer)
            mine = own.spans if own is not None else None
        shown = [_show(each) for each in found.proposals] if mine is None else [_show_span(s, known) for s in mine]
        others = tuple((name, tuple(_show_span(s, known) for s in each.spans)) for name, each in decisions.finished)
        state = find_state(decisions, reviewer)
        return DeskNote(note, state, found.text, tuple(shown), others if may else ())

    def save(
        self, reviewer: str, note: str, spans: Sequence[DeskSpan], *, finished: bool, adjudicates: bool = False
    ) -> NoteState:
        """See ``ReviewDesk``."""
        with _as_desk_errors():
            count = self._require(reviewer)
            self._find(note)
            text = self.folder.read_note(note).text
            try:
                decision = Decision(check_spans(((s.begin, s.end, s.type) for s in spans), text), finished)
            except BadSpansError as problem:
                raise DeskError(f"span-{problem.fault}", _ADVICE[problem.fault]) from None
            with self.folder.locked():
                before = self.folder.read_decisions(note)
                decisions = decide(before, reviewer, decision, count, adjudicates=adjudicates)
                self.folder.write_decisions(note, decisions)
        return find_state(decisions, reviewer)

    def figures(self) -> DeskFigures:
        """See ``ReviewDesk``. ``finished`` are the notes that at least one reviewer has finished."""
        with _as_desk_errors():
            decided = [(each, self.folder.read_decisions(each.note)) for each in self.folder.read_index().entries]
            pairs = [self._agreement(each, one) for each, one in decided if len(one.finished) > 1]
        total = sum(pairs, Agreement())
        agreed = [entry for entry, one in decided if one.gold() is not None]
        return DeskFigures(
            notes=len(decided),
            finished=sum(bool(one.finished) for _, one in decided),
            disputed=sum(one.is_disputed for _, one in decided),
            agreed=len(agreed),
            random_agreed=sum(RANDOM in entry.reasons for entry in agreed),
            strict_f1=total.strict_f1 if pairs else None,
            kappa=total.kappa if pairs else None,
        )

    def _agreement(self, entry: QueueEntry, decisions: NoteDecisions) -> Agreement:
        if (known := self._agreements.get(entry.note)) is not None:
            return known
        found = compare_pair(self.folder.read_note(entry.note).text, decisions) or Agreement()
        self._agreements[entry.note] = found
        return found

    def _require(self, reviewer: str) -> int:
        """The number of reviewers, of whom this is one."""
        names = self.folder.reviewers()
        if reviewer not in names:
            raise DeskError("unknown-reviewer", "this reviewer has been removed: log in again")
        return len(names)

    def _find(self, note: str) -> QueueEntry:
        found = next((each for each in self.folder.read_index().entries if each.note == note), None)
        if found is None:
            raise DeskError("unknown-note", "the queue has no such note: load the queue again")
        return found


def find_state(decisions: NoteDecisions, reviewer: str) -> NoteState:
    """The state of a note for a reviewer. A disputed note is a draft for its adjudicator."""
    if decisions.gold() is not None:
        return NoteState.AGREED
    if decisions.is_disputed:
        return NoteState.DRAFT if reviewer in decisions.third else NoteState.DISPUTED
    own = decisions.own.get(reviewer)
    return NoteState.OPEN if own is None else NoteState.FINISHED if own.finished else NoteState.DRAFT


def _is_waiting(state: NoteState, decisions: NoteDecisions, reviewer: str, count: int) -> bool:
    """Whether the note needs this reviewer."""
    return state in {NoteState.OPEN, NoteState.DRAFT} or decisions.may_adjudicate(reviewer, count)


def decide(
    decisions: NoteDecisions, reviewer: str, decision: Decision, reviewers: int, *, adjudicates: bool = False
) -> NoteDecisions:
    """The decisions with that of a reviewer, who ``adjudicates`` after a look at both others.

    Raises ``DeskError`` if the reviewer may not decide any more.
    """
    if decisions.gold() is not None:
        raise DeskError("agreed", "the note is agreed: nobody changes it any more")
    if adjudicates and decisions.may_adjudicate(reviewer, reviewers):
        return replaced(decisions, third={**decisions.third, reviewer: decision})
    if (own := decisions.own.get(reviewer)) is not None and own.finished:
        raise DeskError("finished", "you have finished this note: a third reviewer decides if the other one differs")
    if decisions.is_disputed:
        raise DeskError("disputed", "two others have finished this note and differ: open it again to see both")
    return replaced(decisions, own={**decisions.own, reviewer: decision})


def _key(span: Span) -> tuple[int, int, str]:
    return span.start, span.end, span.type.value


def _show(proposal: Proposal) -> DeskSpan:
    return DeskSpan(*_key(proposal.span), str(proposal.span.source), proposal.uncertain)


def _show_span(span: Span, known: Mapping[tuple[int, int, str], Proposal]) -> DeskSpan:
    """A decided span, with the source of the proposal that it accepts."""
    proposal = known.get(_key(span))
    return DeskSpan(*_key(span)) if proposal is None else _show(proposal)
