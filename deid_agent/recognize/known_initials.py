"""Finds the initials of the people of a message, and decides by the words around a name whether it is a person.

Initials count with full stops (``A.O.``), and without them beside a word that a person goes with: ``pt AO``, ``AO
reports pain``, or before the colon of a speaker at the beginning of a line, unless they are a heading
(``rules/lexicon/heading.txt``). Those of clinicians need a cue: ``dict: SB``, ``SB/mlk``, ``d/w SB``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from deid_agent.model import Document, PhiType, Span, Subject, fold_accents
from deid_agent.recognize.boundaries import UPPER
from deid_agent.recognize.known_people import KNOWN_SOURCES, NameLexicons, Person

ACTS = re.compile(
    r"[ \t]{1,2}(?:(?:said|says|reports|reported|states|stated|denies|denied|feels|complains|complained|wants|lives"
    r"|asked|told|agrees|refuses|refused|came)\b|c/o\b|at (?:the )?bedside\b)"
)
"""Acts of a person, after the name."""
FARES = re.compile(
    r"[ \t]{1,2}(?:passed (?:her|his|their)|managed|managing|eating|ate|drinking|tolerat(?:ed|ing)|walked|walking"
    r"|slept|sleeping|ambulat(?:ed|ing)|mobili[sz](?:ed|ing)|voiding|resting|reviewed|transferred|settled|appears"
    r"|looks|remains|requests|requested|declin(?:ed|ing|es)|keen|comfortable|stable|afebrile|tearful|counselled"
    r"|discharged|admitted|woke|awake|alert|seen|back from|home (?:today|tomorrow)|on (?:room air|[0-9]))\b"
)
"""The condition of a person, after the name.

It counts only at the beginning of a line: "long sitting" is a posture.
"""
_PREDICATE = re.compile(
    r"[ \t]{1,2}(?:(?:is|was) (?:an? (?:retired|widow|very|pleasant|single|married|former|known|healthy|[0-9])"
    r"|informed|discharged|admitted|seen|reviewed|transferred|told|advised|given|brought|unable|well\b|happy|pleased"
    r"|keen|upset|anxious|hungry|tired|thirsty|in pain|asleep|awake|alert|counsel+ed|consented|referred|assessed"
    r"|examined|encouraged|offered|asked|fed|born|aware|present\b|accompanied|married|single|widowed|living"
    r"|independent|able|confused|agitated|comfortable|afebrile|ready|due|last seen|not (?:happy|keen|sure|well|able"
    r"|aware))|(?:has|had) (?:an?|been|had|no|not|never|two|three|lost|gained|chronic|always|refused|agreed)\b"
    r"|attend(?:ed|s)\b|came\b|called\b|rang\b|phoned\b|telephoned\b|walk(?:s|ed)\b|fell\b|cooks\b|drinks\b|smokes\b"
    r"|takes\b|took\b|work(?:s|ed)\b|presented\b|arrived\b|returned\b|needs\b|thinks\b|thought\b|remembers\b|likes\b"
    r"|loves\b|underst(?:ands|ood)\b|sleeps\b|eats\b|(?:does|did) not\b|(?:does|did)n['’]t\b|would like\b"
    r"|describe[sd]\b|enjoys\b|wrote\b|suggests\b|recommends\b|gave\b|got\b|kept\b|sat\b|stood\b|smiled\b|cried\b"
    r"|went (?:home|to|for)\b|slept\b|woke\b|requires\b|underwent\b|continues to\b|presents with\b|appeared\b"
    r"|developed\b|started on\b|is (?:concerned|currently on)\b|will (?:be seen|attend|call|come|return|go|see|decide"
    r"|think)\b|and (?:(?:his|her|their|the) )?(?:wife|husband|partner|son|daughter|mother|father|family|carer)\b)"
)
"""What a person is, has or does, after a name at the beginning of a sentence."""
_DID = re.compile(
    r"[ \t]{1,2}(?!(?:col?ou?red|tinged|stained|lived|legged|handed|matched|assisted|sided|based"
    r"|needed)\b)(?:[a-z]{2,12}ed|lost|ate|drank|went|cut|broke|hurt|ran|felt|left|brought|bought|threw|told|made|met"
    r"|saw|lay|hit|spent|drove|wore|uses|wants|feels|goes|gets|keeps|sits|stands|sees|knows|asks|tells|calls|plays"
    r"|runs|drives|comes|hopes|helps|requires|underwent|undergoes|continues|presents|remains|became|becomes|began"
    r"|begins|looks|seems|tries|tried|stays|visits|mobili[sz]es|manages|prefers|wishes|agrees|hears|reads|speaks)\b"
)
"""What a person did, after a name at the beginning of a sentence that is no thing of a note."""
_TASK = re.compile(
    r"[ ](?:DNA(?:['’]?e?d)?|FBC|CBC|U&Es?|LFTs?|CXR|INR|NBM|NPO|TTOs?|TTAs?|BNO|ECG|EKG|OPA|OPD|(?:HR|BP|sats"
    r"|SpO2|temp|INR|Hb|NEWS|GCS) ?[0-9])"
    r"(?![\w-])"
)
"""A task or a reading of a patient, after a name at the beginning of a line."""
_LOUD = re.compile(
    r"[ ](?:FOR (?:DISCHARGE|D/C|THEATRE|HOME|TRANSFER|REVIEW|MRI|CT|SURGERY|OR|BLOODS)|TO GO HOME|TO THEATRE"
    r"|TO CT|HOME (?:TODAY|TOMORROW)"
    r"|REFUS(?:ED|ES|ING)|DECLIN(?:ED|ES|ING)|STATES|STATED|DENIES|DENIED|REPORTS|REPORTED|COMPLAINS|ASKED|SLEPT"
    r"|TOLERAT(?:ED|ING)|MOBILI[SZ](?:ED|ING)"
    r"|AMBULAT(?:ED|ING)|STABLE|COMFORTABLE|SETTLED|(?:WAS|IS) (?:SEEN|ADMITTED|DISCHARGED|REVIEWED|INFORMED"
    r"|STABLE|WELL|AWAKE|ALERT))(?![\w])"
)
"""The same in a text in capitals."""
_ADDRESSED = re.compile(
    r"(?<![\w.])(?i:sp(?:oke|oken|eaking) (?:with|to)|told|informed|saw|asked|advised|examined|reassured|phoned|rang"
    r"|met(?: with)?|helped|gave|visited|thanked|seen with|discussed with|agreed with|d/w|as|sent to|letter to"
    r"|results to|copy to|seen by|reviewed by|encouraged|reminded|taught|counsel+ed|examination of|according to"
    r"|reports? that|states? that|says that|wife of|husband of|family of|mother of|father of|son of|daughter of"
    r"|seeing|meet|see|care of|obtained from|reviewed|admitted|transferred|discharged|assessed|contacted|assisted"
    r"|helped|observed|escorted|educated|re-?assessed|options and|and that|both|by bed|copied to|given to)[ ]\Z"
)
_INSIDE = re.compile(
    r"(?<![\w'’./-])(?!(?:an?|the|his|her|its|their|our|my|your|this|these|no|each|any|some|one|on|grade|type"
    r"|stage)[ ])[a-zß-ÿ]{2,20}[ ]\Z"
)
_GOES_ON = re.compile(
    r"(?:['’]s)?(?:[.,;)?!]|\s{0,3}\Z|[ ](?:and|or|is|was|has|had|will|would|can|could|did|does|who|with|to|that|the"
    r"|by|for|at|on|in|re|regarding|about|before|after|again|back|today|tonight|tomorrow|yesterday|prefers|wants"
    r"|requires|needs|from|as|if|when|while|since|until|but|because|alone|home|of|showed|shows|remains|continues"
    r"|seems|feels|says|also|then|now|her|his|their|this|may|be|not|senior|junior|[a-z]{3,12}ed"
    r"|[a-z]{3,12}ly)(?![\w-]))"
)
"""What follows a name inside a sentence, and no noun of which the word could be the adjective."""
_BY = re.compile(r"(?<![\w.])(?:for|with|by|from|to)[ ]\Z")
_BESIDE_PERSON = re.compile(
    r"(?:['’]s)?(?:[.,;)?!]|\s{0,3}\Z|[ ](?:who|today|re|about|that|this|and (?:his|her|their|family))\b)"
)
_ALONE = re.compile(
    r"(?:['’]s)?(?:[.,;:)?!]?(?:\s|\Z)(?![A-Z0-9]|(?:disease|syndrome|sign|test|score|palsy|catheter|clip"
    r"|clamp)s?\b))"
)
_APPOSED = re.compile(
    r",[ ](?:who\b|seen\b|aged\b|an? (?:pleasant|known|[0-9])|reviewed\b|admitted\b|[0-9]{1,3}[ ]?(?:yo|y/o|F|M)\b)"
    r"|[ ](?:bleeding|coughing|vomiting|wheezing|sleeping|eating|crying|complaining|asking|refusing|awaiting"
    r"|requesting|feeling|settling|senior|junior)\b"
)
"""The same after a comma, or as a participle."""
_OPEN = re.compile(
    r"[ \t]{1,2}(?:is|was|has|had|will|would|can|cannot|could|did|does|says|fell|labelled|labeled"
    r"|who)[ ](?!to\b)[a-z0-9]"
)
"""A predicate of any thing: it counts unless the word is a thing of a note."""
SECTIONS = frozenset(
    {
        *("head", "neck", "back", "chest", "heart", "hand", "foot", "hip", "skin", "eye", "nose"),
        *("mouth", "case", "pain", "plan", "diet", "field", "day", "note", "ward", "bed", "gait"),
    }
)
"""Words that head a section of a note (``Head: atraumatic``); some are names too."""
_THINGS = SECTIONS | frozenset(
    {
        *("arm", "leg", "knee", "lung", "brain", "blood", "stool", "wound", "cough", "fever", "mass"),
        *("line", "drain", "tube", "block", "stone", "bone", "joint", "lip", "tongue", "cord", "test"),
        *("scan", "dose", "drip", "culture", "speech", "sleep", "weight", "temp", "pressure", "rate", "rash"),
        *("sound", "sight", "vision", "call", "visit", "care", "home", "service", "family", "mother", "father"),
        *("son", "daughter", "left", "right", "side", "may", "will", "can", "do", "so", "an"),
        *("than", "long", "short", "good", "best", "last", "more", "most", "first", "what", "this"),
        *("that", "he", "she", "it", "we", "they", "there", "here", "who", "which", "all"),
        *("any", "some", "none", "one", "other", "page", "room", "school", "street", "work", "level"),
        *("stage", "state"),
    }
)
_BEGINS = re.compile(r"(?:\A|[\n.;?!][ \t]{0,3}|\n[ \t]{0,4}[-*•][ ])\Z")
_CALENDAR = frozenset(
    {
        *("may", "march", "april", "june", "august", "winter", "summer", "spring", "autumn", "monday", "friday"),
        *("sunday", "day"),
    }
)


def acts_like_person(text: str, start: int, end: int) -> bool:
    """True if the words around the capitalized word from ``start`` to ``end`` are those around a person.

    The word has another meaning too: it counts at the beginning of a sentence before a predicate of a person, and
    inside a sentence after a word that a person follows, unless a term follows.
    """
    word = text[start:end]
    begins = _BEGINS.search(text, max(0, start - 6), start) is not None
    if word.isupper() and len(word) > 1:
        return begins and _LOUD.match(text, end) is not None
    thing = word.lower() in _THINGS
    if begins:
        predicates = (ACTS, FARES, _PREDICATE) if thing else (ACTS, FARES, _PREDICATE, _OPEN, _DID, _APPOSED)
        return any(after.match(text, end) for after in predicates)
    if word.lower() in _CALENDAR:
        return False
    before = max(0, start - _REACH)
    return any(
        left.search(text, before, start) and right.match(text, end)
        for left, right in ((_BY, _BESIDE_PERSON), (_ADDRESSED, _ALONE), (_INSIDE, _GOES_ON))[: 2 if thing else 3]
    )


def has_task(text: str, start: int, end: int) -> bool:
    """True if the word begins a line before a task or a reading of a patient: ``Love CBC pending``."""
    return (start == 0 or text[start - 1] == "\n") and _TASK.match(text, end) is not None


_DOTTED = re.compile(
    r"(?<![\w.])[^\W\d_]\. ?(?:[^\W\d_]\. ?){0,3}(?:O['’])?[^\W\d_]\.(?!\w)"
    rf"|(?<![\w./-])[{UPPER}]\.(?:[{UPPER}]\.){{0,2}}[{UPPER}](?![\w./-]|['’]\w)"
)
_BARE = re.compile(
    rf"(?<![\w.'’/-])[{UPPER}](?:O['’]|[a-z]{{1,3}}(?=[A-Z](?![^\W_])))?[{UPPER}]{{1,3}}"
    r"(?![\w-]|/(?![a-z]{2,4}[0-9]{0,3}(?![\w/]))|['’](?!s\b)| ?x ?\d)"
)
_SEEN = re.compile(
    r"[ \t]{1,2}(?:seen|resting|called|tolerated|felt|is a|was seen)\b"
    r"|['’]s (?:husband|wife|mother|father|mom|dad|son|daughter|brother|sister|family|partner|spouse|parents?)\b"
)
_WHO = re.compile(r"\b(?:pt|patient|mr|mrs|ms|miss|client|resident|subj(?:ect)?|re)\.?:?[ \t]{1,2}\(?\Z", re.IGNORECASE)
_APART = re.compile(rf"(?<![\w.'’/-])[{UPPER}] (?:[{UPPER}] ){{0,2}}[{UPPER}](?![\w/-]|['’](?!s\b)| ?[x&+] ?\d?)")
_NAMED_BY_INITIALS = re.compile(r"\binitials[ \t]{0,2}[:=(]?[ \t]{0,2}\Z", re.IGNORECASE)
_SPEAKS = re.compile(r"[ \t]?:(?=[ \t]{1,2}\S)")
_TYPED = re.compile(r"[/:](?P<typist>[a-z]{2,4})[0-9]{0,3}(?![\w/])")
_DICTATED = re.compile(r"(?<![\w/])[A-Za-z]{2,4}[/:]\Z|(?:^|[\s.,;])/\Z|\b(?:typed|tr|transcribed|t)(?: by)?:? \Z")
_LOWER = re.compile(r"(?<![^\W_])[a-z]{2,4}(?![\w/'’-])")
_STAFF_ACTS = re.compile(
    r"[ \t]{1,2}(?:aware|notified|paged|informed|updated|to review|reviewed|rounded|agrees|present|covering)\b"
)
_DICTATES = re.compile(
    r"\b(?:dict(?:ated)?(?: by)?|signed(?: by)?|author|typed by|d|dr|attending"
    r"|surgeon)[.:]?[ \t]{1,2}\Z",
    re.IGNORECASE,
)
_WHO_SIGNS = re.compile(
    r"\b(?:dict(?:ated)?(?: by)?|signed(?: by)?|author|typed by|d|dr|attending|surgeon|d/w|s/w|discussed with|per"
    r"|seen by|reviewed (?:by|with)|cc|paged|informed|notified|initials|/s/)[.:]?[ \t]{1,2}\Z",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(r"(?:[-–—~]|\n|\A)[ \t]?\Z")
_LAST = re.compile(r"[ \t.]{0,3}(?:\r?\n|\Z)")
_REACH = 24


_TERM_AFTER = re.compile(r"[\w:+/#%&*-]|['’](?!s\b)")
_DOTTED_LETTER = re.compile(rf"[ ]?[{UPPER}]\.(?!\w)")
_LOWER_AFTER = re.compile(r"[ \t]{1,2}[a-zß-öø-ÿ]")
_PERSON_AFTER = re.compile(
    r"[ \t]{1,2}(?:was|is|has|had|will|would|and|or|who|at|on|in|by|from|for|to|with|here|phoned|called|arrived|seen"
    r"|today|tonight|tomorrow|yesterday|now|then|again|this|that"
    r"|when|while|as|since|after|before|until|but|if|re|about|via|per|did|does|can|may|should|lives|works)\b"
)


def ends_initial(text: str, end: int) -> bool:
    """Return true if nothing after an initial that ends at ``end`` makes it a part of a term.

    A level (``C5``), a finding (``A-fib``), a heading (``A: sepsis``) or an organism (``H. pylori``) may follow a name.
    """
    if text[end : end + 1] == ".":
        end += 1
        if _DOTTED_LETTER.match(text, end):
            return True
    if _TERM_AFTER.match(text, end):
        return False
    if not _LOWER_AFTER.match(text, end):
        return True
    return any(words.match(text, end) for words in (_PERSON_AFTER, ACTS, FARES))


@dataclass(frozen=True)
class InitialsFinder:
    """Finds the initials of ``people``; created once for each set of facts."""

    people: tuple[Person, ...] = field(repr=False)
    lists: NameLexicons = field(repr=False)

    def find(self, doc: Document) -> Iterator[Span]:
        """Spans of initials, the given name first and the family name last (``A.O.``, ``A. M. O.``, ``pt AO``)."""
        if not self._by_initials:
            return
        for found in _DOTTED.finditer(doc.text):
            yield from self._people_with(found, Subject.PATIENT)
        for found in _BARE.finditer(doc.text):
            if self._is_patient(found, doc.text):
                yield from self._people_with(found, Subject.PATIENT)
            if self._is_staff(found, doc.text):
                yield from self._people_with(found, Subject.PROVIDER)
        for found in _APART.finditer(doc.text):
            if _WHO.search(doc.text, max(0, found.start() - _REACH), found.start()):
                yield from self._people_with(found, Subject.PATIENT)
        for found in _LOWER.finditer(doc.text):
            if found[0] not in self.lists.common and _DICTATED.search(
                doc.text, max(0, found.start() - _REACH), found.start()
            ):
                yield from self._people_with(found, Subject.PROVIDER)
                yield from self._people_with(found, Subject.PATIENT)

    def _is_patient(self, found: re.Match[str], text: str) -> bool:
        """True if bare initials are in the place of a patient."""
        start, end, word = max(0, found.start() - _REACH), found.end(), found[0].lower()
        begins = found.start() == 0 or text[found.start() - 1] == "\n"
        acts = ACTS.match(text, end) or _SEEN.match(text, end)
        who = _WHO.search(text, start, found.start())
        if _NAMED_BY_INITIALS.search(text, start, found.start()):
            return True
        if word in self.lists.common:
            fares = acts or FARES.match(text, end)
            return bool(fares and who and not who[0].isupper())
        if acts or who or (begins and (FARES.match(text, end) or _PREDICATE.match(text, end))):
            return True
        return begins and _SPEAKS.match(text, end) is not None and word not in self.lists.headings

    def _is_staff(self, found: re.Match[str], text: str) -> bool:
        """True if bare initials are in the place of a clinician."""
        if found[0].lower() in self.lists.common:
            return False
        if found[0].lower() in self.lists.headings:
            dictates = _DICTATES.search(text, max(0, found.start() - _REACH), found.start())
            return dictates is not None or _TYPED.match(text, found.end()) is not None
        return bool(
            _WHO_SIGNS.search(text, max(0, found.start() - _REACH), found.start())
            or _TYPED.match(text, found.end())
            or _STAFF_ACTS.match(text, found.end())
            or (
                _LAST.match(text, found.end())
                and _SIGNATURE.search(text, max(0, found.start() - _REACH), found.start())
            )
        )

    def _people_with(self, found: re.Match[str], subject: Subject) -> Iterator[Span]:
        letters = [fold_accents(c) for c in found[0] if c.isalpha()]
        if "".join(letters) in self.lists.not_initials:
            return
        for person in self._by_initials.get((letters[0], letters[-1]), ()):
            inner = {*person.initials, *(word[0] for word in person.family)}
            if person.subject is subject and ("." in found[0] or inner.issuperset(letters)):
                yield Span(found.start(), found.end(), person.type, KNOWN_SOURCES[person.subject, "initials"])

    @cached_property
    def _by_initials(self) -> Mapping[tuple[str, str], tuple[Person, ...]]:
        """Patients and clinicians by the first letters of given and family name; one for each type and subject."""
        signed: dict[tuple[str, str], dict[tuple[PhiType, Subject], Person]] = {}
        for person in self.people:
            if person.subject in (Subject.PATIENT, Subject.PROVIDER) and person.initials:
                for last in {word[0] for word in person.family}:
                    of = signed.setdefault((person.initials[0], last), {})
                    of.setdefault((person.type, person.subject), person)
        return {letters: tuple(of.values()) for letters, of in signed.items()}
