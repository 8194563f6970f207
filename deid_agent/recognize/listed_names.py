"""Finds capitalized words that the lists have as a name and as nothing else: ``Ottoline``, ``Annelise``.

A given name counts anywhere: of 100 such words in clinical notes 98 are a name. A family name names instruments, scores
and procedures too (``Bair Hugger``, ``Silverman 3``), so it counts only with the ending of one (``Gunnarsdottir``), or
in a place of a list: after a bed, a room or a time, or before a side of the body. A word in no list needs such an
ending, or both a place before and one after.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from deid_agent.model import BesideModels, Document, PhiType, Source, SourceKind, SourceTraits, Span, fold_accents
from deid_agent.recognize.boundaries import UPPER
from deid_agent.rules import Dictionaries, Lexicon, list_of_tag

_SOURCE = Source(SourceKind.DICTIONARY, "listed-name")
_WORD = re.compile(rf"(?<![\w'’./-])[{UPPER}](?:[^\W\d_A-Z]{{3,20}}|[{UPPER}]{{4,20}})(?![\w/]|['’][a-rt-z]|-[a-z])")
_GIVEN = frozenset({"given-female", "given-male", "nickname"})
_NAMES = _GIVEN | {"family", "family-rare"}
_NO_PERSON = re.compile(
    r"(?:['’]s)?[ -](?i:disease|syndrome|sign|test|score|scale|index|grade|type|class(?:ification)?|stage|criteria"
    r"|needle|clamps?|forceps|scissors|retractor|drains?|splints?|catheter|tube|sutures?|stitch|plate|screws?|pins?"
    r"|nail|cannula|sounds?|dance|virus|protocol|procedure|operation|repair|maneuver|manoeuvre|osteotome|dilator"
    r"|punch|sponge|scope|method|equation|formula|position|lift|collar|frame|grip|trial|study|hospital|clinic|street"
    r"|road|ave)\b|[ ]?\+|[ ](?:pos|neg)\b|[ ](?:I{1,3}|IV|V)\b|[ -][0-9][0-9.]*/[0-9]|[ ]?[:=]?[ ]?[0-9.]+[ ]?(?:mg"
    r"|mcg|ml|mL|%)|[-/][A-Z]"
)
_SURNAME = re.compile(
    r"[^\W\d_]{2,16}(?:son|sen|sson|ski|ska|wicz|czyk|chuk|enko|ton|ez|qvist|gaard|gård|worth|gate|dale|nathan|deep"
    r"|preet|jit|akis|yan|moto|mura|swamy|escu|eva|kamp|hurst|bach|ham|shaw|wright|thorpe|d[oó]ttir|well|etti|hoff"
    r"|yama|naka|wal|khan|huber|uddin|poulou|oğlu|oglu)"
)
"""Endings of family names. Of 100 capitalized words with one that no list of words has, 96 are a name."""
_SHORTEST_SURNAME = 6
_PLACE_BEFORE = re.compile(
    r"(?:(?:\b(?i:bed|room|rm|side room|cubicle|bay|pod)[ ]?\w{1,4}[:,.]?[ ])|(?:^|\n|, )[0-9]{1,2}:?[0-5][0-9][ ]"
    r"|\b(?:XR|CT|MRI|USS?|CXR)[ ])\Z"
)
_PLACE_AFTER = re.compile(
    r",?[ ](?:\(?[LR]\)?|[Ll]eft|[Rr]ight|[Ll]t|[Rr]t|[Bb]ilat)[ ][a-z#]"
    r"|[ ](?:new|f/u|FU|DNA|DNAed|NBM|NPO|review|urgent)\b"
)


_NEVER = frozenset({"drug", "device", "organism", "abbreviation", "shorthand", "gene"})
_LINE_BEFORE = re.compile(r"(?:\A|\n[ \t]{0,4})(?:[-*•][ ]|[0-9]{1,2}[.):][ ])?\Z")
_STATE = re.compile(
    r"[ ](?:(?:sats?|SpO2|HR|BP|RR|BM|CBG|INR|Hb|Hgb|NEWS|GCS|CRP|PSA)[ ]?[0-9]|K\+?[ ][0-9]|(?:CXR|CT|MRI|ECG|EKG"
    r"|USS|FBC|CBC|U&Es?|LFTs?|MRSA)(?:[ ](?:pending|sent|clear|NAD|neg|[0-9]{4}|today|req|booked|done|tomorrow"
    r"|r/v)\b|[.,;]|[ ]?(?:\n|\Z))|DNA(?:['’]?e?d\b|[ ](?:x ?[0-9]|clinic|appt|OPD|OPA|today|again|letter|f/u|session"
    r"|scan)\b)|[0-9]{1,3}(?:\.[0-9])?[ ]?kg\b|[0-9]{1,2}/[0-9]{1,2}[ ](?:post|home|d/c|into)\b|[0-9] units[ ](?:PRBC"
    r"|RBC|FFP|plts?|platelets|blood)\b|[0-9.]{1,4} lactate\b|(?:[LR]|Lt|Rt)[ ](?:hip|knee|shoulder|wrist|ankle|elbow"
    r"|hand|foot|arm|leg|eye|breast|lung|side|femur|tibia|humerus|NOF|lower|upper|groin|inguinal|MCA|THR|TKR|#)"
    r"|(?:[0-9]|10)/10 pain\b|(?:PICC|CVC|NGT|PEG|IDC|IVC)(?:[ ]|[.,;]|\Z)|(?:NBM|NPO)\b|for (?:theatre|discharge|d/c"
    r"|OT|MRI|CT|transfer|home|TTO)\b|home (?:today|tomorrow)\b|(?:slept|settled|vomited|mobili[sz]ed|ambulated"
    r"|tearful|agitated|BNO|fasting|transferred|readmitted)\b)"
)
_TERM = re.compile(
    r"\w+(?:[st]ion|tomy|gram|graph|itis|scopy|osis|a?emia|plasty|pathy|therapy|algia|uria|oma|pn?o?ea|cillin|mycin"
    r"|azole|statin|pril|sartan|olol|mab|nib|parin|aban|vir|ine|ide|ate|one|ium|ology|ics?|cath|stent|flow|gel|plast)"
)
"""Endings of terms and drugs. A word in no list that has one is no name."""
_READING = re.compile(r"[ ](?:(?:[0-9]|10)/10 pain|[0-9]{1,3}(?:\.[0-9])?[ ]?kg|(?:sats?|SpO2|HR|BP|INR)[ ]?[0-9])")
_NEXT = re.compile(r"[;,][ ]\Z")
_REFUSES = re.compile(r"[ ](?:refused|declined)\b")
_LOUD_STATE = re.compile(
    r"[ ](?:STABLE OVERNIGHT|REFUS(?:ED|ES|ING)|SLEPT|SETTLED|TO GO HOME|FOR (?:DISCHARGE|THEATRE|TRANSFER|HOME|D/C)"
    r"|DECLIN(?:ED|ES)|HOME (?:TODAY|TOMORROW)|NPO|NBM|VOMITED|AMBULATED|MOBILI[SZ]ED|TO (?:THEATRE|OR|CT|MRI|ICU"
    r"|XRAY)|AWARE|AGREES|NOTIFIED)\b"
)


@dataclass(frozen=True, slots=True)
class ListedNameRecognizer:
    """Finds the names. Under the recall profile its spans remain although a model reads the same text."""

    lists: Dictionaries = field(repr=False)
    terms: Lexicon = field(default=frozenset(), repr=False)
    common: Lexicon = field(default=frozenset(), repr=False)
    name: str = "listed"

    @property
    def sources(self) -> Mapping[Source, SourceTraits]:
        """One source."""
        return {_SOURCE: SourceTraits(beside_models=BesideModels.RECALL)}

    def recognize(self, doc: Document) -> Iterator[Span]:
        """The names in ``doc``. Time is linear in the text."""
        for found in _WORD.finditer(doc.text):
            lists = {list_of_tag(name) for name in self.lists.lists_of(found[0])}
            if self._is_in_list_of_ward(found, lists, doc.text):
                yield Span(found.start(), found.end(), PhiType.PATIENT, _SOURCE)
                continue
            other = not lists <= _NAMES or fold_accents(found[0]) in self.terms
            if not other and not _NO_PERSON.match(doc.text, found.end()) and _counts(lists, found, doc.text):
                yield Span(found.start(), found.end(), PhiType.PATIENT, _SOURCE)

    def _is_in_list_of_ward(self, found: re.Match[str], lists: set[str], text: str) -> bool:
        """Return true for a possible name at the beginning of a line of a list of patients."""
        if (lists and lists.isdisjoint(_NAMES)) or not lists.isdisjoint(_NEVER) or found[0].lower() in self.common:
            return False
        if not lists and _TERM.fullmatch(found[0].lower()):
            return False
        start = found.start()
        if _READING.match(text, found.end()) and _NEXT.search(text, max(0, start - 2), start):
            return True
        return _heads_line(found, text) or (
            bool(lists) and _begins_line(found, text) and _REFUSES.match(text, found.end()) is not None
        )


def _begins_line(found: re.Match[str], text: str) -> bool:
    return _LINE_BEFORE.search(text, max(0, found.start() - 8), found.start()) is not None


def _heads_line(found: re.Match[str], text: str) -> bool:
    """Return true for a word that begins a line of a list of patients."""
    if not _begins_line(found, text):
        return False
    state = _LOUD_STATE if found[0].isupper() else _STATE
    return state.match(text, found.end()) is not None


def _counts(lists: set[str], found: re.Match[str], text: str) -> bool:
    """Return true for a given name, the ending of a family name, or the place of a patient in a list of a ward."""
    if "family" not in lists and not lists.isdisjoint(_GIVEN):
        return True
    if len(found[0]) >= _SHORTEST_SURNAME and _SURNAME.fullmatch(found[0].lower()):
        return True
    before = _PLACE_BEFORE.search(text, max(0, found.start() - 20), found.start()) is not None
    after = _PLACE_AFTER.match(text, found.end()) is not None
    return (before and after) or (bool(lists) and (before or after))


_TERMS = frozenset({"common-word", "rare-word", "drug", "device", "organism", "abbreviation", "shorthand"})
_OTHER_MEANINGS = _TERMS | {"eponym"}
_FREQUENT = _GIVEN | {"family"}
_LETTERS = re.compile(r"[^\W\d_]{2,40}")


def is_clinical_term(text: str, lists: Dictionaries) -> bool:
    """True if a word of ``text`` is a term of the lists and no name, and no word of it is only a name.

    ``STENT, DES`` is a term in the form of a name; ``STENT, JOHANNA`` is a name.
    """
    held = [frozenset(map(list_of_tag, lists.lists_of(word))) for word in _LETTERS.findall(text)]
    only_name = any(each & _FREQUENT and not each & _OTHER_MEANINGS for each in held)
    return not only_name and any(each & _TERMS and not each & _FREQUENT for each in held)
