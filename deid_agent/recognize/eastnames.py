"""Names in Han, Hangul and kana, which text writes without blanks: found as strings, not as words.

Of a person it looks for family and given name together, with or without a blank or a middle dot between; for either
alone where it has two signs or more (of a Hangul one only where a word begins, before its end or a particle); and for
a family name of one sign before a form of address (``王先生``, ``김 환자``). One sign alone is a word.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deid_agent.phi import PhiType
from deid_agent.sites import Fact, Kind, Subject
from deid_agent.spans import Span
from deid_agent.text import Document

_EAST = "\u3005\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
_NAME = re.compile(rf"[{_EAST}\U00020000-\U0003134f]{{1,12}}")
_ANY = re.compile(rf"[{_EAST}\U00020000-\U0003134f]")
_HANGUL = re.compile(r"[\uac00-\ud7a3]{2,}")
_PARTICLE = re.compile(
    r"(?:은|는|이|가|을|를|의|에게|에|께서|께|와|과|도|만|씨|님|군|양|환자|아|야)?"
    r"(?:은|는|이|가|을|를|의|에게|께서|께)?(?![\uac00-\ud7a3])"
)
_ADDRESS = re.compile(
    r" ?(?:先生|女士|小姐|太太|医生|醫生|医师|醫師|主任|患者|同志|さん|さま|様|氏|殿|くん|君|ちゃん|医師|"
    r"씨|님|군|양|환자|선생|여사|교수|의사)"
)
_JOINTS = ("", " ", "\u3000", "·", "・", "，", ", ", ",")


@dataclass(frozen=True, slots=True)
class _Form:
    """One string to look for and what its spans say."""

    text: str = field(repr=False)
    type: PhiType
    subject: Subject
    whole: bool = False
    """Family and given name together: nothing around it matters."""


@dataclass(frozen=True, slots=True)
class EastFinder:
    """Finds such names; ``forms`` by their first sign and, but for those of one sign, their second."""

    forms: Mapping[str, Sequence[_Form]] = field(repr=False)

    @classmethod
    def of(cls, facts: Sequence[Fact]) -> "EastFinder":
        """The finder of the names among ``facts``."""
        groups: dict[tuple[str, PhiType, Subject], tuple[list[str], list[str]]] = {}
        for fact in facts:
            if fact.kind in (Kind.FAMILY, Kind.GIVEN, Kind.NAME) and not fact.value.isascii():
                family, given = groups.setdefault((fact.group, fact.type, fact.subject), ([], []))
                words = _NAME.findall(unicodedata.normalize("NFC", fact.value))
                (given if fact.kind is Kind.GIVEN else family).extend(words)
        forms: dict[str, dict[_Form, None]] = {}
        for (_, kind, subject), (family, given) in groups.items():
            whole = [a + joint + b for a in family for b in given for joint in _JOINTS]
            found = [_Form(text, kind, subject, whole=True) for text in whole]
            found += [_Form(text, kind, subject) for text in (*family, *(g for g in given if len(g) > 1))]
            for form in found:
                forms.setdefault(form.text[:2], {})[form] = None
        return cls({key: sorted(own, key=lambda form: -len(form.text)) for key, own in forms.items()})

    def rules_out(self, doc: Document, *, rows: bool) -> bool:  # noqa: ARG002
        """As ``KnownRecognizer.rules_out``."""
        return not self.forms or doc.text.isascii()

    def find(self, doc: Document) -> Iterator[Span]:
        """Spans of the names; of forms that begin at one place the longest, none inside of another."""
        if not self.forms:
            return
        text = doc.text
        covered: dict[tuple[PhiType, Subject], int] = {}
        for found in _ANY.finditer(text):
            at = found.start()
            for form in (*self.forms.get(text[at : at + 2], ()), *self.forms.get(text[at], ())):
                of, end = (form.type, form.subject), at + len(form.text)
                if at >= covered.get(of, 0) and text.startswith(form.text, at) and _counts(form, text, at):
                    covered[of] = end
                    yield Span(at, end, form.type, f"known:{form.subject}-name")


def _counts(form: _Form, text: str, at: int) -> bool:
    end = at + len(form.text)
    if form.whole:
        return True
    if len(form.text) == 1:
        return _ADDRESS.match(text, end) is not None
    if _HANGUL.fullmatch(form.text):
        return not (at and _HANGUL.match(text[at - 1] * 2)) and _PARTICLE.match(text, end) is not None
    return True
