"""The sections of attacks: a reader of outputs who looks for leaks, and whether surrogates look like originals.

The attacks know the truth from the reviewed sample, so they run on the texts of the sample only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from deid_agent.eval import Note
from deid_agent.evidence.attacks import attack_threats
from deid_agent.evidence.feeds import find_leaks, mark_replaced
from deid_agent.evidence.figures import NO_INTERVAL, EvidenceFigure, EvidenceSection, percent
from deid_agent.evidence.leaks import may_stay
from deid_agent.evidence.pairs import TextPair
from deid_agent.evidence.parrot import ParrotResult, SignalResult, attack_feed
from deid_agent.evidence.parrot_candidates import ParrotStrength, ParrotTools
from deid_agent.evidence.shares import SampledShare
from deid_agent.evidence.surrogates import ALL_TYPES, SurrogateQuality, compare_learned_recall, compare_recall
from deid_agent.model import ConfigurationError, PhiType, Range

_STRENGTHS = {
    ParrotStrength.SOFTWARE: "reader with this software",
    ParrotStrength.LABELS: "reader who labels all that looks like PHI",
}
_FEWEST_RANGES = 20
_METHOD = (
    "A reader trains a tagger on the outputs of half of the patients and looks for strings in the other half that do "
    "not look like surrogates (Carrell et al. 2019). Chance is the precision of guesses at random. As a control the "
    "same reader attacks the feed with marks in place of surrogates."
)
_LIMIT = (
    "Other attackers: this one has no knowledge about patients from elsewhere. With few leaks in the sample the "
    "intervals are wide; without any there is nothing to find."
)


def name_types(matched: Iterable[tuple[Note, TextPair]]) -> list[TextPair]:
    """The pairs of the sample, their replaced ranges with the types of the annotations. A repeated pair counts once."""
    found: dict[str, TextPair] = {}
    for note, pair in matched:
        spans = note.annotated.spans
        named = (
            replace(
                each,
                type=next(
                    (s.type.value for s in spans if s.start < each.source_end and each.source_begin < s.end), each.type
                ),
            )
            for each in pair.replaced
        )
        found.setdefault(pair.note, replace(pair, replaced=tuple(named)))
    return list(found.values())


def list_leaks(matched: Iterable[tuple[Note, TextPair]]) -> dict[str, list[Range]]:
    """The annotations of each note that are unchanged as a whole, without those that may stay."""
    found: dict[str, list[Range]] = {}
    for note, pair in matched:
        gold = [
            (span.start, span.end)
            for span in note.annotated.spans
            if not may_stay(pair.original[span.start : span.end], span.type)
        ]
        if leaks := find_leaks(pair, gold, parts=False):
            found[pair.note] = leaks
    return found


def attack_sample(matched: Sequence[tuple[Note, TextPair]], tools: ParrotTools, seed: int) -> list[EvidenceSection]:
    """The section of the parrot attack, and that of the surrogates."""
    pairs, leaks = name_types(matched), list_leaks(matched)
    strengths = [each for each in ParrotStrength if each is not ParrotStrength.SOFTWARE or tools.find is not None]
    try:
        attacks = [(_STRENGTHS[each], attack_feed(pairs, leaks, tools, each, seed)) for each in strengths]
        control = attack_feed(mark_replaced(pairs), leaks, tools, ParrotStrength.LABELS, seed)
        quality = [compare_learned_recall(pairs, tools, seed)]
        if tools.find is not None:
            quality.append(compare_recall(pairs, "this tagger", tools.find, seed))
    except ConfigurationError as problem:  # a sample in which nothing is replaced
        return absent_attacks(str(problem))
    return [_parrot_section([*attacks, ("control with marks", control)]), _surrogate_section(quality)]


def absent_attacks(reason: str) -> list[EvidenceSection]:
    """The sections without figures."""
    return [
        EvidenceSection("parrot", "Parrot attack", _METHOD, _LIMIT, absent=reason),
        EvidenceSection("surrogates", "Surrogates", _SURROGATE_METHOD, _SURROGATE_LIMIT, absent=reason),
    ]


def _parrot_section(results: Sequence[tuple[str, ParrotResult]]) -> EvidenceSection:
    figures: list[EvidenceFigure] = []
    findings: list[str] = []
    for name, result in results:
        if result.absent:
            figures.append(EvidenceFigure(name, 0, result.leaks, remark=result.absent))
            continue
        best = result.best
        for what, signal in (("published rule", result.published_rule), (f"best of {len(result.signals)} rules", best)):
            if signal is not None:
                figures += _signal_figures(f"{name}, {what}", signal, result.leaks)
        chance = round(result.chance * result.candidates)
        figures.append(EvidenceFigure(f"{name}: chance", chance, result.candidates, result.chance))
        if best is not None:
            findings.append(
                f"Parrot attack, {name}: finds {best.found} of {result.leaks} leaks in as many guesses; "
                f"{percent(best.precision.value)} of the guesses are right, {percent(result.chance)} by chance."
            )
    return EvidenceSection("parrot", "Parrot attack", _METHOD, _LIMIT, tuple(figures), tuple(findings))


def _signal_figures(name: str, signal: SignalResult, leaks: int) -> Iterator[EvidenceFigure]:
    yield _sampled(f"{name}: leaks found", signal.found, leaks, signal.share)
    right = round(signal.precision.value * signal.guesses)
    yield _sampled(f"{name}: right guesses", right, signal.guesses, signal.precision)


def _sampled(name: str, count: int, of: int, share: SampledShare, remark: str = "") -> EvidenceFigure:
    if not of:
        return EvidenceFigure(name, 0, 0, remark="none")
    if share.high - share.low < 1e-9:  # all resamples agree, for example on none: that shows nothing
        return EvidenceFigure(name, count, of, share.value, remark="; ".join(filter(None, (remark, NO_INTERVAL))))
    return EvidenceFigure(name, count, of, share.value, share.low, share.high, remark)


_SURROGATE_METHOD = (
    "The share of the replaced ranges that a detector finds in originals, and in outputs. Equal shares mean that "
    "surrogates look like originals, so that a leak among them is hidden. One detector learned from the originals of "
    "other patients, the other is this program's tagger. Intervals (95 %) by resampling patients."
)
_SURROGATE_LIMIT = (
    "Differences that people see and detectors do not. Ranges come from comparing the texts: a surrogate that keeps a "
    f"word of its original is counted without it. Types with fewer than {_FEWEST_RANGES} ranges have no line."
)


def _surrogate_section(quality: Sequence[SurrogateQuality]) -> EvidenceSection:
    figures: list[EvidenceFigure] = []
    findings: list[str] = []
    for each in quality:
        name = f"{each.finder} detector" if each.finder == "learned" else each.finder
        for recall in each.recalls:
            if recall.ranges < _FEWEST_RANGES and recall.type != ALL_TYPES:
                continue
            for what, share in (
                ("originals", recall.originals),
                ("outputs", recall.outputs),
                ("difference", recall.difference),
            ):
                count = round(share.value * recall.ranges)
                figures.append(
                    _sampled(
                        f"{name}, {recall.type}: {what}", count, recall.ranges, share, f"{recall.patients} patients"
                    )
                )
            if recall.type == ALL_TYPES:
                findings.append(
                    f"Surrogates: a {name} finds {percent(recall.originals.value)} of the replaced ranges in originals "
                    f"and {percent(recall.outputs.value)} in outputs."
                    if each.finder == "learned"
                    else f"Surrogates: {name} finds {percent(recall.originals.value)} in originals and "
                    f"{percent(recall.outputs.value)} in outputs."
                )
    absent = "" if figures else "too little is replaced to learn from"
    return EvidenceSection(
        "surrogates", "Surrogates", _SURROGATE_METHOD, _SURROGATE_LIMIT, tuple(figures), tuple(findings), absent=absent
    )


def _without_staff(pair: TextPair) -> TextPair:
    ranges = (replace(each, type="STAFF") if each.type == PhiType.DOCTOR.value else each for each in pair.replaced)
    return replace(pair, replaced=tuple(ranges))


def attack_threat_model(pairs: Sequence[TextPair], seed: int) -> EvidenceSection:
    """The attacks of the threat model that can be judged on the texts of a feed, each beside its bound."""
    # Staff have one surrogate in the whole feed on purpose: who saw it with one patient has not attacked the next.
    results = attack_threats([_without_staff(pair) for pair in pairs], seed=seed)
    figures, broken = [], []
    for each in results:
        name = f"{each.attacker} {each.attack} (line {each.line}), {each.unit}"
        if each.success is None:
            figures.append(EvidenceFigure(name, 0, 0, remark="nothing to attack in this feed"))
            continue
        candidates = "" if each.smallest is None else f", at least {each.smallest} candidate days"
        verdict = {True: "within", False: "BEYOND", None: "too few to judge by"}[each.holds]
        remark = f"{verdict} the bound of {percent(min(1, each.bound))}; by chance {percent(each.chance)}{candidates}"
        figures.append(_sampled(name, round(each.success.value * each.subjects), each.subjects, each.success, remark))
        broken += [name] if each.holds is False else []
    if broken:
        findings: tuple[str, ...] = (f"Attacks of the threat model beyond their bound: {', '.join(broken)}.",)
    else:
        judged = sum(each.holds is not None for each in results)
        findings = (
            f"{judged} of {len(results)} attacks of the threat model could be judged; none is beyond its bound."
            if judged
            else f"None of the {len(results)} attacks of the threat model could be judged here.",
        )
    return EvidenceSection(
        "threats",
        "Attacks of the threat model",
        "A reader of the outputs, who knows the program and not the key, tries the attacks of the threat model; the "
        "originals judge the guesses. The share is that of successes. Intervals (95 %) by resampling patients.",
        "That a bound holds for a larger feed: an attack with few subjects shows only that it is not broken here. The "
        "lines are those of the table in the threat model; the others need the agent or the key.",
        tuple(figures),
        findings,
    )
