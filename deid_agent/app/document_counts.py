"""The counts of a document for the comparison of a feed with its sample (see ``drift``): no text leaves this module."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from deid_agent.agent import DocumentCounts
from deid_agent.app.drift import CONFIDENCE
from deid_agent.model import Span, fold_accents
from deid_agent.pipeline import MessagePlan, Recognition
from deid_agent.recognize import Tagger

FEWEST_WORDS: Final = 20
"""The fewest words of a text that counts: a field or an answer of a few words is no document."""
MOST_CHARACTERS: Final = 20_000
"""The rest of a longer text is not counted."""
MOST_READ: Final = 300
"""Words of a document that are looked up in the lists."""
NOTE: Final = "note"
"""The template of a note without a message."""
_HEAD = 1 << 14
_WORD = re.compile(r"[^\W\d_]{2,}")
_LOINC = rb"([0-9]{1,5}-[0-9])"
_HL7_TYPE = re.compile(rb"([A-Z]{3})(?:[^\w\s]([A-Z][0-9]{2}))?(?![A-Za-z0-9])")
_HL7_LOINC = re.compile(rb"(?<![0-9A-Za-z-])" + _LOINC + rb"\^[^\^|\r\n]*\^LN(?![A-Za-z0-9])")
_FHIR_TYPE = re.compile(rb'"resourceType"\s*:\s*"([A-Z][A-Za-z]{1,31})"')
_FHIR_LOINC = re.compile(
    rb'"http://loinc\.org"\s*,\s*"code"\s*:\s*"' + _LOINC + rb'"|"code"\s*:\s*"' + _LOINC + rb'"\s*,\s*'
    rb'"system"\s*:\s*"http://loinc\.org"'
)
_CDA_LOINC = re.compile(rb'<code\b[^>]{0,200}?\bcode="' + _LOINC + rb'"')


@dataclass(frozen=True, slots=True)
class DocumentCounter:
    """Counts documents. ``known`` are the words of all lists, folded."""

    known: Mapping[str, object] = field(repr=False)

    @staticmethod
    def of(tagger: Tagger) -> "DocumentCounter":
        """The counter with the lists of a tagger."""
        return DocumentCounter({} if tagger.consistency is None else tagger.consistency.dictionaries.single)

    def count(
        self, texts: Iterable[tuple[str, Sequence[Span]]], *, source: str = "", template: str = "", patient: str = ""
    ) -> DocumentCounts | None:
        """The counts of a document with these texts and their findings; None if none of them is prose."""
        types: Counter[str] = Counter()
        classes: Counter[str] = Counter()
        words = read = unknown = 0
        for text, spans in texts:
            found = _WORD.findall(text[:MOST_CHARACTERS])
            if len(found) < FEWEST_WORDS:
                continue
            words += len(found)
            looked = found[: MOST_READ - read]
            read += len(looked)
            unknown += sum(fold_accents(word) not in self.known for word in looked)
            for span in spans:
                if span.start < MOST_CHARACTERS:
                    types[span.type] += 1
                    if name := CONFIDENCE.get(span.source.kind):
                        classes[name] += 1
        if not words:
            return None
        return DocumentCounts(
            source, template, patient, words, read, unknown, tuple(types.items()), tuple(classes.items())
        )

    def count_message(
        self, plan: MessagePlan, recognition: Recognition, source: str, patient: str
    ) -> DocumentCounts | None:
        """The counts of the texts of a message and its attachments."""
        texts = ((text.text, recognition.spans[text.index]) for text in plan.texts if not text.label)
        return self.count(texts, source=source, template=find_template(plan), patient=patient)


def find_template(plan: MessagePlan) -> str:
    """The type of a message with the LOINC code of its document: ``ORU^R01/11502-2``, ``DocumentReference/34133-9``.

    Only codes of fixed forms: a name cannot be one.
    """
    if not plan.parts:
        return NOTE
    part = plan.parts[0]
    name, raw = part.codec.name, part.message.raw[:_HEAD]
    kind, code = name, None
    if name.startswith("hl7v2"):
        kind = _find_hl7_type(raw) or name
        code = _HL7_LOINC.search(raw)
    elif name.startswith("fhir"):
        found = _FHIR_TYPE.search(raw)
        kind = name if found is None else found[1].decode("ascii")
        code = _FHIR_LOINC.search(raw)
    elif name == "cda":
        code = _CDA_LOINC.search(raw)
    loinc = next(filter(None, code.groups()), b"") if code is not None else b""
    return f"{kind}/{loinc.decode('ascii')}" if loinc else kind


def _find_hl7_type(raw: bytes) -> str:
    """MSH-9 as ``ORU^R01``; empty if it has another form."""
    _, _, line = raw.partition(b"MSH")
    fields = line.split(line[:1], 8) if line else []
    found = _HL7_TYPE.match(fields[8]) if len(fields) > 8 else None
    return "" if found is None else b"^".join(filter(None, found.groups())).decode("ascii")
