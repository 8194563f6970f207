"""Logins made of a name that stands in the same note: ``tpfluger``, ``arosenth``, ``mroybal2``.

Hospitals build logins from one or two initials and the family name, often cut
and numbered. A word in one case that is no common word, and that reads
as one or two letters and then the first four or more letters of a capitalised
word of the note, is one. Source of the habit: the annotation guidelines,
names in detail (initial and surname glued in lower case is USERNAME).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from deid_agent.lexicon import Lexicon
from deid_agent.phi import PhiType
from deid_agent.spans import Span
from deid_agent.text import Document

_STEM = 4
_LOGIN = re.compile(r"(?<![\w@./-])(?:[a-z]{5,14}|[A-Z]{6,14})(?:[0-9]{1,4}|[_.][a-z0-9]{1,5})?(?![\w@-]|\.\w)")
_NAME = re.compile(r"(?<!\w)[A-Z][A-Za-z]{3,20}(?!\w)")
_LETTERS = re.compile(r"[A-Za-z]{1,14}")


@dataclass(frozen=True, slots=True)
class LoginRecognizer:
    """Proposes USERNAME spans; needs no cue."""

    common: Lexicon = field(repr=False)
    name: str = "logins"

    def recognize(self, doc: Document) -> Iterator[Span]:
        """Logins that a name of the same document explains."""
        stems: dict[str, set[str]] = {}
        for found in _NAME.finditer(doc.text):
            word = found.group().lower()
            if word not in self.common:
                stems.setdefault(word[:_STEM], set()).add(word)
        if not stems:
            return
        for found in _LOGIN.finditer(doc.text):
            letters = _LETTERS.match(found.group())
            if letters and self._explained(letters.group().lower(), stems):
                yield Span(found.start(), found.end(), PhiType.USERNAME, "login:name")

    def _explained(self, login: str, stems: dict[str, set[str]]) -> bool:
        if login in self.common:
            return False
        return any(
            name.startswith(login[skip:]) for skip in (1, 2) for name in stems.get(login[skip : skip + _STEM], ())
        )
