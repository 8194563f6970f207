"""Whether a feed still is like the sample of its leak bound: counts of a document, their reference, and the comparison.

A document is one draw, as in the bound: its words are not, because one note repeats its names and its words. So each
document falls into one class of each feature (for example of its rate of dates), and the classes of a window of
documents are compared with those of the sample by Pearson's chi-square test of homogeneity. Classes that would be
expected fewer than five times are joined with a neighbour (Cochran 1954). The levels of the features are divided by
their number (Bonferroni). A feature must also differ by a population stability index of at least 0.1 (Siddiqi 2006): a
large window would otherwise find differences that change nothing.

Nothing here holds text: features are rates, and a document is its counts.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from deid_agent.agent import DocumentCounts
from deid_agent.model import PhiType, SourceKind

FEWEST_DOCUMENTS: Final = 20
"""The fewest documents of a reference."""
MOST_TEMPLATES: Final = 20
LEVEL: Final = 0.001
"""The probability that a window of the same feed differs, over all features of the window."""
LEAST_PSI: Final = 0.1
_TEMPLATE = "[A-Za-z0-9^._:/-]{1,40}"
_LEAST_EXPECTED = 5.0
_EDGES_AT = (0.25, 0.5, 0.75)

SURE, DOUBTFUL, RULE = "model", "doubt", "rule"
CONFIDENCE: Final[Mapping[SourceKind, str]] = {
    SourceKind.TOKEN_MODEL: SURE,
    SourceKind.NETWORK: SURE,
    SourceKind.CHARACTER_MODEL: SURE,
    SourceKind.LOW_CONFIDENCE: DOUBTFUL,
    SourceKind.RULE: RULE,
    SourceKind.CUSTOM: RULE,
}
"""The class of confidence of a finding by its source. Values of the message and of the site, and repetitions, have
none: they depend on the fields beside the text."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A feature whose classes in a window differ from those of the reference."""

    feature: str
    psi: float
    p: float


@dataclass(frozen=True, slots=True)
class WindowComparison:
    """A window against the reference: its size, how many features were tested, and those that differ."""

    documents: int
    tested: int
    differences: tuple[Difference, ...]


class FeatureCounts(BaseModel):
    """The classes of one feature: upper bounds, with one more class above them, and how many documents are in each."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z:-]{1,40}$")]
    edges: Annotated[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], Field(max_length=3)]
    counts: tuple[Annotated[int, Field(ge=0)], ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.counts) != len(self.edges) + 1 or list(self.edges) != sorted(set(self.edges)):
            raise ValueError("a feature has one more class than rising edges")
        return self


Features = tuple[FeatureCounts, ...]


class DriftReference(BaseModel):
    """The features of the documents of a sample: of ``all``, and of those of its more frequent templates.

    A template is a type of message, a LOINC code of a document, or a kind of note. One with blanks is no code, and may
    be a name: its documents count among all only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    documents: Annotated[int, Field(ge=FEWEST_DOCUMENTS)]
    all: Features
    templates: Annotated[
        dict[Annotated[str, Field(pattern=f"^{_TEMPLATE}$")], Features], Field(max_length=MOST_TEMPLATES)
    ]

    @staticmethod
    def of(documents: Sequence[DocumentCounts]) -> "DriftReference":
        """The reference of ``documents``, one for each patient. Raises ``ValueError`` for too few."""
        by_template: dict[str, list[DocumentCounts]] = {}
        for each in documents:
            by_template.setdefault(each.template, []).append(each)
        codes = filter(re.compile(_TEMPLATE).fullmatch, by_template)
        frequent = sorted(codes, key=lambda name: (-len(by_template[name]), name))[:MOST_TEMPLATES]
        return DriftReference(
            documents=len(documents),
            all=count_features(documents),
            templates={
                name: count_features(by_template[name])
                for name in frequent
                if len(by_template[name]) >= 2 * FEWEST_DOCUMENTS
            },
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [feature.name for feature in self.all]
        if not names or len({*names}) < len(names) or any(sum(each.counts) != self.documents for each in self.all):
            raise ValueError("each feature counts all documents once")
        if any([feature.name for feature in each] != names for each in self.templates.values()):
            raise ValueError("a template has the features of all documents")
        return self

    def features_of(self, template: str) -> Features:
        """The features of a template; those of all documents for another one."""
        return self.templates.get(template, self.all)


def measure_document(document: DocumentCounts) -> dict[str, float]:
    """The features of a document by name: findings of 100 words by type, unknown words, and shares of confidence."""
    types, classes = dict(document.types), dict(document.confidence)
    found = sum(classes.values())
    return {
        **{f"type:{kind}": 100 * types.get(kind, 0) / max(1, document.words) for kind in PhiType},
        "unknown-words": document.unknown / max(1, document.read),
        **{f"confidence:{name}": classes.get(name, 0) / max(1, found) for name in (SURE, DOUBTFUL, RULE)},
    }


def count_features(documents: Sequence[DocumentCounts]) -> Features:
    """The classes of each feature, with about the same number of documents in each, and the numbers."""
    measured = [measure_document(each) for each in documents]
    found = []
    for name in measured[0] if measured else ():
        values = sorted(each[name] for each in measured)
        edges = tuple(sorted({round(values[int(share * (len(values) - 1))], 6) for share in _EDGES_AT}))
        counts = [0] * (len(edges) + 1)
        for value in values:
            counts[bisect_left(edges, round(value, 6))] += 1
        found.append(FeatureCounts(name=name, edges=edges, counts=tuple(counts)))
    return tuple(found)


def add_document(window: list[list[int]], reference: Features, document: DocumentCounts) -> None:
    """Count a document in ``window``, which has the classes of each feature of ``reference``."""
    measured = measure_document(document)
    for counts, feature in zip(window, reference, strict=True):
        counts[bisect_left(feature.edges, round(measured.get(feature.name, 0.0), 6))] += 1


def empty_window(reference: Features) -> list[list[int]]:
    """A window without documents."""
    return [[0] * len(feature.counts) for feature in reference]


def compare_window(window: Sequence[Sequence[int]], reference: Features) -> WindowComparison:
    """The features of ``window`` that differ from ``reference``, the greatest difference first."""
    tables = [
        (feature.name, joined)
        for feature, counts in zip(reference, window, strict=True)
        if len(joined := _join_rare(list(zip(feature.counts, counts, strict=True)))) > 1
    ]
    tested = [(name, chi_square_p(table), stability_index(table)) for name, table in tables]
    level = LEVEL / max(1, len(tested))
    found = [Difference(name, psi, p) for name, p, psi in tested if p < level and psi >= LEAST_PSI]
    documents = sum(window[0]) if window else 0
    return WindowComparison(documents, len(tested), tuple(sorted(found, key=lambda each: (each.p, each.feature))))


Cells = list[tuple[int, int]]
"""The documents of each class: of the reference, of the window."""


def _join_rare(table: Cells) -> Cells:
    """The classes, each joined with the next one until at least five of each side are expected in it."""
    totals = sum(a for a, _ in table), sum(b for _, b in table)
    share = min(totals) / max(1, sum(totals))
    joined: Cells = []
    for a, b in table:
        if joined and share * sum(joined[-1]) < _LEAST_EXPECTED:
            joined[-1] = joined[-1][0] + a, joined[-1][1] + b
        else:
            joined.append((a, b))
    if len(joined) > 1 and share * sum(joined[-1]) < _LEAST_EXPECTED:
        a, b = joined.pop()
        joined[-1] = joined[-1][0] + a, joined[-1][1] + b
    return joined


def chi_square_p(table: Iterable[tuple[int, int]]) -> float:
    """The p-value of Pearson's test that both columns come from one distribution. Needs two to four rows, none empty.

    The closed forms of the chi-square distribution with up to three degrees of freedom.
    """
    rows = list(table)
    totals = sum(a for a, _ in rows), sum(b for _, b in rows)
    whole = sum(totals)
    x = sum(
        (cell - total * sum(row) / whole) ** 2 / (total * sum(row) / whole)
        for row in rows
        for cell, total in zip(row, totals, strict=True)
    )
    tail = math.erfc(math.sqrt(x / 2))
    match len(rows) - 1:
        case 1:
            return tail
        case 2:
            return math.exp(-x / 2)
        case 3:
            return tail + math.sqrt(2 * x / math.pi) * math.exp(-x / 2)
        case other:
            raise ValueError(f"{other} degrees of freedom")


def stability_index(table: Sequence[tuple[int, int]]) -> float:
    """The population stability index of two columns, with half a document added to each class."""
    totals = [sum(row[at] for row in table) + 0.5 * len(table) for at in (0, 1)]
    shares = [((a + 0.5) / totals[0], (b + 0.5) / totals[1]) for a, b in table]
    return sum((b - a) * math.log(b / a) for a, b in shares)
