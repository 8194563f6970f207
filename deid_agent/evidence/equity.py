"""Whether identifiers of some groups of patients leak more often: recall by name origin, sex and age.

The table of patients is the site's own. A label of it appears in a report only if enough patients of the sample have
it, so a column with values of single patients cannot reach the report.
"""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deid_agent.evidence.figures import (
    SMALLEST_GROUP,
    EvidenceFigure,
    EvidenceSection,
    PatientCounts,
    resampled_difference,
    resampled_share,
)
from deid_agent.evidence.leaks import SampledNote
from deid_agent.model import ConfigurationError, PhiType, counted

_NAMES = frozenset({PhiType.PATIENT, PhiType.DOCTOR})
_SEXES = {"f": "female", "female": "female", "m": "male", "male": "male"}
_REQUIRED = ("patient", "sex", "birth_year", "name_origin")
_LABEL = re.compile(r"[A-Za-z][A-Za-z /-]{0,39}")
_OLDEST = 130
TITLE = "Equity"


@dataclass(frozen=True, slots=True)
class PatientGroups:
    """The groups of each patient by attribute (sex, age, name origin); no member shows a patient."""

    groups: Mapping[str, Mapping[str, str]] = field(repr=False)

    def attributes(self) -> list[str]:
        """The attributes, in the order of the columns."""
        return list(next(iter(self.groups.values()), {}))


def read_patients(path: Path, year: int) -> PatientGroups:
    """The table of patients: CSV with ``patient``, ``sex``, ``birth_year``, ``name_origin`` and further groups.

    ``year`` is that of the ages. Raises ``ConfigurationError`` that names the line and no value.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as problem:
        raise ConfigurationError(f"--patients {path}: cannot be read ({type(problem).__name__})") from None
    except UnicodeDecodeError as problem:
        raise ConfigurationError(f"--patients {path}: byte {problem.start}: not UTF-8; convert it first") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    found: dict[str, Mapping[str, str]] = {}
    try:
        columns = [str(name).strip() for name in reader.fieldnames or ()]
        if missing := [name for name in _REQUIRED if name not in columns]:
            raise ConfigurationError(f"--patients {path}: has no column {missing[0]}")
        others = [name for name in columns if name not in _REQUIRED]
        if len({*columns}) < len(columns) or not all(re.fullmatch(r"[a-z][a-z_]{0,30}", name) for name in others):
            raise ConfigurationError(f"--patients {path}: columns need different names of small letters")
        for row in reader:
            where = f"--patients {path}: line {reader.line_num}"
            values = {str(name).strip(): (value or "").strip() for name, value in row.items() if isinstance(value, str)}
            if len(values) < len(columns) or None in row:
                raise ConfigurationError(f"{where}: has another number of cells than the first line")
            patient = values["patient"]
            if not patient or patient in found:
                raise ConfigurationError(f"{where}: the patient is missing, or is that of an earlier line")
            found[patient] = {
                "name origin": values["name_origin"],
                "sex": _SEXES.get(values["sex"].lower(), "other or unknown"),
                "age": _age_class(values["birth_year"], year, where),
                **{name.replace("_", " "): values[name] for name in others},
            }
    except csv.Error:
        raise ConfigurationError(f"--patients {path}: line {reader.line_num}: not CSV") from None
    if not found:
        raise ConfigurationError(f"--patients {path}: has no patient")
    return PatientGroups(found)


def _age_class(text: str, year: int, where: str) -> str:
    if not text:
        return "unknown"
    age = year - int(text) if re.fullmatch(r"\d{4}", text) else -1
    if not 0 <= age <= _OLDEST:
        raise ConfigurationError(f"{where}: birth_year is not a year of the last {_OLDEST} years")
    if age < 18:
        return "0-17"
    return "18-44" if age < 45 else "45-64" if age < 65 else "65-89" if age < 90 else "90 and over"


def compare_groups(sample: Sequence[SampledNote], patients: PatientGroups, seed: int) -> EvidenceSection:
    """Recall of identifiers and of names by group, with the difference to all other patients of known group.

    Raises ``ConfigurationError`` if the table has none of the patients of the sample.
    """
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for note in sample:
        row = counts[note.patient]
        named = {kind: note.identifiers[kind] for kind in _NAMES & note.identifiers.keys()}
        lost = sum(note.leaks.get(kind, 0) for kind in named)
        for at, number in enumerate(
            (note.total - note.leaked, note.total, sum(named.values()) - lost, sum(named.values()))
        ):
            row[at] += number
    known = [patient for patient in sorted(counts) if patient in patients.groups]
    if not known:
        raise ConfigurationError(
            f"--patients: has none of the {counted(len(counts), 'patient')} of the sample: check the column patient"
        )
    figures: list[EvidenceFigure] = []
    for attribute in patients.attributes():
        members: dict[str, list[str]] = defaultdict(list)
        for patient in known:
            members[patients.groups[patient][attribute]].append(patient)
        figures += _group_figures(attribute, members, counts, seed)
    return EvidenceSection(
        "equity",
        TITLE,
        "Recall is the share of the identifiers in the sample that do not leak. Intervals (95 %) and differences to "
        f"all other patients come from resampling patients. Groups of fewer than {SMALLEST_GROUP} patients "
        "have no figure.",
        "Groups and names that the sample does not have. An interval that includes zero shows no equality: the sample "
        "may be too small for the difference.",
        tuple(figures),
        facts={"patients": len(known), "patients_without_a_group": len(counts) - len(known)},
    )


def _group_figures(
    attribute: str, members: Mapping[str, list[str]], counts: Mapping[str, Sequence[int]], seed: int
) -> Iterator[EvidenceFigure]:
    fixed = attribute in {"sex", "age"}
    small = 0
    for label, own in sorted(members.items()):
        if not label:
            continue
        if len(own) < SMALLEST_GROUP or not (fixed or _LABEL.fullmatch(label)):
            small += 1
            if fixed:
                yield EvidenceFigure(f"{attribute}: {label}", 0, 0, remark="too few patients")
            continue
        others = [patient for name, group in members.items() if name not in ("", label) for patient in group]
        for first, what in ((0, "recall"), (2, "recall of names")):
            one, rest = (_gather(group, counts, first) for group in (own, others))
            name = f"{attribute}: {label}: {what}"
            remark = f"{len(own)} patients"
            yield resampled_share(name, one, seed, remark)
            if len(others) >= SMALLEST_GROUP:
                yield resampled_difference(f"{name}, difference to the others", one, rest, seed)
    if small and not fixed:
        yield EvidenceFigure(f"{attribute}: {counted(small, 'other group')}", 0, 0, remark="too few patients")


def _gather(group: Sequence[str], counts: Mapping[str, Sequence[int]], first: int) -> PatientCounts:
    return PatientCounts.gather([(counts[patient][first], counts[patient][first + 1]) for patient in group])


def absent_equity(reason: str) -> EvidenceSection:
    """The section without figures."""
    return EvidenceSection(
        "equity",
        TITLE,
        "Needs a reviewed sample and a table of its patients.",
        "Nothing is known about differences between groups of patients.",
        absent=reason,
    )
