"""Dates that are equal in a public message and in its output: each must have a reason of the list below.

The extractor of this file knows nothing of the codecs. An unmoved date reveals the shift of all others.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from support.shared import shared

from deid_agent.app import WorkerFactory
from deid_agent.codec.cda import CdaCodec
from deid_agent.config.secrets import DEMO_KEY
from deid_agent.model import MessageError
from deid_agent.pipeline.deidentify import Deidentifier
from deid_agent.pipeline.policy import load_policy
from deid_agent.rules import data_folder

pytestmark = pytest.mark.full

RULES = data_folder("rules")
_DATE = re.compile(
    r"(?<![0-9.])(?:(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:(?:[01][0-9]|2[0-4])(?:[0-5][0-9]){0,2})?"
    r"|(?:19|20)[0-9]{2}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01]))(?![0-9])"
)
_PLACEHOLDER = re.compile(r"1900-?01-?01|1800-?01-?01|1840-?12-?31|1899-?12-?3[01]|2099-?12-?31|9999.*")
_PUBLIC = frozenset(
    [
        *["RXA-16", "RXD-19", "RXG-20", "IIM-4", "ILT-3", "INV-12", "PCR-6", "SFT-6", "PDC-14", "PDC-15", "PRC-11"],
        *["PRC-12", "PKG-7", "OM1-21", "OM1-22", "OM7-6", "OM7-7", "OM7-19", "DPS-3", "DPS-4"],
    ]
)
_EDITION = "29768-9"
"""LOINC: the publication of a vaccine information statement."""
_VERSIONS = frozenset({7, 8, 13, 16, 19, 22})


@lru_cache(maxsize=2)
def deidentifier() -> Deidentifier:
    return WorkerFactory(rules=RULES, key=DEMO_KEY, policy=load_policy("pseudonymised", RULES)).deidentifier()


def hl7_values(raw: bytes) -> Iterator[tuple[str, int, int, str, list[str]]]:
    """Segment and field, number of the segment, component, value, and the components of its repetition."""
    for number, line in enumerate(re.split(r"[\r\n]+", raw.decode("latin-1"))):
        fields = line.split("|")
        shift = 1 if line[:3] in {"MSH", "BHS", "FHS"} else 0
        for index, text in enumerate(fields[1:], start=1 + shift):
            for repetition in text.split("~"):
                words = repetition.split("^")
                if fields[0][:3] == "OBX" and index == 5 and len(fields) > 3 and _EDITION in fields[3]:
                    words = [*words, _EDITION]
                for component, word in enumerate(words, start=1):
                    yield f"{fields[0][:3]}-{index}", number, component, word, words


def reason(field: str, component: int, date: str, words: list[str]) -> str:
    """The reason for which the date may stay; empty if there is none."""
    if _PLACEHOLDER.fullmatch(date):
        return "placeholder"
    if field in _PUBLIC or (field == "OBX-5" and _EDITION in words):
        return "public"
    if component in _VERSIONS and len(words) >= 3 and any(words[2:6]):
        return "version"
    return ""


def hl7_files() -> list[Path]:
    return sorted(
        file
        for folder in ("hl7", "hl7-odd", "hl7-batch")
        for file in shared("messages", folder).rglob("*")
        if file.is_file()
    )


def test_no_public_hl7_message_keeps_a_date_without_a_reason() -> None:
    dates = messages = 0
    unexplained: Counter[str] = Counter()
    for file in hl7_files():
        raw = file.read_bytes()
        try:
            new = deidentifier().message(raw).payload
        except MessageError:
            continue
        messages += 1
        before, after = list(hl7_values(raw)), list(hl7_values(new))
        kept = Counter(
            (field, number, component, date)
            for field, number, component, word, _ in after
            for date in _DATE.findall(word)
        )
        for field, number, component, word, words in before:
            for date in _DATE.findall(word):
                dates += 1
                if kept[field, number, component, date] and not reason(field, component, date, words):
                    unexplained[f"{file.name[:40]} {field}.{component}"] += 1
    assert messages > 600
    assert dates > 5000
    assert not unexplained, unexplained.most_common(40)


def fhir_values(tree: object, path: str = "", owner: object = None) -> Iterator[tuple[str, str, object]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from fhir_values(value, f"{path}.{key}", tree)
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from fhir_values(value, f"{path}[{index}]", owner)
    elif isinstance(tree, str | int | float) and not isinstance(tree, bool):
        yield path, str(tree), owner


_DEFINITION = re.compile(
    r"[A-Z][A-Za-z]*Definition|Library|Measure|Questionnaire|CodeSystem|ValueSet|ConceptMap|NamingSystem|SearchParameter"
    r"|StructureMap|ImplementationGuide|CapabilityStatement|TerminologyCapabilities|TestScript|Evidence[A-Za-z]*|Bundle"
    r"|ExampleScenario|Citation|TestPlan|Requirements|SubscriptionTopic|DataElement|ExpansionProfile"
)


def fhir_reason(path: str, value: str, owner: object, date: str, *, definition: bool) -> str:
    name = re.sub(r"\[\d+\]$", "", path).rpartition(".")[2]
    if _PLACEHOLDER.fullmatch(date):
        return "placeholder"
    if "://" in value or value.startswith("urn:"):
        return "uri"
    if name in {"version", "fhirVersion", "artifactVersion"}:
        return "version"
    if name == "expirationDate" or (
        definition and name in {"date", "approvalDate", "lastReviewDate", "timestamp", "lockedDate"}
    ):
        return "public"
    if name == "code" and isinstance(owner, dict) and str(owner.get("system", "")).startswith("http"):
        return "code"
    return ""


def test_no_public_fhir_resource_keeps_a_date_without_a_reason() -> None:
    dates = messages = 0
    unexplained: Counter[str] = Counter()
    for file in sorted(shared("messages", "fhir").rglob("*.json"))[::3]:
        raw = file.read_bytes()
        if len(raw) > 400_000:
            continue
        try:
            new = deidentifier().message(raw).payload
            before, after = json.loads(raw), json.loads(new)
        except (MessageError, ValueError):
            continue
        messages += 1
        outputs = {path: value for path, value, _ in fhir_values(after)}
        for path, value, owner in fhir_values(before):
            if path.endswith((".data", ".div")):
                continue
            for date in _DATE.findall(value):
                dates += 1
                definition = _DEFINITION.fullmatch(str(before.get("resourceType"))) is not None
                if date in _DATE.findall(outputs.get(path, "")) and not fhir_reason(
                    path, value, owner, date, definition=definition
                ):
                    unexplained[f"{file.name[:40]} {path[-80:]}"] += 1
    assert messages > 150
    assert not unexplained, unexplained.most_common(40)


_VERSIONED = re.compile(
    r"<(?:[a-z0-9]+:)?(?:templateId|typeId)\b[^<>]*$|(?:codeSystemVersion|valueSetVersion)=\"[^\"]*$"
)


def test_no_public_document_keeps_a_date_that_nothing_examines() -> None:
    codec = CdaCodec(RULES)
    dates = documents = 0
    unexplained: Counter[str] = Counter()
    for file in sorted(file for file in shared("messages", "ccda").rglob("*") if file.is_file()):
        raw = file.read_bytes()
        try:
            (found,) = codec.parse(raw)
        except MessageError:
            continue
        documents += 1
        examined = bytearray(len(raw) + 1)
        spans = [(site.start, site.end) for site in found.sites]
        spans += [span for n in found.narratives for span in zip(n.mapped.starts, n.mapped.ends, strict=True)]
        spans += [span for each in found.attachments for span in ((each.start, each.end), *each.parts)]
        for start, end in spans:
            examined[start:end] = b"1" * (end - start)
        text = raw.decode("latin-1")
        for date in _DATE.finditer(text):
            dates += 1
            before = text[max(0, date.start() - 300) : date.start()]
            if not examined[date.start()] and not _VERSIONED.search(before):
                unexplained[f"{file.name[:40]} {before[-40:]}"] += 1
    assert documents > 150
    assert dates > 500
    assert not unexplained, unexplained.most_common(40)
