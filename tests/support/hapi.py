"""The validator and the client of HAPI FHIR for tests: plain ``java``, with jars that Maven fetches into ``.cache``.

``tests/system/conformance/Hapi.java`` runs them from its source. A machine without Java or Maven skips their tests with
the reason; ``DEID_REQUIRE_BROKER=1``, which CI sets for all that needs Java, makes the skip a failure.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.jars import ROOT, NoJars, find_jars, require_program

FILES = ROOT / "tests" / "system" / "conformance"
RUN_LIMIT_S = 240.0
_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g", "-Djava.awt.headless=true")
_EXTENSIONS = "http://hl7.org/fhir/StructureDefinition"
_US_CORE = "http://hl7.org/fhir/us/core/StructureDefinition"


@dataclass(frozen=True, slots=True)
class Issue:
    """A finding of the validator."""

    file: str
    severity: str
    where: str
    text: str


@contextlib.contextmanager
def hapi_or_skip() -> Iterator[None]:
    """Skip a test whose jars cannot be fetched, with the reason."""
    try:
        _classpath()
    except NoJars as reason:
        if os.environ.get("DEID_REQUIRE_BROKER") == "1":
            raise
        # A machine of a developer may have no Java, Maven or network; with DEID_REQUIRE_BROKER=1, as in CI, it fails.
        pytest.skip(str(reason))
    yield


def _classpath() -> str:
    require_program("java", "install a JDK 17")
    return find_jars("hapi", FILES / "pom.xml", "hapi-fhir-validation-*.jar")


def run_hapi(*words: str | Path) -> list[str]:
    """The lines that ``Hapi.java`` prints. Raises ``NoJars`` without Java."""
    command = ["java", *_JAVA, "-cp", _classpath(), str(FILES / "Hapi.java"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def validate(definitions: Sequence[Path], resources: Mapping[str, str], folder: Path) -> list[Issue]:
    """The findings in resources (by name), with these definitions and those of US Core that DAPL names."""
    known, given = folder / "definitions", folder / "resources"
    known.mkdir()
    given.mkdir()
    for path in definitions:
        shutil.copy(path, known)
    for made in (*_us_core(), *_pinned()):
        (known / f"{made['id']}.json").write_text(json.dumps(made))
    for name, text in resources.items():
        (given / name).write_text(text, "utf-8")
    lines = [line.split("\t") for line in run_hapi("validate", known, given)]
    assert {line[0] for line in lines if line[1:] == ["read"]} == set(resources)
    return [Issue(*line) for line in lines if line[1:] != ["read"]]


def _us_core() -> list[dict[str, object]]:
    """Race and ethnicity of US Core with the number of each part, and the required elements of its Practitioner."""
    required = ("identifier", "identifier.system", "identifier.value", "name", "name.family")
    elements: list[dict[str, object]] = [
        {"id": f"Practitioner.{path}", "path": f"Practitioner.{path}", "min": 1} for path in required
    ]
    practitioner = _definition("us-core-practitioner", f"{_US_CORE}/us-core-practitioner", elements)
    del practitioner["context"]
    practitioner |= {"kind": "resource", "type": "Practitioner", "baseDefinition": f"{_EXTENSIONS}/Practitioner"}
    return [
        practitioner,
        *_races(),
    ]


def _races() -> list[dict[str, object]]:
    return [
        _definition(
            f"us-core-{name}",
            f"{_US_CORE}/us-core-{name}",
            [
                {"id": "Extension", "path": "Extension", "min": 0, "max": "1"},
                *_part("ombCategory", 0, most, "Coding"),
                *_part("detailed", 0, "*", "Coding"),
                *_part("text", 1, "1", "string"),
                {
                    "id": "Extension.url",
                    "path": "Extension.url",
                    "fixedUri": f"{_US_CORE}/us-core-{name}",
                },
                {"id": "Extension.value[x]", "path": "Extension.value[x]", "max": "0"},
            ],
        )
        for name, most in (("race", "5"), ("ethnicity", "1"))
    ]


def _part(name: str, least: int, most: str, kind: str) -> list[dict[str, object]]:
    at = f"Extension.extension:{name}"
    return [
        {"id": at, "path": "Extension.extension", "sliceName": name, "min": least, "max": most},
        {"id": f"{at}.url", "path": "Extension.extension.url", "fixedUri": name},
        {
            "id": f"{at}.value[x]",
            "path": "Extension.extension.value[x]",
            "min": 1,
            "type": [{"code": kind}],
        },
    ]


def _pinned() -> list[dict[str, object]]:
    """The extensions that DAPL pins to version 5.2.0 of a package that is not on Maven Central."""
    return [
        _definition(
            name,
            f"{_EXTENSIONS}/{name}",
            [
                {"id": "Extension.url", "path": "Extension.url", "fixedUri": f"{_EXTENSIONS}/{name}"},
                {"id": "Extension.value[x]", "path": "Extension.value[x]", "min": 1, "type": [{"code": kind}]},
            ],
            "5.2.0",
        )
        for name, kind in (("data-absent-reason", "code"), ("condition-assertedDate", "dateTime"))
    ]


def _definition(name: str, url: str, elements: list[dict[str, object]], version: str = "7.0.0") -> dict[str, object]:
    return {
        "resourceType": "StructureDefinition",
        "id": name,
        "url": url,
        "version": version,
        "name": name.replace("-", "_"),
        "status": "active",
        "fhirVersion": "4.0.1",
        "kind": "complex-type",
        "abstract": False,
        "context": [{"type": "element", "expression": "Element"}],
        "type": "Extension",
        "baseDefinition": f"{_EXTENSIONS}/Extension",
        "derivation": "constraint",
        "differential": {"element": elements},
    }
