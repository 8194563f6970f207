"""The table of docs/formats.md, from a run over every message of ``$DEID_SHARED/messages``.

``python tests/support/formats_report.py [--validate]`` (from the project's root) writes it. ``--validate`` also asks
hl7apy and fhir.resources about every output, which takes many minutes; without it that column stays as it was.
"""

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.pop(0)  # this folder: its fhir.py would hide the library
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deid_agent.app import WorkerFactory
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model.errors import MessageError
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy
from deid_agent.pipeline.validation import Validator

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "formats.md"
BEGIN, END = "<!-- figures: made by tests/support/formats_report.py -->", "<!-- end of figures -->"
FOLDERS = ("hl7", "hl7-odd", "hl7-batch", "fhir/fhir-test-cases", "fhir/ms-anonymizer", "fhir/r4-spec-examples",
           "fhir/stu3-spec-examples", "ccda/hl7-ccda-examples")  # fmt: skip


@dataclass(slots=True)
class Row:
    """The outcomes of the files of one folder."""

    files: int = 0
    published: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    identical: int = 0
    same_structure: int = 0
    sites: int = 0
    guard: int = 0
    worse: int | None = None


def deidentifier(name: str) -> Deidentifier:
    return WorkerFactory(rules=ROOT / "rules", key=DEMO_KEY, policy=load_policy(name, ROOT / "rules")).deidentifier()


def structure(raw: bytes) -> list[object]:
    """Only names and counts: segments with their fields, the names of a tree, or tags in order."""
    if raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        texts = [raw]
        try:
            json.loads(raw.decode("utf-8-sig"))
        except json.JSONDecodeError:
            texts = [line for line in raw.splitlines() if line.strip()]
        return [_shape(json.loads(text.decode("utf-8-sig"))) for text in texts]
    if raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        return list(re.findall(rb"</?[A-Za-z][\w:.-]*", raw))
    mark = next((raw[at + 3 : at + 4] for at in (raw.find(name) for name in (b"FHS", b"BHS", b"MSH")) if at >= 0), b"|")
    return [(line[:3], line.count(mark)) for line in re.split(rb"[\r\n]+", raw)]


def _shape(node: object) -> object:
    if isinstance(node, dict):
        return [(name, _shape(value)) for name, value in node.items()]
    if isinstance(node, list):
        return [_shape(value) for value in node]
    return None


def measure(folder: Path, validator: Validator | None) -> Row:
    """One folder through the default policy and through ``keep``; with a validator, through ``safe-harbor`` too."""
    row = Row(worse=0 if validator else None)
    main, keep, strict = (deidentifier(name) for name in ("pseudonymised", "keep", "safe-harbor"))
    for path in sorted(path for path in folder.rglob("*") if path.suffix in {".hl7", ".json", ".xml"}):
        if path.name == "index.json":
            continue
        raw = path.read_bytes()
        row.files += 1
        try:
            done = main.message(raw)
            kept = keep.message(raw).payload
        except MessageError as problem:
            row.refused[problem.reason] += 1
            continue
        row.published += 1
        row.identical += kept == raw
        row.same_structure += structure(raw) == structure(done.payload)
        row.sites += sum(remark.count for remark in done.remarks)
        row.guard += sum(remark.count for remark in done.remarks if remark.source == "guard")
        if validator and row.worse is not None:
            outputs = [done.payload, *_published(strict, raw)]
            row.worse += any(validator.added(raw, output) for output in outputs)
    return row


def _published(made: Deidentifier, raw: bytes) -> Iterator[bytes]:
    try:
        yield made.message(raw).payload
    except MessageError:
        return


def table(root: Path, validator: Validator | None, known: dict[str, str]) -> str:
    """The table; ``known`` are the figures of an earlier validation by folder."""
    lines = [
        "| folder | files | published | refused | `keep` gives the same bytes | same segments or elements "
        "| places changed | of these by the leak guard | outputs less valid |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in FOLDERS:
        row = measure(root / name, validator)
        refused = ", ".join(f"{count} {reason}" for reason, count in sorted(row.refused.items())) or "0"
        worse = known.get(name, "not measured") if row.worse is None else str(row.worse)
        worse = "no schema" if name.startswith("ccda") else worse
        lines.append(
            f"| {name} | {row.files} | {row.published} | {refused} | {row.identical} | {row.same_structure} "
            f"| {row.sites:,} | {row.guard:,} | {worse} |"
        )
    return "\n".join(lines)


def page(text: str, new: str) -> str:
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{new}\n{END}{rest.split(END)[1]}"


def earlier(text: str) -> dict[str, str]:
    """The current last column of the table."""
    rows = [
        line.strip("| ").split(" | ") for line in text.partition(BEGIN)[2].partition(END)[0].splitlines() if "|" in line
    ]
    return {row[0]: row[-1] for row in rows if len(row) == 9}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--validate", action="store_true")
    arguments = parser.parse_args()
    old = PAGE.read_text("utf-8")
    made = table(Path(os.environ["DEID_SHARED"], "messages"), Validator() if arguments.validate else None, earlier(old))
    PAGE.write_text(page(old, made), "utf-8")
