"""Surrogates per second on one core, cold and warm, and the memory that the caches take.

    python tests/bench/bench_surrogates.py

Cold: every value is new. Warm: the values of a feed come again, as patients and sites do.
"""

import platform
import sys
import time
import tracemalloc

from deid_agent.model.phi import PhiType
from deid_agent.model.sites import ValueKind
from deid_agent.surrogate import Scope, Surrogates

Item = tuple[PhiType, str, ValueKind, Scope]


def feed(patients: int) -> list[Item]:
    """The identifiers of one admission message, for each of many patients."""
    out: list[Item] = []
    for n in range(patients):
        scope = Scope(f"M{n}", f"P{n}")
        out += [
            (PhiType.PATIENT, f"OKAFOR{n % 97}", ValueKind.FAMILY, scope),
            (PhiType.PATIENT, "Ada Marie", ValueKind.GIVEN, scope),
            (PhiType.DOCTOR, "Nisar, Robert K.", ValueKind.NAME, scope),
            (PhiType.MEDICALRECORD, f"{4_000_000 + n}", ValueKind.VALUE, scope),
            (PhiType.ACCOUNT, f"V{10_000_000 + n}", ValueKind.VALUE, scope),
            (PhiType.DATE, "19620308", ValueKind.VALUE, scope),
            (PhiType.DATE, "20240224134009+0100", ValueKind.VALUE, scope),
            (PhiType.DATE, "March 4th", ValueKind.VALUE, scope),
            (PhiType.STREET, f"{n % 900 + 1} Land's End Rd", ValueKind.VALUE, scope),
            (PhiType.CITY, "Saint Paul", ValueKind.VALUE, scope),
            (PhiType.ZIP, "55106", ValueKind.VALUE, scope),
            (PhiType.PHONE, f"(617) 253-{n % 9000 + 1000}", ValueKind.VALUE, scope),
            (PhiType.HOSPITAL, "Roper Hospital", ValueKind.VALUE, scope),
        ]
    return out


def rate(made: Surrogates, items: list[Item]) -> float:
    begin = time.perf_counter()
    for type_, value, kind, scope in items:
        made.replace(type_, value, kind=kind, scope=scope)
    return len(items) / (time.perf_counter() - begin)


def main() -> None:
    made = Surrogates(b"the secret of the benchmark alone")
    items = feed(4_000)
    cold, warm = rate(made, items), rate(made, items)
    tracemalloc.start()
    for at in range(4_000, 40_000, 4_000):
        rate(made, [(t, v, k, Scope(f"{s.document}.{at}", f"{s.patient}.{at}")) for t, v, k, s in feed(4_000)])
    grown = tracemalloc.get_traced_memory()[0] / 2**20
    sys.stdout.write(
        f"{platform.python_version()} {platform.machine()}: {cold:,.0f}/s cold, {warm:,.0f}/s warm, "
        f"{grown:.0f} MiB in caches after {10 * len(items):,} values\n"
    )


if __name__ == "__main__":
    main()
