"""``deid-agent crosswalk`` over damaged, erased and forged lines: each is named, and the others open."""

import asyncio
import re
from pathlib import Path

from support.crosswalk_site import BUNDLE, Site
from support.projects import adt

from deid_agent.agent import (
    KeyUse,
    PairSealer,
    load_public_key,
)
from deid_agent.audit import (
    CROSSWALK_BUILD,
    AuditTrail,
    CrosswalkTrail,
    LineKind,
    Signer,
    TrailSettings,
    read_entries,
)
from deid_agent.cli.crosswalk_steps import MOST_SHOWN
from deid_agent.telemetry import Telemetry


def test_a_flipped_byte_is_named_and_stops_the_opening(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.run(a=adt(1), b=BUNDLE).exit_code == 0
    codes, path = site.codes(), tmp_path / "crosswalk" / "00000001.jsonl"
    whole = path.read_bytes()
    at = whole.index(b'"sealed":"') + 40
    line = whole[:at].count(b"\n") + 1
    path.write_bytes(whole[:at] + (b"A" if whole[at : at + 1] != b"A" else b"B") + whole[at + 1 :])
    verified = site.call("crosswalk", "verify", str(tmp_path / "crosswalk"), "--key-file", str(tmp_path / "key"))
    assert verified.exit_code == 1 and f"00000001.jsonl:{line}: CHAIN" in verified.stdout
    refused = site.open("crosswalk", "trust", "half", codes=codes)
    assert refused.exit_code == 2 and f"00000001.jsonl:{line}: CHAIN" in refused.stderr
    # The other records can be opened all the same, if two persons insist.
    forced = site.open("crosswalk", "trust", "half", "--unverified")
    assert forced.exit_code == 1 and f"00000001.jsonl:{line}: it is damaged" in forced.stderr
    done = site.open("half", "privacy", "originals")
    assert done.exit_code == 1
    assert 1 <= len({row["code"] for row in site.rows("originals") if "original" in row}) < len(codes)
    (opening,) = read_entries(tmp_path / "privacy.openings", kind=LineKind.OPENING)
    assert opening["verified"] is False
    assert site.run(c=adt(2)).exit_code == 2, "an agent does not continue a crosswalk that was changed"
    # A flipped byte in the half-opened file.
    (tmp_path / "originals").unlink()
    half = (tmp_path / "half").read_bytes()
    at = half.rindex(b'"sealed":"') + 60
    (tmp_path / "half").write_bytes(half[:at] + (b"A" if half[at : at + 1] != b"A" else b"B") + half[at + 1 :])
    broken = site.open("half", "privacy", "originals")
    assert broken.exit_code == 1 and re.search(r"half:\d: it is damaged", broken.stderr)


def test_after_erasing_a_segment_the_others_open(tmp_path: Path) -> None:
    site = Site(tmp_path)
    text = site.file.read_text()
    for name, data in (("a", adt(1)), ("b", adt(2))):
        # Another set of keys begins a segment.
        site.file.write_text(text if name == "a" else text.replace("privacy.pub", "third.pub"))
        assert site.run(**{name: data}).exit_code == 0
    first, second = sorted((tmp_path / "crosswalk").glob("*.jsonl"))
    first.unlink()
    done = site.open("crosswalk", "trust", "half", codes=site.codes())
    assert done.exit_code == 1 and "SEGMENT: missing: 00000001.jsonl" in done.stderr
    assert "1 of 2 codes not found" in done.stderr and "1 code in 1 record, half-opened" in done.stdout
    words = ("--key-file", str(tmp_path / "key"), "--audit", str(tmp_path / "audit"))
    verified = site.call("crosswalk", "verify", str(tmp_path / "crosswalk"), *words)
    assert verified.exit_code == 1 and "1 older than it, 0 missing" in verified.stdout
    assert site.run(c=adt(3)).exit_code == 0
    assert second.stat().st_size > 0


async def test_two_lines_of_a_record_are_one_and_a_forged_one_is_named(tmp_path: Path) -> None:
    site = Site(tmp_path)
    sealer = PairSealer(
        tuple(load_public_key(tmp_path / name, "x", KeyUse.CROSSWALK) for name in ("trust.pub", "privacy.pub"))
    )
    build = {CROSSWALK_BUILD: {"project": "default", "generation": 0, "seal_to": list(sealer.ids)}}
    limits = TrailSettings(kind=LineKind.CROSSWALK, return_lines=False)
    trail = AuditTrail(tmp_path / "crosswalk", build, Signer(bytes(32)), Telemetry(), limits)
    log = CrosswalkTrail(trail, "default", 0)
    own = ("Patient.id", "patient-1", "A" * 20)
    await log.append([("a" * 32, sealer.seal([own], at)) for at in (1.0, 2.0)])
    forged = [own, ("Patient.id", "patient-2", "B" * 20), ("Patient.id", "patient-3", "B" * 20)]
    await log.append([("b" * 32, sealer.seal(forged[1:], 3.0))])
    await log.close()
    codes = [own[2], forged[1][2]]
    for count, exit_code in ((1, 0), (2, 1)):
        for source, key, out in (("crosswalk", "trust", f"half{count}"), (f"half{count}", "privacy", f"out{count}")):
            done = await asyncio.to_thread(site.open, source, key, out, codes=codes[:count])
        assert done.exit_code == exit_code, done.output
        assert f"{count} code{'s' if count > 1 else ''} in {count} record{'s' if count > 1 else ''}" in done.stdout
    assert [row["original"] for row in site.rows("out2")] == ["patient-1", "patient-2", "patient-3"]
    assert "1 code with more than one original: a line is forged" in done.stderr


def test_many_problems_are_printed_in_part(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.run(**{f"m{number}": adt(number) for number in range(MOST_SHOWN + 5)}).exit_code == 0
    codes = site.codes()
    assert len(codes) == MOST_SHOWN + 5
    path = tmp_path / "crosswalk" / "00000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"sealed":"', b'"sealed":"AAAA'))
    done = site.open("crosswalk", "trust", "half", "--unverified", codes=codes)
    assert done.exit_code == 1 and "and 5 more problems" in done.stderr
    assert "nothing was opened" in done.stderr
