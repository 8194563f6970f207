"""Folders of invented notes to review."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.config import SecretKey
from deid_agent.model import ANNOTATION, PhiType, Span, parse_source
from deid_agent.review import ReviewFolder, load_review_key, make_key_file
from deid_agent.review.records import Draw, Proposal, QueueEntry, ReviewIndex, ReviewNote

NOTE = "Mr. Quill came on 3/4/2019."
SPANS = (Span(4, 9, PhiType.PATIENT, ANNOTATION), Span(18, 26, PhiType.DATE, ANNOTATION))


@dataclass(frozen=True, slots=True)
class Site:
    """A folder with its key, the tokens of its reviewers, and the ids of its notes in order."""

    path: Path
    key: SecretKey = field(repr=False)
    folder: ReviewFolder
    tokens: Mapping[str, str] = field(repr=False)
    notes: tuple[str, ...]


def make_site(
    root: Path,
    texts: Sequence[str],
    *,
    reviewers: Sequence[str] = ("anna", "ben"),
    reasons: Sequence[str] = ("uncertain",),
    key: SecretKey | None = None,
) -> Site:
    """A folder with these notes, each of a patient of its own; the first words are proposed as a date."""
    root.mkdir(exist_ok=True)
    if key is None:
        make_key_file(root / "key")
        key = load_review_key(root / "key")
    folder, tokens = ReviewFolder.make(root / "folder", key, reviewers)
    ids = []
    with folder.locked():
        for at, text in enumerate(texts):
            proposal = Proposal(Span(0, 3, PhiType.DATE, parse_source("crf:token")), True)
            note = ReviewNote(
                folder.cipher.digest(text, str(at)),
                folder.cipher.digest(f"p{at}"),
                f"n{at}.txt",
                text,
                proposals=(proposal,),
            )
            folder.write_note(note)
            ids.append(note.id)
        entries = tuple(QueueEntry(id_, tuple(reasons), len(text)) for id_, text in zip(ids, texts, strict=True))
        draw = Draw("2026-11-27", len(texts), len(texts), len(texts), 0, "default", "recall")
        folder.write_index(ReviewIndex(entries, (draw,)))
    return Site(root / "folder", key, folder, tokens, tuple(ids))
