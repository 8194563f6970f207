"""Feeds with leaks: those that a reviewed sample shows, those that are planted, and a feed of marks as the control."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from deid_agent.evidence.pairs import ReplacedRange, TextPair
from deid_agent.model import Range

Leaks = Mapping[str, Sequence[Range]]
"""By note the ranges of its original that are PHI and unchanged in its output."""


def find_leaks(pair: TextPair, gold: Iterable[Range], *, parts: bool = True) -> list[Range]:
    """The ranges of the original that ``gold`` calls PHI and that are unchanged in the output.

    With ``parts`` also the rest of PHI that was replaced in part: use it if the replaced ranges were recorded. A
    surrogate may have a word of its original by chance or on purpose ("Street"), which an alignment cannot see.
    """
    found = []
    for begin, end in sorted(gold):
        left, at = [], begin
        for each in pair.replaced:
            if each.source_end <= begin or each.source_begin >= end or each.source_begin == each.source_end:
                continue
            left.append((at, each.source_begin))
            at = max(at, each.source_end)
        whole = at == begin
        left.append((at, end))
        for first, last in left:
            text = pair.original[first:last] if first < last else ""
            if sum(map(str.isalnum, text)) >= (1 if whole else 3) and (whole or parts):
                lead, trail = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
                found.append((first + lead, last - trail))
    return found


def plant_leaks(
    pairs: Sequence[TextPair], share: float, seed: int = 1
) -> tuple[list[TextPair], dict[str, list[Range]]]:
    """The feed with a random share of its surrogates taken back, and the leaks that this makes.

    These leaks are PHI that the tagger found, so they are easier to hide than real ones, which are in places that the
    tagger does not expect: the attack on them is a check of the attack, and no estimate for the feed.
    """
    made, leaks = [], {}
    for pair in pairs:
        kept: list[ReplacedRange] = []
        planted: list[ReplacedRange] = []
        for number, each in enumerate(pair.replaced):
            old = pair.replaced_text(each)
            drawn = draw_share(f"{seed}:{pair.note}:{number}") < share and sum(map(str.isalnum, old)) >= 3
            (planted if drawn else kept).append(each)
        made.append(_rewrite(pair, {each: pair.replaced_text(each) for each in planted}, kept))
        if planted:
            leaks[pair.note] = [(each.source_begin, each.source_end) for each in planted]
    return made, leaks


def mark_replaced(pairs: Iterable[TextPair]) -> list[TextPair]:
    """The feed with marks such as ``[DATE]`` instead of surrogates: every PHI-like string that is left is a leak."""
    return [
        _rewrite(pair, {each: f"[{each.type or 'REMOVED'}]" for each in pair.replaced}, pair.replaced) for pair in pairs
    ]


def _rewrite(pair: TextPair, new: Mapping[ReplacedRange, str], kept: Sequence[ReplacedRange]) -> TextPair:
    """The pair with other texts in the output for some replaced ranges; those of ``kept`` stay replaced ranges."""
    out: list[str] = []
    ranges, at, size, still = [], 0, 0, set(kept)
    for each in pair.replaced:
        text = new.get(each, pair.surrogate(each))
        out += (pair.output[at : each.begin], text)
        size += each.begin - at
        if each in still:
            ranges.append(replace(each, begin=size, end=size + len(text)))
        size, at = size + len(text), each.end
    return TextPair(pair.note, pair.patient, pair.original, "".join([*out, pair.output[at:]]), tuple(ranges))


def split_patients(pairs: Sequence[TextPair], seed: int) -> tuple[list[int], list[int]]:
    """The positions of the pairs of one half of the patients, and of the other."""
    patients = sorted({pair.patient for pair in pairs}, key=lambda name: (draw_share(f"{seed}:{name}"), name))
    first = {*patients[::2]}
    sides = [pair.patient in first for pair in pairs]
    return [n for n, side in enumerate(sides) if side], [n for n, side in enumerate(sides) if not side]


def draw_share(name: str) -> float:
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:6]) / 2**48
