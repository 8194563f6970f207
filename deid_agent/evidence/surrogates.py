"""Whether surrogates look like originals: a finder's recall on originals against its recall on outputs.

Leaks hide among surrogates only if a reader cannot tell them apart. A finder that finds the surrogates as often as the
originals sees no difference that matters to it. Two finders are compared: this program's tagger, and one that learned
from the originals of the other half of the patients. The ranges are those that were replaced, so the program's own
tagger has found nearly all of the originals; the learned one is the fairer judge.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from deid_agent.evidence.feeds import split_patients
from deid_agent.evidence.learned_finder import NothingToLearnError, learn_finder
from deid_agent.evidence.pairs import TextPair
from deid_agent.evidence.parrot_candidates import FindRanges, ParrotTools
from deid_agent.evidence.shares import SampledShare, resample_patients, sampled, share_of
from deid_agent.model import Range

ALL_TYPES: Final = "all"


@dataclass(frozen=True, slots=True)
class RecallOnBoth:
    """The share of replaced ranges of a type that a finder finds in the originals, and in the outputs.

    A negative ``difference`` means that it finds fewer surrogates than originals: they look different.
    """

    type: str
    ranges: int
    patients: int
    originals: SampledShare
    outputs: SampledShare
    difference: SampledShare

    def as_json(self) -> dict[str, object]:
        """The members as JSON."""
        return {
            "type": self.type,
            "ranges": self.ranges,
            "patients": self.patients,
            "recall_on_originals": self.originals.as_json(),
            "recall_on_outputs": self.outputs.as_json(),
            "difference": self.difference.as_json(),
        }


@dataclass(frozen=True, slots=True)
class SurrogateQuality:
    """The recalls of one finder, of all types first. Without types there is only that line."""

    finder: str
    recalls: tuple[RecallOnBoth, ...] = field(default=())

    def as_json(self) -> dict[str, object]:
        """The members as JSON."""
        return {"finder": self.finder, "recalls": [each.as_json() for each in self.recalls]}


def compare_recall(pairs: Sequence[TextPair], name: str, find: FindRanges, seed: int = 1) -> SurrogateQuality:
    """The recall of ``find`` on the replaced ranges, before and after. A range is found if half of its letters are."""
    old = find([pair.original for pair in pairs])
    new = find([pair.output for pair in pairs])
    return _compare(pairs, name, dict(enumerate(zip(old, new, strict=True))), seed)


def compare_learned_recall(pairs: Sequence[TextPair], tools: ParrotTools, seed: int = 1) -> SurrogateQuality:
    """As ``compare_recall``, of a finder that learned from the originals of the other half of the patients.

    Without enough to learn from, the result has no recalls.
    """
    halves = split_patients(pairs, seed)
    if not all(any(pairs[at].replaced for at in half) for half in halves):
        return SurrogateQuality("learned")
    found: dict[int, tuple[Sequence[Range], Sequence[Range]]] = {}
    for known, tested in (halves, halves[::-1]):
        texts = [
            (pairs[at].original, [(each.source_begin, each.source_end) for each in pairs[at].replaced]) for at in known
        ]
        try:
            finder = learn_finder(texts, tools.fit, tools.dictionaries)
        except NothingToLearnError:
            return SurrogateQuality("learned")
        for at in tested:
            found[at] = finder.find(pairs[at].original), finder.find(pairs[at].output)
    return _compare(pairs, "learned", found, seed)


def _compare(
    pairs: Sequence[TextPair], name: str, found: Mapping[int, tuple[Sequence[Range], Sequence[Range]]], seed: int
) -> SurrogateQuality:
    patients = sorted({pair.patient for pair in pairs})
    place = {patient: at for at, patient in enumerate(patients)}
    rows: dict[str, list[tuple[int, bool, bool]]] = defaultdict(list)
    for at, pair in enumerate(pairs):
        old, new = (
            _covered(text, ranges) for text, ranges in zip((pair.original, pair.output), found[at], strict=True)
        )
        for each in pair.replaced:
            if _is_found(pair.original, (each.source_begin, each.source_end), old) is not None:
                row = (
                    place[pair.patient],
                    bool(_is_found(pair.original, (each.source_begin, each.source_end), old)),
                    bool(_is_found(pair.output, (each.begin, each.end), new)),
                )
                for kind in {ALL_TYPES, each.type} - {""}:
                    rows[kind].append(row)
    weights = resample_patients(len(patients), seed)
    kinds = sorted(rows, key=lambda kind: (kind != ALL_TYPES, kind))
    recalls = []
    for kind in kinds:
        table = np.array(rows[kind], np.int64)
        of, old_found, new_found = (
            weights @ np.bincount(table[:, 0], column, len(patients))
            for column in (np.ones(len(table)), table[:, 1], table[:, 2])
        )
        apart = np.divide(new_found - old_found, of, out=np.full(len(of), np.nan), where=of > 0)
        own = len({*table[:, 0].tolist()})
        shares = share_of(old_found, of), share_of(new_found, of), sampled(apart)
        recalls.append(RecallOnBoth(kind, len(table), own, *shares))
    return SurrogateQuality(name, tuple(recalls))


def _covered(text: str, ranges: Iterable[Range]) -> bytearray:
    """For each character whether one of ``ranges`` has it."""
    found = bytearray(len(text))
    for begin, end in ranges:
        found[begin:end] = b"\x01" * (min(end, len(text)) - begin)
    return found


def _is_found(text: str, span: Range, covered: bytearray) -> bool | None:
    """True if half of the letters and digits of ``span`` are covered; None if it has none."""
    marks = [covered[at] for at in range(*span) if text[at].isalnum()]
    return 2 * sum(marks) >= len(marks) if marks else None
