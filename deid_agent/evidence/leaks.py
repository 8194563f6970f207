"""The leaks in a reviewed sample: annotated identifiers of the originals that are unchanged in the outputs.

Nothing here asks the tagger: an annotation is compared with the output alone, so a value that was found and replaced by
itself counts as leaked. A word that names a kind (Hospital, Street) or a title may stay, and so may parts of a value
that no longer identify: the year of a shifted date, the first digits of a telephone number.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from deid_agent.eval import Note
from deid_agent.evidence.figures import EvidenceSection, bound_share, most_likely_share, percent
from deid_agent.evidence.pairs import TextPair
from deid_agent.model import CATEGORY, ConfigurationError, PhiCategory, PhiType, Span, counted

_WORD = re.compile(r"[^\W\d_]+|\d+")
_YEAR = re.compile(r"(?:1[89]|20)\d\d")
_PART: Final = 4
"""Unchanged digits of a number, or letters of a word, that count as a leak of it."""
_LAST: Final = 3
"""The least digits of the last group of a telephone number; a shorter one is an extension."""
_WHOLE = frozenset({PhiType.DATE, PhiType.AGE, PhiType.PROFESSION})
_CALLED = frozenset({PhiType.PHONE, PhiType.FAX})
_HOST = re.compile(r"(?:\w+://)?(?:[\w-]+\.)*([\w-]+)\.[a-zA-Z]+(?=[/:?]|\Z)")
_ALLOWED = frozenset({PhiType.STATE, PhiType.COUNTRY})
"""Places of more than 20,000 people, which surrogates keep (45 CFR 164.514(b)(2)(i)(B))."""


@dataclass(frozen=True, slots=True)
class SampledNote:
    """The annotations of a note of the sample, each with its leak: the number of identifiers and of leaked ones.

    ``allowed`` counts annotations that may stay: states, countries, ages up to 89, years alone.
    """

    patient: str = field(repr=False)
    identifiers: Mapping[PhiType, int]
    leaks: Mapping[PhiType, int]
    allowed: int = 0

    @property
    def leaked(self) -> int:
        """All leaks of the note."""
        return sum(self.leaks.values())

    @property
    def total(self) -> int:
        """All identifiers of the note."""
        return sum(self.identifiers.values())


def match_sample(notes: Sequence[Note], pairs: Iterable[TextPair]) -> list[tuple[Note, TextPair]]:
    """Each note of the sample with the pair whose original has the same text.

    Each pair is that of one note: a note that is in the sample twice would count as two of the feed. Raises
    ``ConfigurationError`` if a note has no pair, or repeats another, or if the sample has no annotation at all.
    """
    by_text: dict[str, list[TextPair]] = defaultdict(list)
    for pair in pairs:
        by_text[_plain(pair.original)].append(pair)
    found, missing, repeated = [], 0, 0
    # Several notes may have one text: the id chooses, if it is that of a pair. The others take what is left.
    named = {pair.note for same in by_text.values() for pair in same}
    for note in sorted(notes, key=lambda note: note.id not in named):
        same = by_text.get(_plain(note.annotated.text))
        if same is None:
            missing += 1
            continue
        chosen = next((each for each in same if each.note == note.id), next(iter(same), None))
        if chosen is None:
            repeated += 1
            continue
        same.remove(chosen)
        if note.annotated.text == chosen.original:
            found.append((note, chosen))
        else:
            found.append((_moved(note, chosen.original), chosen))
    if missing:
        raise ConfigurationError(
            f"--sample: {counted(missing, 'note')} of {len(notes)} with a text that no original has: the sample "
            "must be annotated on the originals of this feed"
        )
    if repeated:
        raise ConfigurationError(
            f"--sample: {counted(repeated, 'note')} of {len(notes)} with the text of another: the feed has fewer notes "
            "with it; remove the copies, which would count twice"
        )
    if not any(note.annotated.spans for note, _ in found):
        raise ConfigurationError("--sample: has no annotation: nothing can be estimated from an empty sample")
    return found


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _moved(note: Note, original: str) -> Note:
    """The note with its spans at their places in ``original``, whose line ends and outer blanks may differ."""
    places = [at for at, char in enumerate(original) if not (char == "\r" and original[at + 1 : at + 2] == "\n")]
    joined = "".join(original[at] for at in places)
    shift = (len(joined) - len(joined.lstrip())) - (len(note.annotated.text) - len(note.annotated.text.lstrip()))
    spans = tuple(
        Span(places[span.start + shift], places[span.end + shift - 1] + 1, span.type, span.source)
        for span in note.annotated.spans
        if span.start + shift >= 0 and span.end + shift <= len(places)
    )
    return replace(note, annotated=replace(note.annotated, text=original, spans=spans))


def examine_sample(matched: Iterable[tuple[Note, TextPair]], kinds: Collection[str]) -> list[SampledNote]:
    """The leaks of each note. ``kinds`` are words in lower case that name a kind of place or a title.

    The patient of a note is that of the feed; if the feed names none, that of the sample.
    """
    found = []
    for note, pair in matched:
        identifiers, leaks, allowed = Counter[PhiType](), Counter[PhiType](), 0
        for span in note.annotated.spans:
            if may_stay(pair.original[span.start : span.end], span.type):
                allowed += 1
                continue
            identifiers[span.type] += 1
            leaks[span.type] += is_unchanged(pair, span, kinds)
        known = note.patient not in {"", note.id} and _names_no_patient(pair)
        patient = note.patient if known else pair.patient
        found.append(SampledNote(patient, identifiers, +leaks, allowed))
    return found


def _names_no_patient(pair: TextPair) -> bool:
    """Whether the patient of a pair is only the name of its note."""
    return pair.patient in {pair.note, pair.note.rpartition(".")[0]}


def may_stay(value: str, kind: PhiType) -> bool:
    """Whether an annotated value is one that de-identified text may have: it is not counted as an identifier."""
    numbers = [int(digits) for digits in re.findall(r"\d+", value)]
    if kind is PhiType.AGE:
        return bool(numbers) and max(numbers) <= 89
    if kind is PhiType.DATE:
        return bool(_YEAR.fullmatch(value.strip()))
    return kind in _ALLOWED


def is_unchanged(pair: TextPair, span: Span, kinds: Collection[str]) -> bool:
    """Whether the output has an identifying part of the span's text at its place.

    Of a person that is any name; of a place or an organization more than half of its words; of a telephone number its
    last digits; of a number of an identifier four digits in a row; of an address in a network its host or user. A date,
    an age and a profession must be unchanged as a whole.
    """
    words = [
        _Word(pair.original[found.start() : found.end()], found.start(), _longest(pair, found.span()))
        for found in _WORD.finditer(pair.original, span.start, span.end)
    ]
    if not words or all(word.whole for word in words):
        return bool(words) or pair.find_in_output((span.start, span.end)) is not None
    if span.type in _WHOLE:
        return False
    if span.type in _CALLED:
        last = next((word for word in reversed(words) if word.text.isdigit() and len(word.text) >= _LAST), None)
        return last is not None and last.whole
    if CATEGORY[span.type] is PhiCategory.ID or span.type is PhiType.ZIP:
        return any(word.kept >= _PART for word in words if word.text.isdigit())
    return _is_named(pair.original[span.start : span.end], span, words, kinds)


def _is_named(value: str, span: Span, words: Sequence["_Word"], kinds: Collection[str]) -> bool:
    """Whether the unchanged words of a name, a place or an address in a network identify."""
    if CATEGORY[span.type] is PhiCategory.CONTACT:
        begin, end = _identifying_part(value, span.type)
        own = [word for word in words if begin <= word.start - span.start < end]
        return any(word.whole or word.kept >= _PART for word in own)
    naming = [word for word in words if word.text.lower() not in kinds and len(word.text) > 1]
    if CATEGORY[span.type] is PhiCategory.LOCATION:
        named = [word for word in naming if not word.text.isdigit()] or naming
        # If a single word is left beside a replaced one, it is a kind that no list has (Showground).
        return len(named) > 1 and sum(word.whole for word in named) > len(named) / 2
    return any(word.whole or word.kept >= max(_PART, len(word.text) // 2 + 1) for word in naming)


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of an annotated value; ``kept`` of its characters in a row are unchanged."""

    text: str = field(repr=False)
    start: int
    kept: int

    @property
    def whole(self) -> bool:
        return self.kept == len(self.text)


def _identifying_part(value: str, kind: PhiType) -> tuple[int, int]:
    """The user of an e-mail address; of a URL the name of its host before the last dot."""
    if kind is PhiType.EMAIL and "@" in value:
        return 0, value.index("@")
    host = _HOST.match(value)
    return host.span(1) if host is not None else (0, len(value))


def _longest(pair: TextPair, span: tuple[int, int]) -> int:
    """The most characters in a row of ``span`` of the original that are unchanged."""
    best, at = 0, span[0]
    for each in pair.replaced:
        if each.source_end <= at:
            continue
        if each.source_begin >= span[1]:
            break
        best, at = max(best, each.source_begin - at), each.source_end
    return max(best, span[1] - at)


def estimate_leaks(sample: Sequence[SampledNote]) -> EvidenceSection:
    """The leaks by identifier, type, note and patient, with exact bounds."""
    patients = {note.patient for note in sample}
    leaky = {note.patient for note in sample if note.leaked}
    named = {note.patient for note in sample if any(_is_direct(kind) for kind in note.leaks)}
    total, leaks = sum(note.total for note in sample), sum(note.leaked for note in sample)
    kinds, by_type = Counter[PhiType](), Counter[PhiType]()
    for note in sample:
        kinds.update(note.identifiers)
        by_type.update(note.leaks)
    figures = [
        bound_share("identifiers that leak", leaks, total),
        bound_share("notes with a leak", sum(bool(note.leaked) for note in sample), len(sample)),
        bound_share("patients with a leak", len(leaky), len(patients)),
        bound_share("patients with a leak of their name, a number or a contact", len(named), len(patients)),
        *(bound_share(f"{kind.value} that leak", by_type[kind], kinds[kind]) for kind in PhiType if kinds[kind]),
    ]
    return EvidenceSection(
        "leaks",
        "Leaks",
        "Reviewers marked every identifier of the sampled originals; one leaks if an identifying part of it is "
        "unchanged in the output. Exact binomial intervals (Clopper-Pearson, 95 %).",
        "A bound for notes like those of the sample only, drawn at random from this feed, and for reviewers who missed "
        "nothing. Identifiers of one note are alike: the bound by patient is the one to rely on, that by identifier is "
        "too narrow. A patient counts by the sampled notes: in all notes of a patient a leak is likelier.",
        tuple(figures),
        tuple(_sentences(len(named), len(leaky), len(patients), leaks, total)),
        {
            "notes": len(sample),
            "patients": len(patients),
            "identifiers": total,
            "not_counted": sum(note.allowed for note in sample),
        },
    )


def _is_direct(kind: PhiType) -> bool:
    return kind is PhiType.PATIENT or CATEGORY[kind] in {PhiCategory.ID, PhiCategory.CONTACT}


def _sentences(named: int, leaky: int, patients: int, leaks: int, total: int) -> Iterable[str]:
    if total:
        bound = percent(most_likely_share(leaks, total), up=True)
        yield f"{leaks:,} of {total:,} identifiers leak; with 95 % confidence at most {bound} of them."
    if patients:
        bound = percent(most_likely_share(leaky, patients), up=True)
        yield f"{leaky:,} of {counted(patients, 'patient')} have a leak; with 95 % confidence at most {bound} of them."
        bound = percent(most_likely_share(named, patients), up=True)
        yield (
            f"{named:,} of {counted(patients, 'patient')} have a leak of their name, a number or a contact; with 95 % "
            f"confidence at most {bound} of them."
        )


NO_SAMPLE = EvidenceSection(
    "leaks",
    "Leaks",
    "Needs a reviewed sample of the originals.",
    "Nothing is known about leaks without a sample.",
    absent="no --sample was given",
)
