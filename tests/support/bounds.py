"""Leak bounds, documents and samples of invented patients."""

import json
import random
from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path

from deid_agent.agent import DocumentCounts
from deid_agent.app import BoundFile, BoundSystem, BudgetRow, DriftReference
from deid_agent.rules import data_folder

RATES: Mapping[str, float] = {"DATE": 4.0, "DOCTOR": 2.5, "PATIENT": 2.0, "PHONE": 0.4, "MEDICALRECORD": 0.7}
"""Findings of 100 words by type, on average."""
FAMILIES = ("Okafor", "Castellano", "Whitcombe", "Lindqvist", "Moreau", "Petrov", "Haverford", "Quillen")


def make_document(
    rng: random.Random, *, unknown: float = 0.08, rates: Mapping[str, float] = RATES, **given: str
) -> DocumentCounts:
    """The counts of a note. Notes differ by a factor of their own, as those of two clerks do."""
    words = rng.randint(60, 400)
    own = rng.lognormvariate(0, 0.4)
    types = {kind: _poisson(rng, own * rate * words / 100) for kind, rate in rates.items()}
    found = sum(types.values())
    doubt = sum(rng.random() < 0.1 for _ in range(found))
    read = min(300, words)
    return DocumentCounts(
        given.get("source", "adt"),
        given.get("template", "note"),
        given.get("patient", f"{rng.getrandbits(48):x}"),
        words,
        read,
        _poisson(rng, own * unknown * read),
        tuple((kind, count) for kind, count in types.items() if count),
        (("model", found - doubt), ("doubt", doubt)),
    )


def _poisson(rng: random.Random, mean: float) -> int:
    """By the waiting times between events."""
    count, at = 0, rng.expovariate(1.0)
    while at < mean:
        count, at = count + 1, at + rng.expovariate(1.0)
    return count


@cache
def shipped_system() -> BoundSystem:
    """The system ``default`` of this tree."""
    return BoundSystem.of("default", data_folder("rules"), (), None)


def make_bound(*, documents: int = 100, seed: int = 7, lean: float = 10.0) -> BoundFile:
    """A bound of the system ``default`` of this tree."""
    rng = random.Random(seed)
    mean = max(0.0, 0.03 - 1 / documents)
    bound = (mean * documents + 1) / (documents + 1)
    return BoundFile(
        format=1,
        budgets=(BudgetRow(alpha=0.05, lean=lean, bound=bound, mean=mean),),
        notes=2 * documents,
        patients=documents,
        day=date(2026, 10, 1),
        population="discharge letters of ward X, September",
        context="none",
        policy="pseudonymised:0123456789abcdef",
        made_with=shipped_system(),
        words=9.5,
        numbers=4.5,
        drift=DriftReference.of([make_document(rng) for _ in range(documents)]),
    )


def write_bound(path: Path, bound: BoundFile | None = None) -> Path:
    """The file of a bound."""
    path.write_bytes((bound or make_bound()).to_bytes())
    return path


def write_sample(path: Path, patients: int = 24, *, missed: int = 0) -> Path:
    """JSON lines of annotated notes, two of each patient. In ``missed`` patients an annotation is no PHI to anybody."""
    lines = []
    for at in range(patients):
        family = FAMILIES[at % len(FAMILIES)]
        for number in (1, 2):
            doctor = FAMILIES[(at + 3) % len(FAMILIES)]
            text = (
                f"Mrs. {family} was seen on 3/{at + 1}/2024 by Dr. {doctor} for visit {number}. She sleeps well, takes "
                "her tablets as before, and has no pain at rest or on walking to the door."
            )
            spans = [
                {"start": 5, "end": 5 + len(family), "type": "PATIENT"},
                {"start": (day := text.index("3/")), "end": text.index(" by"), "type": "DATE"},
                {"start": (name := text.index("Dr. ") + 4), "end": text.index(" for"), "type": "DOCTOR"},
            ]
            assert day < name
            if at < missed:
                spans.append({"start": (word := text.index("door")), "end": word + 4, "type": "LOCATION-OTHER"})
            lines.append({"id": f"n{at}-{number}", "patient_id": f"p{at}", "text": text, "spans": spans})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path
