"""The structural pass (bytes to sites, no recognition) against hl7apy, python-hl7 and fhir.resources, in one run.

    python tests/bench/bench_codecs.py

Best of several rounds, one core, messages of ``support/made_messages.py``. The others do less (they find no PHI)
and more (they build objects); each call is the usual first step to reach a message's fields.
"""

import importlib
import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.made_messages import bundle, hl7

from deid_agent.codec.fhir import FhirCodec
from deid_agent.codec.hl7v2 import Hl7Codec

RULES = Path(__file__).resolve().parents[2] / "rules"
SEGMENTS = (10, 50, 300)
PACKAGES = ("hl7apy", "hl7", "fhir.resources", "pydantic", "orjson")


def best(work: Callable[[], object], *, least: int = 3, seconds: float = 1.0) -> float:
    """The shortest of at least so many rounds, in milliseconds; the first warms up and does not count."""
    work()
    found, rounds, began = float("inf"), 0, time.perf_counter()
    while rounds < least or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        work()
        found, rounds = min(found, time.perf_counter() - start), rounds + 1
    return found * 1000


def others_hl7() -> dict[str, Callable[[bytes], object]]:
    """The other parsers, by name; those not installed are left out."""
    hl7apy = importlib.import_module("hl7apy.parser")
    out: dict[str, Callable[[bytes], object]] = {
        "hl7apy": lambda raw: hl7apy.parse_message(raw.decode(), validation_level=2),
        "hl7apy, flat": lambda raw: hl7apy.parse_message(raw.decode(), validation_level=2, find_groups=False),
    }
    try:
        python_hl7 = importlib.import_module("hl7")
    except ImportError:
        return out
    return {**out, "python-hl7": lambda raw: python_hl7.parse(raw.decode())}


def main() -> None:
    rows: list[tuple[str, str, float, float]] = []
    codec, others = Hl7Codec(RULES), others_hl7()
    for count in SEGMENTS:
        raw = hl7(count)
        ours = best(lambda raw=raw: codec.parse(raw))  # type: ignore[misc]
        case = f"HL7, {count} segments, {len(raw) / 1000:.0f} kB"
        rows.append((case, "deid-agent", ours, 1.0))
        for name, parse in others.items():
            took = best(lambda raw=raw, parse=parse: parse(raw))  # type: ignore[misc]
            rows.append((case, name, took, took / ours))
    raw = bundle()
    fhir = FhirCodec(RULES)
    model = importlib.import_module("fhir.resources.R4B").get_fhir_model_class("Bundle")
    read = model.model_validate_json(raw)
    ours = best(lambda: fhir.parse(raw))
    case = f"Bundle, {len(raw) / 1000:.0f} kB, {len(json.loads(raw)['entry'])} resources"
    rows.append((case, "deid-agent", ours, 1.0))
    for name, work in {
        "fhir.resources, validate": lambda: model.model_validate_json(raw),
        "fhir.resources, validate and dump": lambda: model.model_validate_json(raw).model_dump_json(),
    }.items():
        took = best(work)
        rows.append((case, name, took, took / ours))
    assert read is not None
    _print(rows)


def _print(rows: list[tuple[str, str, float, float]]) -> None:
    write = sys.stdout.write
    write("| message | parser | ms | times ours |\n|---|---|---|---|\n")
    for case, name, took, times in rows:
        write(f"| {case} | {name} | {took:.2f} | {times:.0f} |\n")
    write(f"\nPython {platform.python_version()}, {platform.machine()}; " + ", ".join(map(_versioned, PACKAGES)) + "\n")


def _versioned(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"


if __name__ == "__main__":
    main()
