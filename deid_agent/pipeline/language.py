"""The language of a narrative, by its function words and its script.

The models and rules read one language; on another they miss names and change clinical words. A policy names the
languages that they may read. Shorter texts than ``LEAST_WORDS`` are not judged: fields, labels and headings have no
function words.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter

from deid_agent.model import ConfigurationError, MessageError, Reason, fold_accents
from deid_agent.rules import read_toml

LEAST_WORDS = 20
"""The fewest words of a paragraph, and of a text, whose language is judged."""
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_PARAGRAPH = re.compile(r"\n[^\S\n]*\r?\n")
_LATIN = re.compile(r"[A-Za-zÀ-ɏḀ-ỿ]")
_LEAD = 0.15
"""By how much the share of function words of another language exceeds that of the named ones. On 60 Spanish notes the
least difference was 0.24, on 267 English notes the greatest 0.07."""
_LEAST_DISTINCT = 5
"""The fewest different function words: an address has "de" and "la" only."""
OTHER_SCRIPT = "another script"

_FILE = TypeAdapter(dict[str, str])


class OtherLanguage(StrEnum):
    """The treatment of a narrative in a language that the policy does not name."""

    REFUSE = "refuse"  # the message is refused
    READ = "read"  # it is read as if it were in a named language: names are missed


@dataclass(frozen=True, slots=True)
class NarrativeLanguages:
    """The languages that a policy names. Without any, no narrative is judged."""

    known: "Languages"
    allowed: frozenset[str] = frozenset()
    other: OtherLanguage = OtherLanguage.REFUSE

    @staticmethod
    def load(rules: Path, codes: Sequence[str], other: OtherLanguage) -> "NarrativeLanguages":
        """The languages ``codes``. Raises ``ConfigurationError`` for an unknown code or an invalid file."""
        known = Languages.load(rules)
        if unknown := sorted(set(codes) - set(known.words)):
            raise ConfigurationError(
                f"narrative.languages: unknown {unknown[0]}: one of {', '.join(sorted(known.words))}"
            )
        return NarrativeLanguages(known, frozenset(codes), other)

    def check(self, path: str, text: str) -> None:
        """Raise ``MessageError`` with ``Reason.LANGUAGE`` if the policy refuses the language of ``text``."""
        if self.other is OtherLanguage.REFUSE and (found := self.known.find_other(text, self.allowed)):
            raise MessageError(Reason.LANGUAGE, path, f"a narrative in {found}, which the policy does not name")


@dataclass(frozen=True, slots=True)
class Languages:
    """Function words by language code."""

    words: Mapping[str, frozenset[str]] = field(repr=False)

    @staticmethod
    def load(rules: Path) -> "Languages":
        """The languages of ``languages.toml`` in ``rules``. Raises ``ConfigurationError`` for an invalid file."""
        return Languages(
            {code: frozenset(words.split()) for code, words in read_toml(rules / "languages.toml", _FILE).items()}
        )

    def find_other(self, text: str, allowed: frozenset[str]) -> str:
        """The language of ``text``, or of a paragraph of it, that is not in ``allowed``; ``""`` if there is none.

        A code of ``words``, or ``OTHER_SCRIPT``. Time is linear in the text.
        """
        if not allowed or not _is_long(text):
            return ""
        paragraphs = [part for part in _PARAGRAPH.split(text) if _is_long(part)]
        return next(filter(None, (self._judge(part, allowed) for part in paragraphs or [text])), "")

    def _judge(self, text: str, allowed: frozenset[str]) -> str:
        found = _WORD.findall(unicodedata.normalize("NFKC", text))
        if len(found) < LEAST_WORDS:
            return ""
        if sum(_LATIN.match(word) is None for word in found) * 2 > len(found):
            return OTHER_SCRIPT
        folded = [fold_accents(word) for word in found]
        shares = {code: sum(word in words for word in folded) / len(folded) for code, words in self.words.items()}
        own = max(shares[code] for code in allowed)
        other = max((code for code in shares if code not in allowed), key=lambda code: (shares[code], code), default="")
        if not other or shares[other] - own < _LEAD or len(self.words[other].intersection(folded)) < _LEAST_DISTINCT:
            return ""
        return other


def _is_long(text: str) -> bool:
    """Whether ``text`` has enough words to judge. Cells of a table and lines have no blanks between their words."""
    return text.count(" ") >= LEAST_WORDS - 1 or len(text.split()) >= LEAST_WORDS
