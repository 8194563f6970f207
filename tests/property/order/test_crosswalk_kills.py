"""An agent with a crosswalk is killed at any point: no code leaves of which the crosswalk has no line."""

import multiprocessing
import random
import re
import time
from pathlib import Path

from support.crosswalk_agent import CUSTODIANS, SIGNER, fill, run
from support.projects import adt

from deid_agent.audit import (
    LineKind,
    compare_with_audit,
    find_records,
    half_open,
    open_pairs,
    read_entries,
    verify_trail,
)

KILLS, MORE = 22, 6
CODE = re.compile(rb"\|([0-9A-V]{20})\|")


def published(root: Path) -> dict[str, str]:
    """The link code of each output."""
    found = {}
    for path in (root / "out").glob("[!.]*") if (root / "out").exists() else ():
        (code,) = CODE.findall(path.read_bytes())
        found[path.name] = code.decode()
    return found


def check(root: Path, codes: dict[str, str]) -> None:
    lines = list(read_entries(root / "crosswalk", kind=LineKind.CROSSWALK)) if codes else []
    kept = {code for line in lines for code in line["codes"]}  # type: ignore[attr-defined]
    assert set(codes.values()) <= kept, "a code left that leads nowhere"


def test_each_published_code_has_a_line_whenever_the_agent_is_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["support.crosswalk_agent"])
    chance, killed, filled, codes = random.Random(1), 0, 0, dict[str, str]()
    for _ in range(5 * KILLS):
        if killed < KILLS:
            fill(tmp_path, filled, MORE)
            filled += MORE
        process = context.Process(target=run, args=(str(tmp_path),))
        process.start()
        goal = len(codes) + chance.randint(1, MORE // 2)
        while killed < KILLS and process.is_alive():
            if len(published(tmp_path)) >= goal:
                time.sleep(chance.random() * 0.01)
                process.kill()
                killed += 1
                break
            time.sleep(0.002)
        process.join(60)
        codes = published(tmp_path)
        check(tmp_path, codes)
        if killed == KILLS and process.exitcode == 0:
            break
    assert killed == KILLS and len(codes) == filled
    for name in ("audit", "crosswalk"):
        report = verify_trail(tmp_path / name, {SIGNER.public})
        assert (report.faults, report.warnings) == ([], []), name
    coverage = compare_with_audit(tmp_path / "crosswalk", [tmp_path / "audit"])
    assert coverage.covered >= filled and not coverage.missing and not coverage.before
    # Both custodians open every code, also those of records that were processed twice.
    wanted, found = frozenset(codes.values()), dict[str, set[str]]()
    for record in find_records([tmp_path / "crosswalk"], wanted):
        for row in open_pairs(half_open(record, CUSTODIANS[0]), CUSTODIANS[1], wanted):
            found.setdefault(str(row["code"]), set()).add(str(row["original"]))
    originals = {adt(number).decode().split("|")[9] for number in range(filled)}
    assert found.keys() == wanted and all(len(each) == 1 for each in found.values())
    assert {original for each in found.values() for original in each} == originals
