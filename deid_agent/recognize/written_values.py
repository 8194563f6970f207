"""Reads dates and numbers in the forms in which a text writes them, and separates words that touch.

A written date can have several readings (``3/4/41`` has two in each of two centuries). Known PHI matches a date if its
day is among the readings.
"""

import re
import unicodedata
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from itertools import compress

from deid_agent.model import Document, NormalText, Range
from deid_agent.rules import Regexp

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WRITTEN = Regexp(
    r"(?:\A|[^0-9])(?P<phi>[0-9]{1,2} ?[-/. ] ?[0-9]{1,2} ?[-/. ] ?(?:[0-9]{4}|[0-9]{2})"
    r"|[0-9]{4} ?[-/. ] ?[0-9]{1,2} ?[-/. ] ?[0-9]{1,2}|[0-9]{8}|[0-9]{6}"
    rf"|[0-9]{{1,2}}(?:st|nd|rd|th)?[-/. ]{{0,2}}(?:of )?{_MONTH}[-/, ]{{0,2}}['’]?(?:[0-9]{{4}}|[0-9]{{2}})"
    rf"|{_MONTH}[-/. ]{{0,2}}[0-9]{{1,2}}(?:st|nd|rd|th)?[-/., ]{{0,2}}['’]?(?:[0-9]{{4}}|[0-9]{{2}})"
    rf"|[0-9]{{4}}[-/. ]{_MONTH}[-/. ][0-9]{{1,2}}"
    r")(?:\z|[^0-9]|[T ][0-9]{2}:?[0-9]{2})"
)
_PARTS = re.compile(r"\d+|[A-Za-z]{3,}")
_JOINED_BEFORE = re.compile(r"[0-9A-Za-z][-/.]\Z")
_JOINED_AFTER = re.compile(r"[-/.][0-9]")
_FACT = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})")
_ASCII_ALNUM = re.compile(r"[0-9A-Za-z]")
_SEPARATORS = re.compile(r"[ \-./()+_]{0,3}")
_THOUSANDS = re.compile(r",[0-9]{3}(?![0-9])")
_NO_FRACTION = re.compile(r"\.0{1,2}(?![0-9A-Za-z])")
_LABEL_BEFORE = re.compile(
    r"(?<![A-Za-z])(?:MRN?|ID|NO|PID|ACCT|CSN|FIN|SSN|NUM|REF|VISIT|CHART|CASE)\Z", re.IGNORECASE
)
"""What touches an identifier that begins with a letter: ``MRNAC28995``."""


@dataclass(frozen=True, slots=True)
class WrittenDate:
    """Characters ``[start, end)`` and all days that they can mean."""

    start: int
    end: int
    readings: frozenset[date]


def parse_fact_date(value: str) -> date | None:
    """The day of a structured value ``YYYYMMDD...`` (HL7 v2 DT, DTM) or ``YYYY-MM-DD...`` (FHIR), or None."""
    found = _FACT.match(value.strip())
    return _day(int(found[1]), int(found[2]), int(found[3])) if found else None


def find_dates(doc: Document) -> Iterator[WrittenDate]:
    """The full dates (day, month and year) of a document, in order."""
    data, at = doc.utf8, 0
    while (found := _WRITTEN.search(data, at)) is not None:
        begin, last = found[1]
        start, end = doc.char(begin), doc.char(last)
        alone = not (_JOINED_BEFORE.search(doc.text, max(0, start - 2), start) or _JOINED_AFTER.match(doc.text, end))
        readings = frozenset(_readings(doc.text[start:end])) if alone else frozenset()
        if readings:
            yield WrittenDate(start, end, readings)
        at = last if readings else found[0][0] + 1


def _readings(text: str) -> Iterator[date]:
    parts = _PARTS.findall(text)
    words = [p for p in parts if p.isalpha() and p[:3].lower() in _MONTHS]
    numbers = [p for p in parts if p.isdigit()]
    if words and len(numbers) == 2:
        month = str(_MONTHS.index(words[0][:3].lower()) + 1)
        a, b = numbers
        orders = [(b, month, a), (a, month, b)]
    elif len(numbers) == 3:
        a, b, c = numbers
        orders = [(c, a, b), (c, b, a), (a, b, c)]
    elif len(numbers) == 1 and len(numbers[0]) == 8:
        (n,) = numbers
        orders = [(n[:4], n[4:6], n[6:]), (n[4:], n[:2], n[2:4]), (n[4:], n[2:4], n[:2])]
    elif len(numbers) == 1 and len(numbers[0]) == 6:
        (n,) = numbers
        orders = [(n[:2], n[2:4], n[4:]), (n[4:], n[:2], n[2:4]), (n[4:], n[2:4], n[:2])]
    else:
        return
    for year, month, day in orders:
        for full in _years(year):
            if (reading := _day(full, int(month), int(day))) is not None:
                yield reading


def _years(text: str) -> tuple[int, ...]:
    if len(text) == 4:
        return (int(text),)
    return (1900 + int(text), 2000 + int(text)) if len(text) == 2 else ()


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class CompactText:
    """A text without punctuation and blanks: ``letters[i]`` is the character ``at[i]`` of the text."""

    letters: str = field(repr=False)
    at: list[int] = field(repr=False)

    @classmethod
    def from_document(cls, doc: Document) -> "CompactText":
        if doc.text.isascii():
            return cls(doc.compact.upper(), list(compress(range(len(doc.text)), map(str.isalnum, doc.text))))
        at = [m.start() for m in _ASCII_ALNUM.finditer(doc.text)]
        return cls("".join(doc.text[i] for i in at).upper(), at)

    def find(self, core: str, text: str, *, partial: bool = False) -> Iterator[tuple[int, int]]:
        """The ranges of ``text`` that contain ``core`` with light punctuation, including leading zeros.

        No digit or letter continues the number on either side, unless ``partial``: then the range may be a part of a
        longer number.
        """
        found = self.letters.find(core)
        while found >= 0:
            last = found + len(core) - 1
            if self._fold_word(text, found, last):
                first = found
                while (
                    not partial
                    and first > 0
                    and self.letters[first - 1] == "0"
                    and self.at[first] - self.at[first - 1] == 1
                ):
                    first -= 1
                start, end = self.at[first], self.at[last] + 1
                before = _continues_number(text, start - 1, core[0]) and not _LABEL_BEFORE.search(
                    text, max(0, start - 8), start
                )
                alone = not (before or _continues_number(text, end, core[-1]))
                alone = alone and not _is_part_of_decimal(text, start, end)
                if alone or partial:
                    yield start, end
            found = self.letters.find(core, found + 1)

    def _fold_word(self, text: str, first: int, last: int) -> bool:
        at = self.at
        return at[last] - at[first] <= 2 * (last - first) + 6 and all(
            at[i + 1] - at[i] == 1
            or _SEPARATORS.fullmatch(text, at[i] + 1, at[i + 1])
            or (at[i + 1] - at[i] == 2 and _THOUSANDS.match(text, at[i] + 1))
            for i in range(first, last)
        )


def _is_digit_at(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at].isdigit()


def _continues_number(text: str, at: int, edge: str) -> bool:
    """Return true if the adjacent character continues the number: a digit, or a letter next to a letter."""
    return _is_digit_at(text, at) or (edge.isalpha() and 0 <= at < len(text) and text[at].isalpha())


def _is_part_of_decimal(text: str, start: int, end: int) -> bool:
    """Return true if the number is one side of a decimal point. Tables of numbers write an identifier as 4471902.0."""
    return (text[max(0, start - 1) : start] == "." and _is_digit_at(text, start - 2)) or (
        text[end : end + 1] == "." and _is_digit_at(text, end + 1) and not _NO_FRACTION.match(text, end)
    )


# Words that touch: OCR, labels without blanks, and Latin words in scripts that are written without blanks.

_NO_BLANKS = re.compile(  # Thai, Lao, Myanmar, Khmer, kana, Han, Hangul
    r"[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    r"\uf900-\ufaff\U00020000-\U0003134f]"
)
_EDGE = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[0-9]|[A-Z][a-z])|[0-9](?=[A-Za-z])")
_NAME_PREFIX = re.compile(r"(?<![A-Za-z])(?:Ma?c|De|D[iu]|L[ae]|V[ao]n|Fitz)\Z")
_GLUED_RUN = re.compile(
    r"(?:[^\W_]|[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0903\u093a-\u094f"
    r"\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b4-\u17d3]){2,}"
)
_LINE_END = re.compile(
    r"[ \t\u3000]{0,4}\r?\n[ \t\u3000]{0,4}|(?<=[\u30a1-\u30fa\u30fc])[ \u3000](?=[\u30a1-\u30fa\u30fc])"
)
_AFTER_CUT = re.compile(r"\n[ \t]{0,4}(?=[0-9(])")
_BEFORE_CUT = re.compile(r"(?:[0-9]|[0-9][-/.)]|[A-Z]{2})\Z")
_AFTER_COMMENT = re.compile(rf"\n[ \t]{{0,4}}(?=[0-9(]|{_NO_BLANKS.pattern})")
_BEFORE_COMMENT = re.compile(rf"(?:[0-9]|[0-9][-/.)]|[A-Z]{{2}}|{_NO_BLANKS.pattern})\Z")
_LONGEST_COMMENT = 80
_CUT_MAIL = re.compile(r"@[ \t\r\n]{1,8}(?=[0-9A-Za-z])")
_MOST_BESIDE_CUT = 32
_WITH_DIGITS = re.compile(
    r"(?<![^\W_])(?:[0134568][^\W\d_]{3,24}|(?:[0134568](?=['’]))?['’]?[^\W\d_]{1,24}[0134568]{1,2}[^\W\d_]{0,24}"
    r"[0134568]?[^\W\d_]{0,8})(?![^\W_])"
)
_FEWEST_LETTERS = 3
_MEANT = str.maketrans("0134568", "oleasgb")


def is_written_without_blanks(char: str) -> bool:
    """Return true for a letter of a script that has no blanks between words, or few."""
    return _NO_BLANKS.match(char) is not None


def separate_glued_words(text: str) -> NormalText | None:
    """``text`` with a blank at each change of case, of digits and of scripts; None if there is none.

    Only the lines that change are in the result. A change of case after ``Mc`` and the like separates nothing.
    """
    parts: list[str] = []
    starts, ends = array("Q"), array("Q")
    last = line_end = -1
    for cut in (*_find_glue(text), len(text)):
        while last >= 0 and (cut > line_end or cut == len(text)):  # the rest of the line before
            _append(parts, starts, ends, text, last, line_end, "\n\x1f\n")
            last = -1
        if cut == len(text):
            break
        if last < 0:
            last = text.rfind("\n", 0, cut) + 1
            line_end = text.find("\n", cut)
            line_end = len(text) if line_end < 0 else line_end
        _append(parts, starts, ends, text, last, cut, " ")
        last = cut
    return NormalText("".join(parts), starts, ends) if parts else None


def _append(
    parts: list[str], starts: "array[int]", ends: "array[int]", text: str, start: int, end: int, after: str
) -> None:
    parts += (text[start:end], after)
    starts.extend(range(start, end))
    ends.extend(range(start + 1, end + 1))
    starts.extend([end] * len(after))
    ends.extend([end] * len(after))


def join_cut_words(text: str) -> NormalText | None:
    """``text`` without the line ends between two letters of scripts without blanks; None if there is none.

    In katakana a blank may stand between two letters of a word, too.
    """
    if text.isascii():
        return None
    parts: list[str] = []
    places, at = array("Q"), 0
    for found in _LINE_END.finditer(text):
        if is_written_without_blanks(text[found.start() - 1 : found.start()] or " ") and is_written_without_blanks(
            text[found.end() : found.end() + 1] or " "
        ):
            parts.append(text[at : found.start()])
            places.extend(range(at, found.start()))
            at = found.end()
    if not parts:
        return None
    parts.append(text[at:])
    places.extend(range(at, len(text)))
    return NormalText("".join(parts), places, array("Q", (place + 1 for place in places)))


def join_cut_values(text: str, *, with_comments: bool = True) -> NormalText | None:
    """The numbers, dates and addresses of mail that line ends in ``text`` cut, each joined; None if there is none.

    With ``with_comments`` a comment may stand between the two parts, as a line, also in a word of a script without
    blanks.
    """
    parts: list[str] = []
    starts, ends = array("Q"), array("Q")
    for start, end in _find_cuts(text, with_comments):
        first, last = max(0, start - _MOST_BESIDE_CUT), min(len(text), end + _MOST_BESIDE_CUT)
        first = text.rfind("\n", first, start) + 1 or first
        line_end = text.find("\n", end, last)
        _append(parts, starts, ends, text, first, start, "")
        _append(parts, starts, ends, text, end, line_end if line_end >= 0 else last, "\n\x1f\n")
    return NormalText("".join(parts), starts, ends) if parts else None


def read_digits_as_letters(text: str) -> NormalText | None:
    """The words of ``text`` in which a digit stands for a letter (``Okaf0r``), with it; None if there is none."""
    parts: list[str] = []
    starts, ends = array("Q"), array("Q")
    for word in _WITH_DIGITS.finditer(text):
        if sum(map(str.isalpha, word[0])) >= _FEWEST_LETTERS:
            _append(parts, starts, ends, text, word.start(), word.end(), "\n\x1f\n")
    return NormalText("".join(parts).translate(_MEANT), starts, ends) if parts else None


def _find_cuts(text: str, with_comments: bool) -> Iterator[Range]:
    for found in _CUT_MAIL.finditer(text):
        yield found.start() + 1, found.end()
    for found in _AFTER_CUT.finditer(text):
        start = _end_of_line(text, found.start())
        if _BEFORE_CUT.search(text, max(0, start - 2), start):
            yield start, found.end()
    for found in _AFTER_COMMENT.finditer(text) if with_comments else ():
        comment = text.rfind("\n", max(0, found.start() - _LONGEST_COMMENT), found.start())
        start = _end_of_line(text, comment)
        if comment >= 0 and _BEFORE_COMMENT.search(text, max(0, start - 2), start):
            yield start, found.end()


def _end_of_line(text: str, line_end: int) -> int:
    """Where the line that ends at ``line_end`` ends without the blanks after it."""
    while line_end > 0 and text[line_end - 1] in " \t\r":
        line_end -= 1
    return line_end


def _find_glue(text: str) -> list[int]:
    if text.isascii():
        cuts = [edge.end() for edge in _EDGE.finditer(text)]
    else:
        cuts = [run.start() + edge for run in _GLUED_RUN.finditer(text) for edge in _find_edges(run[0])]
    return [cut for cut in cuts if not _NAME_PREFIX.search(text, max(0, cut - 5), cut)]


def _find_edges(word: str) -> Iterator[int]:
    kinds = [_kind_of_character(c) for c in word]
    for at in range(1, len(word)):
        before, kind = kinds[at - 1], kinds[at]
        following = kinds[at + 1] if at + 1 < len(word) else ""
        if kind == "m" or (before == kind == "u" and following != "l") or before == kind != "u":
            continue
        if before == "m":
            before = next((k for k in reversed(kinds[:at]) if k != "m"), "m")
        if (before != kind and (before, kind) != ("u", "l")) or before == kind == "u":
            yield at


def _kind_of_character(char: str) -> str:
    """Digit, without blanks, mark, upper or lower case; letters without case count as lower case."""
    if char.isdigit():
        return "d"
    if is_written_without_blanks(char):
        return "n"
    if unicodedata.category(char)[0] == "M":
        return "m"
    return "u" if char.isupper() else "l"
