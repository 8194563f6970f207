"""The page, the signature, the origin of outputs, and the sections of attacks."""

import base64
import hashlib
import json
import re
from datetime import date, timedelta
from pathlib import Path

import pytest
from support.evidence import gold, pair_of, write_lines
from support.trails import BUILD, OTHER, SIGNER, TRUSTED, entry, trail

from deid_agent.agent.ports import AuditEntry, Coordinates, Outcome
from deid_agent.audit import first_public_key
from deid_agent.evidence import (
    EvidenceFigure,
    EvidenceReport,
    EvidenceSection,
    check_origin,
    evidence_page,
    read_feed,
    verify_report,
    write_report,
)
from deid_agent.evidence.attack_sections import absent_attacks, attack_threat_model, list_leaks, name_types
from deid_agent.evidence.signing import JSON_FILE, PAGE_FILE, SIGNATURE_FILE
from deid_agent.model import ConfigurationError

SECTION = EvidenceSection(
    "leaks",
    "Leaks <b>",
    "A method.",
    "A limit.",
    (
        EvidenceFigure("all & some", 3, 40, 0.075, 0.0157, 0.2039),
        EvidenceFigure("difference", 3, 40, -0.2, -0.3, -0.1),
        EvidenceFigure("small", 0, 0, remark="too few patients"),
        EvidenceFigure("one <script>", 1, 2, 0.5),
    ),
    ("3 of 40 leak.",),
    {"notes": 12},
)
REPORT = EvidenceReport(
    "2026-11-27T00:00:00Z", {"files": 2}, {"version": "1"}, {"seed": 1}, [SECTION, *absent_attacks("x")]
)


def write(folder: Path, signed: bool = True) -> Path:
    write_report(folder, evidence_page(REPORT), REPORT.encode(), REPORT.time, SIGNER if signed else None)
    return folder


def test_the_page_has_every_figure_and_nothing_that_runs_or_loads() -> None:
    page = evidence_page(REPORT)
    for text in ("7.5 %", "1.5 % to 20.4 %", "-20.0 %", "too few patients", "3 of 40 leak.", "A method.", "A limit."):
        assert text in page
    assert "all &amp; some" in page and "one &lt;script&gt;" in page and "Leaks &lt;b&gt;" in page
    assert not re.search(r"<script|<img|<link|<iframe|\son\w+=|javascript:|url\(|@import", page)
    assert not re.search(r"(?:src|href)=\"(?!#)", page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)

    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page, "else a browser shows the page without its style"
    assert "style=" not in page.replace("<style>", ""), "the policy allows no style in elements"
    assert "Without figures: Parrot attack, Surrogates." in page


def test_the_json_is_that_of_the_schema() -> None:
    found = json.loads(REPORT.encode())
    assert (found["schema"], found["version"]) == ("deid-agent/evidence", 1)
    assert [*found] == ["schema", "version", "time", "feed", "build", "settings", "sections"]
    assert {*found["sections"][0]} == {"id", "title", "method", "does_not_show", "findings", "facts", "figures"}
    assert found["sections"][1]["absent"] == "x"
    assert found["sections"][0]["figures"][0] == {
        "name": "all & some",
        "count": 3,
        "of": 40,
        "value": 0.075,
        "low": 0.0157,
        "high": 0.2039,
    }


def test_a_report_is_verified(tmp_path: Path) -> None:
    checked = verify_report(write(tmp_path / "r"), TRUSTED)
    assert (checked.key, checked.time, checked.faults) == (SIGNER.public, REPORT.time, ())


@pytest.mark.parametrize("name", [JSON_FILE, PAGE_FILE, SIGNATURE_FILE])
def test_each_changed_byte_is_found(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "r") / name
    data = path.read_bytes()
    for at in range(0, len(data), max(1, len(data) // 60)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        try:
            assert verify_report(path.parent, TRUSTED).faults, at
        except ConfigurationError:
            assert name == SIGNATURE_FILE
    for other in (b"", data + b"\n", data[:-1], data * 2):
        path.write_bytes(other)
        try:
            assert verify_report(path.parent, TRUSTED).faults
        except ConfigurationError:
            assert name == SIGNATURE_FILE


def test_a_file_that_was_removed_is_a_fault(tmp_path: Path) -> None:
    (write(tmp_path / "r") / JSON_FILE).unlink()
    assert verify_report(tmp_path / "r", TRUSTED).faults == ("evidence.json: is missing, or cannot be read",)


def test_the_key_of_somebody_else_is_not_trusted(tmp_path: Path) -> None:
    (fault,) = verify_report(write(tmp_path / "r"), {OTHER.public}).faults
    assert "is signed by another key" in fault


def test_a_statement_of_a_trail_does_not_sign_a_report(tmp_path: Path) -> None:
    folder = write(tmp_path / "r")
    fields = json.loads((folder / SIGNATURE_FILE).read_bytes()) | {"kind": "head"}
    del fields["signature"]
    (folder / SIGNATURE_FILE).write_bytes(SIGNER.sign(json.dumps(fields, separators=(",", ":")).encode()[:-1]) + b"}\n")
    with pytest.raises(ConfigurationError, match="is not the signature of a report"):
        verify_report(folder, TRUSTED)


def test_a_report_never_overwrites_another(tmp_path: Path) -> None:
    write(tmp_path / "r", signed=False)
    with pytest.raises(ConfigurationError, match=r"has evidence\.json already"):
        write(tmp_path / "r")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        verify_report(tmp_path / "r", TRUSTED)


def published(offset: int, output: bytes) -> AuditEntry:
    return AuditEntry(
        Coordinates("adt", 0, offset), Outcome.PUBLISHED, output_digest=hashlib.sha256(output).hexdigest()
    )


def digests(*outputs: bytes) -> list[str]:
    return [hashlib.sha256(output).hexdigest() for output in outputs]


async def test_outputs_are_those_of_the_trail(tmp_path: Path) -> None:
    log = trail(tmp_path / "audit")
    await log.append([published(0, b"a"), published(1, b"b"), entry(2)])
    await log.close()
    found = check_origin(tmp_path / "audit", digests(b"a", b"b"))
    assert found["key"] == "0badc0de"
    assert found["first_key"] == first_public_key(tmp_path / "audit"), "to be compared with the key that was kept"
    assert found["builds"] == [{**BUILD, "outputs": 2}]
    with pytest.raises(ConfigurationError, match="has no entry about 1 of 2 outputs"):
        check_origin(tmp_path / "audit", digests(b"a", b"c"))


async def test_outputs_of_two_keys_are_refused(tmp_path: Path) -> None:
    for build, output in ((BUILD, b"a"), ({**BUILD, "key": "deadbeef"}, b"b")):
        log = trail(tmp_path / "audit", build=build)
        await log.append([published(0, output)])
        await log.close()
    with pytest.raises(ConfigurationError, match=r"under 2 keys \(0badc0de, deadbeef\)"):
        check_origin(tmp_path / "audit", digests(b"a", b"b"))
    assert check_origin(tmp_path / "audit", digests(b"b"))["key"] == "deadbeef"


async def test_a_trail_that_was_changed_is_refused(tmp_path: Path) -> None:
    log = trail(tmp_path / "audit")
    await log.append([published(0, b"a")])
    await log.close()
    path = tmp_path / "audit" / "00000001.jsonl"
    one, other = digests(b"a", b"b")
    path.write_bytes(path.read_bytes().replace(one.encode(), other.encode()))
    with pytest.raises(ConfigurationError, match="audit verify"):
        check_origin(tmp_path / "audit", digests(b"b"))


def test_attacks_read_leaks_and_types_of_the_sample() -> None:
    note = gold("n", "p", "[[PATIENT|Zoltan Quibble]] seen, sister [[PATIENT|Ruth Zorn]], [[STATE|Ohio]].")
    pair = pair_of(note.annotated.text, note.annotated.text.replace("Zoltan Quibble", "Martin Harper"))
    (named,) = name_types([(note, pair), (note, pair)])
    assert [each.type for each in named.replaced] == ["PATIENT"]
    ((begin, end),) = list_leaks([(note, pair)])["n"]
    assert pair.original[begin:end] == "Ruth Zorn"


def test_a_feed_without_a_judged_attack_claims_nothing() -> None:
    """A feed of one note: each attack has too few subjects."""
    section = attack_threat_model([pair_of("Seen today.", "Seen today.")], 1)
    assert section.findings[0].startswith("None of the 9 attacks of the threat model could be judged")
    assert "beyond" not in section.findings[0]


def moved(tmp_path: Path, days: int) -> EvidenceSection:
    """Three dates of each of twelve patients, moved by days of their own, or all by ``days``."""
    rows = []
    for n in range(12):
        first, shift = date(2020, 2, 3) + timedelta(40 * n), days or 100 + 17 * n
        seen = [first + timedelta(at) for at in (0, 5, 20)]
        text = (
            "Seen {:%m/%d/%Y} for pain of the hip. Back on {:%m/%d/%Y} with nausea. Last visit {:%m/%d/%Y}, well again."
        )
        rows.append((text.format(*seen), text.format(*(day - timedelta(shift) for day in seen))))
    for name, at in (("originals", 0), ("outputs", 1)):
        lines = ({"id": f"n{n}", "text": row[at]} for n, row in enumerate(rows))
        write_lines(tmp_path / f"{name}.jsonl", lines)
    return attack_threat_model(read_feed(tmp_path / "originals.jsonl", tmp_path / "outputs.jsonl").pairs, 1)


def test_a_common_shift_is_beyond_the_bound_and_named_first(tmp_path: Path) -> None:
    assert "none is beyond its bound" in moved(tmp_path, 0).findings[0]
    section = moved(tmp_path, 100)
    assert "beyond their bound: A4 shift of another patient" in section.findings[0]
    (broken,) = [each for each in section.figures if "BEYOND" in each.remark]
    assert broken.value == 1
