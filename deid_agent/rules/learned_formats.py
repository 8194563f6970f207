"""A pattern rule from samples of an identifier: ``HN-0042-17`` and twenty others give ``HN-[0-9]{4}-[0-9]{2}``.

A sample is divided into runs of letters, digits and signs. Samples of one kind have the same runs; where all agree the
text stays, elsewhere the class and the shortest and longest length remain. The rule file has invented samples of the
same form, not those that were given: they are identifiers of people.
"""

import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from deid_agent.model import ConfigurationError, Document, MarkupError, PhiType, parse_annotated
from deid_agent.rules.ruleset import Rule, Ruleset

LEAST_SAMPLES: Final = 20
LONGEST_SAMPLE: Final = 60
_SHORTEST: Final = 4
_INVENTED: Final = 3
_TRIES: Final = 60
_FEW_DIGITS: Final = 3
_FEW_LETTERS: Final = 2
_SAMPLE: Final = re.compile(r"[A-Za-z0-9 ._/#:+-]+")
_SPECIAL: Final = re.compile(r"[.+]")
_ID: Final = re.compile(r"[a-z][a-z0-9]{0,20}(?:-[a-z0-9]{1,20}){0,5}")
_LABEL: Final = re.compile(r"[A-Za-z][A-Za-z0-9 .#/-]{1,30}")


@dataclass(frozen=True, slots=True)
class Run:
    """A run of characters of one class: ``digits``, ``upper``, ``lower``, ``letters`` or ``sign``.

    ``text`` is what all samples have there, if they agree.
    """

    kind: str
    shortest: int
    longest: int
    text: str = ""

    @property
    def pattern(self) -> str:
        """The run as an RE2 expression."""
        if self.text:
            return _SPECIAL.sub(r"\\\g<0>", self.text)
        letters = {"digits": "[0-9]", "upper": "[A-Z]", "lower": "[a-z]", "letters": "[A-Za-z]"}[self.kind]
        size = f"{self.shortest}" if self.shortest == self.longest else f"{self.shortest},{self.longest}"
        return f"{letters}{{{size}}}"

    def invent(self, chance: random.Random) -> str:
        """A text of the form of the run."""
        if self.text:
            return self.text
        signs = {"digits": "0123456789", "upper": "ABCDEFGHJKLMNPRSTUVWXYZ", "lower": "abcdefghjkmnpqrstuvwxyz"}
        return "".join(
            chance.choices(signs.get(self.kind, signs["upper"]), k=chance.randint(self.shortest, self.longest))
        )


@dataclass(frozen=True, slots=True)
class LearnedFormat:
    """The runs of an identifier, with the words that must precede it, if it needs any."""

    runs: tuple[Run, ...]
    label: str = ""

    @property
    def pattern(self) -> str:
        """The identifier as an RE2 expression."""
        return "".join(run.pattern for run in self.runs)

    @property
    def before(self) -> str:
        """The label, in any case, with the signs that may divide it from the value; empty without one."""
        words = " {1,3}".join(_SPECIAL.sub(r"\\\g<0>", word) for word in self.label.split())
        return rf"(?i:(?:^|[^a-z0-9]){words}(?: ?(?:no|number|id|nr)\.?)?)[ ]{{0,2}}[:#=.]?[ ]{{0,2}}" if words else ""

    def rule_file(self, id_: str, kind: PhiType, given: Collection[str] = ()) -> str:
        """The rule file, with invented samples, none of which was given.

        Raises ``ConfigurationError`` if nearly all values of the form were.
        """
        chance = random.Random(f"{id_} {self.pattern}")  # noqa: S311 - examples, and the same each time
        lead = f"{self.label}: " if self.label else "see "
        tried = ("".join(run.invent(chance) for run in self.runs) for _ in range(_TRIES))
        invented = list(dict.fromkeys(each for each in tried if each not in given))[:_INVENTED]
        if not invented:
            raise ConfigurationError("the samples are nearly all values of their form: put them into a list instead")
        hits = ", ".join(f'"{lead}[[{kind}|{each}]] today"' for each in invented)
        lines = [
            f'id = "{id_}"',
            f'type = "{kind}"',
            f'why = "Learned from samples of this site{f" after the label {self.label}" if self.label else ""}"',
            f"pattern = '''{self.pattern}'''",
            *([f"before = '''{self.before}'''"] if self.label else []),
            'confidence = "certain"',
            f"hit = [{hits}]",
        ]
        return "".join(f"{line}\n" for line in lines)


def learn_format(samples: Sequence[str], label: str = "") -> LearnedFormat:
    """The format of the samples. Raises ``ConfigurationError`` without a sample if they have none, or a wide one."""
    given = list(dict.fromkeys(sample.strip() for sample in samples if sample.strip()))
    if len(given) < LEAST_SAMPLES:
        raise ConfigurationError(f"{len(given)} different samples: give at least {LEAST_SAMPLES}, one a line")
    for number, sample in enumerate(given, 1):
        if len(sample) > LONGEST_SAMPLE or not _SAMPLE.fullmatch(sample):
            raise ConfigurationError(
                f"sample {number}: write up to {LONGEST_SAMPLE} letters, digits, blanks and the signs . _ / # : + -"
            )
    if label and not _LABEL.fullmatch(label):
        raise ConfigurationError("--label: write a word or two, such as badge")
    rows = [_divide(sample) for sample in given]
    shapes = {tuple(kind for kind, _ in row) for row in rows}
    if len(shapes) > 1:
        raise ConfigurationError(f"the samples have {len(shapes)} forms: learn each form by itself")
    runs = tuple(_unite([row[at] for row in rows]) for at in range(len(rows[0])))
    found = LearnedFormat(runs, label)
    _check_width(found)
    return found


def _divide(sample: str) -> list[tuple[str, str]]:
    return [(kind, "".join(run)) for kind, run in groupby(sample, _class_of)]


def _class_of(char: str) -> str:
    return "digits" if char.isdigit() else "letters" if char.isalpha() else "sign"


def _unite(parts: Sequence[tuple[str, str]]) -> Run:
    kind, texts = parts[0][0], {text for _, text in parts}
    if len(texts) == 1:
        (text,) = texts
        return Run(kind, len(text), len(text), text)
    if kind == "sign":
        raise ConfigurationError("the samples have different signs in one place: learn each form by itself")
    if kind == "letters":
        kind = "upper" if all(map(str.isupper, texts)) else "lower" if all(map(str.islower, texts)) else kind
    sizes = [len(text) for text in texts]
    return Run(kind, min(sizes), max(sizes))


def _check_width(found: LearnedFormat) -> None:
    """Raise ``ConfigurationError`` for a format that much of a clinical text has too."""
    size = sum(run.shortest for run in found.runs)
    open_digits = sum(run.shortest for run in found.runs if run.kind == "digits" and not run.text)
    fixed = sum(len(run.text) for run in found.runs if run.kind == "letters")
    if size < _SHORTEST or (not open_digits and not found.label):
        raise ConfigurationError("the format is too wide: it has the form of words; give --label, or write a rule")
    if not found.label and all(run.kind in {"digits", "sign"} for run in found.runs):
        raise ConfigurationError("the format is a number: results and doses have it too; give --label WORD")
    if not found.label and fixed < _FEW_LETTERS and open_digits <= _FEW_DIGITS:
        raise ConfigurationError("the format is too wide: codes and units have it too; give --label WORD")
    if any(run.longest - run.shortest > 2 * run.shortest + 2 for run in found.runs):
        raise ConfigurationError("the samples differ too much in length: learn each length by itself")


def find_clash(rule: Rule, ruleset: Ruleset, measured: Sequence[str]) -> str:
    """The id of a rule, or the measurement, of whose samples ``rule`` matches one that is no such identifier.

    What a veto must not match is often an identifier (``MRN NCT0257``). ``measured`` are texts in which nothing is one.
    The empty text if there is none.
    """
    for other in (*ruleset.patterns, *(ruleset.site.patterns if ruleset.site is not None else ())):
        if any(_matches(rule, _plain(text)) for text in other.miss):
            return f"a sample of the rule {other.id}"
    for veto in ruleset.vetoes:
        if any(_matches(rule, _plain(text)) for text in veto.hit):
            return f"a sample of the veto {veto.id}"
    return "a sample of a measurement" if any(_matches(rule, text) for text in measured) else ""


def _plain(sample: str) -> str:
    try:
        return parse_annotated(sample).text
    except MarkupError:
        return sample


def _matches(rule: Rule, text: str) -> bool:
    return next(iter(rule.find(Document(text))), None) is not None


def require_id(id_: str) -> str:
    """``id_``. Raises ``ConfigurationError`` if it cannot be the id of a rule."""
    if not _ID.fullmatch(id_):
        raise ConfigurationError("--id: write small letters, digits and hyphens, such as our-badge")
    return id_
